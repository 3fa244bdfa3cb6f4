"""The trainer on several ranks: losses equal to those of one rank, each sample once, resume with another number of
ranks, and failures that end all ranks.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

MPIRUN = os.environ.get("MPIRUN") or shutil.which("mpirun")
TRAINER = os.environ["TRAINER"]
STEPS = 34

RECIPE = """
[data]
train = {folder}/train.pimg
val = {folder}/val.pimg
batch_size = 12
val_batch_size = 10
pipeline = random_crop(48, padding=2) hflip(0.5)
val_pipeline = resize(48)
[model]
name = resnet_cifar
depth = 8
bn_sync = yes
[optim]
lr = 0.01
[train]
epochs = 2
seed = 4
threads = 1
precision = fp32
label_smoothing = 0.1
ema = 0.9
[log]
interval = 1
samples = yes
"""


TIMEOUT = 3000  # seconds; exceeded only by a program that hangs, even on a busy machine with a sanitizer. Meson has its own limit.

# Seconds that mpirun waits before it sends SIGTERM to ranks, and then before SIGKILL. It always waits that long.
PATIENCE = "OMPI_MCA_odls_base_sigkill_timeout"


def send(process, number, ranks):
    """Sends a signal to the last `count` ranks of an mpirun and waits until all have ended. Returns their output."""
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        for child in file.read().split()[-ranks:]:
            os.kill(int(child), number)
    return process.communicate(timeout=TIMEOUT)[0]


class Programs(unittest.TestCase):
    """The trainer by mpirun, with the output of one rank for comparison."""

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = cls.temporary.name
        images = os.path.join(cls.folder, "images")
        subprocess.run([os.environ["SHAPES"], images, "--count", "258"], check=True, stdout=subprocess.DEVNULL)
        for part in ("train", "val"):
            subprocess.run(
                [os.environ["PACKIMG"], "convert", f"{images}/{part}", "-o", f"{cls.folder}/{part}.pimg", "--quiet"],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        cls.recipe = os.path.join(cls.folder, "tiny.ini")
        with open(cls.recipe, "w") as file:
            file.write(RECIPE.format(folder=cls.folder))
        cls.expect(cls, cls.run_ranks(cls, 1, "one"), 0)
        cls.one = cls.steps(cls, "one")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def start(self, ranks, name, *arguments, last=(), last_has=(), patience=5, trainer=TRAINER):
        """last: additional arguments of the last rank; last_has: its additional environment variables."""
        command = [trainer, self.recipe, "--output", f"{self.folder}/{name}", *arguments]
        line = [MPIRUN, "-n", str(ranks), *command]
        if last or last_has:
            line = [MPIRUN, "-n", str(ranks - 1), *command, ":", "-n", "1", "env", *last_has, *command, *last]
        environment = {**os.environ, PATIENCE: str(patience)}
        return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)

    def run_ranks(self, *arguments, **keys):
        process = Programs.start(self, *arguments, patience=0, **keys)
        return process.communicate(timeout=TIMEOUT)[0], process.returncode

    def expect(self, done, status, *words):
        said, returned = done
        assert returned == status, f"status {returned}, expected {status}:\n{said}"
        for word in words:
            assert word in said, f"{word!r} was not said, but:\n{said}"

    def lines(self, name, file="log.jsonl", event=None):
        with open(f"{self.folder}/{name}/{file}") as lines:
            entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if event in (None, entry["event"])]

    def steps(self, name):
        return Programs.lines(self, name, event="step")

    def loss_differences(self, name):
        """Returns the relative difference of each step's loss from that of one rank."""
        steps = self.steps(name)
        self.assertEqual([step["step"] for step in steps], list(range(1, STEPS + 1)))
        return [abs(a["loss"] / b["loss"] - 1) for a, b in zip(steps, self.one)]

    def check_like_one(self, name, early=1e-6, late=1e-4):
        # Measured: 6e-8. The smallest error, statistics of a rank's share instead of the batch, gives more than 1e-3.
        apart = self.loss_differences(name)
        self.assertLess(max(apart[:5]), early)
        self.assertLess(max(apart), late)
        for a, b in zip(self.lines(name, event="eval"), self.lines("one", event="eval"), strict=True):
            self.assertEqual(a["samples"], 40)
            self.assertLess(abs(a["loss"] / b["loss"] - 1), late)
        self.assertEqual(self.samples(name), self.samples("one"))

    def samples(self, name):
        return [line["samples"] for line in self.lines(name, "samples.jsonl")]

    def wait_for_step(self, name, process, step):
        path = f"{self.folder}/{name}/log.jsonl"
        for _ in range(TIMEOUT * 300):
            if os.path.exists(path) and any(line["step"] >= step for line in self.lines_so_far(path)):
                return
            self.assertIsNone(process.poll(), "the ranks have ended")
            time.sleep(0.003)
        self.fail(f"step {step} does not come")

    def lines_so_far(self, path):
        with open(path) as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def check_same(self, a, b):
        self.assertEqual(*([line["loss_hex"] for line in self.steps(name)] for name in (a, b)))
        with open(f"{self.folder}/{a}/model.safetensors", "rb") as one, open(f"{self.folder}/{b}/model.safetensors", "rb") as other:
            self.assertEqual(one.read(), other.read())

    def check_ranks(self, ranks):
        """Trains on this number of ranks, with an evaluation of 40 samples, which 3 ranks cannot divide equally."""
        trace = f"{self.folder}/like{ranks}.json"
        self.expect(self.run_ranks(ranks, f"like{ranks}", f"--trace={trace}"), 0, f"ranks    {ranks}, each with {12 // ranks} images")
        self.check_like_one(f"like{ranks}")
        self.assertEqual(self.lines(f"like{ranks}")[0]["ranks"], ranks)
        with open(f"{self.folder}/like{ranks}/summary.json") as file:
            summary = json.load(file)
        self.assertEqual((summary["images"], summary["val_samples"]), (STEPS * 12, 40))
        self.check_sent(f"like{ranks}", ranks)
        with open(trace) as file:
            sent = [event["args"] for event in json.load(file)["traceEvents"] if event["ph"] == "C" and event["name"] == "bytes sent"]
        self.assertEqual(sent, [{"sums": self.steps(f"like{ranks}")[0]["sent_sums"], "reduce-scatters": 0, "all-gathers": 0}] * 5)

    def check_sent(self, name, ranks):
        """Gradients of 78,042 parameters by a ring; the rest is norms, loss, labels and votes, at most a fifth."""
        gradients = 2 * (ranks - 1) / ranks * 4 * 78042
        for step in self.steps(name):
            self.assertEqual((step["sent_reduce_scatters"], step["sent_all_gathers"]), (0, 0))
            self.assertTrue(gradients <= step["sent_sums"] < 1.2 * gradients, (step["sent_sums"], gradients))
        self.assertEqual(len({step["sent_sums"] for step in self.steps(name)}), 1)
        self.assertNotIn("sent_sums", self.one[0])


class Ranks(Programs):
    def test_like_one_rank(self):
        self.check_ranks(3)

    def test_balanced(self):
        """Class weights from the labels of the whole training set, which one rank counts."""
        losses = []
        for name, ranks in (("level", 1), ("levels", 2)):
            self.expect(self.run_ranks(ranks, name, "train.class_weights=balanced", "train.epochs=0.5", "model.classes=12"), 0)
            losses.append([step["loss"] for step in self.steps(name)])
        self.assertLess(max(abs(a / b - 1) for a, b in zip(*losses, strict=True)), 1e-6)

    def test_evaluates_alone(self):
        """Checks that standard output has only one line, the result of one rank."""
        with open(f"{self.folder}/one/summary.json") as file:
            summary = json.load(file)
        for weights in ("--resume", f"model.pretrained={self.folder}/one/model.safetensors"):
            with self.subTest(weights=weights):
                command = [MPIRUN, "-n", "3", TRAINER, self.recipe, f"--output={self.folder}/one", "--evaluate", weights]
                done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(done.stdout.count("\n"), 1, done.stdout)
                result = json.loads(done.stdout)
                self.assertEqual({key: result[key] for key in ("top1", "top5", "val_samples")},
                                 {key: summary[key] for key in ("top1", "top5", "val_samples")})  # fmt: skip
                self.assertLess(abs(result["val_loss"] / summary["val_loss"] - 1), 1e-4)

    def test_datasets_differ(self):
        """Relative paths in different folders, like different files under one path on several machines."""
        for key, other in (("train", "val"), ("val", "train")):
            with self.subTest(key=key):
                folder = f"{self.folder}/other-{key}"
                os.mkdir(folder)
                for part in ("train", "val"):
                    os.symlink(f"{self.folder}/{other if part == key else part}.pimg", f"{folder}/{part}.pimg")
                command = [TRAINER, self.recipe, f"--output={folder}/run", "data.train=train.pimg", "data.val=val.pimg"]
                line = [MPIRUN, "-n", "2", "--wdir", self.folder, *command, ":", "-n", "1", "--wdir", folder, *command]
                done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT)
                self.expect((done.stdout, done.returncode), 1, f"rank 2 has another dataset as data.{key} than rank 0")

    def test_each_sample_once(self):
        """The rest of an epoch is smaller than a batch."""
        batches = self.samples("one")
        self.assertEqual(len(batches), STEPS)
        for epoch in (batches[:17], batches[17:]):
            taken = [sample for batch in epoch for sample in batch]
            self.assertEqual(len(taken), 204)
            self.assertEqual(len(set(taken)), 204)
            self.assertLess(max(taken), 210)
        self.assertNotEqual(batches[0], batches[17])

    def test_mixture(self):
        """Two datasets, whose samples are divided among ranks like those of one; after two batches in other shares."""
        runs, shares = [], ("data.shares=3,1@0; 1,1@0.1", "data.epoch_samples=240")
        for name, ranks in (("mixed", 1), ("mixed3", 3)):
            mixture = f"data.train={self.folder}/train.pimg,{self.folder}/val.pimg"
            self.expect(self.run_ranks(ranks, name, mixture, *shares, "train.epochs=0.3", "data.val=", "data.val_pipeline="), 0)
            runs.append([step["loss"] for step in self.steps(name)])
            of_val = [sum(sample >= 210 for sample in batch) for batch in self.samples(name)]
            self.assertEqual(of_val, [3, 3, 6, 6, 6, 6])
        self.assertEqual(self.samples("mixed"), self.samples("mixed3"))
        self.assertLess(max(abs(a / b - 1) for a, b in zip(*runs, strict=True)), 1e-5)

    def test_resumes_with_another_number(self):
        """4 ranks with shards, killed; then 1, stopped; then 3 with other shards."""
        process = self.start(4, "moved", "checkpoint.every_steps=5", "train.shard=optimizer", patience=0)
        self.wait_for_step("moved", process, 7)
        send(process, signal.SIGKILL, 4)
        self.assertLess(len(self.steps("moved")), STEPS)
        process = self.start(1, "moved", "--resume")
        self.wait_for_step("moved", process, 8)
        send(process, signal.SIGTERM, 1)
        self.assertLess(len(self.steps("moved")), STEPS)
        # one image at a time: rank 0 evaluates 14, the others 13
        self.expect(self.run_ranks(3, "moved", "--resume", "train.shard=parameters", "data.val_batch_size=3"), 0, "resumed at step")
        self.check_like_one("moved")

    def test_sharded(self):
        """Losses like one rank's, and the same bits after a resume on as many ranks."""
        settings = ("train.accumulate=2", "optim.name=lamb", "train.lookahead=3", "optim.clip_norm=1", "model.bn_sync=no")
        self.expect(self.run_ranks(1, "whole", *settings, "model.ghost_batch=3"), 0)
        for shard in ("gradients", "parameters"):
            with self.subTest(shard=shard):
                halted, divided = f"halted-{shard}", (f"train.shard={shard}", *settings)
                self.expect(self.run_ranks(2, shard, *divided), 0, "train.shard: each of 2 ranks keeps")
                apart = [abs(a["loss"] / b["loss"] - 1) for a, b in zip(self.steps(shard), self.steps("whole"), strict=True)]
                self.assertLess(max(apart), 1e-4)
                process = self.start(2, halted, *divided)
                self.wait_for_step(halted, process, 5)
                self.expect((send(process, signal.SIGTERM, 2), process.returncode), 3, "--resume to continue")
                self.assertLess(len(self.steps(halted)), STEPS)
                self.expect(self.run_ranks(2, halted, "--resume", *divided), 0, "resumed at step")
                self.check_same(shard, halted)
        self.expect(self.run_ranks(2, "matrices", "train.shard=optimizer", "optim.name=muon"), 1, "whole matrices, of which each rank would have a part")

    def test_norms_of_their_own(self):
        """Without bn_sync, losses differ from those of one rank and evaluation uses rank 0's statistics. Results
        repeat bit for bit, also after a resume.
        """
        self.expect(self.run_ranks(2, "local", "model.bn_sync=no"), 0)
        self.assertGreater(max(self.loss_differences("local")), 1e-3)
        self.assertEqual([line["samples"] for line in self.lines("local", event="eval")], [40, 40])
        process = self.start(2, "stopped", "model.bn_sync=no")
        self.wait_for_step("stopped", process, 3)
        self.expect((send(process, signal.SIGTERM, 1), process.returncode), 3, "--resume to continue")
        self.assertEqual(self.lines("stopped")[-1]["outcome"], "stopped")
        self.assertLess(len(self.steps("stopped")), STEPS)
        self.expect(self.run_ranks(2, "stopped", "--resume", "model.bn_sync=no"), 0, "resumed at step")
        for event in ("step", "eval"):
            self.assertEqual(*([line["loss_hex"] for line in self.lines(name, event=event)] for name in ("local", "stopped")))
        with open(f"{self.folder}/local/model.safetensors", "rb") as a, open(f"{self.folder}/stopped/model.safetensors", "rb") as b:
            self.assertEqual(a.read(), b.read())

    def test_refuses_selective_backprop(self):
        done = self.run_ranks(2, "selective", "train.selective_backprop=0.5")
        self.expect(done, 1, "train.selective_backprop = 0.5 does not work on batches divided over 2 ranks, because the kept samples may be of any of them")

    def test_whitened(self):
        """The first layer is initialised from the whole first batch, not from a rank's share."""
        settings = ("model.name=speednet", "model.width=0.25", "train.epochs=0.2")
        for ranks in (1, 4):
            self.expect(self.run_ranks(ranks, f"white{ranks}", *settings), 0)
        a, b = self.steps("white1"), self.steps("white4")
        self.assertLess(abs(a[0]["loss"] / b[0]["loss"] - 1), 1e-6)

    def test_refusals(self):
        for name in os.listdir(f"{self.folder}/images/val"):
            os.makedirs(f"{self.folder}/single/{name}")
        shutil.copy(next(pathlib.Path(self.folder, "images/val").rglob("*.*")), f"{self.folder}/single/{name}")
        subprocess.run([os.environ["PACKIMG"], "convert", f"{self.folder}/single", "-o", f"{self.folder}/single.pimg", "--quiet"], check=True, stdout=subprocess.DEVNULL)
        for ranks, words, arguments in (
            (5, "data.batch_size = 12 is not a multiple of 5 ranks", ()),
            (2, "did you mean data.batch_size?", ("data.bathc_size=3",)),
            (2, "/nonexistent.pimg", ("data.train=/nonexistent.pimg",)),
            (2, "has no image for this one; use fewer ranks or train.shard=gradients", ("train.shard=parameters", f"data.val={self.folder}/single.pimg")),
        ):
            with self.subTest(words=words):
                done = self.run_ranks(ranks, "refused", *arguments)
                self.expect(done, 1, words)
                self.assertEqual(len(re.findall("^trainer: ", done[0], re.M)), 1, done[0])

    def test_failing_rank(self):
        """If any rank fails, all end, with one error."""
        self.expect(
            self.run_ranks(3, "unreachable", last=("--socket", "/nonexistent/socket")),
            1,
            "trainer: rank 2 of 3 on ",
            "/nonexistent/socket",
        )
        with open(f"{self.folder}/train.pimg", "rb") as file:
            bytes_ = bytearray(file.read())
        middle = len(bytes_) // 2
        for i in range(middle, middle + 100):
            bytes_[i] ^= 0xFF
        with open(f"{self.folder}/damaged.pimg", "wb") as file:
            file.write(bytes_)
        done = self.run_ranks(2, "damaged", f"data.train={self.folder}/damaged.pimg", "data.bad=fail")
        self.assertNotEqual(done[1], 0)
        self.assertRegex(done[0], r"trainer: (rank 1 of 2 on \S+: )?step \d+: feed: .*damaged")
        done = self.run_ranks(2, "diverged", "optim.lr=1000", "optim.weight_decay=1")
        self.assertNotEqual(done[1], 0)
        self.assertEqual(len(re.findall("training has diverged", done[0])), 1, done[0])

    def test_killed_rank(self):
        process = self.start(2, "killed", "train.epochs=1000", patience=0)
        self.wait_for_step("killed", process, 5)
        send(process, signal.SIGKILL, 1)
        self.assertNotEqual(process.returncode, 0)

    def test_interrupted(self):
        """Ctrl-C, which mpirun turns into SIGTERM, and a signal that it forwards unchanged."""
        for number, status, name in ((signal.SIGINT, 1, "interrupted"), (signal.SIGUSR1, 3, "asked")):
            process = self.start(2, name, "train.epochs=1000")
            self.wait_for_step(name, process, 5)
            process.send_signal(number)
            self.expect((process.communicate(timeout=TIMEOUT)[0], process.returncode), status, "--resume to continue")
            last = self.lines(name)[-1]
            self.assertEqual(last["outcome"], "stopped")
            self.assertTrue(os.path.exists(f"{self.folder}/{name}/checkpoint-{last['step']:08}.safetensors"))


class Variants(Programs):
    """With other numbers of ranks, on emulated GPUs, and with less common settings."""

    def test_like_one_rank(self):
        for ranks in (2, 4):
            with self.subTest(ranks=ranks):
                self.check_ranks(ranks)

    def test_on_gpus(self):
        """Emulated GPUs, one per rank."""
        done = self.run_ranks(2, "gpus", "--device=cuda", "--fusion=c", trainer=os.environ["TRAINER_EMULATED"])
        self.expect(done, 0, "ranks    2, each with 6 images", "emulated GPU")
        self.check_like_one("gpus", 1e-5, 1e-3)
        self.check_sent("gpus", 2)

    def test_sharded(self):
        """50 steps of a ResNet and a vision transformer: losses like one rank's, whatever is sharded, on CPUs and emulated GPUs."""
        nets = {"resnet": ("optim.name=sgd", "model.bn_sync=yes"), "vit": ("optim.name=adamw", "optim.lr=0.0003")}
        vit = ("model.name=vit_tiny_patch16", "model.width=0.25", "model.patch=8", "model.image_size=48", "model.bn_sync=no")
        methods = ("train.epochs=3", "optim.clip_norm=1", "train.recompute=1", "data.val_batch_size=12")
        gpu = {"trainer": os.environ["TRAINER_EMULATED"]}
        for net, settings in nets.items():
            settings = (*(vit if net == "vit" else ()), *settings, *methods)
            accumulates = ("train.accumulate=3",) if net == "vit" else ()  # the batch norms of micro-batches are others
            self.expect(self.run_ranks(1, f"{net}-whole", *settings), 0)
            whole = [step["loss"] for step in self.steps(f"{net}-whole")]
            self.assertEqual(len(whole), 51)
            for ranks, shard, keys in ((2, "optimizer", {}), (4, "gradients", {}), (2, "parameters", {}), (4, "parameters", {}), (2, "gradients", gpu), (2, "parameters", gpu), (4, "parameters", gpu)):
                name = f"{net}-{ranks}-{shard}-{len(keys)}"
                device = "--device=cuda" if keys else "--device=cpu"
                with self.subTest(name=name):
                    done = self.run_ranks(ranks, name, device, f"train.shard={shard}", *settings, *accumulates, **keys)
                    self.expect(done, 0, f"train.shard: each of {ranks} ranks keeps")
                    apart = [abs(a["loss"] / b - 1) for a, b in zip(self.steps(name), whole, strict=True)]
                    self.assertLess(max(apart[:5]), 1e-5)
                    self.assertLess(max(apart), 1e-3)
                    for a, b in zip(self.lines(name, event="eval"), self.lines(f"{net}-whole", event="eval"), strict=True):
                        self.assertLess(abs(a["loss"] / b["loss"] - 1), 1e-3)

    def test_taught(self):
        """With a teacher, which each rank loads, and class weights: the divisors of the two losses differ."""
        teacher = [f"train.teacher={self.folder}/one/model.safetensors", f"train.teacher_recipe={self.folder}/one/recipe.ini"]
        weights = "train.class_weights=1, 3, 0.5, 2, 1, 1, 0.25, 1, 1, 2"
        losses = []
        for name, ranks, keys in (("pupil", 1, {}), ("pupils", 2, {}), ("pupils-gpus", 2, {"trainer": os.environ["TRAINER_EMULATED"]})):
            device = "--device=cuda" if keys else "--device=cpu"
            self.expect(self.run_ranks(ranks, name, device, *teacher, weights, "train.epochs=1", **keys), 0, "teacher: resnet_cifar from")
            losses.append([step["loss"] for step in self.steps(name)])
        for several, early, late in ((losses[1], 1e-6, 1e-4), (losses[2], 1e-5, 1e-3)):
            apart = [abs(a / b - 1) for a, b in zip(several, losses[0], strict=True)]
            self.assertLess(max(apart[:5]), early)
            self.assertLess(max(apart), late)

    def test_norms_of_groups(self):
        """If ranks do not split groups, losses equal those of one rank; running statistics are rank 0's."""
        settings = ("model.bn_sync=no", "model.ghost_batch=3")
        self.expect(self.run_ranks(1, "groups", *settings), 0)
        self.expect(self.run_ranks(2, "groups2", *settings), 0)
        one, two = ([line["loss"] for line in self.steps(name)] for name in ("groups", "groups2"))
        self.assertLess(max(abs(a / b - 1) for a, b in zip(one, two, strict=True)), 1e-4)
        self.assertGreater(max(self.loss_differences("groups")), 1e-3)
        self.expect(self.run_ranks(4, "few", *settings[:1], "model.ghost_batch=4"), 1, "model.ghost_batch = 4 exceeds the 3 samples")

    def test_micro_batches(self):
        """All ranks use the same number of micro-batches, determined in planning."""
        settings = ("data.val=", "data.val_pipeline=", "train.memory_limit=0.006")
        self.expect(self.run_ranks(2, "too_large", *settings), 1, "are allowed")
        self.expect(self.run_ranks(2, "found", *settings, "train.accumulate=auto"), 0)
        parts = self.lines("found")[0]["accumulate"]
        self.assertGreater(parts, 1)
        self.expect(self.run_ranks(2, "given", *settings[:2], f"train.accumulate={parts}"), 0)
        self.check_same("found", "given")

    def test_micro_batches_of_one_rank(self):
        """Planning fits into memory, but on one rank the steps do not."""
        trainer = os.environ["TRAINER_EMULATED"]
        settings = ("--device=cuda", "data.val=", "data.val_pipeline=", "train.epochs=0.5")
        floats = "data.pipeline=random_crop(48, padding=2) hflip(0.5) to(f32)"
        fails, fits = 0, 64 << 10
        while fits - fails > 16:
            middle = (fails + fits) // 2
            room = (f"LOADERD_EMULATED_MEMORY={middle << 10}",)
            failed = self.run_ranks(2, "room", *settings, "--dry-run", last_has=room, trainer=trainer)[1]
            fails, fits = (middle, fits) if failed else (fails, middle)
        room = (f"LOADERD_EMULATED_MEMORY={fits << 10}",)
        done = self.run_ranks(2, "little", *settings, floats, "train.accumulate=auto", last_has=room, trainer=trainer)
        self.expect(done, 0, "in 2 micro-batches of 3 per device, since larger ones do not fit: another rank has less memory")
        self.expect(self.run_ranks(2, "much", *settings, floats, "train.accumulate=2", trainer=trainer), 0)
        self.check_same("little", "much")


if __name__ == "__main__":
    if not MPIRUN:
        print("skipped: mpirun was not found (openmpi-bin)")
        sys.exit(77)
    if os.environ.get("HAVE_MPI") != "1":
        print("skipped: the trainer was built without MPI")
        sys.exit(77)
    if "Variants" not in sys.argv:
        del Variants
    unittest.main()
