"""FFCV's .beton files, read with FFCV's own reader: JPEGs verbatim, raw images as pixels (https://docs.ffcv.io)."""

import json
import struct
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional

from ._part import IMAGE_NAMES, KEY_NAMES, LABEL_NAMES, Choice, Field, Part, Refusal, choose, fields_of, needs

_HEADER = struct.Struct("<HHIQQ")  # version, number of fields, bytes of a page, samples, where the allocation table is
_VERSION = 2
_ALLOCATION = 24  # bytes of an entry of the allocation table
_JPEG = 0  # IMAGE_MODES["jpg"] of ffcv.fields.rgb_image
_ELEMENTS = {"uint8": "u8", "bool": "u8", "uint16": "u16", "int16": "i16", "int32": "i32", "int64": "i64", "uint64": "u64", "float16": "f16", "float32": "f32", "float64": "f64"}
_DIMS_MAX = 4


class _Column(NamedTuple):
    """A field of FFCV's: the rest of a line in the schema, and what reads a sample's value from its metadata and the file."""

    kind: str  # empty if it cannot be kept
    read: Callable[[Any, Any], Any]


def _splits(path: Path) -> Dict[str, Path]:
    return {file.stem: file for file in sorted(path.glob("*.beton"))} if path.is_dir() else {"": path}


def recognises(path: Path) -> bool:
    if path.is_dir():
        return next(path.glob("*.beton"), None) is not None
    with open(path, "rb") as file:
        head = file.read(_HEADER.size)
    if len(head) < _HEADER.size:
        return False
    version, fields, page, samples, allocations = _HEADER.unpack(head)
    rest = path.stat().st_size - allocations
    return bool(version == _VERSION and 0 < fields < 1 << 8 and page and not page & (page - 1) and samples and allocations >= _HEADER.size and rest >= 0 and rest % _ALLOCATION == 0)


def parts(path: Path, chosen: Choice) -> List[Part]:
    try:
        from ffcv.reader import Reader
    except ImportError:
        needs("FFCV", ".beton files", "ffcv")
    return [_part(name, file, Reader, chosen) for name, file in _splits(path).items()]


class _Blobs:
    """The bytes of a file to which the metadata of samples point."""

    def __init__(self, path: Path, allocations: Any) -> None:
        self.path = path
        self._sizes = dict(zip(allocations["ptr"].tolist(), allocations["size"].tolist()))
        self._file: BinaryIO = open(path, "rb")

    def read(self, offset: int, size: Optional[int] = None) -> bytes:
        if offset not in self._sizes and size != 0:
            raise Refusal(f"{self.path}: damaged: nothing is at byte {offset}, to which a sample points")
        wanted = self._sizes.get(offset, 0) if size is None else size
        self._file.seek(offset)
        found = self._file.read(wanted)
        if len(found) < wanted or wanted > self._sizes.get(offset, 0):
            raise Refusal(f"{self.path}: damaged: {wanted} bytes at byte {offset}, to which a sample points, are cut off")
        return found


def _image(entry: Any, blobs: _Blobs) -> Any:
    import numpy

    data = blobs.read(int(entry["data_ptr"]))
    if entry["mode"] == _JPEG:
        return data
    height, width = int(entry["height"]), int(entry["width"])
    if len(data) != height * width * 3:
        raise Refusal(f"{blobs.path}: damaged: an image of {width} x {height} pixels has {len(data)} bytes, not {height * width * 3}")
    return numpy.frombuffer(data, "uint8").reshape(height, width, 3)


def _json(entry: Any, blobs: _Blobs) -> Any:
    return json.loads(blobs.read(int(entry["ptr"]), int(entry["size"])).split(b"\0")[0])


def _array(dtype: Any, shape: Any) -> _Column:
    element = _ELEMENTS.get(str(dtype))

    def read(entry: Any, blobs: _Blobs) -> Any:
        import numpy

        return numpy.frombuffer(blobs.read(int(entry)), dtype).reshape(shape)

    kept = element is not None and 0 < len(shape) <= _DIMS_MAX
    return _Column(f"value {element}[{','.join(map(str, shape))}]" if kept else "", read)


def _column(number: int, handler: Any) -> _Column:
    """What becomes of a field, by the number of its type (ffcv/types.py), since the reader takes one of JSON for one of bytes."""
    if number in (4, 6):
        return _array(handler.dtype, handler.shape)
    known: Mapping[int, _Column] = {
        0: _Column("value f64", lambda entry, blobs: float(entry)), 1: _Column("value i64", lambda entry, blobs: int(entry)), 2: _Column("image u8[h,w,3]", _image),
        3: _Column("bytes", lambda entry, blobs: blobs.read(int(entry["ptr"]), int(entry["size"]))), 5: _Column("json", _json),
    }  # fmt: skip
    return known.get(number, _Column("", lambda entry, blobs: None))


def _part(name: str, path: Path, open_file: Callable[[str], Any], chosen: Choice) -> Part:
    try:
        reader = open_file(str(path))
    except (AssertionError, ValueError, KeyError, IndexError) as error:
        raise Refusal(f"{path}: FFCV's reader refuses it: {error}") from None
    types = reader.field_descriptors["type_id"].tolist()
    columns = {field: _column(number, reader.handlers[field]) for field, number in zip(reader.field_names, types)}
    images = [field for field, column in columns.items() if column.kind.startswith("image")]
    image = choose("image", chosen.image, (*IMAGE_NAMES, *images), images)
    if image is None:
        raise Refusal(f"{path}: no field holds images; its fields are {', '.join(columns)}")
    label = choose("label", chosen.label, LABEL_NAMES, [field for field, column in columns.items() if column.kind == "value i64"])
    key = choose("key", chosen.key, KEY_NAMES, [field for field, column in columns.items() if column.kind == "bytes"])
    notes = [f"field {field} is left out: no value of a schema holds it" for field, column in columns.items() if not column.kind]
    fields: List[Field] = fields_of({field: column.kind for field, column in columns.items() if column.kind and field != image}, image, label, key, notes)
    return Part(name, fields, _reader(path, reader, columns), None, notes)


def _reader(path: Path, reader: Any, columns: Mapping[str, _Column]) -> Callable[[], Iterator[Mapping[str, Any]]]:
    def rows() -> Iterator[Mapping[str, Any]]:
        blobs = _Blobs(path, reader.alloc_table)
        for entry in reader.metadata:
            yield {field: columns[field].read(entry[number], blobs) for number, field in enumerate(reader.field_names)}

    return rows
