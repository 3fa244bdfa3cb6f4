"""Trains recipes that together contain every pair of methods that the trainer accepts, for a few steps on the CPU and on an emulated GPU, and compares the losses.

Refused pairs are rows of trainer/recipe/recipe_pairs.inc, and at most 5 % of all pairs. METHOD_PAIRS_RECIPES limits the number of recipes (those that cover most
pairs come first), METHOD_PAIRS_STEPS their steps. Without a limit, also compares each method alone with the plain recipe, and resumes it in the middle of an epoch.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import covering
import methods
import nudge

TRAINER = os.environ["TRAINER"]
EMULATED = os.environ.get("TRAINER_EMULATED")
MPIRUN = os.environ.get("MPIRUN")
LIMIT = int(os.environ.get("METHOD_PAIRS_RECIPES", "0"))
REFUSED_MAX = 0.05
if not MPIRUN:
    del methods.FACTORS["network"][methods.DIVIDED]

# Bounds of the relative difference between the losses of two devices, which sum in different orders. FIRST bounds that of the first step. Later steps amplify it,
# by far in deep networks that do not start as identities, on any device. For these, the limit of each step is CARRIED times the difference that results on the
# CPU if each initial weight changes by one unit in the last place.
FIRST = 1e-5
TOLERANCE = 2e-3
CARRIED = 10
NUDGED = 3  # number of runs with such weights, each weight rounded up or down at random


def settings(row, folder="{folder}"):
    """Returns the recipe's settings; folder: where files for methods are."""
    return [setting.replace("{folder}", folder) for factor, level in row.items() for setting in methods.FACTORS[factor][level]]


def plain():
    return {factor: next(iter(levels)) for factor, levels in methods.FACTORS.items()}


def ranks_of(row):
    """Returns the number of ranks for a recipe: two for shards, where batches can be divided further, times those of a divided network."""
    parts = row["micro-batches"] == "two" and row["statistics"] == "of groups"
    data = 1 if row["shards"] == "none" or parts or row["samples"] == "hard ones" or not MPIRUN else 2
    return data * (2 if row["network"] == methods.DIVIDED else 1)


def describe_row(row):
    """Describes the levels of a row that are not plain."""
    return ", ".join(f"{factor}: {level}" for factor, level in row.items() if level != plain()[factor]) or "plain"


class MethodPairs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = cls.temporary.name
        images = f"{cls.folder}/images"
        subprocess.run([os.environ["SHAPES"], images, "--count", str(methods.IMAGES)], check=True, stdout=subprocess.DEVNULL)
        sorted(pathlib.Path(images, "train").rglob("*.*"))[0].unlink()  # makes one class smaller than the others
        command = [os.environ["PACKIMG"], "convert", f"{images}/train", "-o", f"{cls.folder}/images.pimg", "--quiet"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        cls.recipe = f"{cls.folder}/base.ini"
        with open(cls.recipe, "w") as file:
            file.write("")
        cls.base = methods.BASE + [f"data.{part}={cls.folder}/images.pimg" for part in ("train", "val")]
        teacher = cls.command(TRAINER, plain(), "--overwrite", "--output", f"{cls.folder}/teacher", "train.epochs=0.5")
        subprocess.run(teacher, check=True, capture_output=True)
        cls.refused = cls.refused_pairs()

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def command(cls, trainer, row, *options):
        return [trainer, cls.recipe, *options, *cls.base, *settings(row, cls.folder)]

    @classmethod
    def recipe_error(cls, row):
        """Returns the trainer's error for a recipe; empty if it accepts it."""
        done = subprocess.run(cls.command(TRAINER, row, "--print-recipe"), capture_output=True, text=True)
        return done.stderr if done.returncode else ""

    @classmethod
    def refused_pairs(cls):
        """Returns the refused pairs, among those that set both keys of a row of recipe_pairs.inc. test_pairs() shows
        that no other pair is refused.
        """
        table = pathlib.Path(os.environ["TREE"], "trainer/recipe/recipe_pairs.inc").read_text()
        rows = re.findall(r"^REFUSED\((\w+),\s*(\w+),\s[^\n]*?,\s+(\w+),\s*(\w+),", table, re.M)
        assert len(rows) == table.count("\nREFUSED("), "a row cannot be read"
        rows = [{f"{section}.{name}", f"{other_section}.{other}"} for section, name, other_section, other in rows]
        refused = {}
        for one, other in covering.pairs(methods.FACTORS):
            keys = [{setting.split("=")[0] for setting in settings(dict([level]))} for level in (one, other)]
            if any(row & keys[0] and row & keys[1] for row in rows):
                refused[frozenset({one, other})] = cls.recipe_error(dict([one, other]))
        return {pair: sentence for pair, sentence in refused.items() if sentence}

    def run_row(self, name, row, *options, trainer=TRAINER, device="cpu", first=1):
        """Returns the losses of the steps from `first` on, and those of evaluations."""
        output = f"{self.folder}/{name}"
        ranks = ranks_of(row)
        launch = [MPIRUN, "-n", str(ranks)] if ranks > 1 else []
        command = launch + self.command(trainer, row, "--overwrite", f"--device={device}", "--output", output, *options)
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, f"{describe_row(row)}\n{' '.join(settings(row))}\n{done.stderr}")
        with open(f"{output}/log.jsonl") as file:
            entries = [json.loads(line) for line in file]
        losses = [entry["loss"] for entry in entries if entry["event"] == "step"]
        self.assertEqual(len(losses), methods.STEPS + 1 - first, describe_row(row))
        return losses, [entry["loss"] for entry in entries if entry["event"] == "eval"]

    def rounding_differences(self, row):
        """Returns by how much each step's loss changes on the CPU if weights change in their last place."""
        first, nudged = f"{self.folder}/first/model.safetensors", f"{self.folder}/nudged.safetensors"
        self.run_row("first", row, "optim.lr=1e-30")  # keeps the initial weights
        losses = self.run_row("cpu", row, f"model.pretrained={first}")[0]
        found = [0] * len(losses)
        for seed in range(NUDGED):
            nudge.nudge(first, nudged, seed)
            others = self.run_row("cpu", row, f"model.pretrained={nudged}")[0]
            found = list(map(max, found, self.relative_differences(losses, others)))
        return found

    def check_equal_losses(self, row, cpu, gpu):
        """Checks that both devices compute the same; returns the largest difference."""
        apart = self.relative_differences(cpu[0], gpu[0])
        most = max(apart + self.relative_differences(cpu[1], gpu[1]))
        self.assertLess(apart[0], FIRST)
        if most < TOLERANCE:
            return most
        carried = self.rounding_differences(row)
        print(f"{describe_row(row)}:")
        for title, shares in (("of the devices, by step", apart), ("of weights in their last places", carried)):
            print(f"  {title:32}" + "".join(f" {share:.1e}" for share in shares))
        limits = [max(TOLERANCE, CARRIED * share) for share in carried]
        for share, limit in zip(apart + [most], limits + [max(limits)], strict=True):
            self.assertLess(share, limit)
        return most

    def relative_differences(self, losses, others):
        return [abs(a / b - 1) for a, b in zip(losses, others, strict=True)]

    def max_difference(self, losses, others):
        return max(self.relative_differences(losses, others))

    def test_refused_pairs(self):
        for pair, sentence in self.refused.items():
            self.assertIn(" cannot be combined: ", sentence, pair)
        share = len(self.refused) / sum(1 for _ in covering.pairs(methods.FACTORS))
        print(f"{len(self.refused)} pairs refused, {share:.1%}")
        self.assertLessEqual(share, REFUSED_MAX)

    def test_pairs(self):
        rows, left = covering.array(methods.FACTORS, self.refused)
        print(f"{len(rows)} recipes cover all pairs but {len(left)}")
        self.assertEqual(left, [], "pairs that no whole recipe can have")
        worst = first = 0
        for row in rows[: LIMIT or None]:
            with self.subTest(describe_row(row)):
                cpu = self.run_row("cpu", row)
                if not EMULATED:
                    continue
                gpu = self.run_row("gpu", row, trainer=EMULATED, device="cuda")
                worst = max(worst, self.check_equal_losses(row, cpu, gpu))
                first = max(first, self.max_difference(cpu[0][:1], gpu[0][:1]))
        print(f"losses of CPU and GPU are at most {worst:.1e} apart, in the first step {first:.1e}")

    @unittest.skipIf(LIMIT, "part of tools/check-release method_pairs")
    def test_every_method_is_seen(self):
        for factor, levels in methods.FACTORS.items():
            for level in list(levels)[1:]:
                row = plain()
                # compare methods that need another network in that network
                row.update(methods.WITHIN.get((factor, level), {}))
                before = self.run_row("before", row)
                row[factor] = level
                with self.subTest(describe_row(row)):
                    after = self.run_row("after", row)
                    seen = before[0] != after[0]
                    self.assertEqual(seen, (factor, level) not in methods.UNSEEN, methods.UNSEEN.get((factor, level)))
                    if seen:
                        print(f"{factor}: {level}: {self.max_difference(before[0], after[0]):.1e}")
                    elif before[1] != after[1]:
                        print(f"{factor}: {level}: in evaluation {self.max_difference(before[1], after[1]):.1e}")

    @unittest.skipIf(LIMIT, "part of tools/check-release method_pairs")
    def test_every_method_resumes(self):
        """Resumes in the middle of the second epoch and compares bit for bit."""
        checkpoint = f"{self.folder}/unbroken/checkpoint-{methods.RESUMED:08}.safetensors"
        for factor, levels in methods.FACTORS.items():
            for level in levels:
                row = plain() | methods.WITHIN.get((factor, level), {}) | {factor: level}
                with self.subTest(describe_row(row)):
                    unbroken = self.run_row("unbroken", row, f"checkpoint.every_steps={methods.RESUMED}", "checkpoint.keep=9")
                    resumed = self.run_row("resumed", row, f"--resume={checkpoint}", first=methods.RESUMED + 1)
                    self.assertEqual(resumed[0], unbroken[0][methods.RESUMED :])
                    self.assertEqual(resumed[1][-1], unbroken[1][-1])


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
