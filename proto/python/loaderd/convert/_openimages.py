"""Open Images: tables of boxes and of image-level labels, a row for each, and of the names of classes (https://storage.googleapis.com/openimages/web/download_v7.html)."""

import csv
import os
import re
import struct
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ._part import IMAGE_SUFFIXES, Choice, Field, Part, Refusal

_TABLES = ("*.csv", "annotations/*.csv", "labels/*.csv", "metadata/*.csv", "*/labels/*.csv", "*/metadata/*.csv")  # the last three as FiftyOne keeps them
_SPLITS = ("train", "validation", "test")
_SPLIT = re.compile(rf"(?:^|[-_])({'|'.join(_SPLITS)})(?=[-_]|$)")
# Folders of images of a split; train_0, train_1 ... are what the project's archives hold.
_FOLDERS = ("{split}", "{split}_*", "{split}/data", "images/{split}", "images", "data", "")
_CLASS = re.compile(r"/[a-z]/\w+")  # such as /m/011k07
_LABEL_COLUMNS = ["ImageID", "Source", "LabelName", "Confidence"]
_CORNERS = ("XMin", "YMin", "XMax", "YMax")
_FLAGS = {"IsOccluded": "occluded", "IsTruncated": "truncated", "IsGroupOf": "group_of", "IsDepiction": "depiction", "IsInside": "inside"}
_UNKNOWN = -1  # of a flag
_BOX = struct.Struct(f"<i4f{len(_FLAGS)}b")  # class, corners, flags
_LABEL = struct.Struct("<ifb")  # class, confidence, whether a person verified it


class _Tables(NamedTuple):
    """The tables of a folder by their headers."""

    boxes: List[Path]
    labels: List[Path]
    names: List[Path]  # those of boxable classes first
    others: List[Path]  # segmentations, relationships and points, which are left out


def _kind(path: Path) -> str:
    """A name of _Tables; empty for a table of something else."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            header: List[str] = next(csv.reader([file.readline(1 << 12)]), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return ""
    if header[:4] == _LABEL_COLUMNS and {*_CORNERS} <= {*header}:
        return "boxes"
    if header == _LABEL_COLUMNS:
        return "labels"
    if header == ["LabelName", "DisplayName"] or (len(header) == 2 and _CLASS.fullmatch(header[0])):
        return "names"
    return "others" if "ImageID" in header or "ImageId" in header else ""


def _tables(top: Path) -> _Tables:
    found = _Tables([], [], [], [])
    for path in (path for pattern in _TABLES for path in sorted(top.glob(pattern))):
        kind = _kind(path)
        if kind:
            getattr(found, kind).append(path)
    found.names.sort(key=lambda path: "boxable" not in path.name)
    return found


def recognises(path: Path) -> bool:
    if not path.is_dir():
        return path.suffix == ".csv" and _kind(path) in ("boxes", "labels")
    tables = _tables(path)
    return bool(tables.boxes or tables.labels)


def _split_of(path: Path, top: Path) -> str:
    found = _SPLIT.search(path.stem)
    return found.group(1) if found else next((part for part in path.relative_to(top).parts if part in _SPLITS), "")


def _rows(path: Path) -> Iterator[Tuple[int, List[str]]]:
    """Yields the lines of a table with their numbers, the header first."""
    width = 0
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            for row in reader:
                width = width or len(row)
                if len(row) != width:
                    raise Refusal(f"{path}, line {reader.line_num}: {len(row)} cells, not {width}, as the first line has: {','.join(row)[:60]!r}")
                yield reader.line_num, row
    except (UnicodeDecodeError, csv.Error) as error:
        raise Refusal(f"{path}: not a table in UTF-8: {error}") from None


class _Classes:
    """Numbers of classes by the names that tables use, in the order of the tables of names; without these in the order of the names."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._numbers: Dict[str, int] = {}
        self.names: List[str] = []
        taken: Set[str] = set()
        for path in paths:
            for _, (label, name) in _rows(path):
                if label == "LabelName" or label in self._numbers:
                    continue
                self._numbers[label] = len(self.names)
                self.names.append(f"{name} ({label})" if name in taken else name)
                taken.add(self.names[-1])

    def number(self, path: Path, line: int, label: str) -> int:
        if label not in self._numbers and self._paths:
            described = ", ".join(map(str, self._paths))
            raise Refusal(f"{path}, line {line}: LabelName {label!r} is not in {described}: put the table that describes it, such as class-descriptions.csv, next to it")
        return self._numbers.setdefault(label, len(self._numbers))

    def final(self) -> List[int]:
        """The final number of each that number() returned."""
        if self._paths:
            return [*range(len(self.names))]
        self.names = sorted(self._numbers)
        final = {label: number for number, label in enumerate(self.names)}
        return [final[label] for label in self._numbers]


def _number(path: Path, line: int, column: str, cell: str, least: float, most: float) -> float:
    try:
        number = float(cell)
    except ValueError:
        number = most + 1
    if not least <= number <= most:
        raise Refusal(f"{path}, line {line}: {column} is {cell!r}, not a number of {least:g} .. {most:g}: correct it, or remove the line")
    return number


class _Images:
    """The images of a split and the rows of its tables for them."""

    def __init__(self, top: Path, split: str) -> None:
        self.files: Dict[str, str] = {}
        self.boxes: Dict[str, bytearray] = {}
        self.labels: Dict[str, bytearray] = {}
        self.places = {number: place.format(split=split) for number, place in enumerate(_FOLDERS) if split or "{split}" not in place}
        self.own: Set[str] = set()  # images in folders of this split
        for position, place in self.places.items():
            for folder in sorted(top.glob(place)) if place else [top]:
                self._add(folder, bool(split) and "{split}" in _FOLDERS[position])

    def _add(self, folder: Path, own: bool) -> None:
        for entry in os.scandir(folder) if folder.is_dir() else ():
            stem, ending = os.path.splitext(entry.name)
            if ending.lower() not in IMAGE_SUFFIXES or stem in self.files:
                continue
            self.files[stem] = entry.path
            if own:
                self.own.add(stem)

    def read(self, path: Path, into: Dict[str, bytearray], pack: Callable[[Mapping[str, int], int, List[str]], bytes]) -> str:
        """Reads the rows of images that are there; returns a note on others."""
        lines = _rows(path)
        columns = {name: position for position, name in enumerate(next(lines, (0, []))[1])}
        image, absent = columns["ImageID"], 0
        for line, row in lines:
            if row[image] in self.files:
                into.setdefault(row[image], bytearray()).extend(pack(columns, line, row))
            else:
                absent += 1
        return f"{path.name}: left out {absent} rows of images that are not there" if absent else ""


def _pack_box(path: Path, classes: _Classes) -> Callable[[Mapping[str, int], int, List[str]], bytes]:
    def pack(columns: Mapping[str, int], line: int, row: List[str]) -> bytes:
        corners = [_number(path, line, name, row[columns[name]], 0, 1) for name in _CORNERS]
        if corners[0] > corners[2] or corners[1] > corners[3]:
            raise Refusal(f"{path}, line {line}: XMin and YMin are {corners[0]:g} and {corners[1]:g}, XMax and YMax {corners[2]:g} and {corners[3]:g}: correct the box, or remove the line")
        flags = [int(_number(path, line, name, row[columns[name]], -1, 1)) if name in columns else _UNKNOWN for name in _FLAGS]
        return _BOX.pack(classes.number(path, line, row[columns["LabelName"]]), *corners, *flags)

    return pack


def _pack_label(path: Path, classes: _Classes) -> Callable[[Mapping[str, int], int, List[str]], bytes]:
    def pack(columns: Mapping[str, int], line: int, row: List[str]) -> bytes:
        confidence = _number(path, line, "Confidence", row[columns["Confidence"]], 0, 1)
        return _LABEL.pack(classes.number(path, line, row[columns["LabelName"]]), confidence, row[columns["Source"]] != "machine")

    return pack


def _chosen(path: Path) -> Tuple[Path, _Tables]:
    """The folder of the dataset, and its tables: all, or the one that is the source."""
    if path.is_dir():
        return path, _tables(path)
    top = path.parent.parent if path.parent.name in ("annotations", "labels") else path.parent
    kind, found = _kind(path), _tables(top)
    return top, found._replace(boxes=[path] if kind == "boxes" else [], labels=[path] if kind == "labels" else [], others=[])


def parts(path: Path, chosen: Choice) -> List[Part]:
    top, tables = _chosen(path)
    if not tables.boxes and not tables.labels:
        raise Refusal(f"{path}: it holds no table with the columns {', '.join(_LABEL_COLUMNS)} of Open Images")
    boxable = [name for name in tables.names if "boxable" in name.name]
    classes = _Classes(tables.names if tables.labels else boxable or tables.names)
    splits = {_split_of(table, top) for table in (*tables.boxes, *tables.labels)}
    found: Dict[str, Tuple[_Images, List[str]]] = {}
    for split in sorted(splits, key=("", *_SPLITS).index):
        images, notes = _Images(top, split), []
        ours = [table for table in (*tables.boxes, *tables.labels) if _split_of(table, top) == split]
        twice = [table for table in ours if table in tables.boxes][1:]
        if twice:
            raise Refusal(f"{twice[0]}: {ours[0]} has boxes of the same images, and both would count: move one away, or give one of them as the source")
        for table in ours:
            into, pack = (images.boxes, _pack_box) if table in tables.boxes else (images.labels, _pack_label)
            notes.append(images.read(table, into, pack(table, classes)))
        if not images.boxes and not images.labels:
            folders = ", ".join(place or "." for place in images.places.values())
            raise Refusal(f"{ours[0]}: none of its images is in {top}, as ImageID.jpg in one of the folders {folders}: download them there" + _or_else(splits, split))
        unlisted = len(images.own - images.boxes.keys() - images.labels.keys())
        notes.append(f"left out {unlisted} images of the folder of {split} that no table lists" if unlisted else "")
        found[split] = images, notes
    final = classes.final()
    notes_of_all = [] if tables.names else ["there is no class-descriptions-boxable.csv, so classes have the names of the tables, such as /m/011k07"]
    notes_of_all += [f"left out: {', '.join(sorted(table.name for table in tables.others))}"] if tables.others else []
    fields = _fields(bool(tables.boxes), bool(tables.labels))
    return [Part(split, fields, _reader(images, final), classes.names, [*filter(None, notes), *notes_of_all]) for split, (images, notes) in found.items()]


def _or_else(splits: Set[str], split: str) -> str:
    return f"; or give the table of another split alone, or move that of {split} away" if len(splits) > 1 else ""


def _fields(boxes: bool, labels: bool) -> List[Field]:
    fields = [Field("image", "image", "image u8[h,w,3]"), Field("key", "key", "key")]
    if boxes:
        fields += [Field("boxes", "boxes", "boxes(image) f32[*,4] xyxy normalized"), Field("class", "class", "class(boxes) i32[*]")]
        fields += [Field(name, name, "value(boxes) i16[*]") for name in _FLAGS.values()]
    if labels:
        fields += [Field("labels", "labels", "class i32[*]"), Field("confidence", "confidence", "value(labels) f32[*]"), Field("verified", "verified", "value(labels) u8[*]")]
        fields.append(Field("absent", "absent", "class i32[*]"))
    return fields


def _reader(images: _Images, final: Sequence[int]) -> Any:
    def rows() -> Iterator[Mapping[str, Any]]:
        for name in sorted({*images.boxes, *images.labels}):
            boxes = list(_BOX.iter_unpack(images.boxes.get(name, b"")))
            found = dict.fromkeys(_LABEL.iter_unpack(images.labels.get(name, b"")))  # several tables or people may have the same one
            labels = [label for label in found if label[1] > 0]
            yield {
                "image": Path(images.files[name]), "key": name, "boxes": [box[1:5] for box in boxes], "class": [final[box[0]] for box in boxes],
                **{flag: [box[5 + at] for box in boxes] for at, flag in enumerate(_FLAGS.values())},
                "labels": [final[label[0]] for label in labels], "confidence": [label[1] for label in labels], "verified": [label[2] for label in labels],
                "absent": [final[label[0]] for label in found if label[1] == 0],
            }  # fmt: skip

    return rows
