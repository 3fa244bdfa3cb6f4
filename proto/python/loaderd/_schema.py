"""The schema of a dataset to write, and the conversion of a sample's values to bytes."""

import json
import os
import struct
import sys
from array import array
from math import isinf, isnan
from operator import index
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple, Union

from ._errors import BadOption

Text = Union[str, Mapping[str, str]]
Stored = Union[int, float, bytes]

_SPARSE = 1  # enum schema_flag
# enum schema_store
IN_INDEX, IN_IMAGES, IN_COLUMN, IN_LABEL, IN_SOURCE, IN_NUMBER = range(1, 7)
_ELEMENTS = {"u8": 1, "f32": 4, "u16": 5, "i16": 6, "i32": 7}  # elements of rasters: enum packimg_element
_FORMATS = {"u8": "B", "u16": "H", "i16": "h", "i32": "i", "i64": "q", "u64": "Q", "f16": "e", "f32": "f", "f64": "d"}  # format characters of struct
_KEY_MAX = (1 << 16) - 1  # bytes, PACKIMG_SOURCE_MAX
_BF16_INFINITY, _BF16_NAN = 0x7F80, 0x7FC0
_REALS = ("f16", "bf16", "f32", "f64")
_BOUNDS = {name: (0, 1 << int(name[1:])) if name[0] == "u" else (-(1 << int(name[1:]) - 1), 1 << int(name[1:]) - 1)
           for name in ("u8", "u16", "i16", "i32", "i64", "u64")}  # fmt: skip


class Value(NamedTuple):
    """A value of each sample."""

    name: str
    role: str
    element: str  # "" for text, bytes, JSON and keys
    shape: Tuple[int, ...]  # 0 where it differs from sample to sample
    of: int  # index of the value in brackets, or -1
    flags: int
    store: int
    number: int

    @property
    def sparse(self) -> bool:
        return bool(self.flags & _SPARSE)

    @property
    def has_pixels(self) -> bool:
        return self.role in ("image", "mask", "raster")

    @property
    def is_rgb(self) -> bool:
        """True for 8-bit RGB, the pixels of ordinary image files; other images are stored as rasters."""
        return self.role == "image" and self.element == "u8" and len(self.shape) == 3 and self.shape[2] == 3

    @property
    def channels(self) -> int:
        return self.shape[2] if len(self.shape) == 3 else 1

    @property
    def bounds(self) -> Tuple[int, int]:
        """The range of an integer element: minimum, and maximum + 1. Class numbers begin at -1, which means none."""
        low, high = _BOUNDS[self.element]
        return (max(low, -1), min(high, 1 << 24)) if self.role == "class" else (low, high)

    @property
    def is_real(self) -> bool:
        return self.element in _REALS

    def rows(self, stored: Stored) -> int:
        """Number of rows in the stored bytes of a value."""
        if not self.shape or self.shape[0] or not isinstance(stored, bytes):
            return 1
        size = 2 if self.element == "bf16" else struct.calcsize(f"<{self.format}")
        for extent in self.shape[1:]:
            size *= extent
        return len(stored) // size

    @property
    def raster_element(self) -> int:
        return _ELEMENTS[self.element]

    @property
    def format(self) -> str:
        """Format character of an element for struct and memoryview."""
        return _FORMATS[self.element]


def parse(schema: Text, extension: Any) -> Tuple[List[Value], str]:
    """Parses a schema: text with a line for each value, or {name: rest of the line}. Returns the values and the canonical text."""
    text = schema if isinstance(schema, str) else "\n".join(f"{_quoted(name)}: {rest}" for name, rest in schema.items())
    try:
        rows, canonical = extension.schema(text)
    except extension.Error as error:
        raise BadOption(f"schema: {error.args[1]}", error.args[0]) from None
    return [Value(*row) for row in rows], canonical


def states(schema: Text, name: str) -> bool:
    """True if the user's schema has a line for the value."""
    lines = [*schema] if not isinstance(schema, str) else [line.split(":")[0].strip() for line in schema.splitlines()]
    return name in lines or _quoted(name) in lines


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def is_implied(values: Sequence[Value]) -> bool:
    """True if the values are those of a file without a schema: image, label and key."""
    return all(value.is_rgb if value.store == IN_INDEX else value.store != IN_COLUMN and not value.has_pixels for value in values)


def integer(value: Any, bounds: Tuple[int, int]) -> int:
    if not hasattr(value, "__index__") and hasattr(value, "__float__") and float(value).is_integer():
        value = int(value)  # a Python or NumPy float
    try:
        whole: int = index(value)
    except TypeError:
        raise ValueError("it is not a whole number") from None
    if not bounds[0] <= whole < bounds[1]:
        raise ValueError(f"it is not in {bounds[0]} .. {bounds[1] - 1}")
    return whole


def _real(value: Any) -> float:
    """OverflowError for an integer beyond the range of f64."""
    if isinstance(value, (str, bytes)):
        raise ValueError("it is not a number")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError("it is not a number") from None


def text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError("it is not a text")
    if "\0" in value:
        raise ValueError("it contains a zero character; the role bytes takes any")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise ValueError("it contains surrogates, which UTF-8 has none of; the role bytes takes any") from None


def key(value: Any) -> bytes:
    """The bytes of a sample's name. File names that are not UTF-8 are in the form of os.fsdecode()."""
    if not isinstance(value, str):
        raise ValueError("it is not a text")
    if "\0" in value:
        raise ValueError("it contains a zero character")
    try:
        name = os.fsencode(value)
    except UnicodeEncodeError:
        raise ValueError("it contains surrogates other than those of os.fsdecode()") from None
    if len(name) > _KEY_MAX:
        raise ValueError(f"it has {len(name)} bytes, and a key at most {_KEY_MAX}")
    return name


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, allow_nan=False, default=_plain).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"JSON cannot hold it: {error}") from None


def _plain(value: Any) -> Any:
    """Converts NumPy arrays and scalars for json.dumps()."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is not a number, text, list or dictionary")


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        raise ValueError("it is a text; the role text takes it")
    try:
        return memoryview(value).tobytes()
    except TypeError:
        raise ValueError("it is not bytes") from None


_CONVERSIONS: Dict[str, Callable[[Any], bytes]] = {"text": text, "bytes": _bytes, "json": _json}


def shape_text(shape: Sequence[int]) -> str:
    return f"[{','.join(str(extent) if extent else '*' for extent in shape)}]"


def shape_fits(shape: Sequence[int], value: Value) -> bool:
    return len(shape) == len(value.shape) and all(wanted in (0, extent) for extent, wanted in zip(shape, value.shape))


def _check_shape(shape: Sequence[int], value: Value) -> None:
    # an empty list has no inner dimensions
    if not shape_fits(shape, value) and not (tuple(shape) == (0,) and value.shape[0] == 0):
        raise ValueError(f"its shape is {list(shape)}, not {shape_text(value.shape)}")


def _flatten(nested: Any, into: List[Any], depth: int = 0) -> List[int]:
    """Appends the numbers of nested lists; returns their shape."""
    if not isinstance(nested, (list, tuple, range)):
        into.append(nested)
        return []
    shapes = [_flatten(item, into, depth + 1) for item in nested]
    if any(shape != shapes[0] for shape in shapes):
        raise ValueError("its rows differ in length")
    return [len(nested), *(shapes[0] if shapes else [])]


def _bf16(number: float) -> int:
    """Rounds to bfloat16 and returns its bits. OverflowError if a finite number becomes infinite."""
    if isnan(number):
        return _BF16_NAN
    bits: int
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 & 0xFFFF
    if rounded & 0x7FFF == _BF16_INFINITY and not isinf(number):
        raise OverflowError
    return rounded


def _packed(numbers: Sequence[Any], value: Value) -> bytes:
    """Checks numbers and returns their little-endian bytes."""
    if value.is_real:
        try:
            reals = [_real(number) for number in numbers]
            if value.element == "bf16":
                return struct.pack(f"<{len(reals)}H", *(_bf16(number) for number in reals))
            return struct.pack(f"<{len(reals)}{value.format}", *reals)
        except OverflowError:
            raise ValueError(f"it has a number that {value.element} cannot hold") from None
    return struct.pack(f"<{len(numbers)}{value.format}", *(integer(number, value.bounds) for number in numbers))


def _numbers(given: Any, value: Value) -> bytes:
    """The bytes of a vector, a matrix or a list of rows, from nested lists or an array."""
    if hasattr(given, "detach"):  # a PyTorch tensor
        given = given.detach().cpu().numpy()
    if value.element != "bf16" and value.role != "class" and not isinstance(given, (list, tuple)) and sys.byteorder == "little":
        try:
            view = memoryview(given)
        except TypeError:
            view = None
        if view is not None and view.format in (value.format, "l" if value.element == "i64" else value.format):
            _check_shape(view.shape or (), value)
            return view.tobytes()
    nested = given.tolist() if hasattr(given, "tolist") else given
    flat: List[Any] = []
    _check_shape(_flatten(nested, flat), value)
    return _packed(flat, value)


def convert(value: Value, given: Any) -> Stored:
    """Converts a value that is stored in a field. Raises ValueError with the fault if it is invalid."""
    if value.role in _CONVERSIONS:
        return _CONVERSIONS[value.role](given)
    if value.shape:
        return _numbers(given, value)
    if value.is_real:
        _packed([given], value)  # checks that the element holds it
        return _real(given)
    whole = integer(given, value.bounds)
    return whole - (1 << 64) if whole >= 1 << 63 else whole


def largest_class(value: Value, stored: Stored) -> int:
    """The highest class number in a value; -1 if it has none."""
    if value.role != "class":
        return -1
    if not isinstance(stored, bytes):
        return int(stored)
    return max(array(value.format, stored), default=-1)
