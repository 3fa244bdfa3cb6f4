"""Sharded checkpoints (checkpoint.format=sharded): each rank writes its part, any mesh resumes from them, trainer --join
makes the whole checkpoint of them, and a failure leaves the earlier ones.
"""

import json
import os
import resource
import shutil
import struct
import subprocess
import sys
import unittest

import trainer_ranks

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
width = 0.25
image_size = 48
[optim]
name = adamw
lr = 0.001
clip_norm = 0.5
[train]
epochs = 1
seed = 4
threads = 1
precision = fp32
ema = 0.9
[log]
interval = 1
samples = yes
[checkpoint]
every_steps = 10
format = sharded
"""
trainer_ranks.STEPS = 17
TEN = "checkpoint-00000010.sharded"
INDEX = "checkpoint.safetensors.index.json"
PARTS = ["checkpoint-00001-of-00002.safetensors", "checkpoint-00002-of-00002.safetensors"]
TIMES = ("trainer.train_seconds", "trainer.wait_seconds", "trainer.recipe")


def read(path):
    """Returns the metadata of a safetensors file, and its tensors as bytes."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    metadata = header.pop("__metadata__")
    return metadata, {name: (entry["shape"], data[slice(*entry["data_offsets"])]) for name, entry in header.items()}


class Runs(trainer_ranks.Programs):
    """With the output of two ranks that divide gradients and optimizer state."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.expect(cls, cls.run_ranks(cls, 2, "two", "train.shard=gradients"), 0)

    def join(self, folder, name, *arguments, limit=None):
        """limit: on the file's size in bytes."""
        command = [trainer_ranks.TRAINER, f"--join={folder}", "-o", f"{self.folder}/{name}", *arguments]
        limits = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))) if limit else None
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=trainer_ranks.TIMEOUT, preexec_fn=limits)
        return done.stdout, done.returncode

    def resume(self, ranks, name, *arguments, of="two", step=TEN, **keys):
        """Goes on from a checkpoint of another run, in a folder of its own."""
        folder = f"{self.folder}/{name}"
        os.mkdir(folder)
        (shutil.copytree if os.path.isdir(f"{self.folder}/{of}/{step}") else shutil.copy)(f"{self.folder}/{of}/{step}", f"{folder}/{step}")
        for log in ("log.jsonl", "samples.jsonl"):
            shutil.copy(f"{self.folder}/{of}/{log}", folder)
        return self.run_ranks(ranks, name, "--resume", *arguments, **keys)


class Sharded(Runs):
    def test_each_element_once(self):
        """Two ranks with shards: the files are about equally long, and together as long as the tensors."""
        folder = f"{self.folder}/two/{TEN}"
        self.assertEqual(sorted(os.listdir(folder)), sorted([INDEX, *PARTS]))
        with open(f"{folder}/{INDEX}") as file:
            index = json.load(file)
        sizes = [sum(len(data) for _, data in read(f"{folder}/{part}")[1].values()) for part in PARTS]
        elements = 0
        for entry in index["tensors"].values():
            whole = 1
            for length in entry["shape"]:
                whole *= length
            self.assertEqual(sum(part["count"] for part in entry["ranges"]), whole)
            elements += whole
        self.assertEqual(sum(sizes), 4 * elements)
        self.assertLess(max(sizes) / min(sizes), 1.1)
        self.assertTrue(os.path.exists(f"{self.folder}/two/model.safetensors"))

    def test_joins(self):
        """The same bytes as the whole checkpoint of the same run, which can be resumed from as well."""
        self.expect(self.run_ranks(2, "whole", "train.shard=gradients", "checkpoint.format=whole"), 0)
        os.mkdir(f"{self.folder}/joined")
        joined = "joined/checkpoint-00000010.safetensors"
        self.expect(self.join(f"{self.folder}/two/{TEN}", joined), 0)
        files = [read(f"{self.folder}/{name}") for name in ("whole/checkpoint-00000010.safetensors", joined)]
        self.assertEqual(files[0][1], files[1][1])
        self.assertEqual(list(files[0][0]), list(files[1][0]))
        self.assertEqual(*({key: value for key, value in metadata.items() if key not in TIMES} for metadata, _ in files))
        done = self.join(f"{self.folder}/two/{TEN}", joined)
        self.expect(done, 1, f"{joined} exists: use another --output, or --overwrite to replace it")
        self.expect(self.join(f"{self.folder}/two/{TEN}", joined, "--overwrite"), 0)
        for log in ("log.jsonl", "samples.jsonl"):
            shutil.copy(f"{self.folder}/two/{log}", f"{self.folder}/joined")
        self.expect(self.resume(2, "from_file", "train.shard=gradients", of="joined", step=joined[7:]), 0, "resumed at step 10")
        self.check_same("from_file", "two")

    def test_joins_no_other(self):
        """Into nothing but a regular file, and what cannot be written leaves nothing."""
        os.mkdir(f"{self.folder}/targets")
        os.symlink("nowhere", f"{self.folder}/targets/link")
        os.mkfifo(f"{self.folder}/targets/fifo")
        for name in ("link", "fifo"):
            for arguments in ((), ("--overwrite",)):
                self.expect(self.join(f"{self.folder}/two/{TEN}", f"targets/{name}", *arguments), 1, f"{name} exists and is not a regular file: use another --output")
        done = self.join(f"{self.folder}/two/{TEN}", "targets/short", limit=100000)
        self.expect(done, 1, "short: cannot be written: File too large")
        self.assertEqual(sorted(os.listdir(f"{self.folder}/targets")), ["fifo", "link"])

    def test_resumes(self):
        """In the same mesh to the same bits; on one rank, and with parts divided otherwise, up to rounding."""
        self.expect(self.resume(2, "same", "train.shard=gradients"), 0, "resumed at step 10")
        self.check_same("same", "two")
        for ranks, settings in ((1, ()), (2, ("train.tensor=2",)), (2, ("train.shard=parameters",))):
            name = f"on{ranks}{'-'.join(settings)}"
            with self.subTest(name=name):
                self.expect(self.resume(ranks, name, *settings), 0, "resumed at step 10")
                self.check_like_one(name)

    def test_killed(self):
        """A rank dies while it writes the second checkpoint: the first one remains, and the rest is removed later."""
        faulty = {"trainer": os.environ["TRAINER_FAULTY"]}
        done = self.run_ranks(2, "killed", "train.shard=gradients", "checkpoint.every_steps=5", last_has=("FAULTY_CHECKPOINT=2",), **faulty)
        self.assertNotEqual(done[1], 0)
        left = [name for name in os.listdir(f"{self.folder}/killed") if name.startswith("checkpoint-")]
        self.assertIn("checkpoint-00000005.sharded", left)
        self.assertNotIn(TEN, left)
        self.expect(self.run_ranks(2, "killed", "--resume", "train.shard=gradients"), 0, "resumed at step 5")
        self.check_same("killed", "two")
        left = sorted(name for name in os.listdir(f"{self.folder}/killed") if name.startswith("checkpoint-"))
        self.assertEqual(left, [TEN, "checkpoint-00000017.sharded"])

    def test_limited(self):
        """One rank cannot write: all fail with its words, and nothing partial is left."""
        settings = ("train.shard=gradients", "train.epochs=1000", "checkpoint.every_steps=0", "checkpoint.every=0", "data.val=", "data.val_pipeline=")
        process = self.start(2, "limited", *settings)
        self.wait_for_step("limited", process, 3)
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
            resource.prlimit(int(file.read().split()[-1]), resource.RLIMIT_FSIZE, (100000, 100000))
        done = trainer_ranks.send(process, trainer_ranks.signal.SIGTERM, 1), process.returncode
        self.expect(done, 1, "trainer: rank 1 of 2 on ", f"{PARTS[1]}: cannot be written: File too large. This run has no complete checkpoint yet: raise the limit")
        self.assertEqual(done[0].count("trainer: "), 1, done[0])
        self.assertFalse([name for name in os.listdir(f"{self.folder}/limited") if name.startswith("checkpoint-")])

    def test_full_disk(self):
        """A file system of limited size, in a mount namespace."""
        run = f"{self.folder}/full"
        os.mkdir(run)
        size = sum(os.path.getsize(f"{self.folder}/two/{TEN}/{name}") for name in os.listdir(f"{self.folder}/two/{TEN}"))
        trainer = f"{trainer_ranks.MPIRUN} -n 2 {trainer_ranks.TRAINER} {self.recipe} --output={run} train.shard=gradients checkpoint.best=no data.val= data.val_pipeline="
        script = f"mount -t tmpfs -o size={size * 3 // 2} tmpfs {run} || exit 77; {trainer}; echo status $?; ls -a {run}"
        done = subprocess.run(["unshare", "--mount", "--map-root-user", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=trainer_ranks.TIMEOUT)
        if "status" not in done.stdout:
            self.skipTest(f"no mount namespace: {done.stdout}")
        for words in ("cannot be written: No space left on device. The last complete checkpoint is ", f"full/{TEN}, of step 10", "status 1\n"):
            self.assertIn(words, done.stdout)
        left = done.stdout.split("\nstatus ")[1]
        self.assertIn(TEN, left)
        self.assertNotIn(".tmp", left)
        self.assertNotIn("17.sharded", left)

    def test_not_shared(self):
        """Two folders under one relative path, like those of two machines."""
        folders = [f"{self.folder}/machine{i}" for i in range(2)]
        for folder in folders:
            os.mkdir(folder)
        shutil.copytree(f"{self.folder}/two", f"{folders[0]}/both")
        for output, settings, words in (
            ("run", (), "sharded.*tmp: is not on this machine: checkpoint.format=sharded needs an --output that all machines share"),
            ("both", ("--resume",), f"both/checkpoint-00000017.sharded: is not a folder on this machine, but on that of rank 0: .*trainer --join"),
        ):
            command = [trainer_ranks.TRAINER, self.recipe, f"--output={output}", "train.shard=gradients", *settings]
            line = [trainer_ranks.MPIRUN, "-n", "1", "--wdir", folders[0], *command, ":", "-n", "1", "--wdir", folders[1], *command]
            environment = {**os.environ, trainer_ranks.PATIENCE: "0"}
            done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, timeout=trainer_ranks.TIMEOUT)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(done.stdout, f"trainer: rank 1 of 2 on .*{words}")
        self.assertFalse([name for name in os.listdir(f"{folders[0]}/run") if name.startswith("checkpoint-")])

    def test_as_weights(self):
        """Evaluated, and fine-tuned from; a teacher needs a file."""
        folder = f"{self.folder}/two"
        with open(f"{folder}/summary.json") as file:
            summary = json.load(file)
        for weights in ("--resume", f"--resume={folder}/checkpoint-00000017.sharded"):
            with self.subTest(weights=weights):
                command = [trainer_ranks.TRAINER, self.recipe, f"--output={folder}", "--evaluate", weights]
                done = subprocess.run(command, capture_output=True, text=True, timeout=trainer_ranks.TIMEOUT)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertLess(abs(json.loads(done.stdout)["val_loss"] / summary["val_loss"] - 1), 1e-4)
        self.expect(self.join(f"{folder}/{TEN}", "file.safetensors"), 0)
        for name, weights in (("tuned", f"{folder}/{TEN}"), ("tuned_file", f"{self.folder}/file.safetensors")):
            done = self.run_ranks(1, name, f"model.pretrained={weights}", "train.epochs=0.2", "checkpoint.format=whole")
            self.expect(done, 0, f"weights from {weights}")
        self.check_same("tuned", "tuned_file")
        self.assertNotEqual(self.steps("tuned")[0]["loss"], self.one[0]["loss"])
        done = self.run_ranks(1, "pupil", f"train.teacher={folder}/{TEN}")
        self.expect(done, 1, "is not a regular file; trainer --join makes one of a sharded checkpoint")


class Variants(Runs):
    """In more meshes, and on emulated GPUs."""

    def test_meshes(self):
        """Written in one mesh, resumed in the other, and back."""
        both = ("train.tensor=2", "train.shard=gradients")
        self.expect(self.resume(4, "4", "train.shard=optimizer", "checkpoint.every_steps=5"), 0, "resumed at step 10")
        self.check_like_one("4")
        self.expect(self.run_ranks(4, "2x2", *both, "checkpoint.keep=9"), 0)
        self.check_like_one("2x2")
        self.expect(self.resume(4, "2x2-same", *both, of="2x2"), 0, "resumed at step 10")
        self.check_same("2x2-same", "2x2")
        for ranks, settings in ((1, ()), (2, ("train.tensor=2",)), (2, ("train.shard=parameters",)), (3, ("train.tensor=3",))):
            name = f"2x2-{ranks}-{'-'.join(settings)}"
            with self.subTest(name=name):
                self.expect(self.resume(ranks, name, *settings, of="2x2"), 0, "resumed at step 10")
                self.check_like_one(name)

    def test_on_gpus(self):
        """Masters are divided, too, where ranks keep 16-bit copies of all values, or gather these."""
        gpus = {"trainer": os.environ["TRAINER_EMULATED"]}
        for shard in ("gradients", "parameters"):
            settings = ("--device=cuda", "train.precision=bf16", f"train.shard={shard}", "data.val=", "data.val_pipeline=")
            self.expect(self.run_ranks(2, shard, *settings, **gpus), 0, "emulated GPU")
            self.expect(self.resume(2, f"{shard}-same", *settings, of=shard, **gpus), 0, "resumed at step 10")
            self.check_same(f"{shard}-same", shard)


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
