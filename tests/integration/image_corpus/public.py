#!/usr/bin/env python3
"""Compares how packimg and Pillow read public image collections.

public.py FOLDER... converts every image of each folder in all modes of image_corpus.MODES, decodes the datasets like loaderd, and compares each image with
Pillow's, with the orientation applied. Prints totals for each folder and a table of all differing files, each with its reason from public_reasons.py, and fails
if one has no reason. PACKIMG, DECODED and PACKIMG_PARTS are set as for image_corpus.py.
"""

import argparse
import collections
import fnmatch
import hashlib
import io
import os
import pathlib
import re
import sys
import tempfile
import warnings

os.environ["ASAN_OPTIONS"] = "exitcode=99:" + os.environ.get("ASAN_OPTIONS", "")  # packimg exits with 1 if it skips files
os.environ["UBSAN_OPTIONS"] = "halt_on_error=1:exitcode=99:" + os.environ.get("UBSAN_OPTIONS", "")

import numpy
import PIL
from PIL import Image

import image_corpus
from make import cjpeg
from public_reasons import DEEP, DIFFERS, EQUAL, HERE, NEITHER, REASONS, THERE, WITHIN

FORMATS = pathlib.Path(__file__).resolve().parents[3] / "tools/packimg/image/formats.txt"
ENDINGS = {ending for row in FORMATS.read_text().splitlines() if not row.startswith("#") for ending in row.split("|")[2].split()}
OTHER_NAMES = {".mpo": ".jpg", ".apng": ".png", ".avifs": ".avif"}  # suffixes of readable formats that packimg ignores
warnings.simplefilter("ignore")
Image.MAX_IMAGE_PIXELS = 1 << 26  # Pillow refuses twice as many, as packimg does


def documented_error(data):
    """Returns the largest difference that packimg(1) states for such a file."""
    if data[4:8] == b"ftyp":
        return 8
    try:
        photometric = Image.open(io.BytesIO(data)).tag_v2.get(262)
    except Exception:  # not a TIFF, or not readable by Pillow
        return 0
    return {6: 2, 8: 1}.get(photometric, 0)


def expected_deep_grey(data):
    """Returns the pixels that packimg(1) specifies for greyscale of more than 8 bits, which Pillow's convert("RGB")
    clips: the high byte, in PNM scaled. None for other images.
    """
    image = Image.open(io.BytesIO(data))
    if image.mode not in ("I", "I;16", "I;16B", "I;16L"):
        return None
    kind, bits = image.format, image.tag_v2[258][0] if image.format == "TIFF" else 16
    values = numpy.asarray(image).astype(numpy.int32)
    grey = (values * 255 + 32767) // 65535 if kind == "PPM" else values >> max(bits - 8, 0)
    return numpy.dstack([grey.astype(numpy.uint8)] * 3)


def pixel_difference(pixels, truth):
    """Returns (largest, mean) difference of values; both sizes as text if they differ."""
    if pixels.shape != truth.shape:
        return image_corpus.difference(pixels, truth)
    apart = numpy.abs(pixels.astype(numpy.int16) - truth)
    return int(apart.max()), float(apart.mean())


def judge(data, here):
    """Returns (verdict, details) of one file."""
    there = image_corpus.read_with_pillow(data)
    if isinstance(here, str):
        return (NEITHER, f"packimg: {here}; Pillow: {there}") if isinstance(there, str) else (HERE, here)
    if isinstance(there, str):
        return THERE, there
    apart = pixel_difference(here, there)
    if isinstance(apart, str):
        return DIFFERS, apart
    by = f"by {apart[0]} at most, {apart[1]:.3f} on average"
    if apart[0] <= documented_error(data):
        return WITHIN if apart[0] else EQUAL, by
    deep = expected_deep_grey(data)
    return DEEP if deep is not None and image_corpus.difference(here, deep) == 0 else DIFFERS, by


def images(folder):
    """Yields (name, name for packimg, path) of all files that may be images."""
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        ending = path.suffix.lower()
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(folder).parts):
            if ending in ENDINGS:
                yield name, name, path
            elif ending in OTHER_NAMES:
                yield name, name + OTHER_NAMES[ending], path


def digest(here):
    return here if isinstance(here, str) else (here.shape, hashlib.blake2b(here.tobytes()).digest())


def compare(folder):
    """Returns a dictionary per name: (verdict, details) and the modes with that result, usually all."""
    found = list(images(folder))
    results, known = {name: {} for name, _, _ in found}, {}
    with tempfile.TemporaryDirectory(prefix="public-", dir="/var/tmp") as temporary:
        root = pathlib.Path(temporary)
        files = root / "files"
        for _, known_as, path in found:
            (files / known_as).parent.mkdir(parents=True, exist_ok=True)
            (files / known_as).symlink_to(path.resolve())
        (files / "whole.jpg").write_bytes(cjpeg())  # packimg refuses a folder without any convertible image
        for mode, options in image_corpus.MODES.items():
            into = root / mode.replace(" ", "-")
            outcome = image_corpus.read_all(files, into, options)
            for name, known_as, path in found:
                here = outcome.pop(known_as, "not found in the folder")
                key = (name, digest(here))
                if key not in known:
                    known[key] = judge(path.read_bytes(), here)
                results[name].setdefault(known[key], []).append(mode)
            image_corpus.run("rm", "-r", into)
    return results


def reason(name, verdict, more):
    """Returns the known reason for a difference; empty if there is none."""
    for pattern, expected, message, text in REASONS:
        if fnmatch.fnmatchcase(name, pattern) and verdict == expected and re.search(message, more):
            return text
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", metavar="FOLDER", nargs="+", type=pathlib.Path)
    parser.add_argument("--all", action="store_true", help="the table has equal files, too")
    arguments = parser.parse_args()
    verdicts = [EQUAL, WITHIN, DEEP, NEITHER, HERE, THERE, DIFFERS]
    totals, rows, unexplained = [], [], 0

    for folder in arguments.folders:
        results = compare(folder)
        counts = collections.Counter()
        for name, outcomes in results.items():
            counts[next(iter(outcomes))[0] if len(outcomes) == 1 else DIFFERS] += 1
            for (verdict, more), modes in outcomes.items():
                good = verdict in (EQUAL, WITHIN, DEEP)
                why = reason(f"{folder.name}/{name}", verdict, more)
                unexplained += not good and not why
                if not good or len(outcomes) > 1 or arguments.all:
                    where = f" [{', '.join(modes)}]" if len(outcomes) > 1 else ""
                    failed = "" if good or why else "FAILED "
                    more = more.replace("|", "\\|").replace("\n", " ")
                    rows.append(f"| {failed}{folder.name}/{name}{where} | {verdict}: {more} | {why} |")
        totals.append(f"| {folder.name} | {len(results)} | " + " | ".join(str(counts[verdict]) for verdict in verdicts) + " |")
    print(f"Pillow {PIL.__version__}\n\n| corpus | images | {' | '.join(verdicts)} |\n|{' --- |' * (len(verdicts) + 2)}")
    print("\n".join(totals))
    print("\n| file | outcome | reason |\n| --- | --- | --- |")
    print("\n".join(rows))
    print(f"\n{unexplained} without a reason")
    return unexplained > 0


if __name__ == "__main__":
    sys.exit(main())
