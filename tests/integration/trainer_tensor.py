"""Tensor parallelism (train.tensor): a vision transformer that several ranks hold together has the losses of one rank,
its checkpoints are whole, and what cannot be divided is refused.
"""

import json
import os
import shutil
import subprocess
import sys
import unittest

import trainer_ranks

# with everything that draws at random, and that divides or averages what ranks have parts of
trainer_ranks.RECIPE = """
[data]
train = {folder}/train.pimg
val = {folder}/val.pimg
batch_size = 12
val_batch_size = 10
pipeline = random_crop(48, padding=2) hflip(0.5)
val_pipeline = resize(48)
[model]
name = vit_small_patch16
width = 0.125
image_size = 48
drop_path = 0.2
dropout = 0.1
attention_dropout = 0.1
[optim]
name = adamw
lr = 0.001
clip_norm = 0.5
[train]
epochs = 3
seed = 4
threads = 1
precision = fp32
label_smoothing = 0.1
ema = 0.9
accumulate = 2
[log]
interval = 1
samples = yes
"""
trainer_ranks.STEPS = 51
TWO = "train.tensor=2"


class Tensor(trainer_ranks.Programs):
    def test_like_one_rank(self):
        self.expect(self.run_ranks(2, "two", TWO), 0, "ranks    2, in groups of 2 (train.tensor), each with 12 images per batch")
        self.check_like_one("two")

    def test_resumes(self):
        """A run that one rank was asked to stop goes on: in the same mesh to the same bits, on one rank up to rounding."""
        self.expect(self.run_ranks(2, "unbroken", TWO), 0)
        process = self.start(2, "stopped", TWO)
        self.wait_for_step("stopped", process, 5)
        said = trainer_ranks.send(process, trainer_ranks.signal.SIGTERM, 1)
        self.expect((said, process.returncode), 3, "--resume to continue")
        self.assertLess(len(self.steps("stopped")), trainer_ranks.STEPS)
        shutil.copytree(f"{self.folder}/stopped", f"{self.folder}/alone")
        self.expect(self.run_ranks(2, "stopped", "--resume", TWO), 0, "resumed at step")
        self.check_same("stopped", "unbroken")
        self.expect(self.run_ranks(1, "alone", "--resume"), 0, "resumed at step")
        self.check_like_one("alone")

    def test_refusals(self):
        for ranks, words, arguments in (
            (3, "train.tensor = 2 does not divide the number of ranks, 3", (TWO,)),
            (4, "train.tensor = 4 does not divide the 6 attention heads of model.name = vit_small_patch16: use 1, 2, 3 or 6", ("train.tensor=4",)),
            (2, "train.tensor = 2 and optim.name = lamb cannot be combined", (TWO, "optim.name=lamb")),
            (2, "train.tensor = 2 and optim.name = muon cannot be combined", (TWO, "optim.name=muon")),
            (2, "train.tensor = 2 and optim.centralize = true cannot be combined", (TWO, "optim.centralize=yes")),
            (2, "only vision transformers can be divided", (TWO, "model.name=resnet18", "model.image_size=224", "model.attention_dropout=0")),
        ):
            with self.subTest(words=words):
                self.expect(self.run_ranks(ranks, "refused", *arguments), 1, words)


class Variants(trainer_ranks.Programs):
    """In other meshes, with other methods, and on emulated GPUs."""

    def test_meshes(self):
        for ranks, tensor in ((4, 2), (3, 3)):
            with self.subTest(ranks=ranks, tensor=tensor):
                self.expect(self.run_ranks(ranks, f"mesh{ranks}", f"train.tensor={tensor}"), 0)
                self.check_like_one(f"mesh{ranks}")

    def test_with_shards(self):
        """Ranks with the same part of the network divide its optimizer state. A stopped run goes on without shards."""
        for name, shard in (("weights", "parameters"), ("both", "gradients")):
            self.expect(self.run_ranks(4, name, TWO, f"train.shard={shard}", "checkpoint.every_steps=20"), 0)
            self.check_like_one(name)
        folder = f"{self.folder}/later"
        os.mkdir(folder)
        shutil.copy(f"{self.folder}/both/checkpoint-00000040.safetensors", folder)
        shutil.copy(f"{self.folder}/both/log.jsonl", folder)
        shutil.copy(f"{self.folder}/both/samples.jsonl", folder)
        self.expect(self.run_ranks(2, "later", "--resume", TWO), 0, "resumed at step 40")
        self.check_like_one("later")

    def test_on_gpus(self):
        """The emulation takes its time: four ranks make a few steps only."""
        gpus = {"trainer": os.environ["TRAINER_EMULATED"]}
        self.expect(self.run_ranks(2, "gpus", TWO, "--device=cuda", **gpus), 0, "emulated GPU")
        self.check_like_one("gpus", 1e-5, 1e-3)
        settings = ("schedule.name=constant", "train.epochs=0.3", "data.val=", "data.val_pipeline=")
        self.expect(self.run_ranks(1, "few", *settings), 0)
        self.expect(self.run_ranks(4, "few_gpus", TWO, "--device=cuda", *settings, **gpus), 0, "emulated GPU")
        apart = [abs(a["loss"] / b["loss"] - 1) for a, b in zip(self.steps("few_gpus"), self.steps("few"), strict=True)]
        self.assertLess(max(apart), 1e-5)

    def test_methods(self):
        """Each compared with one rank."""
        teacher = [f"train.teacher={self.folder}/one/model.safetensors", f"train.teacher_recipe={self.folder}/one/recipe.ini"]
        for name, settings in (
            ("sgd", ["optim.name=sgd", "optim.lr=0.05", "train.recompute=2"]),
            ("sharp", ["train.sam=0.05", "train.sam_every=2", "optim.clip_value=0.01"]),
            ("averaged", ["train.swa=1", "train.ema=0", "model.pool=average", "model.layer_scale=0.1"]),
            ("slow", ["train.lookahead=6", "train.mixup=0.4", "train.cutmix=1"]),
            ("frozen", ["train.freeze=blocks.1.* blocks.2.attn.*:1", "optim.layer_decay=0.8"]),
            ("taught", teacher),
            ("hard", ["train.selective_backprop=0.5", "train.selective_start=0", "train.selective_end=1"]),
        ):
            with self.subTest(name=name):
                for ranks in (1, 2):
                    done = self.run_ranks(ranks, f"{name}{ranks}", f"train.tensor={ranks}", *settings, "train.epochs=1.5")
                    self.expect(done, 0)
                one, two = ([line["loss"] for line in self.lines(f"{name}{ranks}") if line["event"] in ("step", "eval")] for ranks in (1, 2))
                self.assertLess(max(abs(a / b - 1) for a, b in zip(one, two, strict=True)), 1e-4)

    def test_evaluates_alone(self):
        results = []
        for tensor in (1, 2):
            command = [trainer_ranks.MPIRUN, "-n", "2", trainer_ranks.TRAINER, self.recipe, f"--output={self.folder}/one", "--evaluate",
                       "--resume", f"train.tensor={tensor}"]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True, timeout=trainer_ranks.TIMEOUT)
            self.assertEqual(done.returncode, 0, done.stderr)
            results.append(json.loads(done.stdout))
        self.assertEqual(*(result["top1"] for result in results))
        self.assertLess(abs(results[0]["val_loss"] / results[1]["val_loss"] - 1), 1e-5)

    def test_feed_that_fails(self):
        """A rank whose evaluation set is damaged ends the run, and the rest of its group does not wait for it."""
        with open(f"{self.folder}/val.pimg", "rb") as file:
            bytes_ = bytearray(file.read())
        middle = len(bytes_) // 2
        bytes_[middle : middle + 2000] = bytes(byte ^ 0xFF for byte in bytes_[middle : middle + 2000])
        folder = f"{self.folder}/other"
        os.mkdir(folder)
        with open(f"{folder}/val.pimg", "wb") as file:
            file.write(bytes_)
        command = [trainer_ranks.TRAINER, self.recipe, f"--output={self.folder}/damaged", TWO, "train.epochs=0.2", "data.bad=fail", "data.val=val.pimg"]
        line = [trainer_ranks.MPIRUN, "-n", "1", "--wdir", self.folder, *command, ":", "-n", "1", "--wdir", folder, *command]
        done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=trainer_ranks.TIMEOUT)
        self.expect((done.stdout, done.returncode), 1, "trainer: rank 1 of 2 on ", "evaluation: ")


if __name__ == "__main__":
    if not trainer_ranks.MPIRUN:
        print("skipped: mpirun was not found (openmpi-bin)")
        sys.exit(77)
    if os.environ.get("HAVE_MPI") != "1":
        print("skipped: the trainer was built without MPI")
        sys.exit(77)
    if "Variants" not in sys.argv:
        del Variants
    unittest.main()
