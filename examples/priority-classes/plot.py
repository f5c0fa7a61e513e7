"""Draws the waiting times of each class, one panel per policy, all with the same axes. Plain SVG, so that nothing has
to be installed.

`python plot.py waits.json waits.svg` draws the records of a story again.
"""

import json
import math
import sys
from xml.sax.saxutils import escape

from broker import PRIORITIES, offset
from load import CAPACITY_PER_SECOND, MIX
from waits import ages

# The colours are distinguishable with colour blindness. The widths differ for lines that overlap: low is broad at the
# back, high is narrow in front.
COLOURS = {"high": "#c2410c", "normal": "#2563eb", "low": "#0d9488"}
WIDTHS = {"high": 1.8, "normal": 3, "low": 4.6}
INK, MUTED, GRID, PANEL, PAPER = "#1f2937", "#64748b", "#e2e8f0", "#f8fafc", "#ffffff"
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"

WIDTH, HEIGHT, MARGIN = 960, 712, 28
PANEL_WIDTH, PANEL_HEIGHT = 330, 196
LEFTS, TOPS = (66, 536), (168, 440)
LABEL_GAP = 17

SAYS = {
    "fifo": "who came first; all classes suffer alike",
    "strict": "the most urgent class, always; low starves",
    "aged": "urgency grows with waiting; low lags by its offset at most",
    "weighted": "shares 6 : 3 : 1; low and normal divide what high leaves",
}


def draw(runs, seconds):
    curves = {policy: {name: ages(orders, name, seconds) for name in PRIORITIES} for policy, orders in runs.items()}
    top = nice_top(max(age for lines in curves.values() for curve in lines.values() for _, age in curve))
    places = [(left, upper) for upper in TOPS for left in LEFTS]
    panels = [Panel(*place, seconds, top).draw(policy, lines) for place, (policy, lines) in zip(places, curves.items())]
    return "\n".join([*head(), *panels, *foot(), "</svg>", ""])


class Panel:
    def __init__(self, left, upper, seconds, top):
        self.left, self.upper, self.seconds, self.top = left, upper, seconds, top

    def x(self, moment):
        return self.left + PANEL_WIDTH * moment / self.seconds

    def y(self, age):
        return self.upper + PANEL_HEIGHT * (1 - age / self.top)

    def draw(self, policy, lines):
        words = [
            text(self.left, self.upper - 27, policy, size=17, weight=700),
            text(self.left, self.upper - 9, SAYS.get(policy, ""), size=12.5, colour=MUTED),
        ]
        # The least urgent first: the other lines are drawn over it.
        curves = [self.line(name, lines[name]) for name in reversed(PRIORITIES)]
        bound = self.bound(lines["high"]) if policy == "aged" else []
        parts = [*words, *self.axes(), *curves, *bound, *self.labels(lines)]
        return "\n".join([f'<g aria-label="{policy}">', *parts, "</g>"])

    def bound(self, high):
        """Draws the limit that aging guarantees for low."""
        behind = offset("low", self.seconds) - offset("high", self.seconds)
        points = self.points([(moment, age + behind) for moment, age in high])
        yield f'<polyline points="{points}" fill="none" stroke="{INK}" stroke-width="1.3" stroke-dasharray="2 4"/>'
        words = f"the promise to low: high + {behind:.3g} s"
        yield text(self.left + 8, self.y(behind) - 15, words, size=11.5, colour=MUTED)

    def axes(self):
        yield f'<rect x="{self.left}" y="{self.upper}" width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}" fill="{PANEL}"/>'
        for age in steps(self.top, 5):
            height = self.y(age)
            colour = MUTED if age == 0 else GRID
            yield f'<path d="M{self.left} {height:.1f}h{PANEL_WIDTH}" stroke="{colour}"/>'
            yield text(self.left - 8, height + 4, f"{age:g} s" if age else "0", size=11.5, colour=MUTED, anchor="end")
        for moment in steps(self.seconds, 4):
            place, base = self.x(moment), self.upper + PANEL_HEIGHT
            yield f'<path d="M{place:.1f} {base}v5" stroke="{MUTED}"/>'
            yield text(place, base + 19, f"{moment:g} s" if moment else "0", size=11.5, colour=MUTED, anchor="middle")

    def points(self, curve):
        return " ".join(f"{self.x(moment):.1f},{self.y(age):.1f}" for moment, age in curve)

    def line(self, name, curve):
        style = f'stroke="{COLOURS[name]}" stroke-width="{WIDTHS[name]}" stroke-linejoin="round" stroke-linecap="round"'
        return f'<polyline points="{self.points(curve)}" fill="none" {style}/>'

    def labels(self, lines):
        """Draws the class and its final waiting time at the end of each line."""
        ends = sorted((self.y(last(curve)), place, name) for place, (name, curve) in enumerate(lines.items()))
        heights = spread([height for height, _, _ in ends], self.upper + PANEL_HEIGHT)
        for height, (_, _, name) in zip(heights, ends):
            words = f"{name} {last(lines[name]):.0f} s"
            yield text(self.left + PANEL_WIDTH + 9, height + 4, words, size=12.5, weight=600, colour=COLOURS[name])


def spread(heights, floor):
    """Returns the heights from the top down. Heights that are too close are moved apart around their middle, but not
    below the floor.
    """
    groups = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and placed(groups[-1], floor)[0] - placed(groups[-2], floor)[-1] < LABEL_GAP:
            groups[-2:] = [groups[-2] + groups[-1]]
    return [height for group in groups for height in placed(group, floor)]


def placed(group, floor):
    span = LABEL_GAP * (len(group) - 1)
    first = min(sum(group) / len(group) - span / 2, floor - span)
    return [first + LABEL_GAP * place for place in range(len(group))]


def head():
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="{FONT}" role="img">'
    yield "<title>How long each class waits at 120 % load, under four policies</title>"
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" rx="12" fill="{PAPER}"/>'
    yield text(MARGIN, 46, "Too much work: who waits?", size=24, weight=700)
    load = sum(MIX.values()) / CAPACITY_PER_SECOND
    caption = f"The same orders, {load * 100:.0f} % of what the workers can do, to four queues that differ only in their policy."
    yield text(MARGIN, 72, caption, size=14, colour=MUTED)
    yield from legend()


def legend():
    left = MARGIN
    for name, count in MIX.items():
        yield f'<path d="M{left} 97h22" stroke="{COLOURS[name]}" stroke-width="{WIDTHS[name]}" stroke-linecap="round"/>'
        yield text(left + 31, 101.5, f"{name}, {count} per second", size=13)
        left += 192
    yield text(left, 101.5, f"the workers of each queue do {CAPACITY_PER_SECOND:.0f} per second", size=13, colour=MUTED)


def foot():
    caption = "Across: time since the first order came. Up: how long the order that waits longest, of each class, has waited by then."
    yield text(MARGIN, HEIGHT - 26, caption, size=12.5, colour=MUTED)


def last(curve):
    return curve[-1][1]


def text(x, y, words, size, colour=INK, weight=400, anchor="start"):
    style = f'font-size="{size}" font-weight="{weight}" fill="{colour}" text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>'


def steps(top, count):
    """Returns approximately `count` round marks from zero to the top."""
    step = nice(top / count)
    return [number * step for number in range(int(top / step + 1e-9) + 1)]


def nice(value):
    """Returns the round number at or above the value: 1, 2, 5, 10, 20, …"""
    unit = 10 ** math.floor(math.log10(value))
    return next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= value * 0.999)


def nice_top(value):
    step = nice(max(value, 1) / 5)
    return step * math.ceil(value / step)


if __name__ == "__main__":
    source, target = sys.argv[1:]
    with open(source) as noted:
        story = json.load(noted)
    with open(target, "w") as plot:
        plot.write(draw(story["runs"], story["seconds"]))
