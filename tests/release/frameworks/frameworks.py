#!/usr/bin/env python3
"""Runs training scripts of frameworks with their own loader and with loaderd's, alternating.

    frameworks.py --work FOLDER list | images | run ROW | table

Checks for each row that the scripts differ in at most three new lines, that each epoch passes each sample to the loss once over all
processes (records.py), and that resuming works if the framework supports it. Reports images/s with both loaders. Needs $PACKIMG, $SHAPES,
$LOADERD and an interpreter with the packages of requirements.txt and loaderd. Exits with 77 if a published script is missing.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import records
from edits import apply, difference
from rows import EPOCHS, ROWS, TRAIN_SAMPLES, VAL_SAMPLES, Row

HERE = pathlib.Path(__file__).resolve().parent
LINES_MAX = 3
SKIPPED = 77
TIMEOUT = 1800  # seconds; a script takes less than a minute on an idle machine


def draw_images(work: pathlib.Path) -> None:
    """Draws and packs images. Each image has its own class, so its label identifies it in any loader."""
    if (work / "images.complete").exists():
        return
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    count = TRAIN_SAMPLES + VAL_SAMPLES
    share = VAL_SAMPLES / count
    subprocess.run([os.environ["SHAPES"], f"--count={count}", "--size=224", f"--val={share:.6f}", work / "drawn"], check=True, stdout=subprocess.DEVNULL)
    for part, samples in (("train", TRAIN_SAMPLES), ("val", VAL_SAMPLES)):
        files = sorted((work / "drawn" / part).rglob("*.jpg"))
        if len(files) != samples:
            raise SystemExit(f"shapes has drawn {len(files)} images for {part}, not {samples}")
        for number, file in enumerate(files):
            folder = work / "images" / part / f"{number:06}"
            folder.mkdir(parents=True)
            os.link(file, folder / file.name)
        subprocess.run([os.environ["PACKIMG"], "convert", work / "images" / part, "-o", work / f"{part}.pimg", "--quiet"], check=True)
    (work / "images.complete").touch()


class Runner:
    """Runs one script of a row in its own folder."""

    def __init__(self, row: Row, text: str, work: pathlib.Path, name: str, helpers: "tuple[pathlib.Path, ...]") -> None:
        self.row = row
        self.folder = work / "runs" / row.name.replace(" ", "-").replace("/", "-") / name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for file in ("images", "train.pimg", "val.pimg"):
            (self.folder / file).symlink_to(work / file)
        for helper in helpers:
            shutil.copy(helper, self.folder)
        (self.folder / "script.py").write_text(text)
        self._runs = 0

    def __call__(self, *arguments: str) -> "list[list[records.Step]]":
        """Runs the script and returns what its processes recorded."""
        self._runs += 1
        record = self.folder / f"record-{self._runs}"
        record.mkdir()
        paths = [str(HERE / "recorder"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment = {**os.environ, "LOADERD_RECORD": str(record), "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
        command = [word.replace("{python}", sys.executable) for word in self.row.launch] + ["script.py", *arguments]
        log = self.folder / f"log-{self._runs}.txt"
        with open(log, "wb") as out:
            process = subprocess.Popen(command, cwd=self.folder, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            try:
                status = process.wait(TIMEOUT)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)  # including its workers and ranks
                raise
        if status != 0:
            tail = log.read_text(errors="replace").splitlines()[-40:]
            raise SystemExit("\n".join([*tail, f"{self.row.name}: {' '.join(command)} ended with {status}; its output is in {log}"]))
        return records.read(record)


def find_script(row: Row, sources: "list[str]") -> "pathlib.Path | None":
    """Returns the path of the script in this folder or among the published ones; None if it is missing."""
    places = [HERE / "scripts", *map(pathlib.Path, sources)]
    return next((place / row.script for place in places if (place / row.script).exists()), None)


def run(row: Row, work: pathlib.Path, sources: "list[str]") -> None:
    script = find_script(row, sources)
    if script is None:
        print(f"{row.name}: {row.script} is neither in a package nor in $LOADERD_FRAMEWORK_SCRIPTS; {row.origin} has it")
        sys.exit(SKIPPED)
    own = script.read_text()
    ours = apply(own, row.edits)
    lines, changed = difference(own, ours, row.script)
    print(*lines, sep="\n")
    if changed > LINES_MAX:
        raise SystemExit(f"{row.name}: {changed} lines change, more than {LINES_MAX}")
    helpers = tuple(path for path in script.parent.glob("*.py") if path != script) if script.parent != HERE / "scripts" else ()
    rates = []
    for name, text in (("own", own), ("loaderd", ours)):
        runner = Runner(row, text, work, name, helpers)
        ranks = runner(*row.arguments)
        rates.append(records.rate(records.check_epochs(ranks, row.world, TRAIN_SAMPLES, EPOCHS)))
        if row.validations:
            records.check_validation(ranks, row.world, VAL_SAMPLES, row.validations)
    seen = f"{EPOCHS} x {TRAIN_SAMPLES} once"
    resumed = row.more(runner) if row.more is not None else ""
    result = {"row": row.name, "lines": changed, "samples": seen, "own": rates[0], "loaderd": rates[1], "more": resumed}
    (work / "results").mkdir(exist_ok=True)
    (work / "results" / f"{ROWS.index(row):02}.json").write_text(json.dumps(result))
    print(f"{row.name}: {changed} lines, {seen}, {rates[0]:.0f} and {rates[1]:.0f} images/s, {rates[1] / rates[0]:.1f}x{', ' + resumed if resumed else ''}")


def table(work: pathlib.Path) -> str:
    lines = ["| script | lines | samples | own loader, images/s | loaderd, images/s | ratio | and |", "| --- | ---: | --- | ---: | ---: | ---: | --- |"]
    for file in sorted((work / "results").glob("*.json")):
        it = json.loads(file.read_text())
        lines.append(f"| {it['row']} | {it['lines']} | {it['samples']} | {it['own']:.0f} | {it['loaderd']:.0f} | {it['loaderd'] / it['own']:.1f} | {it['more']} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--scripts", default=[], action="append", help="a folder with published scripts")
    parser.add_argument("action", choices=["list", "images", "run", "table"])
    parser.add_argument("row", nargs="?")
    arguments = parser.parse_args()
    work = arguments.work.resolve()
    if arguments.action == "list":
        print(*(row.name for row in ROWS), sep="\n")
    elif arguments.action == "images":
        draw_images(work)
    elif arguments.action == "table":
        text = table(work)
        (work / "table.md").write_text(text)
        print(text, end="")
    else:
        found = [row for row in ROWS if row.name == arguments.row]
        if not found:
            parser.error(f"no row {arguments.row!r}; list shows them")
        try:
            run(found[0], work, arguments.scripts)
        except AssertionError as error:
            sys.exit(f"{arguments.row}: {error}")


if __name__ == "__main__":
    main()
