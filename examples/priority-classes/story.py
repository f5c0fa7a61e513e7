"""Compares the waits of three classes of orders under overload with four policies: fifo, strict, aged, weighted.

Starts a broker, gives all four queues the same orders and the same workers, prints and draws the waiting times of each
class, and checks the guarantees of each policy. Needs `peeklock` and `pip install azure-servicebus`.
"""

import argparse
import asyncio
import json
import pathlib
import shutil
import statistics

from broker import POLICIES, PRIORITIES, broker, offset
from load import CAPACITY_PER_SECOND, MIX, run
from plot import draw
from waits import ages, done, percentile, table, waits


def tell_the_story(program, seconds, folder):
    print("A broker with four queues, each with three classes:")
    with broker(program, seconds) as connection_string:
        load = sum(MIX.values()) / CAPACITY_PER_SECOND
        print(f"For {seconds} s, {sum(MIX.values())} orders come to each queue every second: {load * 100:.0f} % of what its workers can do.")
        runs = asyncio.run(run(connection_string, POLICIES, seconds))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "waits.json").write_text(json.dumps({"seconds": seconds, "runs": runs}))
    (folder / "waits.svg").write_text(draw(runs, seconds))
    print(table(runs, PRIORITIES, seconds))
    check(runs, seconds)
    print(f"Drawn in {folder / 'waits.svg'}.")


def check(runs, seconds):
    """Checks each policy by comparing waits of the same minute. A busy machine makes all of them longer."""
    check_fifo(runs["fifo"], seconds)
    check_strict(runs["strict"], seconds)
    check_aged(runs["aged"], runs["strict"], seconds)
    check_weighted(runs["weighted"], runs["strict"], seconds)


def check_fifo(orders, seconds):
    typical = [statistics.median(waits(orders, name, seconds)) for name in PRIORITIES]
    assert max(typical) < 2 * min(typical), f"under fifo the classes waited {typical} s"
    print("fifo: all classes wait alike, and longer and longer.")


def check_strict(orders, seconds):
    high, low = (waits(orders, name, seconds) for name in ("high", "low"))
    ends = dict(ages(orders, "low", seconds))
    assert percentile(high, 75) < ends[seconds] / 4, f"under strict, a quarter of high waited more than {percentile(high, 75):.2f} s"
    assert ends[seconds] > ends[seconds / 2] > seconds / 5, "under strict, low did not starve"
    print(f"strict: high hardly waits; low waits longer and longer, {ends[seconds]:.1f} s at the end.")


def check_aged(orders, strict, seconds):
    """Checks that low waits no longer than high plus the offset between them. A sample is never exact, but it must be
    closer to this bound than to the wait of low under strict, which has no bound.
    """
    bound = offset("low", seconds) - offset("high", seconds)
    worst, starving = (longest_lead(run, seconds) for run in (orders, strict))
    assert worst < (bound + starving) / 2, f"under aged, low waited {worst:.2f} s longer than high, under strict {starving:.2f} s"
    print(f"aged: low never waits more than {worst:.1f} s longer than high; its offset is {bound:.1f} s.")


def longest_lead(orders, seconds):
    """Returns the largest difference between the ages of low and high at the same moment."""
    pairs = zip(ages(orders, "high", seconds), ages(orders, "low", seconds))
    return max(low - high for (_, high), (_, low) in pairs)


def check_weighted(orders, strict, seconds):
    counts = {name: done(orders, name) for name in PRIORITIES}
    # High arrives at less than its share, so the other two divide the rest, three to one.
    share = counts["low"] / (counts["low"] + counts["normal"])
    assert 0.15 < share < 0.35, f"under weighted, low got {share:.0%} of the orders of low and normal"
    assert counts["low"] > done(strict, "low"), "low got no more than under strict"
    print(f"weighted: of what high leaves, low gets {share:.0%} and normal the rest, as their weights say.")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--peeklock", default="peeklock", help="the program, if it is not on the path")
    options.add_argument("--seconds", type=int, default=60, help="how long orders come")
    options.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."), help="where to put the plot and what it shows")
    given = options.parse_args()
    program = shutil.which(given.peeklock) or options.error(f"there is no program {given.peeklock}; name it with --peeklock PATH")
    tell_the_story(str(pathlib.Path(program).absolute()), given.seconds, given.out)
