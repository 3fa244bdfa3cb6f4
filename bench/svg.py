"""Writes SVG for the pictures of bench/: shapes and text on a white page, ticks at round numbers."""

import math
from xml.sax.saxutils import escape

# Colours that colour-blind readers can tell apart (Okabe and Ito, 2008).
COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"]


class Page:
    def __init__(self, width, height):
        self.width, self.height, self.parts = width, height, []

    def text(self, x, y, text, anchor="start", size=12, colour="#000000", more=""):
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"{more}>{escape(text)}</text>'
        )

    def line(self, x1, y1, x2, y2, colour="#000000", width=1, dash=None):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"{dashes}/>'
        )

    def rect(self, x, y, width, height, colour):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>')

    def polyline(self, points, colour, width=2):
        coordinates = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="{width}" points="{coordinates}"/>')

    def circle(self, x, y, radius, colour, title=None):
        inside = f"<title>{escape(title)}</title>" if title else ""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{colour}">{inside}</circle>')

    def __str__(self):
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
                f'viewBox="0 0 {self.width} {self.height}" font-family="sans-serif">',
                '<rect width="100%" height="100%" fill="#ffffff"/>',
                *self.parts,
                "</svg>\n",
            ]
        )


def ticks(top, count=5):
    """Returns about `count` round numbers, from 0 to the first one that is at least `top`."""
    step = top / count
    unit = 10 ** math.floor(math.log10(step)) if step > 0 else 1
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= step * 0.999)
    return [step * i for i in range(math.ceil(top / step - 1e-9) + 1)]
