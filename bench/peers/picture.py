"""Draws a run: a panel per row, a bar per loader up to its median, a whisker over its rounds.

    bench/peers/picture.py PEERS.JSON ROW...       writes those rows of a recorded run to standard output, narrow and without targets
"""

import dataclasses
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import svg  # noqa: E402

BAR, GAP, FOOT = 13, 5, 26
OURS, PEER, LEVEL = svg.COLOURS[0], svg.COLOURS[7], svg.COLOURS[1]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Pixels left of, for, right of and above the bars; whether to draw targets; approximate number of axis marks."""

    left: int
    bars: int
    right: int
    head: int
    targets: bool
    marks: int

    @property
    def width(self):
        return self.left + self.bars + self.right


FULL = Layout(left=260, bars=440, right=110, head=46, targets=True, marks=5)
NARROW = Layout(left=152, bars=230, right=68, head=32, targets=False, marks=4)  # legible on a phone


def target_rate(row):
    """Returns the images/s that the target against the best peer requires, or None."""
    for target in row["targets"]:
        if target["what"] == "best peer" and "against" in target:
            best = max(r["median"] for r in row["loaders"].values() if r.get("peer") and "median" in r)
            return target["at_least"], best * target["at_least"]
    return None


def panel(page, row, y, form):
    results = list(row["loaders"].values())
    asked = target_rate(row) if form.targets else None
    marks = svg.ticks(max([r.get("max", 0) for r in results] + [asked[1] if asked else 0, 1]), form.marks)
    scale = form.bars / marks[-1]
    bottom = y + form.head + len(results) * (BAR + GAP)
    page.text(12, y + 16, row["title"], size=14, more=' font-weight="bold"')
    for mark in marks:
        page.line(form.left + mark * scale, y + form.head - 4, form.left + mark * scale, bottom, "#dddddd")
        page.text(form.left + mark * scale, bottom + 12, f"{mark:,.0f}", "middle", 10)
    for i, result in enumerate(results):
        top = y + form.head + i * (BAR + GAP)
        middle = top + BAR / 2
        page.text(form.left - 8, middle + 4, result["name"], "end")
        if "median" not in result:
            page.text(form.left + 4, middle + 4, "not measured", size=10, colour="#666666")
            continue
        page.rect(form.left, top, result["median"] * scale, BAR, PEER if result.get("peer") else OURS)
        page.line(form.left + result["min"] * scale, middle, form.left + result["max"] * scale, middle, "#000000", 1.5)
        page.text(form.left + result["max"] * scale + 6, middle + 4, f"{result['median']:,.0f}", size=11)
    if asked:
        x = form.left + asked[1] * scale
        page.line(x, y + form.head - 8, x, bottom, LEVEL, 1.5, "5,3")
        page.text(x, y + form.head - 10, f"{asked[0]:g} x best peer", "middle", 10, LEVEL)
    return bottom + FOOT


def draw(machine, rows, form=FULL):
    rows = [row for row in rows if row["loaders"]]
    heights = [form.head + len(row["loaders"]) * (BAR + GAP) + FOOT for row in rows]
    page = svg.Page(form.width, 30 + sum(heights))
    page.text(12, 20, f"images/s; {machine['cpu']}, {machine['isa']}, {machine['cores_used']} cores", colour="#444444")
    y = 30
    for row in rows:
        y = panel(page, row, y, form)
    return str(page)


def draw_recorded(path, names):
    """Draws these rows of a recorded run in this order. Titles omit batch size and number of workers, which all rows share."""
    run = json.loads(pathlib.Path(path).read_text())
    rows = {row["name"]: row for row in run["rows"]}
    return draw(run["machine"], [{**rows[name], "title": rows[name]["title"].split(", batch ")[0]} for name in names], NARROW)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    print(draw_recorded(sys.argv[1], sys.argv[2:]), end="")
