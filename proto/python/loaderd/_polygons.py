"""Polygons of objects: values such as `polygons(boxes) f32[*,2]`, of which a row of NaN ends each polygon, and one more each object."""

from array import array
from math import isfinite, nan
from typing import TYPE_CHECKING, Any, Iterable, List, Sequence, Tuple

if TYPE_CHECKING:
    from numpy.typing import NDArray

_END = (nan, nan)


def join_polygons(objects: Iterable[Iterable[Iterable[Sequence[float]]]]) -> List[Tuple[float, float]]:
    """Returns the rows of the polygons of each object, for Writer. An object is a list of polygons, a polygon a list of (x, y)."""
    rows: List[Tuple[float, float]] = []
    for number, polygons in enumerate(objects):
        for polygon in polygons:
            vertices = [(float(x), float(y)) for x, y in polygon]
            if not vertices:
                raise ValueError(f"object {number} has a polygon without vertices: leave it out")
            for x, y in vertices:
                if not isfinite(x) or not isfinite(y):
                    raise ValueError(f"object {number} has the vertex ({x}, {y}), which is not finite")
            rows += [*vertices, _END]
        rows.append(_END)
    return rows


def split_polygons(rows: "NDArray[Any]") -> List[List["NDArray[Any]"]]:
    """Returns the polygons of each object, arrays of [vertices, 2], from the rows of one sample, such as `batch["polygons"][i]`. Views, not copies."""
    import numpy

    objects: List[List["NDArray[Any]"]] = []
    polygons: List["NDArray[Any]"] = []
    first = 0
    for end in numpy.flatnonzero(~numpy.isfinite(rows).all(1)).tolist():
        if end > first:
            polygons.append(rows[first:end])
        else:
            objects.append(polygons)
            polygons = []
        first = end + 1
    if polygons or first < len(rows):
        raise ValueError("the rows end within an object: join_polygons() ends each polygon with a row of NaN, and each object with one more")
    return objects


def count_objects(stored: bytes) -> int:
    """Returns the number of objects in stored rows. ValueError if they end within one."""
    numbers = array("f", stored)
    objects, first, ended = 0, 0, True
    for row in range(len(numbers) // 2):
        if isfinite(numbers[2 * row]) and isfinite(numbers[2 * row + 1]):
            ended = False
            continue
        ended = row == first
        objects += ended
        first = row + 1
    if not ended:
        raise ValueError("it ends within an object: a row of NaN ends each polygon, and one more each object; loaderd.join_polygons() makes such rows")
    return objects
