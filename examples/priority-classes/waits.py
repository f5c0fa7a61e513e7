"""Computes waiting times from the records, at every moment and in total."""

import statistics

SAMPLE_SECONDS = 0.25


def ages(orders, name, seconds):
    """Returns for each moment the longest time that a waiting order of the class has waited; nothing if none waits."""
    own = [order for order in orders if order["class"] == name]
    return [(moment, age(own, moment)) for moment in moments(seconds)]


def moments(seconds):
    return [number * SAMPLE_SECONDS for number in range(int(seconds / SAMPLE_SECONDS) + 1)]


def age(orders, moment):
    waiting = (order["came"] for order in orders if order["came"] <= moment < begun(order, float("inf")))
    return moment - min(waiting, default=moment)


def waits(orders, name, seconds):
    """Returns the waits of all orders. An order that still waits at the end counts with its wait so far; otherwise the
    longest waits would be omitted.
    """
    return [begun(order, seconds) - order["came"] for order in orders if order["class"] == name]


def begun(order, otherwise):
    return otherwise if order["began"] is None else order["began"]


def done(orders, name):
    return sum(1 for order in orders if order["class"] == name and order["began"] is not None)


def percentile(values, percent):
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def table(runs, names, seconds):
    rows = [f"{'policy':<10}{'class':<8}{'came':>6}{'begun':>7}{'p50':>9}{'p99':>9}{'worst':>9}"]
    for policy, orders in runs.items():
        for name in names:
            waited = waits(orders, name, seconds)
            spans = [percentile(waited, 50), percentile(waited, 99), max(waited)]
            times = "".join(f"{span:>7.2f} s" for span in spans)
            rows.append(f"{policy:<10}{name:<8}{len(waited):>6}{done(orders, name):>7}{times}")
    return "\n".join(rows)
