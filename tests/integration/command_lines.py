"""Options and commands of all programs: misspelt ones get a suggestion, and partial ones are completed. $PROGRAMS has
the programs' paths, $COMPLETIONS the path of tools/completions. Tests bash always, zsh and fish if they are
installed.
"""

import os
import re
import shutil
import subprocess
import tempfile
import unittest

PROGRAMS = os.environ["PROGRAMS"].split(os.pathsep)
COMPLETIONS = os.environ["COMPLETIONS"]
BASH = os.path.join(COMPLETIONS, "loaderd")
NOWHERE = "/nonexistent"
# Stubs for zsh's completion builtins, which exist only in its line editor. They print what the completion function
# offers. _describe's options follow the array's name.
ZSH = """
_describe() { print -rl -- "${(@P)4%%:*}" }
_files() { print -r -- "files $2" }
compset() { : }
words=("$@"); CURRENT=$#; PREFIX=${@[-1]}
. $COMPLETION
"""


def run(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


def program(name):
    for path in PROGRAMS:
        if os.path.basename(path) == name:
            return path
    raise unittest.SkipTest(f"{name} is not built")


def command_names():
    """Returns the commands in packimg's help."""
    return re.findall(r"^  ([a-z]+) ", run(program("packimg"), "--help").stdout, re.M)


def command_lines():
    """Yields each program, or each of its commands if it has any."""
    for path in PROGRAMS:
        if os.path.basename(path) == "packimg":
            for name in command_names():
                yield [path, name]
        else:
            yield [path]


def long_options(line):
    """Returns the long options in --help."""
    return re.findall(r"^  (?:-., |    )--([a-z][a-z-]*)", run(*line, "--help").stdout, re.M)


def misspelt(word):
    """Returns the word with two adjacent letters exchanged."""
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
        # other errors of argp
        self.assertIn("ambiguous", run(bench, "--s=1").stderr)
        self.assertIn("requires an argument", run(ctl, "--socket").stderr)
        self.assertIn("doesn't allow an argument", run(ctl, "--json=3").stderr)
        self.assertIn("invalid option -- 'Q'", run(ctl, "-Q").stderr)

    def test_commands(self):
        packimg, ctl = program("packimg"), program("loaderctl")
        for name in command_names():
            self.assertIn(f"did you mean {name}?", run(packimg, misspelt(name), NOWHERE).stderr)
        for name in ("status", "dataset", "stop", "remote", "clear"):
            done = run(ctl, misspelt(name))
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"did you mean {name}?", done.stderr)
        self.assertIn("use status", run(ctl, "frobnicate").stderr)
        self.assertIn("Usage: packimg COMMAND", run(packimg, "frobnicate").stderr)


def bash_completed(*words):
    """Returns bash's suggestions for the last word. Words are split at =, as readline does."""
    script = f'source "{BASH}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _loaderd; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, timeout=60)
    return done.stdout.split("\n")[:-1] if done.stdout != "\n" else []


def installed_lines():
    """Yields the lines that can be completed: users do not start the others."""
    return [line for line in command_lines() if os.path.basename(line[0]) not in ("stages_bench", "loaderd-fetch")]


def shell_file(shell, path, folder):
    """Installs the shell's completion file for the program at path, and bash's, in folder. Returns its path."""
    program = os.path.basename(path)
    name = os.path.join(folder, {"zsh": f"share/zsh/site-functions/_{program}", "fish": f"share/fish/vendor_completions.d/{program}.fish"}[shell])
    functions = os.path.join(folder, "share/bash-completion/completions", program)
    for file in (name, functions):
        os.makedirs(os.path.dirname(file), exist_ok=True)
    shutil.copyfile(BASH, functions)
    with open(os.path.join(COMPLETIONS, shell + ".in")) as template, open(name, "w") as file:
        file.write(template.read().replace("@PROGRAM@", program))
    return name


def zsh_completed(*words):
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "COMPLETION": shell_file("zsh", words[0], folder)}
        done = subprocess.run(["zsh", "-f", "-c", ZSH, "zsh", *words], env=environment, capture_output=True, text=True, timeout=60)
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def fish_completed(*words, options=""):
    with tempfile.TemporaryDirectory() as folder:
        line = " ".join([os.path.basename(words[0]), *words[1:]])
        environment = {**os.environ, "COMPLETION": shell_file("fish", words[0], folder), "LINE": line, "HOME": folder,
                       "PATH": os.path.dirname(words[0]) + os.pathsep + os.environ["PATH"]}
        script = f"source $COMPLETION; complete -C {options} $LINE"
        done = subprocess.run(["fish", "--no-config", "-c", script], env=environment, capture_output=True, text=True, timeout=60)
    assert not done.stderr, done.stderr
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


class OtherShells:
    """The suggestions of zsh and fish come from bash's functions; these tests check that none is lost."""

    def setUp(self):
        if not shutil.which(self.shell):
            self.skipTest(f"{self.shell} is not installed")

    def test_every_option(self):
        for line in installed_lines():
            offered = [word.rstrip("=") for word in self.completed(*line, "--")]
            self.assertEqual(sorted(offered), sorted("--" + option for option in long_options(line)), line)

    def test_words(self):
        packimg, trainer = program("packimg"), program("trainer")
        for words, offered in (
            ((packimg, "con"), ["convert"]),
            ((packimg, "convert", "--on-error=f"), ["--on-error=fail"]),
            ((packimg, "convert", "--on-error", "f"), ["fail"]),
            ((trainer, "--device=c"), ["--device=cpu", "--device=cuda"]),
            ((trainer, "r.ini", "train.thr"), ["train.threads="]),
            ((trainer, "r.ini", "data.bad=s"), ["data.bad=substitute"]),
        ):
            self.assertEqual([word for word in self.completed(*words) if not word.startswith("files")], offered, words)


class Zsh(OtherShells, unittest.TestCase):
    shell, completed = "zsh", staticmethod(zsh_completed)


class Fish(OtherShells, unittest.TestCase):
    shell, completed = "fish", staticmethod(fish_completed)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("a.pimg", "notes.txt"):
                open(os.path.join(folder, name), "w").close()
            self.assertEqual(fish_completed(program("packimg"), "info", folder + "/"), [folder + "/a.pimg"])
            offered = fish_completed(program("loaderd"), f"--config={folder}/n")
            self.assertEqual(offered, [f"--config={folder}/notes.txt"])


class Completion(unittest.TestCase):
    def test_names_that_look_like_options(self):
        """Names may look like commands, too; they must not run."""
        packimg, evil = program("packimg"), "-$(touch made).pimg"
        with tempfile.TemporaryDirectory() as folder:
            open(os.path.join(folder, evil), "w").close()
            self.addCleanup(os.chdir, os.getcwd())
            os.chdir(folder)
            for words in (("info", ""), ("convert", "-o", "-"), ("convert", "--output", "=", ""), ("convert", "--output", "=", "-")):
                self.assertEqual(bash_completed(packimg, *words), ["./" + evil], words)
            if shutil.which("fish"):  # fish suggests names that begin with a dot only after a dot
                offered = fish_completed(packimg, "convert", "--output=-", options="--escape")
                self.assertEqual(offered, ["--output=./-\\$\\(touch\\ made\\).pimg"])
            self.assertEqual(os.listdir(folder), [evil])

    def test_every_option(self):
        for line in installed_lines():
            offered = [word.rstrip("=") for word in bash_completed(*line, "--")]
            self.assertEqual(sorted(offered), sorted("--" + option for option in long_options(line)), line)

    def test_commands(self):
        packimg, ctl = program("packimg"), program("loaderctl")
        self.assertEqual(sorted(bash_completed(packimg, "")), sorted(["--help", "--version", *command_names()]))
        self.assertEqual(bash_completed(packimg, "con"), ["convert"])
        self.assertEqual(bash_completed(ctl, ""), ["status", "bad", "dataset", "stop", "remote", "clear"])
        self.assertEqual(bash_completed(ctl, "--json", "st"), ["status", "stop"])

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
            self.assertEqual(bash_completed(*words), offered, words)
        trainer = program("trainer")
        self.assertEqual(bash_completed(trainer, "--device", "c"), ["cpu", "cuda"])
        self.assertEqual(bash_completed(trainer, "r.ini", "train.thr"), ["train.threads="])
        self.assertEqual(bash_completed(trainer, "r.ini", "data.bad", "="), ["substitute", "fail"])
        self.assertEqual(bash_completed(trainer, "r.ini", "data.shuffle", "=", "t"), ["true"])
        self.assertEqual(bash_completed(trainer, "--resume", "--dry"), ["--dry-run"])

    def test_every_key(self):
        trainer = program("trainer")
        sections = re.split(r"^\[(\w+)\]", run(trainer, "--help-recipe").stdout, flags=re.M)[1:]
        keys = [f"{section}.{key}=" for section, text in zip(sections[::2], sections[1::2]) for key in re.findall(r"^  (\w+) =", text, re.M)]
        offered = [word for section in sections[::2] for word in bash_completed(trainer, "r.ini", section + ".")]
        self.assertGreater(len(keys), 50)
        self.assertEqual(sorted(offered), sorted(keys))

    def test_files(self):
        packimg, loaderd = program("packimg"), program("loaderd")
        with tempfile.TemporaryDirectory() as folder:
            evil = os.path.join(folder, "$(touch made).pimg")
            for name in (evil, os.path.join(folder, "notes.txt")):
                open(name, "w").close()
            for line in ((packimg, "info"), (program("loaderctl"), "dataset"), (program("loaderbench"),)):
                self.assertEqual(bash_completed(*line, folder + "/"), [evil])
            for line in ((loaderd, "--config"), (loaderd, "-c"), (loaderd, "--config", "=")):
                self.assertEqual(sorted(bash_completed(*line, folder + "/")), sorted([evil, folder + "/notes.txt"]))
        self.assertFalse(os.path.exists("made"))


if __name__ == "__main__":
    unittest.main()
