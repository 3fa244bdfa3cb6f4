"""YOLO's text files: a line for each object, its class and its box or polygon as fractions of the image (https://docs.ultralytics.com/datasets/)."""

import re
from math import isfinite
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ._part import IMAGE_SUFFIXES, POLYGON_NOTE, Choice, Field, Part, Refusal, polygon_field, polygon_rows, read_text, unique_names

_BLANK = r"(?:\s+(?:#[^\n]*)?)*"  # white space and comments in YAML
_NUMBER = r"""(?:['"]?(?P<number>\d+)['"]?\s*:)"""
_QUOTED = r""""(?:[^"\\]|\\.)*"|'(?:[^']|'')*'"""
# An item of a list or a mapping in brackets, up to the following comma or bracket.
_FLOW_ITEM = re.compile(rf"""{_BLANK}{_NUMBER}?{_BLANK}(?P<name>{_QUOTED}|[^,\]}}'"\s#][^,\]}}]*?){_BLANK}(?P<end>[,\]}}])""")
_FLOW_END = re.compile(rf"{_BLANK}[\]}}]")
# A line such as "- cat" or "3: cat".
_BLOCK_ITEM = re.compile(rf"""\s*(?:-\s|{_NUMBER})\s*(?P<name>{_QUOTED}|[^'"\s].*?)\s*(?:\s#.*)?""")


class _Data(NamedTuple):
    """The contents of data.yaml."""

    path: Path  # for messages
    names: Mapping[int, str]  # class names; empty if the file has none
    keypoints: Tuple[int, int] = (0, 0)  # points per object, and numbers per point: 2 (x, y) or 3 (x, y, visibility)


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


def _scalar(text: str) -> str:
    """Removes the quotes of a YAML string."""
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text[0] == '"' else text


def _flow_items(path: Path, text: str) -> List[Tuple[Optional[str], str]]:
    """The numbers and names of the [a, b] or {0: a, 1: b} at the start of the text."""
    found: List[Tuple[Optional[str], str]] = []
    at = 1
    while not _FLOW_END.match(text, at):
        item = _FLOW_ITEM.match(text, at)
        if item is None or (text[0] == "{" and item.group("number") is None):
            raise Refusal(f"{path}: names: cannot read {text[at : at + 20].strip()!r}; write a line for each class, such as \"  0: cat\"")
        found.append((item.group("number"), _scalar(item.group("name"))))
        at = item.end()
        if item.group("end") != ",":
            break
    return found


def _block_items(path: Path, lines: Sequence[str]) -> List[Tuple[Optional[str], str]]:
    """The numbers and names of the lines below names:, up to the next key."""
    found: List[Tuple[Optional[str], str]] = []
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not line[0].isspace() and line[0] != "-":
            break
        item = _BLOCK_ITEM.fullmatch(line)
        if item is None:
            raise Refusal(f"{path}: names: cannot read {line.strip()!r}; a line is a number and a name, such as \"  0: cat\", or \"  - cat\"")
        found.append((item.group("number"), _scalar(item.group("name"))))
    return found


def _numbered(path: Path, items: Sequence[Tuple[Optional[str], str]]) -> Dict[int, str]:
    """The names by number. Refuses numbers that are missing or given twice."""
    found: Dict[int, str] = {}
    for position, (number, name) in enumerate(items):
        place = position if number is None else int(number)
        if place in found:
            raise Refusal(f"{path}: names: class {place} is both {found[place]!r} and {name!r}; give each class a different number")
        found[place] = name
    missing = next((number for number in range(len(found)) if number not in found), None)
    if missing is not None:
        raise Refusal(f"{path}: names: class {missing} is missing among 0 .. {max(found)}; name all classes")
    return found


def _yaml_names(path: Path, text: str) -> Dict[int, str]:
    """The names of classes from `names:`, a list or a mapping, in one line, in several, or a line for each; empty without it."""
    key = re.search(r"^names[ \t]*:[ \t]*(?P<bracket>[\[{])?", text, re.MULTILINE)
    if key is None:
        return {}
    if key.group("bracket"):
        return _numbered(path, _flow_items(path, text[key.start("bracket") :]))
    first, _, rest = text[key.end() :].partition("\n")
    if first.strip() and not first.startswith("#"):
        raise Refusal(f"{path}: names: is {first.strip()!r}, not a list or a mapping of names")
    return _numbered(path, _block_items(path, rest.split("\n")))


def _yaml_keypoints(path: Path, text: str) -> Tuple[int, int]:
    """kpt_shape, the number of keypoints and of numbers for each; zeros without it."""
    key = re.search(r"^kpt_shape[ \t]*:(?P<value>[^#\n]*(?:\n[ \t]*-[^#\n]*)*)", text, re.MULTILINE)
    if key is None:
        return 0, 0
    numbers = [int(number) for number in re.findall(r"\d+", key.group("value"))]
    if len(numbers) != 2 or numbers[0] < 1 or numbers[1] not in (2, 3):
        raise Refusal(f"{path}: kpt_shape: is {key.group('value').strip()!r}, not the number of keypoints and 2 or 3, such as [17, 3]")
    return numbers[0], numbers[1]


def _data(folder: Path) -> _Data:
    for path in sorted(folder.glob("*.y*ml")):
        text = read_text(path)
        names, keypoints = _yaml_names(path, text), _yaml_keypoints(path, text)
        if names or keypoints[0]:
            return _Data(path, names, keypoints)
    for path in (folder / "classes.txt", folder / "labels" / "classes.txt"):
        if path.is_file():
            return _Data(path, dict(enumerate(read_text(path).rstrip().splitlines())))
    return _Data(folder, {})


class _Objects:
    """The objects of an image, from its label file."""

    def __init__(self, path: Path, keypoints: Tuple[int, int]) -> None:
        self.classes: List[int] = []
        self.boxes: List[List[float]] = []  # centre and size
        self.polygons: List[List[float]] = []  # empty for an object with only a box
        self.points: List[List[List[float]]] = []
        for number, line in enumerate(read_text(path).splitlines() if path.is_file() else (), 1):
            cells = line.split()
            if not cells:
                continue
            try:
                kind, values = int(cells[0]), [float(cell) for cell in cells[1:]]
            except ValueError:
                raise Refusal(f"{path}, line {number}: not a class and numbers") from None
            self.classes.append(kind)
            if keypoints[0]:
                self._add_pose(f"{path}, line {number}", values, keypoints)
            else:
                self._add_shape(f"{path}, line {number}", values)

    def _add_pose(self, where: str, values: List[float], keypoints: Tuple[int, int]) -> None:
        count, size = keypoints
        if len(values) != 4 + count * size:
            raise Refusal(f"{where}: {len(values)} numbers follow the class; with kpt_shape [{count}, {size}] in data.yaml there are {4 + count * size}")
        self.boxes.append(values[:4])
        self.points.append([values[at : at + size] for at in range(4, len(values), size)])

    def _add_shape(self, where: str, values: List[float]) -> None:
        if len(values) < 4 or len(values) % 2:
            raise Refusal(f"{where}: {len(values)} numbers follow the class; a box has 4, a polygon more, two for each point")
        if not all(map(isfinite, values)):
            raise Refusal(f"{where}: a coordinate is not finite")
        self.polygons.append(values if len(values) > 4 else [])
        self.boxes.append(values if len(values) == 4 else _extent(values))


def _extent(points: Sequence[float]) -> List[float]:
    left, right, top, bottom = min(points[::2]), max(points[::2]), min(points[1::2]), max(points[1::2])
    return [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]


def parts(path: Path, chosen: Choice) -> List[Part]:
    pairs, data = _pairs(path), _data(path)
    files = {split: sorted(name for name in images.rglob("*") if name.suffix.lower() in IMAGE_SUFFIXES) for split, (images, _) in pairs.items()}
    used: Set[int] = set()
    has_polygons = False
    for split, (images, labels) in pairs.items():
        for name in files[split]:
            objects = _Objects(_label(name, images, labels), data.keypoints)
            used.update(objects.classes)
            has_polygons |= any(objects.polygons)
    notes = [] if data.names else ["there is no data.yaml with names: next to the images, so classes have only numbers"]
    if has_polygons:
        notes.append(POLYGON_NOTE)
    names = [*unique_names(dict(sorted(data.names.items())), used, data.path, notes).values()] or None
    fields = _fields(data.keypoints, has_polygons)
    return [Part(split, fields, _reader(files[split], *pair, data.keypoints), names, notes) for split, pair in pairs.items()]


def _fields(keypoints: Tuple[int, int], has_polygons: bool) -> List[Field]:
    fields = [
        Field("image", "image", "image u8[h,w,3]"), Field("key", "key", "key"), Field("boxes", "boxes", "boxes(image) f32[*,4] cxcywh normalized"),
        Field("class", "class", "class(boxes) i32[*]"),
    ]  # fmt: skip
    if keypoints[0]:
        fields.append(Field("keypoints", "keypoints", f"keypoints(boxes) f32[*,{keypoints[0]},{keypoints[1]}] {'xy' if keypoints[1] == 2 else 'xyv'} normalized"))
    if has_polygons:
        fields.append(polygon_field(" normalized"))
    return fields


def _label(image: Path, images: Path, labels: Path) -> Path:
    return (labels / image.relative_to(images)).with_suffix(".txt")


def _reader(files: Sequence[Path], images: Path, labels: Path, keypoints: Tuple[int, int]) -> Any:
    def rows() -> Iterator[Mapping[str, Any]]:
        for name in files:
            objects = _Objects(_label(name, images, labels), keypoints)
            yield {
                "image": name, "key": str(name.relative_to(images)), "boxes": objects.boxes, "class": objects.classes,
                "polygons": polygon_rows([[polygon] if polygon else [] for polygon in objects.polygons]), "keypoints": objects.points,
            }  # fmt: skip

    return rows
