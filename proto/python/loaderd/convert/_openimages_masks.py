"""Open Images' segmentations: a PNG for each object, of a size of its own, which belongs to a box of the same class and corners."""

import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ._openimages_tables import Classes, box_of, columns_of, rows_of
from ._part import Refusal, needs
from ._spans import InstanceMasks, Spans

# Folders of the PNGs of a split; train-masks-0, train-masks-1 ... are what the project's archives hold, labels/masks/0 and so on are FiftyOne's.
_FOLDERS = ("{split}-masks*", "masks/{split}", "masks/{split}-masks*", "{split}/labels/masks/*", "labels/masks/*", "masks/*", "masks")
_APART_MAX = 1e-3  # of the corners of a segmentation and of its box, which may be rounded otherwise


class Box(NamedTuple):
    """A box of an image, as tables give it."""

    label: int
    corners: Sequence[float]
    is_group: bool  # it holds several objects


class Masks:
    """The segmentations of a split."""

    def __init__(self, top: Path, split: str) -> None:
        self.places = [place.format(split=split) for place in _FOLDERS if split or "{split}" not in place]
        self._files: Dict[str, str] = {}
        for place in self.places:
            for folder in sorted(top.glob(place)):
                for entry in os.scandir(folder) if folder.is_dir() else ():
                    if entry.name.endswith(".png"):
                        self._files.setdefault(entry.name, entry.path)
        self._rows: Dict[str, List[Tuple[str, int, List[float]]]] = {}  # by image: PNG, class, corners
        self._numbers: Dict[str, List[Tuple[str, int]]] = {}  # by image: PNG, number of its box from 1 on
        self.draws: Optional[InstanceMasks] = None  # set when all splits are read

    def read(self, path: Path, classes: Classes, images: Mapping[str, Any]) -> str:
        """Reads a table; returns a note on PNGs that are missing."""
        lines, absent = rows_of(path), 0
        columns = columns_of(lines)
        name, image, label = (columns[column] for column in ("MaskPath", "ImageID", "LabelName"))
        for line, row in lines:
            if row[image] not in images:
                continue
            if row[name] in self._files:
                self._rows.setdefault(row[image], []).append((self._files[row[name]], classes.number(path, line, row[label]), box_of(path, line, columns, row, "Box")))
            else:
                absent += 1
        return f"{path.name}: left out {absent} segmentations, whose PNGs are not in {', '.join(self.places)}" if absent else ""

    def match(self, image: str, boxes: Sequence[Box]) -> int:
        """Finds the boxes of an image's segmentations. Returns how many have none."""
        rows = self._rows.pop(image, [])
        free = {number: box for number, box in enumerate(boxes, 1)}
        for file, label, corners in rows:
            apart = {number: max(abs(one - other) for one, other in zip(box.corners, corners)) for number, box in free.items() if box.label == label}
            number = min(apart, key=lambda number: apart[number], default=0)
            if number and apart[number] <= _APART_MAX:
                self._numbers.setdefault(image, []).append((file, number))
                del free[number]
        return len(rows) - len(self._numbers.get(image, ()))

    @property
    def found(self) -> bool:
        return bool(self._numbers)

    def columns(self, name: str, image: Path, boxes: Sequence[Box]) -> Dict[str, Any]:
        """The mask of an image, and the number of each box in it."""
        found = self._numbers.get(name, [])
        instance = [0] * len(boxes)
        for _, number in found:
            instance[number - 1] = number
        size = _size(image) if found and self.draws else None
        if size is None or self.draws is None:
            return {"instance": instance, "instances": None}
        width, height = size
        return {"instance": instance, "instances": self.draws.draw(height, width, [(number, boxes[number - 1].is_group, _spans(file, width, height)) for file, number in found])}


def _size(path: Path) -> Optional[Tuple[int, int]]:
    """Width and height of an image; None for a file that Pillow cannot read, which is reported when it is written."""
    try:
        from PIL import Image
    except ImportError:
        needs("Pillow", "PNGs of segmentations", "pillow numpy; --masks none leaves them out")
    try:
        with Image.open(path) as opened:
            width, height = opened.size
            return width, height
    except Exception:
        return None


def _spans(path: str, width: int, height: int) -> Spans:
    """The pixels of a PNG that are not 0, at the size of the image."""
    try:
        import numpy
        from PIL import Image
    except ImportError:
        needs("NumPy", "PNGs of segmentations", "numpy; --masks none leaves them out")
    try:
        with Image.open(path) as opened:
            inside = numpy.asarray(opened.convert("L").resize((width, height), Image.NEAREST)) > 0
    except Exception as error:
        raise Refusal(f"{path}: Pillow cannot read it: {error}; download it again, or leave segmentations out with --masks none") from None
    flat = numpy.concatenate([[False], inside.T.ravel(), [False]])
    edges = numpy.flatnonzero(flat[1:] != flat[:-1]).tolist()
    return list(zip(edges[::2], edges[1::2]))
