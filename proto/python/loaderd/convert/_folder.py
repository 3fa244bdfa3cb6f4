"""Hugging Face's imagefolder: images in folders, with metadata.jsonl or metadata.csv next to them, in one folder or in one for each split."""

import csv
import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Set, Type

from ._part import LABEL_NAMES, Choice, Part, Refusal, ValueKind, choose, fields_of

_TABLES = ("metadata.jsonl", "metadata.csv")
_FILE_NAMES = ("file_name", "file_path", "image")
_WHOLE_MAX = 1 << 63  # i64 holds all numbers below
_DEPTH = 2  # depth of the search for tables below the source


def _tables(folder: Path) -> List[Path]:
    found = []
    for depth in range(_DEPTH + 1):
        for name in _TABLES:
            found += sorted(folder.glob("*/" * depth + name))
    return found


def recognises(path: Path) -> bool:
    return bool(_tables(path)) if path.is_dir() else path.name in _TABLES


def _jsonl(path: Path) -> Iterator[Dict[str, Any]]:
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise Refusal(f"{path}, line {number}: not JSON: {error}") from None
            if not isinstance(row, dict):
                raise Refusal(f"{path}, line {number}: not an object of columns, such as {{\"file_name\": \"a.jpg\"}}")
            yield row


def _csv(path: Path) -> Iterator[Dict[str, str]]:
    """Yields the rows of a CSV table as strings; an empty cell is a missing value."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file):
            yield {name: text for name, text in row.items() if name and text}


def _rows(path: Path) -> Iterator[Dict[str, Any]]:
    """Yields the rows of a table. Missing values are None or absent."""
    try:
        yield from _jsonl(path) if path.suffix == ".jsonl" else _csv(path)
    except UnicodeDecodeError as error:
        raise Refusal(f"{path}: not UTF-8: {error}") from None


def _type_of(text: str) -> Type[Any]:
    """Returns int or float if Python prints the number as exactly this text; else str, as for 007 and 1.50, so that nothing is lost."""
    for kind in (int, float):
        try:
            if str(kind(text)) == text and (kind is float or abs(kind(text)) < _WHOLE_MAX):
                return kind
        except ValueError:
            continue
    return str


class _Tables:
    """The tables of all splits. A column has one type in all of them, and a class one number."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._types: Dict[str, Type[Any]] = {}  # types of CSV columns, whose cells are all strings
        for path in paths:
            for row in _rows(path) if path.suffix == ".csv" else ():
                for name, text in row.items():
                    self._types[name] = _wider(self._types.get(name, int), _type_of(text))
        self.kinds: Dict[str, ValueKind] = {}
        self.texts: Dict[str, Set[str]] = {}  # values of the columns that may be labels
        self.columns: Dict[Path, Dict[str, None]] = {path: {} for path in paths}  # in order
        for path in paths:
            for row in self.rows(path):
                self._add(path, row)

    def _add(self, path: Path, row: Mapping[str, Any]) -> None:
        self.columns[path].update(dict.fromkeys(row))
        for name, value in row.items():
            self.kinds.setdefault(name, ValueKind()).add(value)
            if isinstance(value, str) and name not in _FILE_NAMES:
                self.texts.setdefault(name, set()).add(value)

    def rows(self, path: Path) -> Iterator[Dict[str, Any]]:
        for row in _rows(path):
            yield {name: self._types[name](text) for name, text in row.items()} if path.suffix == ".csv" else row


def _wider(one: Type[Any], other: Type[Any]) -> Type[Any]:
    """The common type of the values of both."""
    return str if str in (one, other) else float if float in (one, other) else int


def _names(top: Path, tables: Sequence[Path]) -> List[str]:
    """Names the splits after their folders; adds parent folders where two names are equal."""
    names = [table.parent.name for table in tables]
    for number, table in enumerate(tables):
        beside = next((other for other in tables[:number] if other.parent == table.parent), None)
        if beside:
            raise Refusal(f"{table}: {beside.name} describes the images of this folder, too: remove one, or convert them by their own names")
    inside = ["-".join(table.parent.relative_to(top).parts) or name for table, name in zip(tables, names)]
    return [whole if names.count(name) > 1 else name for whole, name in zip(inside, names)]


def parts(path: Path, chosen: Choice) -> List[Part]:
    if not path.is_dir():
        return [_part("", path, _Tables([path]), chosen)]
    found = _tables(path)
    tables = _Tables(found)
    return [_part(name, table, tables, chosen) for name, table in zip(_names(path, found), found)]


def _part(name: str, table: Path, tables: _Tables, chosen: Choice) -> Part:
    kinds = {column: kind.kind for column, kind in tables.kinds.items()}
    columns: Sequence[str] = [*tables.columns[table]]
    image = choose("image", chosen.image, _FILE_NAMES, columns)
    if image is None:
        raise Refusal(f"{table}: no column is called file_name; its columns are {', '.join(columns)}")
    label = choose("label", chosen.label, LABEL_NAMES, [column for column in kinds if kinds[column] in ("value i64", "text") and column != image])
    classes = sorted(tables.texts.get(label, ())) if label and kinds[label] == "text" else None
    notes = [f"column {column} is left out: no field holds its values" for column, kind in kinds.items() if kind is None]
    fields = fields_of({column: kind for column, kind in kinds.items() if kind}, image, label, None, notes)
    fields.append(fields[0]._replace(column="\0name", name="key", kind="key"))

    file_column: str = image

    def rows() -> Iterator[Mapping[str, Any]]:
        for row in tables.rows(table):
            texts = {column: str(row[column]) for column, kind in kinds.items() if kind == "text" and row.get(column) is not None}
            name = row.get(file_column)
            yield {**row, **texts, file_column: table.parent / str(name) if name else None, "\0name": name}

    return Part(name, fields, rows, classes, notes)
