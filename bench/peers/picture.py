"""A run as a picture: a panel per row, a bar per loader from nothing to its median, a whisker over its rounds."""

import sys
import pathlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import svg  # noqa: E402

LEFT, BARS, RIGHT = 260, 440, 110
BAR, GAP, HEAD, FOOT = 13, 5, 46, 26
OURS, PEER, LEVEL = svg.COLOURS[0], svg.COLOURS[7], svg.COLOURS[1]


def level(row):
    """images/s that the target against the best peer asks for, or None."""
    for target in row["targets"]:
        if target["what"] == "best peer" and "against" in target:
            best = max(r["median"] for r in row["loaders"].values() if r.get("peer") and "median" in r)
            return target["at_least"], best * target["at_least"]
    return None


def panel(page, row, y):
    results = list(row["loaders"].values())
    asked = level(row)
    marks = svg.ticks(max([r.get("max", 0) for r in results] + [asked[1] if asked else 0, 1]))
    scale = BARS / marks[-1]
    bottom = y + HEAD + len(results) * (BAR + GAP)
    page.text(12, y + 16, row["title"], size=14, more=' font-weight="bold"')
    for mark in marks:
        page.line(LEFT + mark * scale, y + HEAD - 4, LEFT + mark * scale, bottom, "#dddddd")
        page.text(LEFT + mark * scale, bottom + 12, f"{mark:,.0f}", "middle", 10)
    for i, result in enumerate(results):
        top = y + HEAD + i * (BAR + GAP)
        middle = top + BAR / 2
        page.text(LEFT - 8, middle + 4, result["name"], "end")
        if "median" not in result:
            page.text(LEFT + 4, middle + 4, "not measured", size=10, colour="#666666")
            continue
        page.rect(LEFT, top, result["median"] * scale, BAR, PEER if result.get("peer") else OURS)
        page.line(LEFT + result["min"] * scale, middle, LEFT + result["max"] * scale, middle, "#000000", 1.5)
        page.text(LEFT + result["max"] * scale + 6, middle + 4, f"{result['median']:,.0f}", size=11)
    if asked:
        x = LEFT + asked[1] * scale
        page.line(x, y + HEAD - 8, x, bottom, LEVEL, 1.5, "5,3")
        page.text(x, y + HEAD - 10, f"{asked[0]:g} x best peer", "middle", 10, LEVEL)
    return bottom + FOOT


def draw(machine, rows):
    rows = [row for row in rows if row["loaders"]]
    heights = [HEAD + len(row["loaders"]) * (BAR + GAP) + FOOT for row in rows]
    page = svg.Page(LEFT + BARS + RIGHT, 30 + sum(heights))
    page.text(12, 20, f"images/s; {machine['cpu']}, {machine['isa']}, {machine['cores_used']} cores", colour="#444444")
    y = 30
    for row in rows:
        y = panel(page, row, y)
    return str(page)
