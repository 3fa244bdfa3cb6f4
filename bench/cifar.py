"""What the benches that train on CIFAR-10 share: its folders packed, and runs of the trainer that are kept."""

import json
import math
import os
import pathlib
import resource
import shutil
import subprocess
import time

TREE = pathlib.Path(__file__).resolve().parent.parent
COMMON = [
    "data.val_pipeline=",
    "data.threads=1",
    "log.progress=off",
    "checkpoint.every=0",
    "checkpoint.best=no",
]


class Failed(SystemExit):
    """A program that failed, with what it said; ends whoever does not catch it."""


def run(command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}\n{done.stderr}")


def classes(data):
    """Names, in order, of a folder with train/CLASS and test/CLASS."""
    return sorted(path.name for path in pathlib.Path(data, "train").iterdir() if path.is_dir())


def pack(programs, data, part, names, per_class, path):
    """A dataset of at most so many images of each of these classes, of all where per_class is None, made unless it is there."""
    if path.exists():
        return path
    chosen = path.with_suffix("")
    for name in names:
        (chosen / name).mkdir(parents=True, exist_ok=True)
        for image in sorted(pathlib.Path(data, part, name).iterdir())[:per_class]:
            shutil.copy(image, chosen / name)
    run([programs / "tools/packimg/packimg", "convert", "--quiet", "--shuffle", "1", chosen, "-o", path])
    shutil.rmtree(chosen)
    return path


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def train(programs, output, settings, recipe=None):
    """The folder of a run, of no recipe unless told, made unless it is there with the same settings; beside its files cost.json, the seconds
    that it took and those of the CPU."""
    asked = "\n".join(settings) + "\n"
    done = output / "settings.txt"
    if done.exists() and done.read_text() == asked:
        return output
    if not recipe:
        recipe = output.parent / "empty.ini"
        recipe.write_text("")
    began, before = time.monotonic(), cpu_seconds()
    run(
        [programs / "trainer/trainer", "--overwrite", "--output", output, recipe, *COMMON, *settings],
        env=os.environ | {"PATH": f"{programs / 'loaderd'}:{os.environ['PATH']}", "OMP_WAIT_POLICY": "passive"},  # waiting is no work
    )
    (output / "cost.json").write_text(json.dumps({"seconds": time.monotonic() - began, "cpu_seconds": cpu_seconds() - before}))
    done.write_text(asked)
    return output


def log(output, event):
    """The lines of a run's log of one kind."""
    lines = (json.loads(line) for line in open(output / "log.jsonl"))
    return [line for line in lines if line["event"] == event]


# Student's t for 97.5 %, by degrees of freedom
T = [math.nan, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]


def student(degrees):
    """How many standard errors reach to the ends of a 95 % interval; degrees in between take those below, beyond the table its last."""
    return T[min(int(degrees), len(T) - 1)]


def seeds_of(text):
    """Of argparse: "5" is 1 to 5, "3-5" those."""
    first, _, last = text.rpartition("-")
    return list(range(int(first or 1), int(last) + 1))


def one_of(words):
    """Of argparse: some of these words, with commas between."""
    import argparse

    def parse_words(text):
        unknown = set(text.split(",")) - set(words)
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: expected some of {', '.join(words)}")
        return text.split(",")

    return parse_words
