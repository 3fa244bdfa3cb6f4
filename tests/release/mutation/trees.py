"""The campaign's copies of the tree, their builds, and tests in these builds.

source/           the committed tree at the start of the campaign
covered/          built by clang with coverage, recorded in mapped files, so that it survives workers that are killed or that may
                  not open files
clean/            built without faults, to repeat tests whose failure may be random
planted/source/   another copy, for one fault at a time, built in planted/build/
"""

import ctypes
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import tempfile
import time

import faults

OPTIONS = ["-Dbuildtype=release", "-Dcuda=disabled", "-Dmpi=disabled"]
PRODUCT = ("format", "proto", "loaderd", "trainer", "tools", "bench")
PR_SET_CHILD_SUBREAPER = 36


class Failure(Exception):
    pass


def call(command, log=None, **more):
    done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", **more)
    if done.returncode:
        raise Failure(f"{' '.join(str(part) for part in command[:4])} ...:\n{done.stdout[-4000:]}")
    return done.stdout


def find_children():
    task = pathlib.Path("/proc/self/task")
    return [int(pid) for thread in task.iterdir() for pid in (thread / "children").read_text().split()]


def end_children():
    """Kills and reaps processes that a test left behind; they are children of this process, which is a subreaper."""
    while pids := find_children():
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for pid in pids:
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                pass


class Build:
    def __init__(self, source, folder):
        self.source, self.folder = source, folder

    def set_up(self, compiler, *options):
        if not (self.folder / "build.ninja").exists():
            call(["meson", "setup", self.folder, self.source, *OPTIONS, *options],
                 env=dict(os.environ, CC=("ccache " if shutil.which("ccache") else "") + compiler))
            call(["ninja", "-C", self.folder, "-j", str(os.cpu_count())])
        targets = json.loads(call(["meson", "introspect", "--targets", self.folder]))
        files = {target["id"]: target["filename"] for target in targets}
        self.tests = {}
        for test in json.loads(call(["meson", "introspect", "--tests", self.folder])):
            test["files"] = sorted({name for target in test["depends"] for name in files[target]})
            self.tests[test["name"]] = test
        self.commands = json.loads((self.folder / "compile_commands.json").read_text())

    def make(self, test):
        call(["ninja", "-C", self.folder, *(os.path.relpath(name, self.folder) for name in self.tests[test]["files"])])

    def run(self, test, timeout):
        """Runs one test. Returns (status, end of the output): 0 passed, 77 skipped, another number failed, None timed out."""
        test = self.tests[test]
        with tempfile.TemporaryDirectory(prefix="mutation.", ignore_cleanup_errors=True) as scratch:
            os.chmod(scratch, 0o1777)
            with open(os.path.join(scratch, "output"), "w+b") as output:
                process = subprocess.Popen(test["cmd"], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                           cwd=test["workdir"] or self.folder, start_new_session=True,
                                           env=dict(os.environ, **test["env"], TMPDIR=scratch, MALLOC_PERTURB_="165"))
                try:
                    status = process.wait(timeout)
                except subprocess.TimeoutExpired:
                    status = None
                end_children()
                process.returncode = process.returncode or 0
                output.seek(max(0, output.seek(0, 2) - 2000))
                return status, output.read().decode(errors="replace")

    def object_code(self, name):
        """Returns the machine code of a source file's objects, without debug sections; None if it does not compile."""
        code = []
        with tempfile.TemporaryDirectory() as scratch:
            target = os.path.join(scratch, "object.o")
            for entry in self.commands_of(name):
                words = shlex.split(entry["command"])
                words[words.index("-o") + 1] = target
                words[words.index("-MF") + 1] = target + ".d"
                if subprocess.run(words, cwd=entry["directory"], capture_output=True).returncode:
                    return None
                call(["objcopy", "--strip-debug", "--remove-section=.comment", target])
                code.append(pathlib.Path(target).read_bytes())
        return code

    def commands_of(self, name):
        return [entry for entry in self.commands if self.name_of(entry) == name]

    def name_of(self, entry):
        """Returns the compiled file's path in the tree; None for a generated file."""
        path = pathlib.Path(os.path.normpath(os.path.join(entry["directory"], entry["file"])))
        return str(path.relative_to(self.source)) if path.is_relative_to(self.source) else None


class Trees:
    """Everything in the campaign's folder that is created once: copies, builds, faults, and the lines that each test executes."""

    def __init__(self, tree, work, log):
        self.work, self.log = work, log
        self.profiles = work / "profiles"
        self.source = work / "source"
        self.planted_source = work / "planted" / "source"
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        os.umask(0)  # tests run programs as several users, all of which write coverage
        work.mkdir(parents=True, exist_ok=True)
        self.copy(tree)
        self.covered = Build(self.source, work / "covered")
        self.clean = Build(self.source, work / "clean")
        self.planted = Build(self.planted_source, work / "planted" / "build")

    def copy(self, tree):
        for copy in (self.source, self.planted_source):
            if not copy.exists():
                copy.mkdir(parents=True)
                archive = subprocess.run(["git", "-C", tree, "archive", "HEAD"], check=True, capture_output=True).stdout
                subprocess.run(["tar", "-x", "-C", copy], check=True, input=archive)

    def prepare(self):
        flags = f"-fprofile-instr-generate={self.profiles}/%m%c.profraw -fcoverage-mapping -mllvm -runtime-counter-relocation"
        self.log("building")
        self.covered.set_up("clang-14", f"-Dc_args={flags}", "-Dc_link_args=-fprofile-instr-generate")
        self.clean.set_up("gcc")
        self.planted.set_up("gcc")
        self.faults = self.make_once("faults.json", self.find_faults)
        self.restore()
        self.baseline = self.make_once("baseline.json", self.run_baseline)
        self.seconds = {test: entry["seconds"] for test, entry in self.baseline.items()}
        self.executed = {}
        for test, entry in self.baseline.items():
            for name, lines in entry["lines"].items():
                for line in lines:
                    self.executed.setdefault(name, {}).setdefault(line, []).append(test)

    def make_once(self, name, make):
        path = self.work / name
        if not path.exists():
            made = make()
            path.with_suffix(".new").write_text(json.dumps(made))
            path.with_suffix(".new").rename(path)
        return json.loads(path.read_text())

    def restore(self):
        """Removes the last fault of a campaign that was killed."""
        for name in {fault["file"] for found in self.faults.values() for fault in found}:
            original = (self.source / name).read_bytes()
            if (self.planted_source / name).read_bytes() != original:
                (self.planted_source / name).write_bytes(original)

    def find_faults(self):
        """Returns the possible faults by folder."""
        self.log("looking for faults to plant")
        found, seen = {}, set()
        for entry in self.covered.commands:
            name = self.covered.name_of(entry)
            if not name or name in seen or not name.startswith(PRODUCT):
                continue
            seen.add(name)
            words = [os.path.join(entry["directory"], word[2:]).join(["-I", ""]) if word.startswith("-I") else word
                     for word in shlex.split(entry["command"])
                     if word.startswith(("-I", "-D", "-std", "-m")) and word != "-mllvm"]
            found.setdefault(os.path.dirname(name), []).extend(faults.File(name, self.source / name, words).faults)
        return found

    def run_baseline(self):
        """Runs each test alone once; returns its result, its duration, and the lines of the product that it executes."""
        baseline = self.work / "baseline"
        baseline.mkdir(exist_ok=True)
        for number, (name, test) in enumerate(self.covered.tests.items()):
            kept = baseline / f"{number}.json"
            if kept.exists():
                continue
            shutil.rmtree(self.profiles, ignore_errors=True)
            self.profiles.mkdir()
            self.profiles.chmod(0o1777)
            began = time.monotonic()
            status, _ = self.covered.run(name, 1200)
            seconds = time.monotonic() - began
            self.log(f"{number + 1} of {len(self.covered.tests)}: {name}, {seconds:.1f} s, status {status}")
            entry = {"name": name, "status": status, "seconds": seconds, "lines": self.executed_lines(test)}
            kept.write_text(json.dumps(entry))
        entries = [json.loads((baseline / f"{number}.json").read_text()) for number in range(len(self.covered.tests))]
        return {entry["name"]: entry for entry in entries}

    def executed_lines(self, test):
        profiles = list(self.profiles.glob("*.profraw"))
        if not profiles:
            return {}
        merged = self.work / "merged.profdata"
        call(["llvm-profdata-14", "merge", "-sparse", "-failure-mode=all", "-o", merged, *profiles])
        files = [name for name in test["files"] if pathlib.Path(name).read_bytes()[:4] == b"\x7fELF"]
        text = subprocess.run(["llvm-cov-14", "export", "-format=lcov", "-skip-functions", f"-instr-profile={merged}",
                               files[0], *(f"-object={name}" for name in files[1:])], capture_output=True, text=True).stdout
        lines, name = {}, None
        for row in text.splitlines():
            if row.startswith("SF:"):
                path = pathlib.Path(os.path.normpath(self.covered.folder / row[3:]))
                name = str(path.relative_to(self.source)) if path.is_relative_to(self.source) else None
                name = name if name and name.startswith(PRODUCT) else None
            elif name and row.startswith("DA:"):
                line, count = row[3:].split(",")[:2]
                if int(count):
                    lines.setdefault(name, []).append(int(line))
        return lines

    def tests_of(self, fault):
        """Returns the tests that execute a fault's line. Tables are not executed: for them, those that execute any
        line of the file, or of the folder.
        """
        of_file = self.executed.get(fault["file"], {})
        if fault["kind"] != "table":
            return of_file.get(fault["line"], [])
        if not of_file:
            folder = os.path.dirname(fault["file"])
            return sorted({test for name, lines in self.executed.items() if os.path.dirname(name) == folder
                           for tests in lines.values() for test in tests})
        return sorted({test for tests in of_file.values() for test in tests})
