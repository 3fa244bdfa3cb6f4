"""What all programs have in common: options and commands that are misspelt get a suggestion, and those that are begun are completed. $PROGRAMS has their paths, $COMPLETIONS is bash's."""

import os
import re
import subprocess
import tempfile
import unittest

PROGRAMS = os.environ["PROGRAMS"].split(os.pathsep)
NOWHERE = "/nonexistent"


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


def program(name):
    for path in PROGRAMS:
        if os.path.basename(path) == name:
            return path
    raise unittest.SkipTest(f"{name} is not built")


def command_names():
    """packimg's, as its help lists them."""
    return re.findall(r"^  ([a-z]+) ", run(program("packimg"), "--help").stdout, re.M)


def command_lines():
    """Every program, and of one that has commands each of them."""
    for path in PROGRAMS:
        if os.path.basename(path) == "packimg":
            for name in command_names():
                yield [path, name]
        else:
            yield [path]


def long_options(line):
    """Of a program, as its --help lists them."""
    return re.findall(r"^  (?:-., |    )--([a-z][a-z-]*)", run(*line, "--help").stdout, re.M)


def misspelt(word):
    """With two neighbours exchanged."""
    for i in range(1, len(word) - 1):
        if word[i] != word[i + 1]:
            return word[:i] + word[i + 1] + word[i] + word[i + 2 :]
    return word + "x"


class Misspelt(unittest.TestCase):
    def test_options(self):
        for line in command_lines():
            options = long_options(line)
            self.assertIn("help", options, line)
            for option in options:
                for written in (misspelt(option), misspelt(option) + "=3", option.upper()):
                    done = run(*line, "--" + written)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn(f"unrecognized option '--{written.split('=')[0]}'; did you mean '--{option}'?", done.stderr)
            done = run(*line, "--zzzzzzzz")
            self.assertIn("unrecognized option '--zzzzzzzz'\n", done.stderr)
            self.assertIn("--help", done.stderr)

    def test_values_are_no_options(self):
        ctl, bench = program("loaderctl"), program("loaderbench")
        for line in ([ctl, "--socket", "--jsno"], [ctl, "-s", "--jsno"], [ctl, "-js", "--jsno"], [ctl, "--sock", "--jsno"]):
            self.assertIn("No daemon listens on --jsno", run(*line).stderr, line)
        self.assertIn("--jsno", run(ctl, "--", "--jsno").stderr)
        self.assertNotIn("unrecognized", run(ctl, "--", "--jsno").stderr)
        # what argp says more of
        self.assertIn("ambiguous", run(bench, "--s=1").stderr)
        self.assertIn("requires an argument", run(ctl, "--socket").stderr)
        self.assertIn("doesn't allow an argument", run(ctl, "--json=3").stderr)
        self.assertIn("invalid option -- 'Q'", run(ctl, "-Q").stderr)

    def test_commands(self):
        packimg, ctl = program("packimg"), program("loaderctl")
        for name in command_names():
            self.assertIn(f"did you mean {name}?", run(packimg, misspelt(name), NOWHERE).stderr)
        for name in ("status", "dataset", "stop"):
            done = run(ctl, misspelt(name))
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"did you mean {name}?", done.stderr)
        self.assertIn("there are status", run(ctl, "frobnicate").stderr)
        self.assertIn("Usage: packimg COMMAND", run(packimg, "frobnicate").stderr)


def completed(*words):
    """What bash offers for the last word, which it has split at =, as readline does."""
    script = 'source "$COMPLETIONS"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _loaderd; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, timeout=60)
    return done.stdout.split("\n")[:-1] if done.stdout != "\n" else []


class Completion(unittest.TestCase):
    def test_every_option(self):
        for line in command_lines():
            if os.path.basename(line[0]) == "stages_bench":
                continue  # is not installed
            offered = [word.rstrip("=") for word in completed(*line, "--")]
            self.assertEqual(sorted(offered), sorted("--" + option for option in long_options(line)), line)

    def test_commands(self):
        packimg, ctl = program("packimg"), program("loaderctl")
        self.assertEqual(sorted(completed(packimg, "")), sorted(["--help", "--version", *command_names()]))
        self.assertEqual(completed(packimg, "con"), ["convert"])
        self.assertEqual(completed(ctl, ""), ["status", "bad", "dataset", "stop"])
        self.assertEqual(completed(ctl, "--json", "st"), ["status", "stop"])

    def test_values(self):
        packimg, loaderd = program("packimg"), program("loaderd")
        for words, offered in (
            ((packimg, "convert", "--on-error", ""), ["skip", "fail"]),
            ((packimg, "merge", "--on-error", "=", "f"), ["fail"]),
            ((packimg, "convert", "--jpeg", ""), ["verbatim"]),
            ((loaderd, "--io", "="), ["auto", "mmap", "uring"]),
            ((loaderd, "--log-level", "w"), ["warning"]),
            ((loaderd, "--threads", ""), []),
            ((loaderd, "--set", "pool."), ["pool.cpus=", "pool.threads="]),
            ((loaderd, "--limit", "slo"), ["slots="]),
            ((loaderd, "--private", "--chec"), ["--check-config"]),
        ):
            self.assertEqual(completed(*words), offered, words)
        trainer = program("trainer")
        self.assertEqual(completed(trainer, "--device", "c"), ["cpu", "cuda"])
        self.assertEqual(completed(trainer, "r.ini", "train.thr"), ["train.threads="])
        self.assertEqual(completed(trainer, "--resume", "--dry"), ["--dry-run"])

    def test_files(self):
        packimg, loaderd = program("packimg"), program("loaderd")
        with tempfile.TemporaryDirectory() as folder:
            evil = os.path.join(folder, "$(touch made).pimg")
            for name in (evil, os.path.join(folder, "notes.txt")):
                open(name, "w").close()
            for line in ((packimg, "info"), (program("loaderctl"), "dataset"), (program("loaderbench"),)):
                self.assertEqual(completed(*line, folder + "/"), [evil])
            for line in ((loaderd, "--config"), (loaderd, "-c"), (loaderd, "--config", "=")):
                self.assertEqual(sorted(completed(*line, folder + "/")), sorted([evil, folder + "/notes.txt"]))
        self.assertFalse(os.path.exists("made"))


if __name__ == "__main__":
    unittest.main()
