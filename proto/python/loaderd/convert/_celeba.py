"""CelebA: aligned faces with 40 attributes, identities, landmarks and the split, from its lists or Kaggle's tables of them (https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html)."""

import csv
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ._part import Choice, Field, Part, Refusal, read_text

_ATTRIBUTES = "list_attr_celeba"
_INSIDE = ("", "Anno", "Eval", "Img", "celeba")  # folders in which the project and torchvision keep files
_SPLITS = ("train", "val", "test")  # of the numbers in list_eval_partition
_MEANINGS = {"-1": 0, "0": 0, "1": 1}  # of an attribute
# Folders of images, each with the lists of landmarks and boxes that are in its pixels.
_IMAGES: Sequence[Tuple[str, str, Optional[str]]] = (
    ("img_align_celeba", "list_landmarks_align_celeba", None), ("img_align_celeba_png", "list_landmarks_align_celeba", None),
    ("img_celeba", "list_landmarks_celeba", "list_bbox_celeba"),
)  # fmt: skip


class _Table(NamedTuple):
    """A list: a row of numbers, as texts, for each image."""

    path: Path
    columns: Sequence[str]  # empty if the list has no header
    rows: Mapping[str, Sequence[str]]  # by name of the image


def _find(top: Path, name: str) -> Optional[Path]:
    places = (top / inside / f"{name}{ending}" for inside in _INSIDE for ending in (".txt", ".csv", ""))
    return next((path for path in places if path.exists()), None)


def _top(path: Path) -> Path:
    """The folder of CelebA: the source, or that of its list of attributes."""
    if path.is_dir():
        return path
    return path.parent.parent if path.parent.name in _INSIDE[1:] else path.parent


def recognises(path: Path) -> bool:
    found = _find(_top(path), _ATTRIBUTES)
    return found is not None and (path.is_dir() or path.name == found.name)


def _table(top: Path, name: str) -> Optional[_Table]:
    path = _find(top, name)
    if path is None:
        return None
    lines = read_text(path).splitlines()
    if path.suffix == ".csv":
        columns, *rows = csv.reader(lines)
        return _checked(path, columns[1:], rows)
    count = int(lines[0]) if lines and lines[0].strip().isdecimal() else None
    if count is None:
        return _checked(path, (), [line.split() for line in lines])
    if len(lines) != count + 2:
        raise Refusal(f"{path}: line 1 says that there are {count} images, and {max(len(lines) - 2, 0)} follow the header: it is cut off, or not as it was")
    return _checked(path, [name for name in lines[1].split() if name != "image_id"], [line.split() for line in lines[2:]])


def _checked(path: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> _Table:
    size = len(columns) or 1
    for row in rows:
        if len(row) != size + 1:
            raise Refusal(f"{path}: {row[0] if row else 'a line'}: {len(row) - 1} numbers, not {size}")
    return _Table(path, columns, {row[0]: row[1:] for row in rows})


def _numbers(table: _Table, name: str) -> Optional[List[int]]:
    row = table.rows.get(name)
    try:
        return None if row is None else [int(cell) for cell in row]
    except ValueError:
        raise Refusal(f"{table.path}: {name}: not whole numbers: {' '.join(row or ())}") from None


def _attributes(table: _Table, name: str) -> List[int]:
    row = table.rows[name]
    for column, cell in zip(table.columns, row):
        if cell not in _MEANINGS:
            raise Refusal(f"{table.path}: {name}: {column} is {cell}, not 1 or -1")
    return [_MEANINGS[cell] for cell in row]


def _split_of(table: Optional[_Table], name: str) -> str:
    numbers = _numbers(table, name) if table else None
    if numbers is None:
        return ""
    if not 0 <= numbers[0] < len(_SPLITS):
        raise Refusal(f"{table.path if table else ''}: {name}: {numbers[0]} is no split: 0 is train, 1 val and 2 test")
    return _SPLITS[numbers[0]]


def _images(top: Path) -> Tuple[Path, str, Optional[str]]:
    for folder, landmarks, boxes in _IMAGES:
        path = _find(top, folder)
        if path is not None:
            return (path / folder if (path / folder).is_dir() else path), landmarks, boxes
    raise Refusal(f"{top}: none of " + ", ".join(folder for folder, _, _ in _IMAGES) + f" is beside {_ATTRIBUTES}: unpack the images there")


def parts(path: Path, chosen: Choice) -> List[Part]:
    top = _top(path)
    folder, landmarks, boxes = _images(top)
    attributes = _table(top, _ATTRIBUTES)
    if attributes is None or not attributes.columns:
        raise Refusal(f"{path}: {_ATTRIBUTES} has no line with the names of attributes")
    others = {"identity": _table(top, "identity_CelebA"), "landmarks": _table(top, landmarks), "box": _table(top, boxes) if boxes else None}
    twice = next((name for number, name in enumerate(attributes.columns) if name in attributes.columns[:number]), None)
    if twice is not None:
        raise Refusal(f"{attributes.path}: two columns are called {twice}: rename one")
    fields = [
        Field("image", "image", "image u8[h,w,3]"), Field("key", "key", "key"), Field("attributes", "attributes", f"value u8[{len(attributes.columns)}]"),
        Field("labels", "labels", "class i32[*]"),
    ]  # fmt: skip
    kinds = {"identity": "value i32 sparse", "landmarks": "keypoints(image) f32[5,2] xy sparse", "box": "boxes(image) f32[4] xywh sparse"}
    fields += [Field(name, name, kinds[name]) for name, table in others.items() if table]
    notes = ["attributes has a number for each attribute, 1 for yes and 0 for no, in the order of the classes; labels lists those that are 1"]
    partition = _table(top, "list_eval_partition")
    splits: Dict[str, List[str]] = {}
    for name in attributes.rows:
        splits.setdefault(_split_of(partition, name), []).append(name)
    return [Part(split, fields, _reader(folder, attributes, others, splits[split]), attributes.columns, notes) for split in sorted(splits, key=("", *_SPLITS).index)]


def _reader(folder: Path, attributes: _Table, others: Mapping[str, Optional[_Table]], names: Sequence[str]) -> Any:
    png = folder.name.endswith("_png")

    def rows() -> Iterator[Mapping[str, Any]]:
        for name in names:
            values = _attributes(attributes, name)
            row: Dict[str, Any] = {"image": folder / (str(Path(name).with_suffix(".png")) if png else name), "key": name, "attributes": values}
            row["labels"] = [number for number, value in enumerate(values) if value]
            for other, table in others.items():
                numbers = _numbers(table, name) if table else None
                if numbers is not None:
                    row[other] = numbers[0] if other == "identity" else [numbers[i : i + 2] for i in range(0, len(numbers), 2)] if other == "landmarks" else numbers
            yield row

    return rows
