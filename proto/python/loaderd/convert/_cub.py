"""CUB-200-2011, birds: classes, boxes and parts from lists in which images have numbers (https://www.vision.caltech.edu/datasets/cub_200_2011/)."""

from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ._part import Choice, Field, Part, Refusal, read_text

_LISTS = ("images.txt", "image_class_labels.txt", "classes.txt")
_SPLITS = ("test", "train")  # of the numbers in train_test_split.txt


def _top(path: Path) -> Optional[Path]:
    """The folder of the lists: the source, CUB_200_2011/ in it, or that of a list."""
    folders = (path, path / "CUB_200_2011") if path.is_dir() else (path.parent,) if path.name in _LISTS else ()
    return next((folder for folder in folders if all((folder / name).is_file() for name in _LISTS)), None)


def recognises(path: Path) -> bool:
    return _top(path) is not None


def _lines(path: Path, count: int) -> Iterator[Tuple[int, List[str]]]:
    """Yields the number and the other cells of each line, of which there are `count`."""
    for number, line in enumerate(read_text(path).splitlines(), 1):
        cells = line.split(None, count)
        if not cells:
            continue
        if len(cells) != count + 1 or not cells[0].isdecimal():
            raise Refusal(f"{path}, line {number}: {line[:60]!r} is not a number and {count} more cells")
        yield int(cells[0]), cells[1:]


def _optional(path: Path, count: int) -> Dict[int, List[str]]:
    return dict(_lines(path, count)) if path.is_file() else {}


def _numbers(path: Path, cells: Sequence[str]) -> List[float]:
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        raise Refusal(f"{path}: {' '.join(cells)[:60]!r}: not numbers") from None


class _Lists:
    """All lists, by number of the image."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.images = {number: cells[0] for number, cells in _lines(top / "images.txt", 1)}
        names = sorted((number, cells[0]) for number, cells in _lines(top / "classes.txt", 1))
        self.names = [name for _, name in names]
        self.classes = {number: place for place, (number, _) in enumerate(names)}
        self.labels = {number: self._class(cells[0]) for number, cells in _lines(top / "image_class_labels.txt", 1)}
        self.boxes = {number: _numbers(top / "bounding_boxes.txt", cells) for number, cells in _optional(top / "bounding_boxes.txt", 4).items()}
        self.splits = _optional(top / "train_test_split.txt", 1)
        self.parts: Dict[int, Dict[int, List[float]]] = {}
        where = top / "parts" / "part_locs.txt"
        for number, (part, *cells) in _lines(where, 4) if where.is_file() else ():
            self.parts.setdefault(number, {})[int(part)] = _numbers(where, cells)
        self.part_count = max((max(parts) for parts in self.parts.values()), default=0)

    def _class(self, text: str) -> int:
        if not text.isdecimal() or int(text) not in self.classes:
            raise Refusal(f"{self.top / 'image_class_labels.txt'}: class {text} is not in classes.txt")
        return self.classes[int(text)]

    def split_of(self, number: int) -> str:
        if number not in self.splits:
            return ""
        flag = self.splits[number][0]
        if flag not in ("0", "1"):
            raise Refusal(f"{self.top / 'train_test_split.txt'}: image {number}: {flag} is neither 0 (test) nor 1 (train)")
        return _SPLITS[int(flag)]


def parts(path: Path, chosen: Choice) -> List[Part]:
    top = _top(path)
    if top is None:
        raise Refusal(f"{path}: it holds no {', '.join(_LISTS)}")
    lists = _Lists(top)
    fields = [Field("image", "image", "image u8[h,w,3]"), Field("key", "key", "key"), Field("label", "label", "class i32")]
    if lists.boxes:
        fields.append(Field("box", "box", "boxes(image) f32[4] xywh sparse"))
    if lists.parts:
        fields.append(Field("parts", "parts", f"keypoints(image) f32[{lists.part_count},3] xyv sparse"))
    notes = ["attributes/ is left out"] if (top / "attributes").is_dir() else []
    splits: Dict[str, List[int]] = {}
    for number in lists.images:
        splits.setdefault(lists.split_of(number), []).append(number)
    return [Part(name, fields, _reader(lists, splits[name]), lists.names, notes) for name in sorted(splits, reverse=True)]


def _reader(lists: _Lists, numbers: Sequence[int]) -> Any:
    def rows() -> Iterator[Mapping[str, Any]]:
        for number in numbers:
            name = lists.images[number]
            row: Dict[str, Any] = {"image": lists.top / "images" / name, "key": name, "label": lists.labels.get(number), "box": lists.boxes.get(number)}
            if number in lists.parts:
                row["parts"] = [lists.parts[number].get(part, [0, 0, 0]) for part in range(1, lists.part_count + 1)]
            yield row

    return rows
