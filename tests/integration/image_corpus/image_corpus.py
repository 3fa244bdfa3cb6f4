#!/usr/bin/env python3
"""Compares how packimg and Pillow read unusual images of every format.

image_corpus.py [--keep FOLDER] creates each file that the modules rows_*.py define, converts all of them in every mode of MODES, decodes the datasets like
loaderd, and compares each image with the expected pixels: Pillow's, with the orientation applied, unless the row gives others. Prints a table of all files on
which packimg and Pillow differ, each with its row's reason, and fails if an outcome is not the row's, in particular "accepted here, wrong". Truncated files must
be refused unless they contain all pixels.
"""

import argparse
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy
    from PIL import Image, ImageOps, UnidentifiedImageError
except ImportError as missing:
    print(f"skipped: {missing} (Debian: python3-numpy, python3-pil)")
    sys.exit(77)

PACKIMG = os.environ["PACKIMG"]
DECODED = os.environ["DECODED"]  # decoded.c
PARTS = os.environ["PACKIMG_PARTS"].split()  # formats that this build reads besides JPEG

# Conversion modes. Other formats are stored as raw pixels, because re-encoding would compare encoders.
MODES = {
    "verbatim": ["--non-jpeg", "raw"],
    "no index": ["--non-jpeg", "raw", "--no-index"],
    "transcoded": ["--non-jpeg", "raw", "--progressive", "transcode"],
    "pixels": ["--raw"],
}


class Row:
    """One file and its expected outcome.

    name      file name; its suffix gives the format
    data      contents
    reason    why packimg and Pillow differ; required if they do, forbidden if they do not
    refused   regular expression for packimg's error if it must refuse the file
    truth     expected pixels (an array, or the bytes of a file that Pillow reads) if Pillow's result for the file is not correct
    within    maximum difference of a value
    part      format that the build needs to read the file
    """

    def __init__(self, name, data, reason="", *, refused=None, truth=None, within=0, part=None):
        self.name, self.data, self.reason = name, data, reason
        self.refused, self.truth, self.within, self.part = refused, truth, within, part


def read_with_pillow(data):
    """Returns Pillow's pixels, height x width x 3, or its error as text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(data))
            # Pillow applies a TIFF's orientation itself, and 9.4 would apply it twice
            return numpy.asarray((image if image.format == "TIFF" else ImageOps.exif_transpose(image)).convert("RGB"))
    except UnidentifiedImageError:
        return "it knows no such image"
    except Exception as error:  # Pillow raises many types, from SyntaxError to struct.error
        return f"{type(error).__name__}: {error}"


def difference(pixels, truth):
    """Returns the largest difference, 0 for equal images; both sizes as text if they differ."""
    if pixels.shape != truth.shape:
        return f"{pixels.shape[1]}x{pixels.shape[0]}, not {truth.shape[1]}x{truth.shape[0]}"
    return int(numpy.abs(pixels.astype(int) - truth).max())


def run(*command, status=(0,)):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode not in status:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout.decode()}{done.stderr.decode()}")
    return done.stdout.decode()


def read_all(files, folder, options):
    """Returns, by name, packimg's pixels in one mode, or its error as text."""
    folder.mkdir()
    dataset, decoded = folder / "all.pimg", folder / "decoded"
    decoded.mkdir()
    summary = json.loads(run(PACKIMG, "convert", "-q", "--json", "--class-from", "none", files, "-o", dataset, *options, status=(0, 1)))
    outcome = {skip["name"]: skip["reason"] for skip in summary["skipped"]}
    print(run(DECODED, dataset, decoded), end="")
    for line in run(PACKIMG, "list", "--json", dataset).splitlines():
        sample = json.loads(line)
        pixels, reason = decoded / f"{sample['index']}.ppm", decoded / f"{sample['index']}.txt"
        outcome[sample["source"]] = numpy.asarray(Image.open(pixels)) if pixels.exists() else "stored, and then: " + reason.read_text().strip()
    return outcome


def expected_pixels(row, there):
    """Returns the pixels of a file, or the error."""
    return there if row.truth is None else row.truth if isinstance(row.truth, numpy.ndarray) else read_with_pillow(row.truth)


def judge(row, here, there):
    """Returns (outcome in words, whether it is the row's)."""
    expected = row.refused
    if row.part and row.part not in PARTS:
        return ("the same" if isinstance(here, str) and "built without" in here else f"ACCEPTED HERE, WITHOUT {row.part}"), isinstance(here, str)
    pillow = "refuses: " + there if isinstance(there, str) else "reads"
    truth = expected_pixels(row, there)

    if isinstance(here, str):
        agreed = bool(expected) and re.search(expected, here) and not here.startswith("stored")
        if isinstance(there, str) and agreed:
            return "the same", not row.reason
        return f"refused here ({here}); Pillow {pillow}", agreed and bool(row.reason)
    if expected:
        return f"ACCEPTED HERE, WRONG: to be refused ({expected}); Pillow {pillow}", False
    if isinstance(truth, str):
        return f"ACCEPTED HERE, and nothing says what it should be; Pillow {pillow}", False
    wrong = difference(here, truth)
    if isinstance(wrong, str) or wrong > row.within:
        return f"ACCEPTED HERE, WRONG: {wrong}; Pillow {pillow}", False
    if isinstance(there, str):
        return f"read here; Pillow {pillow}", bool(row.reason)
    apart = difference(here, there)
    return (f"differs from Pillow's by {apart}", bool(row.reason)) if apart else ("the same", not row.reason)


def truncate_rows(table, count):
    """Truncates each valid file to `count` lengths. A truncated file must be refused or have all pixels. Yields (row, length, truncated
    row).
    """
    for row in table:
        if not row.refused and not (row.part and row.part not in PARTS):
            for i in range(count):
                length = len(row.data) * (i + 1) // (count + 1)
                yield row, length, Row(f"cut-{i}-{row.name}", row.data[:length])


def judge_cuts(table, count, files, folder):
    """Returns the number of truncated files that are accepted with wrong pixels."""
    files.mkdir()
    cuts = list(truncate_rows(table, count))
    for _, _, part in cuts:
        (files / part.name).write_bytes(part.data)
    # packimg refuses a folder without any convertible image
    (files / "whole.jpg").write_bytes(next(row.data for row in table if row.name.endswith(".jpg") and not row.refused))
    wrong = 0
    for mode, options in MODES.items():
        outcome = read_all(files, folder / ("cut-" + mode.replace(" ", "-")), options)
        for row, length, part in cuts:
            here = outcome.get(part.name, "not found in the folder")
            stored = isinstance(here, str) and here.startswith("stored")
            truth = expected_pixels(row, read_with_pillow(row.data)) if not isinstance(here, str) else None
            if stored or truth is not None and (isinstance(truth, str) or difference(here, truth) not in range(row.within + 1)):
                wrong += 1
                print(f"FAILED  {row.name} [{mode}], its first {length} of {len(row.data)} bytes: ACCEPTED HERE, WRONG{': ' + here if stored else ''}")
    print(f"{len(cuts)} cut files in {len(MODES)} modes: {wrong} accepted with other pixels")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keep", metavar="FOLDER", help="leave the files there")
    parser.add_argument("--cuts", metavar="N", type=int, default=2, help="lengths to cut each good file to")
    arguments = parser.parse_args()
    import rows

    with tempfile.TemporaryDirectory(prefix="image_corpus-") as temporary:
        root = pathlib.Path(arguments.keep or temporary)
        files = root / "files"
        files.mkdir(parents=True)
        table = rows.all_rows()
        for row in table:
            (files / row.name).write_bytes(row.data)
        assert len({row.name for row in table}) == len(table), "two rows of one name"
        modes = {mode: read_all(files, root / mode.replace(" ", "-"), options) for mode, options in MODES.items()}
        wrong = judge_cuts(table, arguments.cuts, root / "cuts", root)

    failed, same = 0, 0
    for row in table:
        there = read_with_pillow(row.data)
        outcomes = {}
        for mode, outcome in modes.items():
            outcomes.setdefault(judge(row, outcome.get(row.name, "not found in the folder"), there), []).append(mode)
        for (words, good), which in outcomes.items():
            failed += not good
            if good and words == "the same":
                same += 1
                continue
            where = "" if len(which) == len(modes) else f" [{', '.join(which)}]"
            print(f"{'' if good else 'FAILED  '}{row.name}{where}: {words}{'; reason: ' + row.reason if row.reason else ''}")
    print(f"{len(table)} files in {len(modes)} modes: {same} the same as Pillow's, {failed} not as they should be")
    return failed + wrong > 0


if __name__ == "__main__":
    sys.exit(main())
