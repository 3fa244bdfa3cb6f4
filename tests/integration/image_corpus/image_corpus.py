#!/usr/bin/env python3
"""Odd images of every kind, as packimg and as Pillow read them.

image_corpus.py [--keep FOLDER] makes each file that the modules rows_*.py name, converts them all in every mode of MODES, decodes what the datasets
hold as loaderd does, and compares each with the truth: what Pillow makes of the file, turned upright, unless the row says otherwise. It prints a
table of all files of which packimg and Pillow make something else, each with its row's reason, and fails where an outcome is not the row's:
above all where something is "accepted here, wrong". The same files cut off must be refused, unless nothing of their pixels is cut.
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
PARTS = os.environ["PACKIMG_PARTS"].split()  # kinds of images that this build reads besides JPEG

# How a dataset can be made of the files. What is no JPEG stays as its pixels: encoding them would be a comparison of encoders.
MODES = {
    "verbatim": ["--non-jpeg", "raw"],
    "no index": ["--non-jpeg", "raw", "--no-index"],
    "transcoded": ["--non-jpeg", "raw", "--progressive", "transcode"],
    "pixels": ["--raw"],
}


class Row:
    """One file, and what is to become of it.

    name      of the file, which also says the kind
    data      its bytes
    reason    why packimg and Pillow differ; where they do, there must be one, and where they do not, none
    refused   a regular expression that packimg's reason fits, where it is to refuse the file
    truth     pixels (an array), or the bytes of a file that Pillow reads, where Pillow's own reading of the file is not the truth
    within    the largest difference of a value that is not wrong
    part      of the build, without which packimg refuses the file
    """

    def __init__(self, name, data, reason="", *, refused=None, truth=None, within=0, part=None):
        self.name, self.data, self.reason = name, data, reason
        self.refused, self.truth, self.within, self.part = refused, truth, within, part


def upright(data):
    """What Pillow makes of a file: height x width x 3; or its error, as text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(data))
            # a TIFF it turns itself, and 9.4 would turn it once more
            return numpy.asarray((image if image.format == "TIFF" else ImageOps.exif_transpose(image)).convert("RGB"))
    except UnidentifiedImageError:
        return "it knows no such image"
    except Exception as error:  # it raises everything from SyntaxError to struct.error
        return f"{type(error).__name__}: {error}"


def difference(pixels, truth):
    """0: the same; else the largest difference, or both sizes."""
    if pixels.shape != truth.shape:
        return f"{pixels.shape[1]}x{pixels.shape[0]}, not {truth.shape[1]}x{truth.shape[0]}"
    return int(numpy.abs(pixels.astype(int) - truth).max())


def run(*command, status=(0,)):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode not in status:
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout.decode()}{done.stderr.decode()}")
    return done.stdout.decode()


def read_all(files, folder, options):
    """Of each name what packimg makes of the file in one mode: pixels, or its reason to refuse it, as text."""
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


def truth_of(row, there):
    """The pixels of a file, or why there are none."""
    return there if row.truth is None else row.truth if isinstance(row.truth, numpy.ndarray) else upright(row.truth)


def judge(row, here, there):
    """(outcome in words, is it as the row says)."""
    expected = row.refused
    if row.part and row.part not in PARTS:
        return ("the same" if isinstance(here, str) and "built without" in here else f"ACCEPTED HERE, WITHOUT {row.part}"), isinstance(here, str)
    pillow = "refuses: " + there if isinstance(there, str) else "reads"
    truth = truth_of(row, there)

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


def cut(table, count):
    """Beginnings of each file that is good, of that many lengths: refused, or with all pixels all the same. (row, how much of it, cut row)."""
    for row in table:
        if not row.refused and not (row.part and row.part not in PARTS):
            for i in range(count):
                length = len(row.data) * (i + 1) // (count + 1)
                yield row, length, Row(f"cut-{i}-{row.name}", row.data[:length])


def judge_cuts(table, count, files, folder):
    """The number of cut files that are accepted with other pixels than the whole has."""
    files.mkdir()
    cuts = list(cut(table, count))
    for _, _, part in cuts:
        (files / part.name).write_bytes(part.data)
    # a folder of nothing that can be converted is no dataset
    (files / "whole.jpg").write_bytes(next(row.data for row in table if row.name.endswith(".jpg") and not row.refused))
    wrong = 0
    for mode, options in MODES.items():
        outcome = read_all(files, folder / ("cut-" + mode.replace(" ", "-")), options)
        for row, length, part in cuts:
            here = outcome.get(part.name, "not found in the folder")
            stored = isinstance(here, str) and here.startswith("stored")
            truth = truth_of(row, upright(row.data)) if not isinstance(here, str) else None
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
        there = upright(row.data)
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
