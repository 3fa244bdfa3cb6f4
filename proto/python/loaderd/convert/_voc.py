"""Pascal VOC: boxes and classes from Annotations/, masks from SegmentationClass/ and SegmentationObject/ (http://host.robots.ox.ac.uk/pascal/VOC/voc2012/htmldoc/)."""

from pathlib import Path
from typing import AbstractSet, Any, Dict, Iterator, List, Mapping, Optional, Sequence
from xml.etree import ElementTree

from ._part import IMAGE_SUFFIXES, Choice, Field, Part, Refusal, read_text

_SPLITS = ("train", "val", "test")
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_FLAGS = ("difficult", "truncated")
_MASKS = {"mask": "SegmentationClass", "instances": "SegmentationObject"}  # folders of masks, by the value that they become


def _top(path: Path) -> Optional[Path]:
    """The folder that holds JPEGImages/: the source, VOC2012/ in it, or VOCdevkit/VOC2012/."""
    candidates = [path, *sorted(path.glob("VOC*")), *sorted(path.glob("VOCdevkit/VOC*"))] if path.is_dir() else []
    return next((folder for folder in candidates if (folder / "JPEGImages").is_dir() and (folder / "Annotations").is_dir()), None)


def recognises(path: Path) -> bool:
    return _top(path) is not None


def _images(top: Path) -> Dict[str, Path]:
    """The image files, by the names that annotations and lists use."""
    found: Dict[str, Path] = {}
    for path in sorted((top / "JPEGImages").iterdir()):
        if path.suffix.lower() not in IMAGE_SUFFIXES:
            continue
        if path.stem in found:
            raise Refusal(f"{path}: {found[path.stem].name} has the same name, and only one can be the image of {path.stem}.xml: remove one")
        found[path.stem] = path
    return found


def _listed(top: Path, images: Mapping[str, Path]) -> Dict[str, List[str]]:
    """The names of the images of each split, or of all."""
    sets = top / "ImageSets" / "Main"
    splits = {split: read_text(sets / f"{split}.txt").split() for split in _SPLITS if (sets / f"{split}.txt").is_file()}
    return splits or {"": sorted(images)}


def objects(path: Path) -> List[Dict[str, Any]]:
    """The objects of an image; none if there is no file."""
    if not path.is_file():
        return []
    try:
        root = ElementTree.parse(path).getroot()
        return [_object(item) for item in root.iter("object")]
    except (ElementTree.ParseError, ValueError, TypeError) as error:
        raise Refusal(f"{path}: not an annotation of Pascal VOC: {error}") from None


def _object(item: Any) -> Dict[str, Any]:
    box = item.find("bndbox")
    if box is None or item.findtext("name") is None:
        raise ValueError("an object lacks its name or its bndbox")
    found: Dict[str, Any] = {"name": item.findtext("name").strip(), "box": [float(box.findtext(corner)) for corner in _CORNERS]}
    found.update({flag: int(item.findtext(flag) or 0) for flag in _FLAGS})
    return found


def parts(path: Path, chosen: Choice) -> List[Part]:
    top = _top(path)
    if top is None:
        raise Refusal(f"{path}: it holds no JPEGImages/ and Annotations/")
    images = _images(top)
    splits = _listed(top, images)
    classes = sorted({item["name"] for names in splits.values() for name in names for item in objects(top / "Annotations" / f"{name}.xml")})
    masks = {value: top / folder for value, folder in _MASKS.items() if (top / folder).is_dir()}
    fields = [
        Field("image", "image", "image u8[h,w,3]"), Field("key", "key", "key"), Field("boxes", "boxes", "boxes(image) f32[*,4] xyxy"),
        Field("class", "class", "class(boxes) i32[*]"), *(Field(flag, flag, "value(boxes) u8[*]") for flag in _FLAGS),
    ]  # fmt: skip
    fields += [Field(value, value, "mask(image) u8[h,w] sparse") for value in masks]
    annotated = {path.stem for path in (top / "Annotations").glob("*.xml")}
    return [Part(split, fields, _reader(top, images, names, classes, masks), classes, _notes(names, annotated)) for split, names in splits.items()]


def _notes(names: Sequence[str], annotated: AbstractSet[str]) -> List[str]:
    notes = ["boxes are those of the files, which count pixels from 1"]
    missing = [name for name in names if name not in annotated]
    if missing:
        notes.append(f"{len(missing)} of {len(names)} images have no file in Annotations/ and so no boxes, the first {missing[0]}")
    return notes


def _reader(top: Path, images: Mapping[str, Path], names: Sequence[str], classes: Sequence[str], masks: Mapping[str, Path]) -> Any:
    numbers = {name: number for number, name in enumerate(classes)}

    def rows() -> Iterator[Mapping[str, Any]]:
        for name in names:
            found = objects(top / "Annotations" / f"{name}.xml")
            files = {value: folder / f"{name}.png" for value, folder in masks.items()}
            yield {
                "image": images.get(name, top / "JPEGImages" / f"{name}.jpg"),
                "key": name,
                "boxes": [item["box"] for item in found],
                "class": [numbers[item["name"]] for item in found],
                **{flag: [item[flag] for item in found] for flag in _FLAGS},
                **{value: file if file.is_file() else None for value, file in files.items()},
            }

    return rows
