"""python -m loaderd.convert SOURCE [OUT]: writes datasets from the formats of other projects.

A source is a module of this folder, and a row of SOURCES.
"""

import argparse
import sys
from pathlib import Path
from typing import Callable, List, NamedTuple, Optional, Sequence

from .. import BadSample, FeedError, Writer
from . import _arrays, _arrow, _beton, _celeba, _coco, _cub, _folder, _imagenet, _masks, _openimages, _panoptic, _pets, _streams, _tfrecord, _voc, _yolo
from ._part import Choice, Part, Refusal


class Source(NamedTuple):
    """A format that can be converted."""

    name: str  # for --format
    what: str
    recognises: Callable[[Path], bool]
    parts: Callable[[Path, Choice], List[Part]]
    choices: Sequence[str] = ()  # which of --image, --label and --key it supports
    masks: Sequence[str] = ()  # values of --masks that it supports


_COLUMNS = ("image", "label", "key")

SOURCES: Sequence[Source] = (
    Source("panoptic", "COCO's panoptic annotations, a folder or a .json: masks of segments, boxes, classes (needs Pillow)", _panoptic.recognises, _panoptic.parts, (), ("classes",)),
    Source("coco", "COCO's annotations with their images, a folder or a .json: boxes, classes, polygons, masks, keypoints, captions", _coco.recognises, _coco.parts, (), ("instances", "none")),
    Source("voc", "Pascal VOC, a folder: boxes, classes, masks of classes and of instances (with Pillow)", _voc.recognises, _voc.parts),
    Source("yolo", "YOLO's images/ and labels/: boxes, classes, polygons, keypoints", _yolo.recognises, _yolo.parts),
    Source("masks", "folders of images and of masks, such as ADE20K and Cityscapes (needs Pillow)", _masks.recognises, _masks.parts),
    Source("celeba", "CelebA's lists with its images, a folder: attributes, identities, landmarks", _celeba.recognises, _celeba.parts),
    Source("pets", "the Oxford-IIIT Pet dataset, a folder: breeds, trimaps, boxes (needs Pillow)", _pets.recognises, _pets.parts),
    Source("cub", "CUB-200-2011, a folder: classes, boxes, parts", _cub.recognises, _cub.parts),
    Source("imagenet", "ImageNet's localization as on Kaggle, the folder of LOC_train_solution.csv: classes, boxes", _imagenet.recognises, _imagenet.parts),
    Source("openimages", "Open Images' tables with their images, a folder or a .csv: boxes, classes, image-level labels, masks", _openimages.recognises, _openimages.parts, (), ("none",)),
    Source("cifar", "the Python version of CIFAR-10 and CIFAR-100, a folder or a file of it", _arrays.recognises_cifar, _arrays.cifar_parts),
    Source("imagefolder", "Hugging Face's folders of images with metadata.jsonl or metadata.csv", _folder.recognises, _folder.parts, ("image", "label")),
    Source("tfrecord", "TFRecord files of tf.train.Example, one or a folder of them", _tfrecord.recognises, _tfrecord.parts, _COLUMNS),
    Source("arrow", "Parquet or Arrow files, such as Hugging Face's: one, or a folder of them (needs pyarrow)", _arrow.recognises, _arrow.parts, _COLUMNS),
    Source("ffcv", "FFCV's .beton, a file or a folder of them (needs ffcv)", _beton.recognises, _beton.parts, _COLUMNS),
    Source("mds", "MosaicML's MDS, a folder with index.json (needs mosaicml-streaming)", _streams.recognises_mds, _streams.mds_parts, _COLUMNS),
    Source("litdata", "litData's chunks, a folder with index.json (needs litdata)", _streams.recognises_litdata, _streams.litdata_parts, _COLUMNS),
    Source("numpy", "NumPy's .npy or .npz with arrays of images (needs NumPy)", _arrays.recognises_numpy, _arrays.numpy_parts, ("image", "label")),
)

_MASKS = sorted({name for source in SOURCES for name in source.masks})
_SKIPS_SHOWN = 5
_SUFFIXES = {"K": 10, "M": 20, "G": 30, "T": 40}


def _bytes(text: str) -> int:
    digits, shift = (text[:-1], _SUFFIXES[text[-1]]) if text[-1:] in _SUFFIXES else (text, 0)
    if not digits.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 512M or 4G")
    return int(digits) << shift


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of samples, 0 or more")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    known = "\n".join(f"  {source.name:13}{source.what}" for source in SOURCES)
    parser = argparse.ArgumentParser(
        prog="python -m loaderd.convert",
        description="Writes a .pimg dataset, or one for each split, from the format of another project:\n" + known,
        epilog="packimg convert takes folders, tables, archives, WebDataset, idx and CIFAR's binary version. Exit status: 0; 1 if samples were skipped; 2 on failure.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", type=Path, metavar="SOURCE", help="a file or a folder")
    parser.add_argument("out", nargs="?", type=Path, metavar="OUT", help="the dataset, NAME.pimg (default: the source's name, here)")
    parser.add_argument("--format", choices=[source.name for source in SOURCES], help="what the source is (default: recognised)")
    parser.add_argument("--split", metavar="NAME", help="write this split alone; with several, each becomes OUT-NAME.pimg")
    for role, what in (("image", "holds the images"), ("label", "holds the labels"), ("key", "names the samples")):
        parser.add_argument(f"--{role}", metavar="COLUMN", help=f"the column that {what} (default: by its name and type)")
    masks = "instances: of coco, a mask of numbered objects, also if all segmentations are polygons; none: of coco and openimages, no such mask; classes: of panoptic, a mask of classes, too"
    parser.add_argument("--masks", choices=_MASKS, help=masks)
    parser.add_argument("--non-jpeg", choices=("jpeg", "raw", "zstd"), default="zstd", help="how to store images that are not JPEGs (default: zstd, without loss)")
    parser.add_argument("--quality", type=int, default=95, metavar="Q", help="of --non-jpeg jpeg, 1..100 (default: 95)")
    parser.add_argument("--shard-size", type=_bytes, default=0, metavar="BYTES", help="begin a new file after this many bytes (K, M, G, T)")
    parser.add_argument("--limit", type=_count, metavar="N", help="write the first N samples of each split")
    parser.add_argument("--annotations", choices=("upright",), help="where EXIF turns an image: boxes, points and masks are of the upright one (default: such samples are skipped)")
    parser.add_argument("--on-error", choices=("skip", "fail"), default="skip", help="at an image that cannot be read (default: skip)")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="threads (default: all CPUs); never changes the result")
    parser.add_argument("--force", action="store_true", help="replace an existing dataset")
    return parser


def _find(path: Path, name: Optional[str]) -> Source:
    if not path.exists():
        raise Refusal(f"{path}: there is no such file or folder")
    for source in SOURCES:
        if source.name == name if name else source.recognises(path):
            return source
    raise Refusal(f"{path}: none of " + ", ".join(source.name for source in SOURCES) + "; --format NAME says which it is, and packimg convert takes folders, tables and archives")


def _write(part: Part, out: Path, arguments: argparse.Namespace) -> bool:
    """Writes a dataset and prints its summary. Returns whether samples were skipped."""
    schema = {field.name: field.kind for field in part.fields}
    labelled, missing = False, 0
    with Writer(
        out, schema, arguments.shard_size, arguments.jobs, classes=part.classes, non_jpeg=arguments.non_jpeg, quality=arguments.quality,
        on_error="raise" if arguments.on_error == "fail" else "skip", annotations=arguments.annotations, overwrite=arguments.force,
    ) as writer:  # fmt: skip
        for number, row in enumerate(part.rows()):
            if number == arguments.limit:
                break
            sample = {field.name: row.get(field.column) for field in part.fields}
            if sample["image"] is None:
                missing += 1
                continue
            labelled |= sample.get("label") is not None
            writer.add(sample)
    _summarise(part, out, writer, labelled, missing)
    return bool(writer.skipped or missing)


def _summarise(part: Part, out: Path, writer: Writer, labelled: bool, missing: int) -> None:
    print(f"{out}: {len(writer)} samples")
    for field in part.fields:
        source = "" if field.column == field.name or field.column.startswith("\0") else f", column {field.column}"
        print(f"  {field.name:11} {field.kind.split(' sparse')[0]}{source}")
    if part.classes is not None:
        print(f"  classes     {len(part.classes)}: {', '.join(part.classes[:5])}{', ...' if len(part.classes) > 5 else ''}")
    if not labelled and not any(field.kind.startswith(("class", "mask")) for field in part.fields if field.name != "label"):
        print("  classes     0: NO SAMPLE HAS A LABEL; --label COLUMN chooses a column of labels")
    for note in part.notes:
        print(f"  note        {note}")
    if missing:
        print(f"  skipped     {missing} that have no image")
    if writer.skipped:
        print(f"  skipped     {len(writer.skipped)}")
    for number, key, reason in writer.skipped[:_SKIPS_SHOWN]:
        print(f"    {key or f'sample {number}'}: {reason}")


def _choose_parts(parts: Sequence[Part], split: Optional[str]) -> Sequence[Part]:
    chosen = [part for part in parts if split is None or part.name == split]
    if not chosen:
        names = ", ".join(part.name for part in parts if part.name)
        raise Refusal(f"--split {split}: " + (f"there is no such split but {names}" if names else "the source has no splits"))
    return chosen


def _outputs(out: Path, parts: Sequence[Part], force: bool) -> List[Path]:
    """Returns the paths of the datasets; fails unless all can be written."""
    outputs = [out.with_name(f"{out.stem}-{part.name}.pimg") if len(parts) > 1 and part.name else out for part in parts]
    for number, (name, part) in enumerate(zip(outputs, parts)):
        if name in outputs[:number]:
            raise Refusal(f"{name}: two splits of the source would have this name, {parts[outputs.index(name)].name!r} and {part.name!r}: rename one, or convert one with --split")
    there = [] if force else [name for name in outputs if name.exists()]
    if there:
        raise Refusal(f"{there[0]} exists; --force replaces it")
    return outputs


def _check_choice(source: Source, choice: Choice) -> None:
    for role, column in zip(_COLUMNS, choice):
        if column is not None and role not in source.choices:
            raise Refusal(f"--{role} {column}: sources of the format {source.name} have no columns to choose for it: leave it out")
    if choice.masks is not None and choice.masks not in source.masks:
        known = f"have only {' and '.join(source.masks)}" if source.masks else "have no such choice"
        raise Refusal(f"--masks {choice.masks}: sources of the format {source.name} {known}: leave it out")


def _run(arguments: argparse.Namespace) -> bool:
    source, choice = _find(arguments.source, arguments.format), Choice(arguments.image, arguments.label, arguments.key, arguments.masks)
    out = arguments.out or Path(arguments.source.resolve().name.split(".")[0] + ".pimg")
    if out.suffix != ".pimg":
        raise Refusal(f"{out}: the name of a dataset ends in .pimg")
    _check_choice(source, choice)
    parts = _choose_parts(source.parts(arguments.source, choice), arguments.split)
    skipped = False
    for part, name in zip(parts, _outputs(out, parts, arguments.force)):
        skipped |= _write(part, name, arguments)
    return skipped


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Returns the exit status."""
    arguments = _parser().parse_args(argv)
    try:
        return 1 if _run(arguments) else 0
    except BadSample as error:
        hint = "; --on-error skip leaves such images out" if error.field in ("image", "mask") and arguments.on_error == "fail" else ""
        print(f"loaderd.convert: {error}{hint}", file=sys.stderr)
    except (Refusal, FeedError, ImportError, OSError, UnicodeError) as error:
        print(f"loaderd.convert: {error}", file=sys.stderr)
    return 2
