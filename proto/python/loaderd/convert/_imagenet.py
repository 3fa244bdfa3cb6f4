"""ImageNet's localization task as Kaggle has it: ILSVRC/Data/CLS-LOC with the classes and boxes of LOC_train_solution.csv and LOC_val_solution.csv."""

import csv
from pathlib import Path
from typing import Any, Iterator, List, Mapping, Optional, Tuple

from ._part import Choice, Field, Part, Refusal, read_text

_DATA = Path("ILSVRC") / "Data" / "CLS-LOC"
_MAPPING = "LOC_synset_mapping.txt"
_SPLITS = ("train", "val")
_OBJECT = 5  # words of an object: its class, left, top, right, bottom


def _table(top: Path, split: str) -> Path:
    return top / f"LOC_{split}_solution.csv"


def _top(path: Path) -> Optional[Path]:
    """The folder of the tables: the source, or that of a table."""
    top = path if path.is_dir() else path.parent
    there = (top / _MAPPING).is_file() and any(_table(top, split).is_file() for split in _SPLITS)
    return top if there and (path.is_dir() or path in [_table(top, split) for split in _SPLITS]) else None


def recognises(path: Path) -> bool:
    return _top(path) is not None


def _objects(text: str) -> List[Tuple[str, List[float]]]:
    words = text.split()
    if not words or len(words) % _OBJECT:
        raise ValueError(f"{len(words)} words, not {_OBJECT} for each object")
    return [(words[i], [float(word) for word in words[i + 1 : i + _OBJECT]]) for i in range(0, len(words), _OBJECT)]


def parts(path: Path, chosen: Choice) -> List[Part]:
    top = _top(path)
    if top is None:
        raise Refusal(f"{path}: it holds no {_MAPPING} with LOC_train_solution.csv or LOC_val_solution.csv")
    classes = sorted(line.split()[0] for line in read_text(top / _MAPPING).splitlines() if line.strip())
    fields = [
        Field("image", "image", "image u8[h,w,3]"), Field("key", "key", "key"), Field("label", "label", "class i32"),
        Field("boxes", "boxes", "boxes(image) f32[*,4] xyxy"), Field("class", "class", "class(boxes) i32[*]"),
    ]  # fmt: skip
    notes = ["classes are the synsets in order of their names, as those of ImageNet's folders; the label is that of the first box"]
    return [Part(split, fields, _reader(top, split, classes), classes, notes) for split in _SPLITS if _table(top, split).is_file()]


def _reader(top: Path, split: str, classes: List[str]) -> Any:
    numbers = {name: number for number, name in enumerate(classes)}
    table = _table(top, split)

    def rows() -> Iterator[Mapping[str, Any]]:
        with open(table, encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                name = row.get("ImageId") or ""
                try:
                    found = _objects(row.get("PredictionString") or "")
                    labels = [numbers[kind] for kind, _ in found]
                except ValueError as error:
                    raise Refusal(f"{table}: {name}: {error}") from None
                except KeyError as error:
                    raise Refusal(f"{table}: {name}: class {error} is not in {_MAPPING}") from None
                inside = Path(name.split("_")[0]) / name if split == "train" else Path(name)
                yield {"image": top / _DATA / split / f"{inside}.JPEG", "key": name, "label": labels[0], "boxes": [box for _, box in found], "class": labels}

    return rows
