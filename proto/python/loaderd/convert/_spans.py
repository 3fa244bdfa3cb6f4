"""Pixels of objects as spans in column-major order, from COCO's run lengths and polygons, and the mask in which each object has its number.

A span is (begin, end) of indices x * height + y. Results are those of pycocotools (https://github.com/cocodataset/cocoapi/blob/master/common/maskApi.c).
"""

from array import array
from typing import Any, Dict, Iterable, List, Sequence, Set, Tuple

Spans = List[Tuple[int, int]]

PIXELS_MAX = 1 << 30
_DIGIT, _ZERO, _BITS = 0x1F, ord("0"), 5  # a character of compressed counts is 5 bits, least significant first, and bit 5 if more follow, plus 48
_MORE, _SIGN = 0x20, 0x10
_DIGITS_MAX = 7  # of a number up to PIXELS_MAX, with its sign
_NOTE = (
    "instances has the number of an object in each pixel, 0 for none, and instance that of each box, 0 for an object without a mask; "
    "a pixel of several objects is that of the smallest, and crowds lie below all others"
)
_SCALE = 5  # vertices of polygons are rounded to 1/5 pixel
_CENTRE = 2  # of a pixel, in these units


def _decompress(text: str) -> List[int]:
    """The counts of a string: the first three as they are, each later one as its difference from that two before."""
    counts: List[int] = []
    number = digits = 0
    for position, character in enumerate(text):
        code = ord(character) - _ZERO
        if not 0 <= code <= _DIGIT + _MORE:
            raise ValueError(f"character {position} of counts is {character!r}; those of compressed counts are '0' to 'o', and a list has whole numbers")
        number |= (code & _DIGIT) << _BITS * digits
        digits += 1
        if code & _MORE:
            if digits >= _DIGITS_MAX:
                raise ValueError(f"the number in counts that ends after character {position} has more than {_DIGITS_MAX} digits: the string is damaged")
            continue
        if code & _SIGN:
            number -= 1 << _BITS * digits
        counts.append(number + counts[-2] if len(counts) > 2 else number)
        number = digits = 0
    if digits:
        raise ValueError("counts ends within a number: the string is cut off")
    return counts


def _sides(size: Any) -> Tuple[int, int]:
    """The height and width of a mask."""
    if not isinstance(size, (list, tuple)) or len(size) != 2 or not all(isinstance(side, int) and side > 0 for side in size):
        raise ValueError(f"size is {size!r}, not [height, width]")
    if size[0] * size[1] > PIXELS_MAX:
        raise ValueError(f"size is {size!r}, more than {PIXELS_MAX} pixels")
    return size[0], size[1]


def run_lengths(size: Any, counts: Any) -> "array[int]":
    """Checks a mask in run-length encoding, a list or compressed. Returns the lengths of runs of 0 and of 1 in turns. Raises ValueError."""
    height, width = _sides(size)
    if isinstance(counts, str):
        counts = _decompress(counts)
    if not isinstance(counts, (list, tuple)) or not all(type(count) is int for count in counts):
        raise ValueError(f"counts is {str(counts)[:60]}, neither a list of whole numbers nor a text")
    negative = next((position for position, count in enumerate(counts) if count < 0), None)
    if negative is not None:
        raise ValueError(f"count {negative} is {counts[negative]}; lengths of runs are 0 or more")
    if sum(counts) != height * width:
        raise ValueError(f"counts add up to {sum(counts)}, but a mask of height {height} and width {width} has {height * width} pixels")
    return array("I", counts)


def spans_of_runs(runs: Sequence[int]) -> Spans:
    """The spans of 1 in run lengths."""
    spans: Spans = []
    at = 0
    for position, count in enumerate(runs):
        if position % 2 and count:
            spans.append((at, at + count))
        at += count
    return spans


def _columns(one: int, other: int, width: int) -> range:
    """The columns of pixels whose centre lies between two abscissas."""
    low, high = (one, other) if one < other else (other, one)
    return range(max(0, -((_CENTRE - low) // _SCALE)), min(width, (high - _CENTRE - 1) // _SCALE + 1))


def _crossing(x: int, slope: float, steps: int, last: int) -> int:
    """The last step of a steep edge on the near side of the boundary behind the abscissa `last`; 0 .. steps - 1."""
    step = min(max(int((last + 0.5 - x) / slope), 0), steps - 1)
    rising = slope > 0
    while step and (int(x + slope * step + 0.5) <= last) != rising:
        step -= 1
    while step < steps - 1 and (int(x + slope * (step + 1) + 0.5) <= last) == rising:
        step += 1
    return step


def _edge(x: int, y: int, x_end: int, y_end: int, width: int) -> Sequence[Tuple[int, int]]:
    """The columns whose centre an edge crosses, with the ordinate of each crossing."""
    across, down = abs(x_end - x), abs(y_end - y)
    if x > x_end if across >= down else y > y_end:
        x, y, x_end, y_end = x_end, y_end, x, y
    columns = _columns(x, x_end, width)
    if not columns:
        return ()
    if across < down:
        slope = (x_end - x) / down
        return [(column, y + _crossing(x, slope, down, _SCALE * column + _CENTRE)) for column in columns]
    slope = (y_end - y) / across
    steps = [(column, _SCALE * column + _CENTRE - x) for column in columns]
    return [(column, min(int(y + slope * step + 0.5), int(y + slope * (step + 1) + 0.5))) for column, step in steps]


def spans_of_polygon(polygon: Sequence[float], height: int, width: int) -> Spans:
    """The spans of the pixels within a polygon x, y, x, y ..."""
    xs, ys = ([int(_SCALE * number + 0.5) for number in polygon[first::2]] for first in (0, 1))
    borders = []
    for corner in range(len(xs)):
        for column, y in _edge(xs[corner - 1], ys[corner - 1], xs[corner], ys[corner], width):
            borders.append(column * height + min(max((y + _CENTRE) // _SCALE, 0), height))
    borders.sort()
    return [(begin, end) for begin, end in zip(borders[::2], borders[1::2]) if begin < end]


def union(spans: Iterable[Tuple[int, int]]) -> Spans:
    """Spans of the same pixels that do not overlap."""
    found: Spans = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def element_for(largest: int) -> str:
    """The smallest element of a mask that holds 0 .. largest."""
    return "u8" if largest < 1 << 8 else "u16" if largest < 1 << 16 else "i32"


class ObjectMask:
    """A mask of numbered objects, 0 where there is none. Later objects cover earlier ones."""

    def __init__(self, height: int, width: int, element: str) -> None:
        self._height, self._width = height, width
        self._code = {"u8": "B", "u16": "H", "i32": "i"}[element]
        self._pixels = array(self._code, bytes(height * width * array(self._code).itemsize))
        self.visible: Dict[int, int] = {}  # pixels of each object
        self.covered: Set[int] = set()  # objects that lost pixels to later ones

    def paint(self, spans: Spans, number: int) -> None:
        """Gives pixels to an object, 1 or more, on top of all others. `spans` do not overlap."""
        ink = array(self._code, [number]) * max((end - begin for begin, end in spans), default=0)
        self.visible[number] = sum(end - begin for begin, end in spans)
        for begin, end in spans:
            below = self._pixels[begin:end]
            for other in {*below} - {0}:
                self.visible[other] -= below.count(other)
                self.covered.add(other)
            self._pixels[begin:end] = ink[: end - begin]

    def pixels(self) -> memoryview:
        """[height, width]"""
        rows = array(self._code)
        for y in range(self._height):
            rows += self._pixels[y :: self._height]
        return memoryview(rows).cast("B").cast(self._code, (self._height, self._width))


class InstanceMasks:
    """Draws the masks of instances of a split. Its note in the summary has the rule, and counts the objects that others cover."""

    def __init__(self, element: str, notes: List[str]) -> None:
        self._element, self._notes = element, notes
        self._at = len(notes)
        self._covered = self._hidden = 0
        notes.append(_NOTE)

    def draw(self, height: int, width: int, objects: Iterable[Tuple[int, bool, Spans]]) -> memoryview:
        """`objects`: numbers, whether they are crowds, and spans that do not overlap."""
        mask = ObjectMask(height, width, self._element)
        for number, _, spans in sorted(objects, key=lambda item: (not item[1], -sum(end - begin for begin, end in item[2]))):
            mask.paint(spans, number)
        self._covered += len(mask.covered)
        self._hidden += sum(not pixels for pixels in mask.visible.values())
        if self._covered or self._hidden:
            self._notes[self._at] = f"{_NOTE}; objects that lost pixels to others: {self._covered}, without any pixel: {self._hidden}"
        return mask.pixels()
