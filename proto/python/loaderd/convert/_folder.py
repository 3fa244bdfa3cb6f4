"""Hugging Face's imagefolder: images in folders, with metadata.jsonl or metadata.csv beside them, in one folder or in one of each split."""

import csv
import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Set, Tuple

from ._part import LABEL_NAMES, Choice, Part, Refusal, ValueKind, choose, fields_of

_TABLES = ("metadata.jsonl", "metadata.csv")
_FILE_NAMES = ("file_name", "file_path", "image")
_DEPTH = 2  # folders below the source in which tables are looked for


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


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _csv(path: Path) -> Iterator[Dict[str, Any]]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        for row in csv.DictReader(file):
            yield {name: _number(text) for name, text in row.items() if name and text}


def _rows(path: Path) -> Iterator[Dict[str, Any]]:
    """Yields the rows of a table. Missing values are None, or not there."""
    try:
        yield from _jsonl(path) if path.suffix == ".jsonl" else _csv(path)
    except UnicodeDecodeError as error:
        raise Refusal(f"{path}: not UTF-8: {error}") from None


def _seen(path: Path) -> Tuple[Dict[str, ValueKind], Dict[str, Set[str]]]:
    """The kinds of the columns, and the texts of those that may be labels."""
    kinds: Dict[str, ValueKind] = {}
    texts: Dict[str, Set[str]] = {}
    for row in _rows(path):
        for name, value in row.items():
            kinds.setdefault(name, ValueKind()).add(value)
            if isinstance(value, str) and name not in _FILE_NAMES:
                texts.setdefault(name, set()).add(value)
    return kinds, texts


def parts(path: Path, chosen: Choice) -> List[Part]:
    tables = _tables(path) if path.is_dir() else [path]
    seen = {table: _seen(table) for table in tables}
    return [_part(table.parent.name if len(tables) > 1 else "", table, seen, chosen) for table in tables]


def _part(name: str, table: Path, seen: Mapping[Path, Tuple[Dict[str, ValueKind], Dict[str, Set[str]]]], chosen: Choice) -> Part:
    kinds = {column: kind.kind for column, kind in seen[table][0].items()}
    columns: Sequence[str] = [*kinds]
    image = choose("image", chosen.image, _FILE_NAMES, columns)
    if image is None:
        raise Refusal(f"{table}: no column is called file_name; its columns are {', '.join(columns)}")
    label = choose("label", chosen.label, LABEL_NAMES, [column for column in columns if kinds[column] in ("value i64", "text") and column != image])
    # classes of all splits, so that they have the same numbers
    classes = sorted({str(text) for _, texts in seen.values() for text in texts.get(label, ())}) if label and kinds[label] == "text" else None
    notes = [f"column {column} is left out: no field holds its values" for column, kind in kinds.items() if kind is None]
    fields = fields_of({column: kind for column, kind in kinds.items() if kind}, image, label, None, notes)
    fields.append(fields[0]._replace(column="\0name", name="key", kind="key"))

    file_column: str = image

    def rows() -> Iterator[Mapping[str, Any]]:
        for row in _rows(table):
            texts = {column: str(row[column]) for column, kind in kinds.items() if kind == "text" and row.get(column) is not None}
            name = row.get(file_column)
            yield {**row, **texts, file_column: table.parent / str(name) if name else None, "\0name": name}

    return Part(name, fields, rows, classes, notes)
