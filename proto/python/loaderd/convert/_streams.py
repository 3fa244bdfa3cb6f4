"""Datasets of streaming libraries: MosaicML's MDS and litData's chunks. Uses their readers, without running pickled code."""

import json
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence

from ._part import IMAGE_NAMES, KEY_NAMES, LABEL_NAMES, Choice, Field, Part, Refusal, ValueKind, choose, fields_of, is_image_file, needs

_INDEX = "index.json"
_PICKLED = ("pkl", "pickle")
_KEPT = ("jpeg", "png")  # MDS encodings whose bytes are image files


def _index(folder: Path) -> Mapping[str, Any]:
    try:
        with open(folder / _INDEX, encoding="utf-8") as file:
            loaded = json.load(file)
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _splits(path: Path, key: str) -> Dict[str, Path]:
    """The folders whose index has this key, by split."""
    if key in _index(path):
        return {"": path}
    return {folder.name: folder for folder in sorted(path.iterdir()) if folder.is_dir() and key in _index(folder)} if path.is_dir() else {}


def recognises_mds(path: Path) -> bool:
    return bool(_splits(path, "shards"))


def recognises_litdata(path: Path) -> bool:
    return bool(_splits(path, "chunks"))


def mds_parts(path: Path, chosen: Choice) -> List[Part]:
    try:
        from streaming import LocalDataset
    except ImportError:
        needs("MosaicML's streaming", "MDS datasets", "mosaicml-streaming")
    return _parts(_splits(path, "shards"), lambda folder: _mds(LocalDataset, folder), chosen)


def _mds(dataset: Callable[..., Any], folder: Path) -> Any:
    try:
        opened = dataset(local=str(folder))
    except (ValueError, OSError) as error:
        raise Refusal(f"{folder}: {error}") from None
    for shard in opened.shards:
        # read as bytes, so that image files stay verbatim and pickles are not run
        shard.column_encodings = ["bytes" if name in (*_KEPT, *_PICKLED) else name for name in shard.column_encodings]
    return opened


def litdata_parts(path: Path, chosen: Choice) -> List[Part]:
    try:
        import litdata
        from litdata.streaming.serializers import JPEGSerializer, PickleSerializer
    except ImportError:
        needs("litData", "Its datasets", "litdata")

    class Kept(JPEGSerializer):  # type: ignore
        """Returns the JPEG file verbatim."""

        def deserialize(self, data: bytes) -> bytes:
            return data

    class Unread(PickleSerializer):  # type: ignore
        """Runs no pickle."""

        def deserialize(self, data: bytes) -> None:
            return None

    def opened(folder: Path) -> Any:
        return litdata.StreamingDataset(str(folder), shuffle=False, drop_last=False, serializers={"jpeg": Kept(), "pickle": Unread()})

    return _parts(_splits(path, "chunks"), opened, chosen)


def _parts(splits: Mapping[str, Path], opened: Callable[[Path], Any], chosen: Choice) -> List[Part]:
    datasets = {name: opened(folder) for name, folder in splits.items()}
    notes: List[str] = []
    fields = _fields_of_all(datasets.values(), str(next(iter(splits.values()))), chosen, notes)
    return [Part(name, fields, _reader(dataset, fields), None, notes) for name, dataset in datasets.items()]


def _row(item: Any) -> Mapping[str, Any]:
    """A sample as columns; columns of a tuple are named by number."""
    row = item if isinstance(item, dict) else dict(enumerate(item)) if isinstance(item, (list, tuple)) else {0: item}
    return {str(name): _plain(value) for name, value in row.items()}


def _plain(value: Any) -> Any:
    """Converts tensors, views and NumPy scalars; PyTorch images become channels-last."""
    if isinstance(value, memoryview):
        return bytes(value)
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if hasattr(value, "ndim") and value.ndim == 0:
        return value.item()
    if getattr(value, "ndim", 0) == 3 and value.dtype == "uint8" and value.shape[0] in (1, 3) and value.shape[2] not in (1, 3):
        return value.transpose(1, 2, 0)
    return value


def _is_image(value: Any) -> bool:
    if hasattr(value, "getbands"):  # PIL
        return True
    return is_image_file(value) or (getattr(value, "ndim", 0) in (2, 3) and str(value.dtype) == "uint8")


def _fields_of_all(datasets: Iterable[Any], where: str, chosen: Choice, notes: List[str]) -> List[Field]:
    """The fields for the columns of all splits together, so that their schemas agree."""
    kinds: Dict[str, ValueKind] = {}
    pixels: Dict[str, bool] = {}
    for row in (_row(dataset[i]) for dataset in datasets for i in range(len(dataset))):
        for column, value in row.items():
            pixels[column] = pixels.get(column, True) and (value is None or _is_image(value))
            kinds.setdefault(column, ValueKind()).add(None if value is None or hasattr(value, "getbands") else value)
    found: Dict[str, Optional[str]] = {column: kind.kind for column, kind in kinds.items()}
    image = choose("image", chosen.image, (*IMAGE_NAMES, *found), [column for column in found if pixels[column] or column == chosen.image])
    if image is None:
        raise Refusal(f"{where}: no column holds images; its columns are {', '.join(found)}")
    label = choose("label", chosen.label, (*LABEL_NAMES, "1"), [column for column, kind in found.items() if kind == "value i64"])
    key = choose("key", chosen.key, KEY_NAMES, [column for column, kind in found.items() if kind == "text"])
    notes += [f"column {column} is left out: no field holds its values, or only a pickle does" for column, kind in found.items() if kind is None and column != image]
    return fields_of({column: kind for column, kind in found.items() if kind and column != image}, image, label, key, notes)


def _reader(dataset: Any, fields: Sequence[Field]) -> Callable[[], Iterator[Mapping[str, Any]]]:

    def rows() -> Iterator[Mapping[str, Any]]:
        for i in range(len(dataset)):
            row = _row(dataset[i])
            yield {field.column: row.get(field.column) for field in fields}

    return rows
