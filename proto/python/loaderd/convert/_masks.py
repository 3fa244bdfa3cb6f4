"""Folders of images and of masks with the same names: ADE20K's images/ and annotations/, Cityscapes' leftImg8bit/ and gtFine/, and the like."""

from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ._part import IMAGE_SUFFIXES, Choice, Field, Part, Refusal

_FOLDERS = (("leftImg8bit", "gtFine"), ("leftImg8bit", "gtCoarse"), *((images, masks) for images in ("images", "image", "imgs", "img")
            for masks in ("annotations", "masks", "mask", "labels", "annotation")))  # fmt: skip
_SPLITS = ("train", "training", "val", "valid", "validation", "test", "testing")
_CITYSCAPES = ("_leftImg8bit", "_labelIds")  # suffixes of the names of images and of their masks


def _pairs(top: Path) -> Dict[str, Tuple[Path, Path]]:
    """Folders of images and of masks by split."""
    for images, masks in _FOLDERS:
        if not ((top / images).is_dir() and (top / masks).is_dir()):
            continue
        splits = [name for name in _SPLITS if (top / images / name).is_dir() and (top / masks / name).is_dir()]
        return {split: (top / images / split, top / masks / split) for split in splits} if splits else {"": (top / images, top / masks)}
    found = {}
    for split in _SPLITS:
        inner = _pairs(top / split) if (top / split).is_dir() else {}
        if "" in inner:
            found[split] = inner[""]
    return found


def _mask_of(image: Path, images: Path, masks: Path) -> Optional[Path]:
    inside = image.relative_to(images)
    if image.stem.endswith(_CITYSCAPES[0]):
        stem = image.stem[: -len(_CITYSCAPES[0])]
        return next(iter(sorted((masks / inside.parent).glob(f"{stem}_*{_CITYSCAPES[1]}.png"))), None)
    for ending in (".png", ".tif", ".bmp"):
        path = (masks / inside).with_suffix(ending)
        if path.is_file():
            return path
    return None


def _images(folder: Path) -> List[Path]:
    return sorted(name for name in folder.rglob("*") if name.suffix.lower() in IMAGE_SUFFIXES)


def recognises(path: Path) -> bool:
    if not path.is_dir():
        return False
    return any(_mask_of(image, images, masks) for images, masks in _pairs(path).values() for image in _images(images)[:1])


def parts(path: Path, chosen: Choice) -> List[Part]:
    pairs = _pairs(path)
    if not pairs:
        raise Refusal(f"{path}: it holds no pair of folders of images and masks, such as images/ and masks/")
    return [_part(split, images, masks) for split, (images, masks) in pairs.items()]


def _part(name: str, images: Path, masks: Path) -> Part:
    files = [(image, _mask_of(image, images, masks)) for image in _images(images)]
    missing = [image for image, mask in files if mask is None]
    notes = [f"{len(missing)} of {len(files)} images have no mask, the first {missing[0]}"] if missing else []
    fields = [Field("image", "image", "image u8[h,w,3]"), Field("key", "key", "key"), Field("mask", "mask", "mask(image) u8[h,w] sparse")]

    def rows() -> Iterator[Mapping[str, Any]]:
        for image, mask in files:
            yield {"image": image, "key": str(image.relative_to(images)), "mask": mask}

    return Part(name, fields, rows, None, notes)
