"""The result of a source of `python -m loaderd.convert`: datasets to write, each with columns and rows."""

import json
import re
from pathlib import Path
from typing import AbstractSet, Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, NoReturn, Optional, Sequence, Set, Tuple

from .._polygons import join_polygons

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff")  # extensions to try for an annotation's image
IMAGE_NAMES = ("image", "img", "jpg", "jpeg", "png", "image/encoded", "image_bytes", "image_raw", "x")
LABEL_NAMES = ("label", "labels", "target", "class", "cls", "fine_label", "image/class/label", "class_label", "y")
KEY_NAMES = ("__key__", "key", "file_name", "filename", "image/filename", "path")
# first bytes of the image formats that packimg reads
_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM", b"II*\0", b"MM\0*")


class Refusal(Exception):
    """The source cannot be converted; the text has the reason and the remedy."""


class Field(NamedTuple):
    """A column to write."""

    column: str  # its name in the source
    name: str  # its name in the dataset
    kind: str  # the rest of its line in the schema, such as "value i64"


class Part(NamedTuple):
    """A dataset to write."""

    name: str  # such as "train"; empty if the source has no splits
    fields: Sequence[Field]
    rows: Callable[[], Iterator[Mapping[str, Any]]]  # by column; a missing value is None
    classes: Optional[Sequence[str]] = None  # names of classes by number
    notes: Sequence[str] = ()  # automatic decisions that the user may not have intended


class Choice(NamedTuple):
    """Columns and masks that the user chose; None for the usual ones."""

    image: Optional[str] = None
    label: Optional[str] = None
    key: Optional[str] = None
    masks: Optional[str] = None


def needs(package: str, what: str, install: str) -> NoReturn:
    raise Refusal(f"{what} are read with {package}, which is not installed: pip install {install}")


def read_text(path: Path) -> str:
    """Reads a UTF-8 text file."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Refusal(f"{path}: not UTF-8: {error}") from None


class ValueKind:
    """Determines the kind of field that can hold all values of a column."""

    def __init__(self) -> None:
        self._kinds: Set[str] = set()

    def add(self, value: Any) -> None:
        if value is not None:
            self._kinds.add(_kind_of(value))

    @property
    def kind(self) -> Optional[str]:
        """The field's line in the schema after its name; None if no field can hold the values."""
        if not self._kinds or "" in self._kinds:
            return None
        if len(self._kinds) == 1:
            return next(iter(self._kinds))
        if self._kinds == {"value i64", "value f64"}:
            return "value f64"
        return None if "bytes" in self._kinds else "json"


def _kind_of(value: Any) -> str:
    """The kind of field that can hold this value; empty if none can."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, (bytes, bytearray)):
        return "bytes"
    if hasattr(value, "dtype") and hasattr(value, "tolist"):  # a NumPy array or scalar
        value = value.tolist()
    if isinstance(value, int):
        return "value i64"
    if isinstance(value, float):
        return "value f64"
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return ""
    return "json"


def unique_names(names: Mapping[int, str], used: AbstractSet[int], where: Path, notes: List[str]) -> Dict[int, str]:
    """Renames unused classes whose name another class also has, such as Roboflow's first category; adds notes.

    `used`: numbers of the classes with objects. Refuses two of these with the same name.
    """
    unique: Dict[int, str] = {}
    for number in sorted(names, key=lambda number: (number not in used, number)):
        name, taken = names[number], {other: one for one, other in unique.items()}
        if name in taken and number in used:
            raise Refusal(f"{where}: classes {taken[name]} and {number} are both called {name!r}, and objects are of both: rename one, or make them one class")
        unique[number] = name
        if name in taken:
            unique[number] = field_name(f"{name}_{number}", list(names.values()))
            notes.append(f"class {number} is called {unique[number]} here: class {taken[name]} is {name}, too, and no object is of class {number}")
    return {number: unique[number] for number in names}


def polygon_field(normalized: str = "") -> Field:
    """The polygons of all boxes of an image."""
    return Field("polygons", "polygons", f"polygons(boxes) f32[*,2] xy{normalized}")


POLYGON_NOTE = "polygons has the polygons of each box; a row of NaN ends each polygon, and one more each box; loaderd.split_polygons() splits them"


def polygon_rows(objects: Sequence[Sequence[Sequence[float]]]) -> List[Tuple[float, float]]:
    """The column of polygon_field() from the polygons [x, y, x, y ...] of each box."""
    return join_polygons([[zip(flat[::2], flat[1::2]) for flat in polygons] for polygons in objects])


def is_image_file(data: Any) -> bool:
    """True if the first bytes are those of an image format that packimg reads."""
    if not isinstance(data, (bytes, bytearray)):
        return False
    return bytes(data[:8]).startswith(_MAGIC) or data[:4] == b"RIFF" and data[8:12] == b"WEBP" or data[4:12] in (b"ftypavif", b"ftypavis")


def field_name(column: str, taken: Sequence[str]) -> str:
    """Turns a column's name into a valid, unused name for a schema."""
    name = re.sub(r"[^A-Za-z0-9_.]", "_", column)
    name = name if re.match(r"[A-Za-z_]", name) else f"_{name}"
    number = 2
    unique = name
    while unique in taken:
        unique = f"{name}_{number}"
        number += 1
    return unique


def choose(role: str, given: Optional[str], usual: Sequence[str], columns: Sequence[str]) -> Optional[str]:
    """Returns the column of a role: the user's choice, or the first with one of the usual names."""
    if given is not None and given not in columns:
        raise Refusal(f"--{role} {given}: there is no such column among {', '.join(columns) or 'those of that type'}")
    if given is not None:
        return given
    return next((name for name in usual if name in columns), None)


def fields_of(kinds: Mapping[str, str], image: str, label: Optional[str], key: Optional[str], notes: List[str]) -> List[Field]:
    """Names the fields of columns with these kinds; those of image, label and key keep these names."""
    fields: List[Field] = []
    for role, column in (("image", image), ("label", label), ("key", key)):
        if column is not None:
            fields.append(Field(column, role, {"image": "image u8[h,w,3]", "label": "class i32", "key": "key"}[role]))
    for column, kind in kinds.items():
        if column in (image, label, key):
            continue
        name = field_name(column, [field.name for field in fields] + ["label", "key"])
        if name != column:
            notes.append(f"column {column} became the field {name}")
        fields.append(Field(column, name, f"{kind} sparse"))
    return fields
