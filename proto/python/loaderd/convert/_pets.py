"""The Oxford-IIIT Pet dataset: breeds, trimaps, and boxes of heads (https://www.robots.ox.ac.uk/~vgg/data/pets/)."""

from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence

from . import _voc
from ._part import Choice, Field, Part, Refusal, read_text

_LISTS = ("trainval", "test")  # splits; list.txt has the images of both
_CELLS = 4  # of a line: name, number of the breed from 1 on, species (1 cat, 2 dog), number of the breed in its species


class _Row(NamedTuple):
    """A line of a list."""

    name: str
    breed: int  # from 0 on
    species: int


def _top(path: Path) -> Optional[Path]:
    """The folder that holds images/ and annotations/: the source, or the one above it."""
    return next((top for top in (path, path.parent) if (top / "annotations" / "trimaps").is_dir() and (top / "images").is_dir()), None)


def recognises(path: Path) -> bool:
    return path.is_dir() and _top(path) is not None


def _rows(path: Path) -> List[_Row]:
    found = []
    for number, line in enumerate(read_text(path).splitlines(), 1):
        cells = line.split()
        if not cells or line.startswith("#"):
            continue
        if len(cells) != _CELLS or not all(cell.isdecimal() for cell in cells[1:]) or int(cells[1]) < 1:
            raise Refusal(f"{path}, line {number}: {line[:60]!r} is not a name, and the numbers of breed, species and breed in the species")
        found.append(_Row(cells[0], int(cells[1]) - 1, int(cells[2])))
    return found


def _names(top: Path, lists: Mapping[str, Sequence[_Row]]) -> List[str]:
    """The names of breeds, which are those of their images without the number at the end."""
    names: Dict[int, str] = {}
    for rows in lists.values():
        for row in rows:
            name = row.name.rpartition("_")[0]
            if names.setdefault(row.breed, name) != name:
                raise Refusal(f"{top}: breed {row.breed + 1} has the images {names[row.breed]}_... and {row.name}")
    return [names.get(breed, str(breed)) for breed in range(max(names, default=-1) + 1)]


def parts(path: Path, chosen: Choice) -> List[Part]:
    top = _top(path)
    if top is None:
        raise Refusal(f"{path}: it holds no images/ and annotations/trimaps/")
    folder = top / "annotations"
    lists = {name: _rows(folder / f"{name}.txt") for name in _LISTS if (folder / f"{name}.txt").is_file()}
    if not lists and not (folder / "list.txt").is_file():
        raise Refusal(f"{folder}: it holds none of trainval.txt, test.txt and list.txt")
    lists = lists or {"": _rows(folder / "list.txt")}
    fields = [
        Field("image", "image", "image u8[h,w,3]"), Field("key", "key", "key"), Field("label", "label", "class i32"), Field("species", "species", "value u8"),
        Field("mask", "mask", "mask(image) u8[h,w] sparse"), Field("boxes", "boxes", "boxes(image) f32[*,4] xyxy"),
    ]  # fmt: skip
    notes = ["mask is the trimap: 1 pet, 2 background, 3 border; boxes are of heads, and images without a file in annotations/xmls/ have none; species is 1 for cats and 2 for dogs"]
    names = _names(top, lists)
    return [Part(name, fields, _reader(top, rows), names, notes) for name, rows in lists.items()]


def _reader(top: Path, rows: Sequence[_Row]) -> Any:
    def read() -> Iterator[Mapping[str, Any]]:
        for row in rows:
            mask = top / "annotations" / "trimaps" / f"{row.name}.png"
            yield {
                "image": top / "images" / f"{row.name}.jpg", "key": row.name, "label": row.breed, "species": row.species, "mask": mask if mask.is_file() else None,
                "boxes": [item["box"] for item in _voc.objects(top / "annotations" / "xmls" / f"{row.name}.xml")],
            }  # fmt: skip

    return read
