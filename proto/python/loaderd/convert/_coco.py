"""COCO's annotations: boxes, classes, polygons, keypoints and captions of images (https://cocodataset.org/#format-data), also as Roboflow exports them."""

import json
from pathlib import Path
from typing import AbstractSet, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple, Type

from ._part import POLYGON_NOTE, Choice, Field, Part, Refusal, polygon_columns, polygon_fields, unique_names

_KINDS = ("instances_", "person_keypoints_", "captions_")
_ROBOFLOW = "_annotations.coco.json"


def _files(folder: Path) -> Dict[str, List[Path]]:
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


def _is_coco(path: Path) -> bool:
    if path.suffix.lower() != ".json":
        return False
    with open(path, "rb") as file:
        head = file.read(1 << 16)
    return b'"images"' in head or b'"annotations"' in head or b'"image_id"' in head


def recognises(path: Path) -> bool:
    return bool(_files(path)) if path.is_dir() else _is_coco(path)


def parts(path: Path, chosen: Choice) -> List[Part]:
    splits = _files(path) if path.is_dir() else {"": [path]}
    if path.is_dir():
        found = {split: _Objects(files) for split, files in splits.items()}
        used = {category for objects in found.values() for category in objects.used}
        return [_part(split, objects, [*found.values()], used, splits[split][0], _image_folders(path, split)) for split, objects in found.items()]
    found_alone = _Objects([path])
    return [_part("", found_alone, [found_alone], found_alone.used, path, [path.parent, path.parent / "images", *_image_folders(path.parent.parent, path.stem.split("_")[-1])])]


def _image_folders(top: Path, split: str) -> List[Path]:
    """Where the images of a split may be."""
    return [top / split, top / "images" / split, top / "images", top]


def _load(path: Path) -> Mapping[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            loaded = json.load(file)
    except ValueError as error:
        raise Refusal(f"{path}: not JSON: {error}") from None
    if not isinstance(loaded, dict) or not isinstance(loaded.get("images"), list):
        raise Refusal(f"{path}: not a file of COCO annotations: it has no list of images")
    return loaded


def _required(where: str, item: Any, name: str, *kinds: Type[Any]) -> Any:
    """Returns a value of an entry of a list, which has to have one of these types."""
    value = item.get(name) if isinstance(item, dict) else None
    if not isinstance(value, kinds) or isinstance(value, bool):
        wanted = " or ".join({int: "a whole number", str: "a text", list: "a list"}[kind] for kind in kinds)
        raise Refusal(f"{where}: its {name} is {'missing' if value is None else repr(value)}; it has to be {wanted}")
    return value


def _entries(path: Path, loaded: Mapping[str, Any], name: str) -> Iterator[Tuple[str, Any]]:
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
        if not isinstance(polygon, list) or len(polygon) % 2 or not all(isinstance(number, (int, float)) for number in polygon):
            raise Refusal(f"{where}: its segmentation has {str(polygon)[:60]}, which is no list of x, y, x, y ...")
    return [polygon for polygon in found if polygon]


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
            self._add(path, _load(path))
        self.numbers = {category: number for number, category in enumerate(sorted(self.names))}

    def _add(self, path: Path, loaded: Mapping[str, Any]) -> None:
        for where, image in _entries(path, loaded, "images"):
            _required(where, image, "file_name", str)
            self.images.setdefault(_required(where, image, "id", int, str), image)
        for where, category in _entries(path, loaded, "categories"):
            self.names[_required(where, category, "id", int)] = _required(where, category, "name", str)
            self.keypoints = max(self.keypoints, len(category.get("keypoints") or ()))
        for where, annotation in _entries(path, loaded, "annotations"):
            image = _required(where, annotation, "image_id", int, str)
            if image not in self.images:
                raise Refusal(f"{path}: annotation {annotation.get('id')} is of image {image}, which is not listed")
            if "caption" in annotation:
                self.captions.setdefault(image, []).append(annotation["caption"])
            elif "bbox" in annotation:
                self._add_object(where, image, annotation)

    def _add_object(self, where: str, image: Any, annotation: Mapping[str, Any]) -> None:
        category = _required(where, annotation, "category_id", int)
        if category not in self.names:
            raise Refusal(f"{where}: its category_id is {category}, which is not in the list of categories")
        if len(_required(where, annotation, "bbox", list)) != 4:
            raise Refusal(f"{where}: its bbox is {annotation['bbox']}, not the four numbers x, y, width and height")
        self.used.add(category)
        self.has_polygons |= bool(_polygons(where, annotation))
        self.has_runs |= isinstance(annotation.get("segmentation"), dict)
        # instances_ and person_keypoints_ describe the same object under one id
        self.objects.setdefault(image, {}).setdefault(_required(where, annotation, "id", int), {}).update(annotation)


def _numbering(found: _Objects) -> Sequence[str]:
    """Returns a note on the class numbers if they differ from the category ids."""
    if list(found.numbers) == list(found.numbers.values()):
        return []
    if len(found.numbers) == 1:
        return [f"class 0 is category {min(found.numbers)}"]
    return [f"classes 0 .. {len(found.numbers) - 1} are the categories in the order of their ids, {min(found.numbers)} .. {max(found.numbers)}"]


def _part(name: str, found: _Objects, every: Sequence[_Objects], used: AbstractSet[int], path: Path, folders: Sequence[Path]) -> Part:
    """`every`: the objects of each split, which all get the same fields; `used`: categories of the objects of all splits; `path`: file named in messages."""
    fields = [Field("image", "image", "image u8[h,w,3]"), Field("key", "key", "key")]
    notes: List[str] = []
    has_polygons, has_runs = (any(getattr(one, name) for one in every) for name in ("has_polygons", "has_runs"))
    if found.names:
        fields += [
            Field("boxes", "boxes", "boxes(image) f32[*,4] xywh"), Field("class", "class", "class(boxes) i32[*]"),
            Field("id", "id", "value(boxes) i64[*]"), Field("area", "area", "value(boxes) f32[*]"), Field("iscrowd", "iscrowd", "value(boxes) u8[*]"),
        ]  # fmt: skip
        notes += _numbering(found)
    if has_polygons:
        fields += polygon_fields()
        notes.append(POLYGON_NOTE)
    if has_runs:
        fields.append(Field("rle", "rle", "json sparse"))
        notes.append("rle is JSON, the masks in run-length encoding by the id of their object, which transforms leave as they are")
    if found.keypoints:
        fields.append(Field("keypoints", "keypoints", f"keypoints(boxes) f32[*,{found.keypoints},3] xyv"))
    if found.captions:
        fields.append(Field("captions", "captions", "json"))
    names = unique_names(found.names, used, path, notes)
    return Part(name, fields, lambda: _rows(found, folders), [names[category] for category in sorted(names)] or None, notes)


def _find(folders: Sequence[Path], name: str) -> Path:
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    return folders[0] / name  # reading reports that it is missing


def _points(item: Mapping[str, Any], count: int) -> List[List[float]]:
    flat = item.get("keypoints") or [0] * (3 * count)
    return [list(flat[i : i + 3]) for i in range(0, 3 * count, 3)]


def _rows(found: _Objects, folders: Sequence[Path]) -> Iterator[Mapping[str, Any]]:
    for number, image in found.images.items():
        objects = list(found.objects.get(number, {}).values())
        row: Dict[str, Any] = {
            "image": _find(folders, image["file_name"]),
            "key": image["file_name"],
            "boxes": [item["bbox"] for item in objects],
            "class": [found.numbers[item["category_id"]] for item in objects],
            "id": [item["id"] for item in objects],
            "area": [item.get("area", item["bbox"][2] * item["bbox"][3]) for item in objects],
            "iscrowd": [item.get("iscrowd", 0) for item in objects],
            "rle": {str(item["id"]): item["segmentation"] for item in objects if isinstance(item.get("segmentation"), dict)} or None,
            **polygon_columns([(item["id"], polygon) for item in objects for polygon in _polygons("", item)]),
            "captions": found.captions.get(number, []),
        }
        if found.keypoints:
            row["keypoints"] = [_points(item, found.keypoints) for item in objects]
        yield row
