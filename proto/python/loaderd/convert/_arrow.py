"""Parquet and Arrow files, such as Hugging Face datasets: one file, a folder from the Hub, or the result of save_to_disk()."""

import json
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from ._part import IMAGE_NAMES, KEY_NAMES, LABEL_NAMES, Choice, Part, Refusal, choose, fields_of, is_image_file, needs, unique_names

_ROWS = 32  # rows per batch in memory
_SPLIT = re.compile(r"(.+?)-\d+-of-\d+")


def recognises(path: Path) -> bool:
    if path.is_dir():
        return bool(_files(path))
    return path.suffix.lower() in (".parquet", ".pq", ".arrow", ".feather")


def _files(folder: Path) -> List[Path]:
    found = sorted(name for pattern in ("*.parquet", "*.arrow") for name in folder.rglob(pattern))
    return [name for name in found if not name.name.startswith((".", "cache-"))]


def _split_of(path: Path, top: Path) -> str:
    """Returns a file's split: train for train-00000-of-00002.parquet, the folder's name for files of save_to_disk()."""
    found = _SPLIT.fullmatch(path.stem)
    if found and found.group(1) != "data":
        return found.group(1)
    inside = path.relative_to(top).parent.parts
    return inside[-1] if inside else "" if found else path.stem


def parts(path: Path, chosen: Choice) -> List[Part]:
    try:
        import pyarrow
    except ImportError:
        needs("pyarrow", "Parquet and Arrow files", "pyarrow")
    splits: Dict[str, List[Path]] = {}
    for file in _files(path) if path.is_dir() else [path]:
        splits.setdefault(_split_of(file, path) if path.is_dir() else "", []).append(file)
    try:
        every = [file for files in splits.values() for file in files]
        return [_part(name, files, every, chosen) for name, files in splits.items()]
    except pyarrow.ArrowException as error:
        raise Refusal(f"{path}: {error}") from None


def _schema_of(path: Path) -> Any:
    if path.suffix.lower() in (".parquet", ".pq"):
        import pyarrow.parquet

        return pyarrow.parquet.read_schema(path)
    return _reader(path).schema


def _reader(path: Path) -> Any:
    """Opens an Arrow file or an Arrow stream; datasets uses the same extension for both."""
    import pyarrow

    source = pyarrow.memory_map(str(path))
    try:
        return pyarrow.ipc.open_file(source)
    except pyarrow.ArrowInvalid:
        return pyarrow.ipc.open_stream(source)


def _batches(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    import pyarrow

    if path.suffix.lower() in (".parquet", ".pq"):
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(path) as file:
            yield from file.iter_batches(_ROWS, columns=[*columns])
        return
    reader = _reader(path)
    whole = (reader.get_batch(i) for i in range(reader.num_record_batches)) if hasattr(reader, "num_record_batches") else reader
    for batch in whole:
        for first in range(0, batch.num_rows, _ROWS):
            yield pyarrow.RecordBatch.from_arrays([batch.column(name) for name in columns], [*columns]).slice(first, _ROWS)


def _features(schema: Any) -> Dict[str, Any]:
    """The Hugging Face features in the metadata."""
    text = (schema.metadata or {}).get(b"huggingface")
    try:
        features = json.loads(text)["info"]["features"] if text else {}
    except (ValueError, KeyError, TypeError):
        features = {}
    return {name: feature for name, feature in features.items() if isinstance(feature, dict)}


def _is_image_struct(kind: Any) -> bool:
    import pyarrow

    return bool(pyarrow.types.is_struct(kind)) and {"bytes", "path"} <= {kind.field(i).name for i in range(kind.num_fields)}


def _is_binary(kind: Any) -> bool:
    import pyarrow

    return any(is_kind(kind) for is_kind in (pyarrow.types.is_binary, pyarrow.types.is_large_binary, pyarrow.types.is_fixed_size_binary))


def _holds_binary(kind: Any) -> bool:
    if _is_binary(kind):
        return True
    return any(_holds_binary(kind.field(i).type) for i in range(kind.num_fields))


_ELEMENTS = {"uint8": "u8", "uint16": "u16", "int8": "i16", "int16": "i16", "int32": "i32", "uint32": "i64", "int64": "i64", "uint64": "u64",
             "halffloat": "f16", "float": "f32", "double": "f64"}  # fmt: skip


def _dimensions(kind: Any) -> Tuple[Any, List[int]]:
    """The element type of nested lists, and the length of each level; 0 where lengths differ."""
    from pyarrow import types

    shape: List[int] = []
    while types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        shape.append(kind.list_size if types.is_fixed_size_list(kind) else 0)
        kind = kind.value_type
    return kind, shape


def _kind_of(kind: Any) -> Optional[str]:
    """Returns the schema's kind for a type; None if no field can hold it."""
    from pyarrow import types

    if types.is_boolean(kind):
        return "value u8"
    if str(kind) in _ELEMENTS:
        return f"value {_ELEMENTS[str(kind)]}"
    if _is_image_struct(kind) or _is_binary(kind):
        return "bytes"
    element, shape = _dimensions(kind)
    if shape and str(element) in _ELEMENTS and 0 not in shape[1:] and len(shape) <= 4:
        return f"value {_ELEMENTS[str(element)]}[{','.join(str(extent or '*') for extent in shape)}]"
    if types.is_nested(kind):
        return None if _holds_binary(kind) else "json"
    return "text"  # also dates, decimals and dictionaries, as pyarrow shows them


def _having(files: Sequence[Path], column: str) -> List[Path]:
    """Returns the files that have the column."""
    return [path for path in files if column in _schema_of(path).names]


def _has_missing_items(files: Sequence[Path], column: str) -> bool:
    """True if a list in the column has a null item, which only JSON can hold."""
    import pyarrow

    for path in files:
        for batch in _batches(path, [column]):
            values = batch.column(column)
            while hasattr(values, "flatten") and not pyarrow.types.is_struct(values.type):
                values = values.flatten()
                if values.null_count:
                    return True
    return False


def _first_value(files: Sequence[Path], column: str) -> Any:
    for path in files:
        for batch in _batches(path, [column]):
            for value in batch.column(column).to_pylist():
                if value is not None:
                    return value
    return None


def _find_image(schema: Any, features: Mapping[str, Any], files: Sequence[Path], chosen: Choice) -> str:
    structs = [field.name for field in schema if features.get(field.name, {}).get("_type") == "Image" or _is_image_struct(field.type)]
    binary = [field.name for field in schema if _is_binary(field.type)]
    candidates = structs or [name for name in binary if chosen.image == name or is_image_file(_first_value(files, name))]
    image = choose("image", chosen.image, (*IMAGE_NAMES, *candidates), candidates)
    if image is None:
        raise Refusal(f"{files[0]}: no column holds images, which are bytes of image files, or structures of bytes and path; its columns are {', '.join(schema.names)}")
    return image


def _values_of(files: Sequence[Path], column: str) -> List[Any]:
    """The distinct values of a column, in order."""
    found: Set[Any] = set()
    for path in _having(files, column):
        for batch in _batches(path, [column]):
            found.update(batch.column(column).to_pylist())
    return sorted(found - {None})


def _class_names(names: Sequence[Any], files: Sequence[Path], column: str, notes: List[str]) -> List[str]:
    """The names of a ClassLabel. Refuses equal names of two classes that samples have."""
    texts = {number: str(name) for number, name in enumerate(names)}
    if len(set(texts.values())) == len(texts):
        return [*texts.values()]
    return [*unique_names(texts, set(_values_of(files, column)), files[0], notes).values()]


def _label(
    schema: Any, features: Mapping[str, Any], files: Sequence[Path], chosen: Choice, notes: List[str]
) -> Tuple[Optional[str], Optional[List[str]]]:
    """The column of labels, and the names of classes."""
    from pyarrow import types

    named = [name for name, feature in features.items() if feature.get("_type") == "ClassLabel" and name in schema.names]
    texts = [field.name for field in schema if types.is_string(field.type) or types.is_large_string(field.type)]
    numbers = [field.name for field in schema if types.is_integer(field.type)]
    label = choose("label", chosen.label, (*named, *LABEL_NAMES), [*numbers, *texts])
    if label in named:
        names = features[str(label)].get("names")
        return label, _class_names(names, files, str(label), notes) if names else None
    return label, _values_of(files, str(label)) if label in texts else None


def _part(name: str, files: Sequence[Path], every: Sequence[Path], chosen: Choice) -> Part:
    """Makes the part of one split. `every`: the files of all splits, which share class numbers and the kinds of columns."""
    schema = _schema_of(files[0])
    for path in files[1:]:
        if not _schema_of(path).equals(schema):
            raise Refusal(f"{path}: its columns are not those of {files[0]}; convert them one by one")
    features = _features(schema)
    image = _find_image(schema, features, files, chosen)
    notes: List[str] = []
    label, classes = _label(schema, features, every, chosen, notes)
    key = choose("key", chosen.key, KEY_NAMES, [field.name for field in schema if _kind_of(field.type) == "text" and field.name != label])
    kinds = {}
    for field in schema:
        kind = _kind_of(field.type)
        if kind and "[" in kind and _has_missing_items(_having(every, field.name), field.name):
            kind = "json"
        if kind is None:
            notes.append(f"column {field.name} is left out: no field holds {field.type}")
        else:
            kinds[field.name] = kind
            if kind == "bytes" and field.name != image and _is_image_struct(field.type):
                notes.append(f"column {field.name} holds images, too; a sample has one, so these became bytes: --image {field.name} chooses them")
    fields = fields_of(kinds, image, label, key, notes)
    named_by_path = key is None and _is_image_struct(schema.field(image).type)
    if named_by_path:
        fields.append(fields[0]._replace(column="\0path", name="key", kind="key"))
    columns = [field.column for field in fields if field.column != "\0path"]
    return Part(name, fields, lambda: _rows(files, columns, {field.column: field.kind for field in fields}), classes, notes)


def _image_of(value: Any, folder: Path) -> Any:
    """The bytes of {bytes, path}, or the path."""
    if not isinstance(value, dict):
        return value
    data, path = value["bytes"], value["path"]
    return data if data is not None else folder / path if path else None


def _rows(files: Sequence[Path], columns: Sequence[str], kinds: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    for path in files:
        for batch in _batches(path, columns):
            lists = {name: batch.column(name).to_pylist() for name in columns}
            for i in range(batch.num_rows):
                row = {name: values[i] for name, values in lists.items()}
                for name, value in row.items():
                    if isinstance(value, dict) and {"bytes", "path"} <= set(value):
                        if kinds[name].startswith("image"):
                            row = {**row, "\0path": value["path"]}
                        row = {**row, name: _image_of(value, path.parent) if kinds[name].startswith("image") else value["bytes"]}
                    elif value is not None and kinds[name].startswith("text") and not isinstance(value, str):
                        row = {**row, name: str(value)}
                yield row
