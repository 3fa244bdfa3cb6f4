"""TFRecord files of tf.train.Example, as TensorFlow and TensorFlow Datasets write them: read without TensorFlow.

Framing: tensorflow/core/lib/io/record_writer.h. Messages: tensorflow/core/example/{example,feature}.proto, in protobuf's wire format.
"""

import re
import struct
from pathlib import Path
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Union

from ._part import IMAGE_NAMES, KEY_NAMES, LABEL_NAMES, Choice, Field, Part, Refusal, choose, fields_of, is_image_file

_RECORD_MAX = 1 << 30  # bytes
_NAME = re.compile(r"(?:(?P<dataset>.+?)-)?(?P<split>[^-.]+)\.tfrecord(?:s)?(?:-\d+-of-\d+)?|.*\.(?:tfrecords?|tfrec)")
_SHARD = re.compile(r"(?P<split>.+?)-\d+-of-\d+")

Values = List[Any]  # of one type: bytes, float or int


def recognises(path: Path) -> bool:
    if path.is_dir():
        return bool(_files(path))
    return ".tfrec" in path.name.lower() or _is_tfrecord(path)


def _is_tfrecord(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            head = file.read(12)
    except OSError:
        return False
    return len(head) == 12 and _masked_crc(head[:8]) == struct.unpack("<I", head[8:])[0]


def _files(folder: Path) -> List[Path]:
    """The TFRecord files of a folder, recognised by name or, like train-00000-of-01024, by their first bytes."""
    names = sorted(name for name in folder.iterdir() if name.is_file())
    return [name for name in names if ".tfrec" in name.name.lower() or (_SHARD.fullmatch(name.name) and _is_tfrecord(name))]


def _split_of(path: Path) -> str:
    found = _NAME.fullmatch(path.name) or _SHARD.fullmatch(path.name)
    return (found.group("split") if found else None) or path.name.split(".")[0]


def _crc_table() -> List[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def _crc32c(data: bytes) -> int:
    """CRC-32C (RFC 3720, B.4)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _masked_crc(data: bytes, crc32c: Callable[[bytes], int] = _crc32c) -> int:
    crc = crc32c(data)
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF


def _fast_crc() -> Optional[Callable[[bytes], int]]:
    """Returns a CRC-32C function in C if one is installed: in Python it would dominate the run time."""
    try:
        from google_crc32c import value

        return value  # type: ignore
    except ImportError:
        return None


def records(path: Path) -> Iterator[bytes]:
    """Yields the records of a file. Always checks the CRC of lengths; that of records only if google-crc32c is installed."""
    fast = _fast_crc()
    with open(path, "rb") as file:
        number = 0
        while True:
            head = file.read(12)
            if not head:
                return
            yield _record(path, file, number, head, fast)
            number += 1


def _record(path: Path, file: BinaryIO, number: int, head: bytes, fast: Optional[Callable[[bytes], int]]) -> bytes:
    if len(head) < 12:
        raise Refusal(f"{path}: record {number} is cut off")
    length, crc = struct.unpack("<QI", head)
    if crc != _masked_crc(head[:8]):
        raise Refusal(f"{path}: record {number}: the checksum of its length is wrong, so the file is damaged, compressed, or no TFRecord file; gunzip unpacks one with gzip")
    if length > _RECORD_MAX:
        raise Refusal(f"{path}: record {number} has {length} bytes; the limit is {_RECORD_MAX}")
    data = file.read(length + 4)
    if len(data) < length + 4:
        raise Refusal(f"{path}: record {number} is cut off")
    if fast and struct.unpack("<I", data[-4:])[0] != _masked_crc(data[:-4], fast):
        raise Refusal(f"{path}: record {number}: its checksum is wrong, so the file is damaged")
    return data[:-4]


def _varint(data: bytes, at: int) -> Tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _fields(data: bytes) -> Iterator[Tuple[int, int, Union[int, bytes]]]:
    """Yields (field number, wire type, value) of a message; values are integers or bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, kind, value
            continue
        size = 8 if kind == 1 else 4 if kind == 5 else -1
        if kind == 2:
            size, at = _varint(data, at)
        if size < 0 or size > len(data) - at:
            raise ValueError("a value is cut off, or of an unknown type")
        yield tag >> 3, kind, data[at : at + size]
        at += size


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _numbers(data: bytes, real: bool) -> Values:
    """Values of a FloatList or an Int64List, packed or not."""
    found: Values = []
    for number, kind, value in _fields(data):
        if number != 1:
            continue
        if real and kind in (2, 5):
            assert isinstance(value, bytes)
            found += struct.unpack(f"<{len(value) // 4}f", value[: len(value) // 4 * 4])
        elif kind == 0 and not real:
            assert isinstance(value, int)
            found.append(_signed(value))
        elif kind == 2:
            assert isinstance(value, bytes)
            at = 0
            while at < len(value):
                one, at = _varint(value, at)
                found.append(_signed(one))
    return found


def _feature(data: bytes) -> Values:
    for number, kind, value in _fields(data):
        if kind != 2 or not isinstance(value, bytes):
            continue
        if number == 1:
            return [item for one, wire, item in _fields(value) if one == 1 and wire == 2 and isinstance(item, bytes)]
        if number in (2, 3):
            return _numbers(value, number == 2)
    return []


def parse(record: bytes) -> Dict[str, Values]:
    """Parses a tf.train.Example to {name: list of values}. Raises ValueError if it is not one."""
    found: Dict[str, Values] = {}
    for number, kind, features in _fields(record):
        if number != 1 or not isinstance(features, bytes):
            continue
        for one, _, entry in _fields(features):
            if one != 1 or not isinstance(entry, bytes):
                continue
            pair = {key: value for key, wire, value in _fields(entry) if wire == 2}
            name = pair.get(1, b"")
            found[name.decode() if isinstance(name, bytes) else ""] = _feature(bytes(pair.get(2, b"")))
    return found


def _examples(files: Sequence[Path]) -> Iterator[Dict[str, Values]]:
    for path in files:
        for number, record in enumerate(records(path)):
            try:
                yield parse(record)
            except (ValueError, UnicodeDecodeError) as error:
                raise Refusal(f"{path}: record {number} is no tf.train.Example: {error}; only these can be read") from None


class _Seen:
    """Types and counts of a feature's values over all records."""

    def __init__(self) -> None:
        self.type: Optional[type] = None
        self.counts: Set[int] = set()  # numbers of values per record
        self.images = self.utf8 = True
        self.mixed = False

    def add(self, values: Values) -> None:
        if not values:
            return
        self.mixed |= self.type is not None and self.type is not type(values[0])
        self.type = type(values[0])
        self.counts.add(len(values))
        for value in values:
            if isinstance(value, bytes):
                self.images &= is_image_file(value)
                self.utf8 &= _is_text(value)

    @property
    def single(self) -> bool:
        return self.counts == {1}

    @property
    def kind(self) -> Optional[str]:
        """The kind of field; None if no field can hold the values."""
        if self.mixed or self.type is None:
            return None
        if self.type is bytes:
            return ("text" if self.utf8 else "bytes") if self.single else "json" if self.utf8 else None
        shape = "" if self.single else f"[{next(iter(self.counts)) if len(self.counts) == 1 else '*'}]"
        return f"value {'f32' if self.type is float else 'i64'}{shape}"


def _is_text(value: bytes) -> bool:
    try:
        return "\0" not in value.decode()
    except UnicodeDecodeError:
        return False


def parts(path: Path, chosen: Choice) -> List[Part]:
    splits: Dict[str, List[Path]] = {}
    for file in _files(path) if path.is_dir() else [path]:
        splits.setdefault(_split_of(file) if path.is_dir() else "", []).append(file)
    notes: List[str] = []
    fields = _fields_of_all([file for files in splits.values() for file in files], chosen, notes)
    return [Part(name, fields, _reader(files, fields), None, notes) for name, files in splits.items()]


def _fields_of_all(files: Sequence[Path], chosen: Choice, notes: List[str]) -> List[Field]:
    """The fields for the features of all splits together, so that their schemas agree."""
    seen: Dict[str, _Seen] = {}
    for example in _examples(files):
        for column, values in example.items():
            seen.setdefault(column, _Seen()).add(values)
    columns = sorted(seen)
    images = [column for column in columns if seen[column].type is bytes and seen[column].single and (seen[column].images or column == chosen.image)]
    image = choose("image", chosen.image, (*IMAGE_NAMES, *images), images)
    if image is None:
        raise Refusal(f"{files[0]}: no feature holds images, which are bytes of image files; its features are {', '.join(columns)}")
    label = choose("label", chosen.label, LABEL_NAMES, [column for column in columns if seen[column].kind == "value i64"])
    key = choose("key", chosen.key, KEY_NAMES, [column for column in columns if seen[column].kind == "text"])
    notes += [f"feature {column} is left out: no field holds its values" for column in columns if seen[column].kind is None and column != image]
    kinds = {column: str(seen[column].kind) for column in columns if column == image or seen[column].kind}
    return fields_of(kinds, image, label, key, notes)


def _reader(files: Sequence[Path], fields: Sequence[Field]) -> Callable[[], Iterator[Mapping[str, Any]]]:
    return lambda: _rows(files, {field.column: field.kind for field in fields})


def _value(values: Values, kind: str) -> Any:
    if not values:
        return None
    decoded = [value.decode() if isinstance(value, bytes) and kind.startswith(("text", "json", "key")) else value for value in values]
    return decoded if kind.startswith("json") or kind.startswith("value") and "[" in kind else decoded[0]


def _rows(files: Sequence[Path], kinds: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    for example in _examples(files):
        yield {column: _value(example.get(column, []), kind) for column, kind in kinds.items()}
