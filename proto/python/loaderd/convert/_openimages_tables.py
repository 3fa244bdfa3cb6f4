"""The tables of Open Images: which they are by their headers, their rows, and the names of classes (https://storage.googleapis.com/openimages/web/download_v7.html)."""

import csv
import re
from pathlib import Path
from typing import Dict, Iterator, List, Mapping, NamedTuple, Sequence, Set, Tuple

from ._part import Refusal

LABEL_COLUMNS = ["ImageID", "Source", "LabelName", "Confidence"]
CORNERS = ("XMin", "YMin", "XMax", "YMax")
SPLITS = ("train", "validation", "test")

_PLACES = ("*.csv", "annotations/*.csv", "labels/*.csv", "metadata/*.csv", "*/labels/*.csv", "*/metadata/*.csv")  # FiftyOne's are the last two
_SPLIT = re.compile(rf"(?:^|[-_])({'|'.join(SPLITS)})(?=[-_]|$)")
_MASK_COLUMNS = {"MaskPath", "ImageID", "LabelName", *(f"Box{corner}" for corner in CORNERS)}
_HEADERS = ("LabelName", "id")  # first cells of tables of names that have a header


class Tables(NamedTuple):
    """The tables of a folder by their headers."""

    boxes: List[Path]
    labels: List[Path]
    masks: List[Path]
    names: List[Path]  # those of boxable classes first
    others: List[Path]  # relationships, points and the like, which are left out


def kind_of(path: Path) -> str:
    """A name of Tables' lists; empty for a table of something else."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            header: List[str] = next(csv.reader([file.readline(1 << 12)]), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return ""
    if header[:4] == LABEL_COLUMNS and {*CORNERS} <= {*header}:
        return "boxes"
    if header == LABEL_COLUMNS:
        return "labels"
    if _MASK_COLUMNS <= {*header}:
        return "masks"
    if len(header) == 2 and "class" in path.name:
        return "names"
    return "others" if "ImageID" in header or "ImageId" in header else ""


def tables_of(top: Path) -> Tables:
    found = Tables([], [], [], [], [])
    for path in (path for pattern in _PLACES for path in sorted(top.glob(pattern))):
        kind = kind_of(path)
        if kind:
            getattr(found, kind).append(path)
    found.names.sort(key=lambda path: "boxable" not in path.name)
    return found


def split_of(path: Path, top: Path) -> str:
    found = _SPLIT.search(path.stem)
    return found.group(1) if found else next((part for part in path.relative_to(top).parts if part in SPLITS), "")


def rows_of(path: Path) -> Iterator[Tuple[int, List[str]]]:
    """Yields the lines of a table with their numbers, the header first."""
    width = 0
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            for row in reader:
                width = width or len(row)
                if len(row) != width:
                    raise Refusal(f"{path}, line {reader.line_num}: {len(row)} cells, not {width}, as the first line has: {','.join(row)[:60]!r}")
                yield reader.line_num, row
    except (UnicodeDecodeError, csv.Error) as error:
        raise Refusal(f"{path}: not a table in UTF-8: {error}") from None


class Classes:
    """Numbers of classes by the names that tables use, in the order of the tables of names; without these in the order of the names."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._numbers: Dict[str, int] = {}
        self.names: List[str] = []
        taken: Set[str] = set()
        for path in paths:
            for line, (label, name) in rows_of(path):
                if label in self._numbers or (line == 1 and label in _HEADERS):
                    continue
                self._numbers[label] = len(self.names)
                self.names.append(f"{name} ({label})" if name in taken else name)
                taken.add(self.names[-1])

    def number(self, path: Path, line: int, label: str) -> int:
        if label not in self._numbers and self._paths:
            described = ", ".join(map(str, self._paths))
            raise Refusal(f"{path}, line {line}: LabelName {label!r} is not in {described}: put the table that describes it, such as class-descriptions.csv, next to it")
        return self._numbers.setdefault(label, len(self._numbers))

    def final(self) -> List[int]:
        """The final number of each that number() returned."""
        if self._paths:
            return [*range(len(self.names))]
        self.names = sorted(self._numbers)
        final = {label: number for number, label in enumerate(self.names)}
        return [final[label] for label in self._numbers]


def columns_of(rows: Iterator[Tuple[int, List[str]]]) -> Dict[str, int]:
    """Takes the header off the rows. Returns the positions of columns by name."""
    return {name: position for position, name in enumerate(next(rows, (0, []))[1])}


def number_of(path: Path, line: int, column: str, cell: str, least: float, most: float) -> float:
    try:
        number = float(cell)
    except ValueError:
        number = most + 1
    if not least <= number <= most:
        raise Refusal(f"{path}, line {line}: {column} is {cell!r}, not a number of {least:g} .. {most:g}: correct it, or remove the line")
    return number


def box_of(path: Path, line: int, columns: Mapping[str, int], row: Sequence[str], prefix: str = "") -> List[float]:
    """The corners of a box, XMin, YMin, XMax and YMax, as fractions of the image."""
    corners = [number_of(path, line, prefix + name, row[columns[prefix + name]], 0, 1) for name in CORNERS]
    for least, most in ((0, 2), (1, 3)):
        if corners[least] > corners[most]:
            raise Refusal(f"{path}, line {line}: {prefix}{CORNERS[least]} is {corners[least]:g}, more than {prefix}{CORNERS[most]}, {corners[most]:g}: correct the box, or remove the line")
    return corners
