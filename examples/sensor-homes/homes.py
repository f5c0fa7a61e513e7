"""The homes and what their sensors read. Values follow from home, kind and report, so that anybody can tell what the sums must be."""

PARTITION_COUNT = 16
# Every home has the first two, every third the next, every tenth the last.
KINDS = {"temperature": 1, "power": 1, "humidity": 3, "water": 10}
REPORTS_PER_MINUTE = 2
MINUTE_COUNT = 2
REPORT_COUNT = REPORTS_PER_MINUTE * MINUTE_COUNT
# One box in the street collects for so many homes and sends for all of them at once.
HOMES_PER_STREET = 100


def streets(home_count):
    """Name of each street, and its homes."""
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
