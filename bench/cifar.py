"""Shared by the benchmarks that train on CIFAR-10: packs its folders, and runs trainings whose results are kept."""

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
    """A program failed; the text is its output. Ends the process unless caught."""


def run(command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}\n{done.stderr}")


def classes(data):
    """Class names of a folder with train/CLASS and test/CLASS, in order."""
    return sorted(path.name for path in pathlib.Path(data, "train").iterdir() if path.is_dir())


def pack(programs, data, part, names, per_class, path):
    """Packs at most per_class images of each class (None: all), unless the dataset exists."""
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
    """Trains, by default without a recipe, unless the folder has a run with the same settings. Also writes wall-clock and CPU seconds to cost.json."""
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
        env=os.environ | {"PATH": f"{programs / 'loaderd'}:{os.environ['PATH']}", "OMP_WAIT_POLICY": "passive"},  # waiting threads must not spin
    )
    (output / "cost.json").write_text(json.dumps({"seconds": time.monotonic() - began, "cpu_seconds": cpu_seconds() - before}))
    done.write_text(asked)
    return output


def log(output, event):
    """Returns the events of one kind in a run's log."""
    lines = (json.loads(line) for line in open(output / "log.jsonl"))
    return [line for line in lines if line["event"] == event]


# 97.5 % quantiles of Student's t, by degrees of freedom
T = [math.nan, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]


def student(degrees):
    """Returns half the width of a 95 % interval in standard errors. Rounds the degrees of freedom down to an entry of the table."""
    return T[min(int(degrees), len(T) - 1)]


def seeds_of(text):
    """For argparse: "5" is 1 to 5, "3-5" is 3 to 5."""
    first, _, last = text.rpartition("-")
    return list(range(int(first or 1), int(last) + 1))


def one_of(words):
    """For argparse: a list of these words, separated by commas."""
    import argparse

    def parse_words(text):
        unknown = set(text.split(",")) - set(words)
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: expected some of {', '.join(words)}")
        return text.split(",")

    return parse_words
