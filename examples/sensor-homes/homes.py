"""The homes and the values of their sensors. Values are a function of home, kind and report, so that the expected sums
can be computed.
"""

PARTITION_COUNT = 16
# Every home has the first two kinds, every third home the next, every tenth the last.
KINDS = {"temperature": 1, "power": 1, "humidity": 3, "water": 10}
REPORTS_PER_MINUTE = 2
MINUTE_COUNT = 2
REPORT_COUNT = REPORTS_PER_MINUTE * MINUTE_COUNT
# The number of homes of one street, whose readings one device collects and sends together.
HOMES_PER_STREET = 100


def streets(home_count):
    """Returns the name of each street, and its homes."""
    for first in range(0, home_count, HOMES_PER_STREET):
        yield f"street-{first // HOMES_PER_STREET:05}", range(first, min(first + HOMES_PER_STREET, home_count))


def name(home):
    return f"home-{home:06}"


def minute_of(report):
    return report // REPORTS_PER_MINUTE


def readings(home, report):
    return {kind: value(home, report, number) for number, (kind, every) in enumerate(KINDS.items()) if home % every == 0}


def value(home, report, kind_number):
    return (home * 7919 + report * 104_729 + kind_number * 31) % 1000
