"""COCO's panoptic segmentation: for each image a PNG whose colours are the ids of segments, and the segments' categories (https://cocodataset.org/#format-data)."""

import mmap
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from . import _coco
from ._part import Choice, Field, Part, Refusal, needs, unique_names
from ._spans import element_for

_PREFIX = "panoptic_"
_ID_MAX = (1 << 24) - 1  # R + 256 G + 65536 B
_VOID = {"u8": 255, "u16": 65535}  # pixels without a class, by the element of the mask of classes
_ADE20K = {"train": "training", "val": "validation"}  # folders of its splits
_NOTE = "panoptic has the number of a segment in each pixel, 0 for none, and segment that of each box; id has the ids of the PNGs"


def _files(folder: Path) -> Dict[str, Path]:
    """The files of segments by split."""
    return {path.stem[len(_PREFIX) :]: path for path in sorted((folder / "annotations").glob(f"{_PREFIX}*.json"))}


def _has_segments(path: Path) -> bool:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(b'"segments_info"') >= 0


def recognises(path: Path) -> bool:
    """A folder with instances, too, is COCO's."""
    return bool(_files(path)) and not _coco.recognises(path) if path.is_dir() else _coco.is_coco(path) and _has_segments(path)


class _Segments:
    """The segments of a split, by image."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.images: Dict[Any, Mapping[str, Any]] = {}
        self.names: Dict[int, str] = {}
        self.things: Dict[int, int] = {}  # 1 for categories of things, 0 for those of stuff
        self.annotations: Dict[Any, Tuple[str, Mapping[str, Any]]] = {}  # each with its location for messages
        self.used: Set[int] = set()  # categories with at least one segment
        loaded = _coco.load(path)
        for where, image in _coco.entries(path, loaded, "images"):
            _coco.required(where, image, "file_name", str)
            self.images[_coco.required(where, image, "id", int, str)] = image
        for where, category in _coco.entries(path, loaded, "categories"):
            number = _coco.required(where, category, "id", int)
            self.names[number], self.things[number] = _coco.required(where, category, "name", str), int(bool(category.get("isthing", 1)))
        for where, annotation in _coco.entries(path, loaded, "annotations"):
            self._add(where, annotation)
        self.numbers = {category: number for number, category in enumerate(sorted(self.names))}

    def _add(self, where: str, annotation: Any) -> None:
        image = _coco.required(where, annotation, "image_id", int, str)
        if image not in self.images:
            raise Refusal(f"{where}: its image_id is {image!r}, which is not in the list of images")
        if image in self.annotations:
            raise Refusal(f"{where}: an annotation before it is of image {image!r}, too: an image has one PNG")
        _coco.required(where, annotation, "file_name", str)
        ids: Set[int] = set()
        for position, segment in enumerate(_coco.required(where, annotation, "segments_info", list)):
            inside = f"{where}: segments_info[{position}]"
            number, category = _coco.required(inside, segment, "id", int), _coco.required(inside, segment, "category_id", int)
            if not 0 < number <= _ID_MAX or number in ids:
                raise Refusal(f"{inside}: its id is {number}; ids are 1 .. {_ID_MAX}, the colours of the PNG, each for one segment")
            if category not in self.names:
                raise Refusal(f"{inside}: its category_id is {category}, which is not in the list of categories")
            if "bbox" in segment and len(_coco.required(inside, segment, "bbox", list)) != 4:
                raise Refusal(f"{inside}: its bbox is {segment['bbox']}, not the four numbers x, y, width and height")
            ids.add(number)
            self.used.add(category)
        self.annotations[image] = where, annotation

    @property
    def most(self) -> int:
        """The most segments of an image."""
        return max((len(annotation["segments_info"]) for _, annotation in self.annotations.values()), default=0)


def parts(path: Path, chosen: Choice) -> List[Part]:
    files = _files(path) if path.is_dir() else {"": path}
    if not files:
        raise Refusal(f"{path}: it holds no annotations/{_PREFIX}*.json")
    every = {split: _Segments(file) for split, file in files.items()}
    used = {category for segments in every.values() for category in segments.used}
    element = element_for(max(segments.most for segments in every.values()))
    found = []
    for split, segments in every.items():
        folders = _coco.image_folders(path, split) if path.is_dir() else _folders_beside(path)
        found.append(_part(split, segments, used, folders, element, chosen.masks == "classes"))
    return found


def _folders_beside(path: Path) -> List[Path]:
    """Where the images of a file may be: in COCO's folders, those of ADE20K, in which panopticapi's file lies, and those of Cityscapes."""
    split = path.stem.split("_")[-1]
    folders = [*_coco.image_folders(path.parent.parent, split), *_coco.image_folders(path.parent, split)]
    return [*folders, path.parent / "images" / _ADE20K.get(split, split), *sorted((path.parent.parent / "leftImg8bit" / split).glob("*"))]


def _masks(path: Path) -> Path:
    """The folder of the PNGs, which has the name of the file."""
    places = (path.with_suffix(""), path.parent.parent / path.stem)
    folder = next((place for place in places if place.is_dir()), None)
    if folder is None:
        raise Refusal(f"{path}: there is no folder {places[0]} with its PNGs, nor {places[1]}: unpack {path.stem}.zip there")
    return folder


def _part(name: str, segments: _Segments, used: Set[int], folders: Sequence[Path], element: str, semantic: bool) -> Part:
    fields = [
        Field("image", "image", "image u8[h,w,3]"), Field("key", "key", "key"), Field("boxes", "boxes", "boxes(image) f32[*,4] xywh"),
        Field("class", "class", "class(boxes) i32[*]"), Field("id", "id", "value(boxes) i64[*]"), Field("area", "area", "value(boxes) f32[*]"),
        Field("iscrowd", "iscrowd", "value(boxes) u8[*]"), Field("isthing", "isthing", "value(boxes) u8[*]"), Field("segment", "segment", "value(boxes) i32[*]"),
        Field("panoptic", "panoptic", f"mask(image) {element}[h,w] sparse"),
    ]  # fmt: skip
    notes = [*_coco.numbering(segments.numbers), _NOTE]
    classes = element_for(len(segments.names)) if semantic else ""
    if semantic:
        fields.append(Field("mask", "mask", f"mask(image) {classes}[h,w] sparse"))
        notes.append(f"mask has the class of each pixel, {_VOID[classes]} for none")
    missing = len(segments.images) - len(segments.annotations)
    if missing:
        notes.append(f"{missing} of {len(segments.images)} images have no annotation, and so no mask and no boxes")
    names = unique_names(segments.names, used, segments.path, notes)
    return Part(name, fields, _reader(segments, folders, _masks(segments.path), element, classes), [names[category] for category in sorted(names)] or None, notes)


def _read(path: Path) -> Any:
    """The ids of a PNG, [height, width]; None if Pillow cannot read it."""
    try:
        import numpy
        from PIL import Image
    except ImportError as error:
        needs("NumPy" if error.name == "numpy" else "Pillow", "PNGs of panoptic segments", "numpy pillow")
    try:
        with Image.open(path) as opened:
            mode, colours = opened.mode, numpy.asarray(opened)
    except Exception:
        return None
    if mode != "RGB":
        raise Refusal(f"{path}: its pixels are {mode}, not RGB: the id of a segment is R + 256 G + 65536 B")
    return (colours * numpy.array([1, 1 << 8, 1 << 16], "int32")).sum(2, dtype="int32")


def _box(inside: Any) -> List[int]:
    """The smallest box (x, y, width, height) around the pixels; zeros without any."""
    rows, columns = inside.any(1).nonzero()[0], inside.any(0).nonzero()[0]
    return [columns[0], rows[0], columns[-1] + 1 - columns[0], rows[-1] + 1 - rows[0]] if len(rows) else [0, 0, 0, 0]


def _columns(segments: _Segments, where: str, found: Sequence[Mapping[str, Any]], path: Path, element: str, classes: str) -> Dict[str, Any]:
    import numpy

    names = {"u8": "uint8", "u16": "uint16", "i32": "int32"}
    ids = _read(path)
    if ids is None:  # writing reports it
        return {"panoptic": path, "mask": path, "boxes": [[0, 0, 0, 0]] * len(found), "area": [0] * len(found)}
    panoptic = numpy.zeros(ids.shape, names[element])
    mask = numpy.full(ids.shape, _VOID[classes], names[classes]) if classes else None
    boxes, areas = [], []
    for number, item in enumerate(found, 1):
        inside = ids == item["id"]
        panoptic[inside] = number
        if mask is not None:
            mask[inside] = segments.numbers[item["category_id"]]
        boxes.append(item.get("bbox") or _box(inside))
        areas.append(item.get("area", inside.sum()))
    strange = ids[(panoptic == 0) & (ids != 0)]
    if len(strange):
        raise Refusal(f"{where}: {path} has {len(strange)} pixels of id {strange[0]} or others that segments_info does not list: add these segments, or paint their pixels black")
    return {"panoptic": panoptic, "mask": mask, "boxes": boxes, "area": areas}


def _reader(segments: _Segments, folders: Sequence[Path], masks: Path, element: str, classes: str) -> Any:
    def rows() -> Iterator[Mapping[str, Any]]:
        for number, image in segments.images.items():
            where, annotation = segments.annotations.get(number, ("", None))
            found: Sequence[Mapping[str, Any]] = annotation["segments_info"] if annotation else ()
            row: Dict[str, Any] = {
                "image": _coco.find(folders, image["file_name"]), "key": image["file_name"], "boxes": [],
                "class": [segments.numbers[item["category_id"]] for item in found], "id": [item["id"] for item in found], "area": [],
                "iscrowd": [item.get("iscrowd", 0) for item in found], "isthing": [segments.things[item["category_id"]] for item in found],
                "segment": [*range(1, len(found) + 1)],
            }  # fmt: skip
            row.update(_columns(segments, where, found, masks / annotation["file_name"], element, classes) if annotation else {})
            yield row

    return rows
