"""COCO's annotations: boxes, classes, polygons, keypoints and captions of images (https://cocodataset.org/#format-data), also as Roboflow exports them."""

import json
from math import isfinite
from pathlib import Path
from typing import AbstractSet, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Type

from ._part import POLYGON_NOTE, Choice, Field, Part, Refusal, polygon_field, polygon_rows, unique_names
from ._spans import PIXELS_MAX, InstanceMasks, Spans, element_for, run_lengths, spans_of_polygon, spans_of_runs, union

_KINDS = ("instances_", "person_keypoints_", "captions_")
_ROBOFLOW = "_annotations.coco.json"
_RUNS = "\0runs"  # the run lengths of an object, next to its JSON


def files_of(folder: Path) -> Dict[str, List[Path]]:
    """The files of annotations by split."""
    splits: Dict[str, List[Path]] = {}
    for kind in _KINDS:
        for name in sorted((folder / "annotations").glob(f"{kind}*.json")):
            splits.setdefault(name.stem[len(kind) :], []).append(name)
    for name in sorted(folder.glob(f"*/{_ROBOFLOW}")) if not splits else ():
        splits.setdefault(name.parent.name, []).append(name)
    if not splits and (folder / _ROBOFLOW).is_file():
        splits[""] = [folder / _ROBOFLOW]
    return splits


def is_coco(path: Path) -> bool:
    if path.suffix.lower() != ".json":
        return False
    with open(path, "rb") as file:
        head = file.read(1 << 16)
    return b'"images"' in head or b'"annotations"' in head or b'"image_id"' in head


def recognises(path: Path) -> bool:
    return bool(files_of(path)) if path.is_dir() else is_coco(path)


def parts(path: Path, chosen: Choice) -> List[Part]:
    splits = files_of(path) if path.is_dir() else {"": [path]}
    found = {split: _Objects(files) for split, files in splits.items()}
    used = {category for objects in found.values() for category in objects.used}
    element = _mask_element([*found.values()], chosen.masks)
    folders = {split: image_folders(path, split) for split in splits}
    if not path.is_dir():
        folders[""] = [path.parent, path.parent / "images", *image_folders(path.parent.parent, path.stem.split("_")[-1])]
    return [_part(split, objects, [*found.values()], used, splits[split][0], folders[split], element) for split, objects in found.items()]


def _mask_element(every: Sequence["_Objects"], asked: Optional[str]) -> str:
    """The element of the masks of instances; empty for none, the default unless a mask is in run-length encoding."""
    if asked == "none" or not (asked or any(one.has_runs for one in every)):
        return ""
    return element_for(max((len(objects) for one in every for objects in one.objects.values()), default=0))


def image_folders(top: Path, split: str) -> List[Path]:
    """Where the images of a split may be."""
    return [top / split, top / "images" / split, top / "images", top]


def load(path: Path) -> Mapping[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            loaded = json.load(file)
    except ValueError as error:
        raise Refusal(f"{path}: not JSON: {error}") from None
    if not isinstance(loaded, dict) or not isinstance(loaded.get("images"), list):
        raise Refusal(f"{path}: not a file of COCO annotations: it has no list of images")
    return loaded


def required(where: str, item: Any, name: str, *kinds: Type[Any]) -> Any:
    """Returns a value of an entry of a list, which has to have one of these types."""
    value = item.get(name) if isinstance(item, dict) else None
    if not isinstance(value, kinds) or isinstance(value, bool):
        wanted = " or ".join({int: "a whole number", str: "a text", list: "a list"}[kind] for kind in kinds)
        raise Refusal(f"{where}: its {name} is {'missing' if value is None else repr(value)}; it has to be {wanted}")
    return value


def entries(path: Path, loaded: Mapping[str, Any], name: str) -> Iterator[Tuple[str, Any]]:
    """Yields the entries of a list, each with its location for messages. Refuses a repeated id."""
    entries = loaded.get(name) or ()
    if not isinstance(entries, (list, tuple)):
        raise Refusal(f"{path}: {name} is not a list")
    seen: Set[Any] = set()
    for position, entry in enumerate(entries):
        number = entry.get("id") if isinstance(entry, dict) else None
        where = f"{path}: {name}[{position}]" + ("" if number is None else f" with id {number!r}")
        if isinstance(number, (int, str)):
            if number in seen:
                raise Refusal(f"{where}: an entry before it has the same id, and ids tell {name} apart: give each its own")
            seen.add(number)
        yield where, entry


def _polygons(where: str, annotation: Mapping[str, Any]) -> List[List[float]]:
    """The polygons of an object; none if its mask is in run-length encoding."""
    found = annotation.get("segmentation")
    if not found or isinstance(found, dict):
        return []
    if isinstance(found, list) and isinstance(found[0], (int, float)):
        found = [found]
    for polygon in found if isinstance(found, list) else [found]:
        if not isinstance(polygon, list) or len(polygon) % 2 or not all(isinstance(number, (int, float)) for number in polygon) or not isfinite(sum(polygon)):
            raise Refusal(f"{where}: its segmentation has {str(polygon)[:60]}, which is no list of x, y, x, y ...")
    return [polygon for polygon in found if polygon]


def _runs(where: str, image: Mapping[str, Any], segmentation: Mapping[str, Any]) -> Any:
    """The run lengths of an object's mask, which has the size of its image."""
    try:
        runs = run_lengths(segmentation.get("size"), segmentation.get("counts"))
    except ValueError as error:
        raise Refusal(f"{where}: its segmentation: {error}; encode the mask again, as pycocotools.mask.encode() does, or remove the annotation") from None
    for side, name in enumerate(("height", "width")):
        if image.get(name, segmentation["size"][side]) != segmentation["size"][side]:
            raise Refusal(f"{where}: its segmentation: size is {segmentation['size']}, but the {name} of its image, {image['file_name']}, is {image[name]!r}: correct either")
    return runs


class _Objects:
    """The annotations of all images, by image."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.images: Dict[Any, Mapping[str, Any]] = {}
        self.names: Dict[int, str] = {}
        self.keypoints = 0  # of an object
        self.objects: Dict[Any, Dict[Any, Dict[str, Any]]] = {}  # by image and the annotation's id
        self.used: Set[int] = set()  # categories with at least one object
        self.has_polygons = self.has_runs = False
        self.captions: Dict[Any, List[str]] = {}
        for path in files:
            self._add(path, load(path))
        self.numbers = {category: number for number, category in enumerate(sorted(self.names))}

    def _add(self, path: Path, loaded: Mapping[str, Any]) -> None:
        for where, image in entries(path, loaded, "images"):
            required(where, image, "file_name", str)
            self.images.setdefault(required(where, image, "id", int, str), image)
        for where, category in entries(path, loaded, "categories"):
            self.names[required(where, category, "id", int)] = required(where, category, "name", str)
            self.keypoints = max(self.keypoints, len(category.get("keypoints") or ()))
        for where, annotation in entries(path, loaded, "annotations"):
            image = required(where, annotation, "image_id", int, str)
            if image not in self.images:
                raise Refusal(f"{path}: annotation {annotation.get('id')} is of image {image}, which is not listed")
            if "caption" in annotation:
                self.captions.setdefault(image, []).append(annotation["caption"])
            elif "bbox" in annotation:
                self._add_object(where, image, annotation)

    def _add_object(self, where: str, image: Any, annotation: Mapping[str, Any]) -> None:
        category = required(where, annotation, "category_id", int)
        if category not in self.names:
            raise Refusal(f"{where}: its category_id is {category}, which is not in the list of categories")
        if len(required(where, annotation, "bbox", list)) != 4:
            raise Refusal(f"{where}: its bbox is {annotation['bbox']}, not the four numbers x, y, width and height")
        self.used.add(category)
        self.has_polygons |= bool(_polygons(where, annotation))
        # instances_ and person_keypoints_ describe the same object under one id
        item = self.objects.setdefault(image, {}).setdefault(required(where, annotation, "id", int), {})
        item.update(annotation)
        item.pop(_RUNS, None)
        if isinstance(item.get("segmentation"), dict):
            self.has_runs = True
            item[_RUNS] = _runs(where, self.images[image], item["segmentation"])


def numbering(numbers: Mapping[int, int]) -> Sequence[str]:
    """Returns a note on the class numbers if they differ from the category ids. `numbers`: by id."""
    if list(numbers) == list(numbers.values()):
        return []
    if len(numbers) == 1:
        return [f"class 0 is category {min(numbers)}"]
    return [f"classes 0 .. {len(numbers) - 1} are the categories in the order of their ids, {min(numbers)} .. {max(numbers)}"]


def _part(name: str, found: _Objects, every: Sequence[_Objects], used: AbstractSet[int], path: Path, folders: Sequence[Path], element: str) -> Part:
    """`every`: the objects of each split, which all get the same fields; `used`: categories of the objects of all splits; `path`: file named in messages; `element`: of masks."""
    fields = [Field("image", "image", "image u8[h,w,3]"), Field("key", "key", "key")]
    notes: List[str] = []
    has_polygons, has_runs = (any(getattr(one, name) for one in every) for name in ("has_polygons", "has_runs"))
    if found.names:
        fields += [
            Field("boxes", "boxes", "boxes(image) f32[*,4] xywh"), Field("class", "class", "class(boxes) i32[*]"),
            Field("id", "id", "value(boxes) i64[*]"), Field("area", "area", "value(boxes) f32[*]"), Field("iscrowd", "iscrowd", "value(boxes) u8[*]"),
        ]  # fmt: skip
        notes += numbering(found.numbers)
    if has_polygons:
        fields.append(polygon_field())
        notes.append(POLYGON_NOTE)
    if has_runs:
        fields.append(Field("rle", "rle", "json sparse"))
        notes.append("rle is JSON, the masks in run-length encoding by the id of their object, which transforms leave as they are")
    masks = None
    if element:
        fields += [Field("instance", "instance", "value(boxes) i32[*]"), Field("instances", "instances", f"mask(image) {element}[h,w] sparse")]
        masks = _Instances(path, element, notes)
    if found.keypoints:
        fields.append(Field("keypoints", "keypoints", f"keypoints(boxes) f32[*,{found.keypoints},3] xyv"))
    if found.captions:
        fields.append(Field("captions", "captions", "json"))
    if any(path.parent.glob("panoptic_*.json")):
        notes.append("panoptic segments are left out: --format panoptic converts them")
    names = unique_names(found.names, used, path, notes)
    return Part(name, fields, lambda: _rows(found, folders, masks), [names[category] for category in sorted(names)] or None, notes)


def find(folders: Sequence[Path], name: str) -> Path:
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    return folders[0] / name  # reading reports that it is missing


def _points(item: Mapping[str, Any], count: int) -> List[List[float]]:
    flat = item.get("keypoints") or [0] * (3 * count)
    return [list(flat[i : i + 3]) for i in range(0, 3 * count, 3)]


class _Instances:
    """The masks of instances of a split's images."""

    def __init__(self, path: Path, element: str, notes: List[str]) -> None:
        self._path, self._masks = path, InstanceMasks(element, notes)

    def _sides(self, image: Mapping[str, Any]) -> Tuple[int, int]:
        where = f"{self._path}: image {image['id']!r}, {image['file_name']}"
        try:
            height, width = (required(where, image, name, int) for name in ("height", "width"))
        except Refusal as error:
            raise Refusal(f"{error}, to draw polygons; --masks none makes no mask of instances") from None
        if height < 1 or width < 1 or height * width > PIXELS_MAX:
            raise Refusal(f"{where}: it is {width} x {height}; sides are 1 or more, with at most {PIXELS_MAX} pixels")
        return height, width

    def columns(self, image: Mapping[str, Any], objects: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
        numbered = [(number, item) for number, item in enumerate(objects, 1) if _RUNS in item or _polygons("", item)]
        instance = [0] * len(objects)
        for number, _ in numbered:
            instance[number - 1] = number
        return {"instance": instance, "instances": self._draw(image, numbered)}

    def _draw(self, image: Mapping[str, Any], numbered: Sequence[Tuple[int, Mapping[str, Any]]]) -> Any:
        if not numbered and not all(isinstance(image.get(side), int) for side in ("height", "width")):
            return None
        coded = {item["id"]: tuple(item["segmentation"]["size"]) for _, item in numbered if _RUNS in item}
        other = next((number for number, size in coded.items() if size != next(iter(coded.values()))), None)
        if other is not None:
            raise Refusal(f"{self._path}: annotation {other}: its segmentation: size is {list(coded[other])}, but that of annotation {next(iter(coded))}, of the same image, is another: correct either")
        height, width = next(iter(coded.values()), None) or self._sides(image)
        return self._masks.draw(height, width, [(number, bool(item.get("iscrowd")), _spans(item, height, width)) for number, item in numbered])


def _spans(item: Mapping[str, Any], height: int, width: int) -> Spans:
    if _RUNS in item:
        return spans_of_runs(item[_RUNS])
    return union(span for polygon in _polygons("", item) for span in spans_of_polygon(polygon, height, width))


def _rows(found: _Objects, folders: Sequence[Path], masks: Optional[_Instances]) -> Iterator[Mapping[str, Any]]:
    for number, image in found.images.items():
        objects = list(found.objects.get(number, {}).values())
        row: Dict[str, Any] = {
            "image": find(folders, image["file_name"]),
            "key": image["file_name"],
            "boxes": [item["bbox"] for item in objects],
            "class": [found.numbers[item["category_id"]] for item in objects],
            "id": [item["id"] for item in objects],
            "area": [item.get("area", item["bbox"][2] * item["bbox"][3]) for item in objects],
            "iscrowd": [item.get("iscrowd", 0) for item in objects],
            "rle": {str(item["id"]): item["segmentation"] for item in objects if isinstance(item.get("segmentation"), dict)} or None,
            "polygons": polygon_rows([_polygons("", item) for item in objects]),
            "captions": found.captions.get(number, []),
        }
        if found.keypoints:
            row["keypoints"] = [_points(item, found.keypoints) for item in objects]
        if masks:
            row.update(masks.columns(image, objects))
        yield row
