"""Open Images: tables of boxes and of image-level labels, a row for each, and of the names of classes (https://storage.googleapis.com/openimages/web/download_v7.html)."""

import os
import struct
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from ._openimages_masks import Box, Masks
from ._openimages_tables import LABEL_COLUMNS, SPLITS, Classes, Tables, box_of, columns_of, kind_of, number_of, rows_of, split_of, tables_of
from ._part import IMAGE_SUFFIXES, Choice, Field, Part, Refusal
from ._spans import InstanceMasks, element_for

# Folders of images of a split; train_0, train_1 ... are what the project's archives hold.
_FOLDERS = ("{split}", "{split}_*", "{split}/data", "images/{split}", "images", "data", "")
_FLAGS = {"IsOccluded": "occluded", "IsTruncated": "truncated", "IsGroupOf": "group_of", "IsDepiction": "depiction", "IsInside": "inside"}
_GROUP = 2  # place of group_of among the flags
_UNKNOWN = -1  # of a flag
_BOX = struct.Struct(f"<i4f{len(_FLAGS)}b")  # class, corners, flags
_LABEL = struct.Struct("<ifb")  # class, confidence, whether a person verified it


def recognises(path: Path) -> bool:
    if not path.is_dir():
        return path.suffix == ".csv" and kind_of(path) in ("boxes", "labels")
    tables = tables_of(path)
    return bool(tables.boxes or tables.labels)


class _Images:
    """The images of a split and the rows of its tables for them."""

    def __init__(self, top: Path, split: str) -> None:
        self.files: Dict[str, str] = {}
        self.boxes: Dict[str, bytearray] = {}
        self.labels: Dict[str, bytearray] = {}
        self.places = {number: place.format(split=split) for number, place in enumerate(_FOLDERS) if split or "{split}" not in place}
        self.own: Set[str] = set()  # images in folders of this split
        self.notes: List[str] = []
        self.masks: Optional[Masks] = None
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

    def read(self, path: Path, into: Dict[str, bytearray], pack: Callable[[Mapping[str, int], int, List[str]], bytes]) -> None:
        """Reads the rows of images that are there."""
        lines = rows_of(path)
        columns = columns_of(lines)
        image, absent = columns["ImageID"], 0
        for line, row in lines:
            if row[image] in self.files:
                into.setdefault(row[image], bytearray()).extend(pack(columns, line, row))
            else:
                absent += 1
        self.note(f"{path.name}: left out {absent} rows of images that are not there" if absent else "")

    def note(self, text: str) -> None:
        self.notes += [text] if text else []

    def boxes_of(self, name: str) -> List[Tuple[Any, ...]]:
        return list(_BOX.iter_unpack(self.boxes.get(name, b"")))

    @property
    def most(self) -> int:
        """The most boxes of an image."""
        return max((len(packed) // _BOX.size for packed in self.boxes.values()), default=0)

    def read_masks(self, masks: Masks, tables: Sequence[Path], classes: Classes) -> None:
        for table in tables:
            self.note(masks.read(table, classes, self.boxes))
        lonely = sum(masks.match(name, _for_masks(self.boxes_of(name))) for name in self.boxes)
        self.note(f"left out {lonely} segmentations that no box has the class and corners of" if lonely else "")
        self.masks = masks


def _for_masks(boxes: Sequence[Tuple[Any, ...]]) -> List[Box]:
    return [Box(box[0], box[1:5], box[5 + _GROUP] == 1) for box in boxes]


def _pack_box(path: Path, classes: Classes) -> Callable[[Mapping[str, int], int, List[str]], bytes]:
    def pack(columns: Mapping[str, int], line: int, row: List[str]) -> bytes:
        corners = box_of(path, line, columns, row)
        flags = [int(number_of(path, line, name, row[columns[name]], -1, 1)) if name in columns else _UNKNOWN for name in _FLAGS]
        return _BOX.pack(classes.number(path, line, row[columns["LabelName"]]), *corners, *flags)

    return pack


def _pack_label(path: Path, classes: Classes) -> Callable[[Mapping[str, int], int, List[str]], bytes]:
    def pack(columns: Mapping[str, int], line: int, row: List[str]) -> bytes:
        confidence = number_of(path, line, "Confidence", row[columns["Confidence"]], 0, 1)
        return _LABEL.pack(classes.number(path, line, row[columns["LabelName"]]), confidence, row[columns["Source"]] != "machine")

    return pack


def _chosen(path: Path) -> Tuple[Path, Tables]:
    """The folder of the dataset, and its tables: all, or the one that is the source."""
    if path.is_dir():
        return path, tables_of(path)
    top = path.parent.parent if path.parent.name in ("annotations", "labels") else path.parent
    kind, found = kind_of(path), tables_of(top)
    return top, found._replace(boxes=[path] if kind == "boxes" else [], labels=[path] if kind == "labels" else [], others=[])


def parts(path: Path, chosen: Choice) -> List[Part]:
    top, tables = _chosen(path)
    if not tables.boxes and not tables.labels:
        raise Refusal(f"{path}: it holds no table with the columns {', '.join(LABEL_COLUMNS)} of Open Images")
    boxable = [name for name in tables.names if "boxable" in name.name]
    classes = Classes(tables.names if tables.labels else boxable or tables.names)
    splits = sorted({split_of(table, top) for table in (*tables.boxes, *tables.labels)}, key=("", *SPLITS).index)
    found = {split: _read(top, split, tables, classes, chosen.masks != "none") for split in splits}
    final = classes.final()
    element = element_for(max(images.most for images in found.values())) if any(images.masks and images.masks.found for images in found.values()) else ""
    fields = _fields(bool(tables.boxes), bool(tables.labels), element)
    for images in found.values():
        images.note("" if tables.names else "there is no class-descriptions-boxable.csv, so classes have the names of the tables, such as /m/011k07")
        images.note(f"left out: {', '.join(sorted(table.name for table in tables.others))}" if tables.others else "")
        if element and images.masks:
            images.masks.draws = InstanceMasks(element, images.notes)
    return [Part(split, fields, _reader(images, final, bool(element)), classes.names, images.notes) for split, images in found.items()]


def _read(top: Path, split: str, tables: Tables, classes: Classes, masks: bool) -> _Images:
    """Reads the tables of a split."""
    boxes, labels, drawn = ([table for table in kind if split_of(table, top) == split] for kind in (tables.boxes, tables.labels, tables.masks))
    if len(boxes) > 1:
        raise Refusal(f"{boxes[1]}: {boxes[0]} has boxes of the same images, and both would count: move one away, or give one of them as the source")
    images = _Images(top, split)
    for table in boxes:
        images.read(table, images.boxes, _pack_box(table, classes))
    for table in labels:
        images.read(table, images.labels, _pack_label(table, classes))
    if not images.boxes and not images.labels:
        folders = ", ".join(place or "." for place in images.places.values())
        raise Refusal(
            f"{(*boxes, *labels)[0]}: none of its images is in {top}, as ImageID.jpg in one of the folders {folders}: "
            "download them there, or give the table of another split as the source"
        )
    unlisted = len(images.own - images.boxes.keys() - images.labels.keys())
    images.note(f"left out {unlisted} images of the folder of {split} that no table lists" if unlisted else "")
    if masks and drawn:
        images.read_masks(Masks(top, split), drawn, classes)
    return images


def _fields(boxes: bool, labels: bool, element: str) -> List[Field]:
    """`element`: of the mask of instances; empty without one."""
    fields = [Field("image", "image", "image u8[h,w,3]"), Field("key", "key", "key")]
    if boxes:
        fields += [Field("boxes", "boxes", "boxes(image) f32[*,4] xyxy normalized"), Field("class", "class", "class(boxes) i32[*]")]
        fields += [Field(name, name, "value(boxes) i16[*]") for name in _FLAGS.values()]
    if element:
        fields += [Field("instance", "instance", "value(boxes) i32[*]"), Field("instances", "instances", f"mask(image) {element}[h,w] sparse")]
    if labels:
        fields += [Field("labels", "labels", "class i32[*]"), Field("confidence", "confidence", "value(labels) f32[*]"), Field("verified", "verified", "value(labels) u8[*]")]
        fields.append(Field("absent", "absent", "class i32[*]"))
    return fields


def _reader(images: _Images, final: Sequence[int], masks: bool) -> Any:
    def rows() -> Iterator[Mapping[str, Any]]:
        for name in sorted({*images.boxes, *images.labels}):
            boxes = images.boxes_of(name)
            found = dict.fromkeys(_LABEL.iter_unpack(images.labels.get(name, b"")))  # several tables or people may have the same one
            labels = [label for label in found if label[1] > 0]
            row = {
                "image": Path(images.files[name]), "key": name, "boxes": [box[1:5] for box in boxes], "class": [final[box[0]] for box in boxes],
                **{flag: [box[5 + at] for box in boxes] for at, flag in enumerate(_FLAGS.values())},
                "labels": [final[label[0]] for label in labels], "confidence": [label[1] for label in labels], "verified": [label[2] for label in labels],
                "absent": [final[label[0]] for label in found if label[1] == 0],
            }  # fmt: skip
            if masks:
                row.update(images.masks.columns(name, Path(images.files[name]), _for_masks(boxes)) if images.masks else {"instance": [0] * len(boxes)})
            yield row

    return rows
