"""Images in NumPy's .npy and .npz files, and the Python version of CIFAR-10 and CIFAR-100."""

import pickle
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ._part import Choice, Field, Part, Refusal, choose, needs

_IMAGES = ("x", "images", "image", "data", "imgs", "arr_0")
_LABELS = ("y", "labels", "label", "targets", "target")
_SPLITS = ("train", "test", "val", "valid", "validation")
# Globals that a CIFAR pickle may refer to; any others could run code.
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype"),
    ("_codecs", "encode"),
}  # fmt: skip
_CIFAR_SIDE = 32


def recognises_numpy(path: Path) -> bool:
    return path.suffix.lower() in (".npy", ".npz")


def recognises_cifar(path: Path) -> bool:
    return bool(_cifar_files(path)) if path.is_dir() else path.name in ("test_batch", "train", "test") or path.name.startswith("data_batch_")


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        needs("NumPy", "Arrays", "numpy")
    return numpy


def _check(name: str, images: Any) -> Any:
    """Returns images as [n, height, width] or [n, height, width, 1 or 3]."""
    if images.dtype != "uint8":
        raise Refusal(f"{name}: its elements are {images.dtype}; images are uint8, 0..255: numpy.save() them as array.astype('uint8')")
    if images.ndim == 4 and images.shape[3] not in (1, 3) and images.shape[1] in (1, 3):
        images = images.transpose(0, 2, 3, 1)
    if images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] not in (1, 3)):
        raise Refusal(f"{name}: its shape is {images.shape}; images are (count, height, width), (count, height, width, 3) or (count, 3, height, width)")
    return images


def _part(name: str, images: Any, labels: Optional[Any], what: str, notes: Sequence[str] = ()) -> Part:
    fields = [Field("image", "image", "image u8[h,w,3]")]
    if labels is not None:
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.ndim != 1 or len(labels) != len(images) or labels.dtype.kind not in "iu":
            raise Refusal(f"{what}: {labels.dtype} labels of shape {labels.shape} do not fit {len(images)} images: a whole number each")
        fields.append(Field("label", "label", "class i32"))
    return Part(name, fields, lambda: ({"image": images[i], "label": None if labels is None else int(labels[i])} for i in range(len(images))), None, notes)


def _named(names: Sequence[str], split: str, words: Sequence[str]) -> Optional[str]:
    """Finds x_train, train_x or, without a split, x."""
    for word in words:
        for name in (f"{word}_{split}", f"{split}_{word}") if split else (word,):
            if name in names:
                return name
    return None


def _load(path: Path, mapped: bool) -> Any:
    numpy = _numpy()
    try:
        return numpy.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except (ValueError, OSError) as error:
        raise Refusal(f"{path}: {error}") from None


def numpy_parts(path: Path, chosen: Choice) -> List[Part]:
    if path.suffix.lower() == ".npz":
        return _npz_parts(path, chosen)
    if chosen.image or chosen.label:
        raise Refusal(f"{path}: --image and --label choose arrays of a .npz; a .npy has one, whose labels are in the file next to it")
    images = _check(str(path), _load(path, True))
    beside = [path.with_name(path.name.replace(word, by)) for word, by in (("images", "labels"), ("image", "label"), ("x", "y"), ("X", "y"))]
    labels = next((name for name in beside if name != path and name.is_file()), None)
    notes = [] if labels else ["no array of labels next to it, such as labels.npy next to images.npy"]
    return [_part("", images, None if labels is None else _load(labels, True), str(labels), notes)]


def _npz_parts(path: Path, chosen: Choice) -> List[Part]:
    archive = _load(path, False)
    names = archive.files
    pairs: List[Tuple[str, str, Optional[str]]] = []
    if chosen.image or chosen.label:
        image = choose("image", chosen.image, _IMAGES, names)
        pairs = [("", str(image), choose("label", chosen.label, _LABELS, names))] if image else []
    for split in () if pairs else ("", *_SPLITS):
        image = _named(names, split, _IMAGES)
        if image:
            pairs.append((split, image, _named(names, split, _LABELS)))
    if not pairs:
        raise Refusal(f"{path}: no array is called images or x; its arrays are {', '.join(names)}: --image NAME and --label NAME choose")
    found = []
    for split, image, label in pairs:
        notes = [] if label else [f"no array of labels belongs to {image}; --label NAME chooses one"]
        found.append(_part(split, _check(f"{path}: {image}", archive[image]), archive[label] if label else None, f"{path}: {label}", notes))
    return found


class _Unpickler(pickle.Unpickler):
    """Unpickles only dictionaries, lists, strings, numbers and arrays, so that an untrusted pickle cannot run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise Refusal(f"it holds {module}.{name}, so it is not a CIFAR file, and loading it could run any code")
        return super().find_class(module, name)


def _unpickle(path: Path) -> Dict[bytes, Any]:
    _numpy()
    try:
        with open(path, "rb") as file:
            loaded = _Unpickler(file, encoding="bytes").load()
    except Refusal as error:
        raise Refusal(f"{path}: {error}") from None
    except Exception as error:
        raise Refusal(f"{path}: not a whole pickle: {error}") from None
    return loaded if isinstance(loaded, dict) else {}


def _cifar_files(folder: Path) -> Dict[str, List[Path]]:
    batches = sorted(folder.glob("data_batch_[0-9]"))
    if batches:
        return {"train": batches, "test": [name for name in [folder / "test_batch"] if name.is_file()]}
    if (folder / "meta").is_file() and (folder / "train").is_file():
        return {name: [folder / name] for name in ("train", "test") if (folder / name).is_file()}
    return {}


def cifar_parts(path: Path, chosen: Choice) -> List[Part]:
    files = _cifar_files(path) if path.is_dir() else {"": [path]}
    return [_cifar_part(name, found) for name, found in files.items() if found]


def _classes(folder: Path) -> Optional[List[str]]:
    for name, key in (("batches.meta", b"label_names"), ("meta", b"fine_label_names")):
        if (folder / name).is_file():
            return [text.decode() for text in _unpickle(folder / name).get(key, [])] or None
    return None


def _cifar_part(name: str, files: Sequence[Path]) -> Part:
    first = _unpickle(files[0])
    fields = [Field("image", "image", "image u8[h,w,3]"), Field("label", "label", "class i32"), Field("key", "key", "key")]
    if b"coarse_labels" in first:
        fields.append(Field("coarse_label", "coarse_label", "value i32"))
    return Part(name, fields, lambda: _cifar_rows(files), _classes(files[0].parent))


def _cifar_rows(files: Sequence[Path]) -> Iterator[Mapping[str, Any]]:
    for path in files:
        batch = _unpickle(path)
        data = batch.get(b"data")
        labels = batch.get(b"labels", batch.get(b"fine_labels"))
        if data is None or labels is None or getattr(data, "dtype", None) != "uint8" or data.shape != (len(labels), 3 * _CIFAR_SIDE**2):
            raise Refusal(f"{path}: not a CIFAR file: it lacks data of uint8[n, 3072], or as many labels")
        images = data.reshape(-1, 3, _CIFAR_SIDE, _CIFAR_SIDE).transpose(0, 2, 3, 1)
        coarse, names = batch.get(b"coarse_labels", [None] * len(labels)), batch.get(b"filenames", [b""] * len(labels))
        for i, label in enumerate(labels):
            yield {"image": images[i], "label": label, "coarse_label": coarse[i], "key": names[i].decode() or None}
