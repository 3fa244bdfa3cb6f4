"""YOLO's text files: a line for each object, its class and its box or polygon as fractions of the image (https://docs.ultralytics.com/datasets/)."""

import ast
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ._part import IMAGE_SUFFIXES, Choice, Field, Part, Refusal



def _pairs(folder: Path) -> Dict[str, Tuple[Path, Path]]:
    """Folders of images and of labels by split: images/train with labels/train, train/images with train/labels, or images with labels."""
    if not (folder / "labels").is_dir():
        inner = {path.parent.name: (path.parent / "images", path) for path in sorted(folder.glob("*/labels"))}
        return {name: pair for name, pair in inner.items() if pair[0].is_dir()}
    splits = [path.name for path in sorted((folder / "labels").iterdir()) if path.is_dir() and (folder / "images" / path.name).is_dir()]
    if splits:
        return {split: (folder / "images" / split, folder / "labels" / split) for split in splits}
    return {"": (folder / "images", folder / "labels")} if (folder / "images").is_dir() else {}


def recognises(path: Path) -> bool:
    return path.is_dir() and any(next(labels.glob("*.txt"), None) for _, labels in _pairs(path).values())


def _names(folder: Path) -> Optional[List[str]]:
    """Names of the classes from data.yaml, as a list in one line, or a line for each, with or without numbers."""
    for path in sorted(folder.glob("*.y*ml")):
        text = path.read_text(encoding="utf-8")
        inline = re.search(r"^names:\s*(\[.*?\])", text, re.MULTILINE | re.DOTALL)
        if inline:
            try:
                return [str(name) for name in ast.literal_eval(inline.group(1))]
            except (ValueError, SyntaxError):
                return [name.strip().strip("'\"") for name in inline.group(1)[1:-1].split(",")]
        lines = re.search(r"^names:\s*\n((?:[ \t]*(?:-|\d+:)[^\n]*\n?)+)", text, re.MULTILINE)
        if lines:
            return [re.sub(r"^\s*(?:-|\d+:)\s*", "", line).split(" #")[0].strip().strip("'\"") for line in lines.group(1).splitlines()]
    for path in (folder / "classes.txt", folder / "labels" / "classes.txt"):
        if path.is_file():
            return path.read_text(encoding="utf-8").split("\n")[:-1] or None
    return None


def _objects(path: Path) -> Tuple[List[int], List[List[float]], List[List[float]]]:
    """Classes, boxes (centre and size) and polygons, empty where an object has a box alone."""
    classes: List[int] = []
    boxes: List[List[float]] = []
    polygons: List[List[float]] = []
    for number, line in enumerate(path.read_text().splitlines() if path.is_file() else (), 1):
        cells = line.split()
        if not cells:
            continue
        try:
            kind, values = int(cells[0]), [float(cell) for cell in cells[1:]]
        except ValueError:
            raise Refusal(f"{path}, line {number}: not a class and numbers") from None
        if len(values) < 4 or len(values) % 2:
            raise Refusal(f"{path}, line {number}: {len(values)} numbers follow the class; a box has 4, a polygon more, two for each point")
        classes.append(kind)
        polygons.append(values if len(values) > 4 else [])
        boxes.append(values if len(values) == 4 else _extent(values))
    return classes, boxes, polygons


def _extent(points: Sequence[float]) -> List[float]:
    left, right, top, bottom = min(points[::2]), max(points[::2]), min(points[1::2]), max(points[1::2])
    return [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]


def parts(path: Path, chosen: Choice) -> List[Part]:
    pairs, names = _pairs(path), _names(path)
    notes = [] if names else ["no data.yaml with names: lies beside the images, so classes have numbers alone"]
    found = []
    for split, (images, labels) in pairs.items():
        files = sorted(name for name in images.rglob("*") if name.suffix.lower() in IMAGE_SUFFIXES)
        fields = [
            Field("image", "image", "image u8[h,w,3]"), Field("key", "key", "key"), Field("boxes", "boxes", "boxes(image) f32[*,4] cxcywh normalized"),
            Field("class", "class", "class(boxes) i32[*]"),
        ]  # fmt: skip
        if any(any(_objects(_label(name, images, labels))[2]) for name in files):
            fields.append(Field("polygons", "polygons", "json"))
        found.append(Part(split if len(pairs) > 1 else "", fields, _reader(files, images, labels), names, notes))
    return found


def _label(image: Path, images: Path, labels: Path) -> Path:
    return (labels / image.relative_to(images)).with_suffix(".txt")


def _reader(files: Sequence[Path], images: Path, labels: Path) -> Any:
    def rows() -> Iterator[Mapping[str, Any]]:
        for name in files:
            classes, boxes, polygons = _objects(_label(name, images, labels))
            yield {"image": name, "key": str(name.relative_to(images)), "boxes": boxes, "class": classes, "polygons": polygons}

    return rows
