"""The trainer on values of a dataset's schema (data.target): multi-label and regression networks learn, their metrics match their outputs,
resumed runs and several ranks give the same results, and values that cannot be targets are refused.
"""

import csv
import json
import math
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree

from loaderd import Writer

TRAINER, EMULATED = os.environ["TRAINER"], os.environ["TRAINER_EMULATED"]
MPIRUN = os.environ.get("MPIRUN")
SIDE = 16
CLASSES = ["red", "green", "blue"]
SCHEMA = """
    image: image u8[h,w,3]
    label: class i32
    kinds: class i32[*]
    rarely: class i32[*] sparse
    single: class i32[*]
    boxes: boxes(image) f32[*,4] xyxy
    inside: class(boxes) i32[*]
    bright: value u8[3]
    level: value f32 sparse
    levels: value f32[2]
    odd: value f32[2]
    words: text
    pairs: class i32[2]
    series: value f32[*]
"""

RECIPE = """
[data]
train = {folder}/train.pimg
val = {folder}/val.pimg
batch_size = 12
val_batch_size = 10
[model]
name = resnet_cifar
depth = 8
width = 0.5
[optim]
lr = 0.05
[schedule]
name = one_cycle
[train]
epochs = 6
seed = 3
threads = 1
precision = fp32
[log]
interval = 1
[checkpoint]
keep = 9
"""
LABELS = ("data.target=kinds", "train.loss=sigmoid")
NUMBERS = ("data.target=levels", "train.loss=squared", "optim.lr=0.02")


def write(path, count, seed, odd=0.5):
    """Draws images of one colour with some noise. Each channel is dark or bright; its level is the value."""
    draw = random.Random(seed)
    with Writer(path, SCHEMA, classes=CLASSES) as writer:
        for i in range(count):
            bright = [draw.random() < 0.5 for _ in CLASSES]
            levels = [(150 if on else 20) + draw.randrange(80) for on in bright]
            pixels = bytes(level + draw.randrange(20) for _ in range(SIDE * SIDE) for level in levels)
            kinds = [c for c in range(3) if bright[c]]
            sample = {
                "image": memoryview(pixels).cast("B", (SIDE, SIDE, 3)),
                "label": i % 3,
                "kinds": kinds,
                "single": [i % 3],
                "boxes": [[0, 0, 4, 4]] * 2 * len(kinds),
                "inside": kinds + kinds,
                "bright": [int(on) for on in bright],
                "levels": [levels[0] / 64 - 2, (levels[1] - levels[2]) / 64],
                "odd": [0, odd if i == 5 else 1],
                "words": "x",
                "pairs": [0, 1],
                "series": [1.5],
                "key": str(i),
            }
            if i % 4:
                sample |= {"rarely": kinds, "level": levels[0] / 64 - 2}
            writer.add(sample)


def average_precision(values, targets):
    """Average precision: the mean, over the positive samples, of the precision at their score. Samples with equal scores count together."""
    pairs = list(zip(values, targets, strict=True))
    above = [[t for v, t in pairs if v >= value] for value, positive in pairs if positive]
    return sum(sum(ts) / len(ts) for ts in above) / len(above)


class Targets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = cls.temporary.name
        write(f"{cls.folder}/train.pimg", 96, 1)
        write(f"{cls.folder}/val.pimg", 43, 2)
        cls.recipe = f"{cls.folder}/recipe.ini"
        with open(cls.recipe, "w") as file:
            file.write(RECIPE.format(folder=cls.folder))

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def trainer(self, name, *arguments, status=0, ranks=1, program=TRAINER):
        command = [program, self.recipe, f"--output={self.folder}/{name}", *arguments]
        command = [MPIRUN, "-n", str(ranks), *command] if ranks > 1 else command
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout if status == 0 else done.stderr

    def refused(self, *arguments, says):
        said = self.trainer("refused", *arguments, status=1)
        for words in says:
            self.assertIn(words, said)

    def lines(self, name, event):
        with open(f"{self.folder}/{name}/log.jsonl") as file:
            return [line for line in map(json.loads, file) if line["event"] == event]

    def summary(self, name):
        with open(f"{self.folder}/{name}/summary.json") as file:
            return json.load(file)

    def evaluate(self, name, *arguments, **options):
        """Runs --evaluate. Returns the result, and each output's targets and outputs of all samples."""
        model = f"model.pretrained={self.folder}/{name}/model.safetensors"
        prefix = f"{self.folder}/{name}/predicted"
        if options.get("ranks", 1) > 1:
            return json.loads(self.trainer(name, *arguments, model, "--evaluate", **options))
        result = json.loads(self.trainer(name, *arguments, model, "--evaluate", f"--predictions={prefix}", **options))
        with open(f"{prefix}.csv") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([int(row["sample"]) for row in rows], sorted(int(row["sample"]) for row in rows))
        count = len(rows[0]) // 2
        columns = [[[float(row[f"{part}_{k}"]) for row in rows] for k in range(count)] for part in ("target", "output")]
        return result, *columns

    def check_labels(self, name, *arguments):
        result, targets, outputs = self.evaluate(name, *arguments)
        each = [average_precision(v, t) for v, t in zip(outputs, targets, strict=True)]
        for said, computed in zip(result["average_precision"], each, strict=True):
            self.assertAlmostEqual(said, computed, delta=1e-5)
        self.assertAlmostEqual(result["map"], sum(each) / len(each), delta=1e-5)
        pairs = [(v > 0, t > 0.5) for vs, ts in zip(outputs, targets, strict=True) for v, t in zip(vs, ts, strict=True)]
        f1 = 2 * sum(v and t for v, t in pairs) / sum(v + t for v, t in pairs)
        self.assertAlmostEqual(result["f1"], f1, delta=1e-5)
        losses = [max(v, 0) - v * t + math.log1p(math.exp(-abs(v))) for vs, ts in zip(outputs, targets) for v, t in zip(vs, ts)]
        self.assertAlmostEqual(result["val_loss"], sum(losses) / len(losses), delta=1e-5)
        return result

    def check_numbers(self, name, *arguments):
        result, targets, outputs = self.evaluate(name, *arguments)
        self.assertEqual(len(result["outputs"]), len(targets))
        for said, vs, ts in zip(result["outputs"], outputs, targets, strict=True):
            errors, mean = [v - t for v, t in zip(vs, ts, strict=True)], sum(ts) / len(ts)
            squared = sum(e * e for e in errors)
            self.assertAlmostEqual(said["mae"], sum(map(abs, errors)) / len(ts), delta=1e-4)
            self.assertAlmostEqual(said["rmse"], math.sqrt(squared / len(ts)), delta=1e-4)
            self.assertAlmostEqual(said["r2"], 1 - squared / sum((t - mean) ** 2 for t in ts), delta=1e-4)
        for key in ("mae", "rmse", "r2"):
            self.assertAlmostEqual(result[key], sum(said[key] for said in result["outputs"]) / len(targets), delta=1e-4)
        return result

    def test_labels(self):
        """Several classes at once; a sample may also have none."""
        self.trainer("labels", *LABELS)
        result = self.check_labels("labels", *LABELS)
        self.assertEqual(result["val_samples"], 43)
        self.assertGreater(result["map"], 0.98)
        summary = self.summary("labels")
        for key in ("map", "f1", "val_samples"):
            self.assertEqual(summary[key], result[key], key)
        self.assertEqual(summary["best_map"], max(line["map"] for line in self.lines("labels", "eval")))
        for event in ("step", "epoch", "eval"):
            self.assertNotIn("top1", self.lines("labels", event)[0])

    def test_vector_of_labels(self):
        """A vector of 0 and 1 gives the same results, bit for bit, as the list of the classes with a 1, and as the list of the boxes'
        classes.
        """
        for target in ("kinds", "bright", "inside"):
            self.trainer(f"of-{target}", f"data.target={target}", "train.loss=sigmoid", "train.epochs=0.5")
        losses = [[line["loss_hex"] for line in self.lines(f"of-{target}", "step")] for target in ("kinds", "bright", "inside")]
        self.assertEqual(losses[1:], 2 * losses[:1])
        cut = self.evaluate("of-inside", "data.target=inside", "train.loss=sigmoid", "data.val_pipeline=center_crop(8) sanitize_boxes()")[0]
        self.assertEqual((cut["average_precision"], cut["map"], cut["val_samples"]), ([None] * 3, 0, 43))
        self.check_labels("of-bright", "data.target=bright", "train.loss=sigmoid")

    def test_table(self):
        """A column of numbers in a table with empty cells; the dataset has no recorded schema."""
        draw = random.Random(4)
        with open(f"{self.folder}/table.csv", "w") as table:
            table.write("path,age\n")
            for i in range(24):
                with open(f"{self.folder}/{i}.ppm", "wb") as image:
                    image.write(b"P6 16 16 255\n" + bytes([draw.randrange(256)] * SIDE * SIDE * 3))
                table.write(f"{i}.ppm,{i / 16 if i % 6 else ''}\n")
        subprocess.run([os.environ["PACKIMG"], "convert", f"{self.folder}/table.csv", "-o", f"{self.folder}/table.pimg", "--quiet"], check=True, capture_output=True)
        both = [f"data.{part}={self.folder}/table.pimg" for part in ("train", "val")]
        self.trainer("table", "data.target=age", "train.loss=huber", *both, "train.epochs=1")
        self.assertEqual(self.summary("table")["val_samples"], 20)

    def test_numbers(self):
        for loss in ("squared", "huber"):
            with self.subTest(loss=loss):
                keys = ("data.target=levels", f"train.loss={loss}", "optim.lr=0.02", "train.epochs=10")
                self.trainer(loss, *keys)
                result = self.check_numbers(loss, *keys)
                self.assertGreater(result["r2"], 0.8)
                self.assertEqual(self.summary(loss)["r2"], result["r2"])

    def test_tables_and_plots(self):
        """metrics.csv and --plot have the metrics of targets, and no empty panel."""
        for name, keys, metrics, legend in (
            ("plotted-labels", LABELS, {"mAP %": "map", "micro-F1 %": "f1"}, "mAP {:.2f} %"),
            ("plotted-numbers", NUMBERS, {"R^2": "r2", "MAE": "mae", "RMSE": "rmse"}, "R^2 {:.4f}"),
        ):
            with self.subTest(name):
                self.trainer(name, *keys, "train.epochs=2", "log.csv=yes")
                lines = self.lines(name, "eval")
                with open(f"{self.folder}/{name}/metrics.csv") as file:
                    rows = [row for row in csv.DictReader(file) if row["event"] == "eval"]
                self.assertEqual(len(rows), len(lines))
                for row, line in zip(rows, lines):
                    for key in metrics.values():
                        self.assertAlmostEqual(float(row[key]), line[key], delta=1e-5 * abs(line[key]))
                self.assertEqual(subprocess.run([TRAINER, f"--plot={self.folder}/plot.svg", f"{self.folder}/{name}"]).returncode, 0)
                texts = [text.text for text in xml.etree.ElementTree.parse(f"{self.folder}/plot.svg").iter("{http://www.w3.org/2000/svg}text")]
                self.assertEqual([text for text in texts if text in ("loss", "top-1 %", "mAP %", "micro-F1 %", "R^2", "MAE", "RMSE")], ["loss", *metrics])
                first = lines[-1][next(iter(metrics.values()))]
                shown = [text for text in texts if text.startswith(f"{self.folder}/{name}: ")]
                self.assertIn(shown, [[f"{self.folder}/{name}: " + legend.format(first * scale)] for scale in (1, 100)])

    def test_one_number(self):
        """One output. Samples without a value do not count."""
        keys = ("data.target=level", "train.loss=squared", "optim.lr=0.02")
        self.trainer("one", *keys)
        result = self.check_numbers("one", *keys)
        self.assertEqual(result["val_samples"], 32)
        self.assertEqual(len(result["outputs"]), 1)

    def test_missing_labels(self):
        keys = ("data.target=rarely", "train.loss=sigmoid", "train.epochs=1")
        self.trainer("rarely", *keys)
        self.assertEqual(self.check_labels("rarely", *keys)["val_samples"], 32)

    def test_resume(self):
        for name, keys in (("labels-resumed", LABELS), ("numbers-resumed", NUMBERS)):
            with self.subTest(name=name):
                self.trainer(name + "-whole", *keys, "train.epochs=3", "train.mixup=0.4")
                os.mkdir(f"{self.folder}/{name}")
                shutil.copy(f"{self.folder}/{name}-whole/checkpoint-00000008.safetensors", f"{self.folder}/{name}")
                self.trainer(name, *keys, "train.epochs=3", "train.mixup=0.4", "--resume")
                for event in ("step", "eval"):
                    whole, resumed = [[(line["step"], line["loss_hex"]) for line in self.lines(run, event) if line["step"] > 8]
                                      for run in (name + "-whole", name)]  # fmt: skip
                    self.assertEqual(resumed, whole)
                    self.assertTrue(whole)
                results = [self.summary(run) for run in (name, name + "-whole")]
                self.assertEqual(*[{key: result[key] for key in result if not key.endswith(("seconds", "second", "wait"))} for result in results])

    def test_mixture(self):
        """Several datasets must agree on the target, and a filter chooses from each."""
        mixture = f"data.train={self.folder}/train.pimg,{self.folder}/val.pimg"
        for keys in (LABELS, NUMBERS):
            self.trainer("mixture", *keys, mixture, "data.shares=2,1", "data.where=label < 2", "train.epochs=1", "--overwrite")
            # 64 and 29 samples are chosen; 29 periods of three samples, in batches of 12
            self.assertEqual(len(self.lines("mixture", "step")), 7)
        other = f"{self.folder}/three.pimg"
        with Writer(other, "image: image u8[h,w,3]\nlabel: class i32\nlevels: value f32[3]", classes=CLASSES) as writer:
            writer.add({"image": memoryview(bytes(SIDE * SIDE * 3)).cast("B", (SIDE, SIDE, 3)), "label": 0, "levels": [0, 1, 2], "key": "0"})
        self.refused(*NUMBERS, f"{mixture},{other}", "--dry-run",
                     says=[f"data.target = levels has another type or shape in data.train = {other} than in"])  # fmt: skip

    def test_reconnect(self):
        """The daemon dies, and the run continues with the targets of exactly the next batch."""
        keys = (*NUMBERS, "train.epochs=30", "train.eval_every=0", "checkpoint.every=0", "train.mixup=0.2")
        self.trainer("undisturbed", *keys)
        command = [TRAINER, self.recipe, f"--output={self.folder}/reconnected", *keys]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            log = pathlib.Path(self.folder, "reconnected", "log.jsonl")
            while not log.exists() or '"event":"step"' not in log.read_text():
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            with open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
                os.kill(int(children.read().split()[0]), signal.SIGKILL)
            said = process.communicate(timeout=600)[1]
        self.assertEqual(process.returncode, 0, said)
        self.assertTrue(self.lines("reconnected", "reconnect"))
        losses = [[line["loss_hex"] for line in self.lines(name, "step")] for name in ("undisturbed", "reconnected")]
        self.assertEqual(*losses)

    def test_like_labels(self):
        """Lists of one class train like labels with binary cross-entropy, also with blending, micro-batches and selection."""
        for at, arguments in enumerate((
            ["train.mixup=0.2", "train.cutmix=1", "train.mix_by=sample", "train.accumulate=2", "train.label_smoothing=0.1"],
            ["train.selective_backprop=0.5", "train.selective_start=0", "train.selective_interrupt=0"],
            ["train.class_weights=1,2,0.5", "train.sam=0.05"],
        )):  # fmt: skip
            with self.subTest(arguments=arguments):
                for target in ("", "single"):
                    self.trainer(f"like{at}{target}", f"data.target={target}", "train.loss=sigmoid", "train.epochs=0.5", "data.val=", *arguments)
                for one, other in zip(self.lines(f"like{at}", "step"), self.lines(f"like{at}single", "step"), strict=True):
                    self.assertLess(abs(one["loss"] / other["loss"] - 1), 1e-5)

    def test_methods(self):
        """Other ways of evaluating, and options that do not train."""
        self.trainer("swa", *NUMBERS, "train.swa=0.5", "train.swa_every=0", "train.eval_flip=yes", "train.epochs=1")
        self.trainer("plateau", *LABELS, "train.ema=0.9", "schedule.name=plateau", "schedule.metric=score", "train.epochs=1")
        for option in ("--overfit-batch", "--check-gradients", f"--find-lr={self.folder}/found"):
            with self.subTest(option=option):
                self.trainer("option", *NUMBERS, option)
        said = self.trainer("overfit", *LABELS, "--overfit-batch")
        self.assertNotIn("top-1", said)

    def test_accumulated(self):
        """Micro-batches use their own samples' targets: with ghost batch norms of their size, the losses equal those of whole batches."""
        losses = []
        for name, parts in (("whole-batch", 1), ("micro-batches", 3)):
            self.trainer(name, *NUMBERS, f"train.accumulate={parts}", "train.epochs=0.5", "model.ghost_batch=4")
            losses.append([line["loss"] for line in self.lines(name, "step")])
        self.assertLess(max(abs(a / b - 1) for a, b in zip(*losses, strict=True)), 1e-4)

    def test_early_stop(self):
        self.trainer("stops", *LABELS, "train.stop_at=0.3", "train.eval_every=1")
        self.assertIn("mAP of", self.lines("stops", "end")[0]["why"])

    def test_emulated_gpu(self):
        """The CUDA backend computes the same losses, also for a single output."""
        for name, keys in (
            ("labels-gpu", [*LABELS, "train.mixup=0.2", "train.label_smoothing=0.1"]),
            ("number-gpu", ["data.target=level", "train.loss=huber", "optim.lr=0.02"]),
        ):
            with self.subTest(name=name):
                keys = [*keys, "train.epochs=0.25"]
                self.trainer(name, *keys)
                self.trainer(name + "-emulated", *keys, "train.device=cuda", program=EMULATED)
                for event in ("step", "eval"):
                    for one, other in zip(self.lines(name, event), self.lines(name + "-emulated", event), strict=True):
                        self.assertLess(abs(one["loss"] / other["loss"] - 1), 1e-5)

    @unittest.skipUnless(MPIRUN and os.environ.get("HAVE_MPI") == "1", "needs MPI")
    def test_ranks(self):
        """Metrics do not depend on the number of ranks."""
        self.trainer("labels-ranks", *LABELS, "train.epochs=0.5", "model.bn_sync=yes", ranks=2)
        self.trainer("numbers-ranks", *NUMBERS, "train.epochs=0.5")
        for name, keys, ranks in (("labels-ranks", LABELS, 2), ("numbers-ranks", NUMBERS, 3)):
            with self.subTest(name=name):
                self.assertEqual(self.evaluate(name, *keys, ranks=ranks), self.evaluate(name, *keys)[0])

    def test_find_batch_size(self):
        """Larger batches repeat the targets of the first one, too."""
        for keys in (LABELS, NUMBERS):
            said = self.trainer("found", *keys, f"--find-batch-size={self.folder}/found")
            self.assertIn(f"{self.folder}/found.csv", said)
            with open(f"{self.folder}/found.csv") as file:
                rows = list(csv.DictReader(file))
            self.assertGreaterEqual(len(rows), 2)

    def test_refused_keys(self):
        for arguments, says in (
            (["data.target=kinds"], ["data.target = kinds and train.loss = softmax", "set train.loss=sigmoid"]),
            (["train.loss=huber"], ["train.loss = huber and data.target =", "set data.target"]),
            ([*NUMBERS, "train.label_smoothing=0.1"], ["regression has no labels"]),
            ([*NUMBERS, "train.class_weights=1,2"], ["regression has no classes"]),
            ([*LABELS, "train.class_weights=balanced"], ["balanced counts the labels"]),
            ([*LABELS, "train.teacher=x"], ["set train.teacher to empty"]),
            ([*LABELS, "data.augment=device"], ["set data.augment=daemon"]),
            ([*LABELS, "schedule.metric=top1"], ["set schedule.metric=score"]),
            (["data.pipeline=view a(2) { resize(8x8) }"], ["data.pipeline", "view a", "without views"]),
            (["data.pipeline=resize(8x8) mixup"], ["data.pipeline: mixup, cutmix and targets", "set train.mixup"]),
            ([*LABELS, "log.mlperf=yes"], ["set log.mlperf=no"]),
            ([*LABELS, "train.class_weights=1,2"], ["train.class_weights has 2 numbers, but there are 3 classes"]),
        ):
            with self.subTest(arguments=arguments):
                self.refused(*arguments, says=says)

    def test_refused_values(self):
        for target, loss, says in (
            ("kind", "sigmoid", ["has no value of that name", 'did you mean "kinds"?']),
            ("kinds", "squared", ["kinds: class i32[*]", "set train.loss=sigmoid"]),
            ("label", "sigmoid", ["label: class i32", "set data.target to empty"]),
            ("words", "sigmoid", ["words: text", "lists of classes"]),
            ("pairs", "sigmoid", ["pairs: class i32[2]", "lists of classes"]),
            ("series", "squared", ["series: value f32[*]", "lists of classes"]),
            ("odd", "sigmoid", ["sample 5 has 0.5", "learns 0 and 1"]),
        ):
            with self.subTest(target=target):
                self.refused(f"data.target={target}", f"train.loss={loss}", "data.shuffle=no", says=[f"data.target = {target}", *says])
        self.refused(*NUMBERS, "model.classes=3", says=["model.classes = 3, but data.target = levels has 2 numbers"])

    def test_refused_data(self):
        """Refuses numbers that are not finite, also as f32, and evaluation sets with another schema."""
        write(f"{self.folder}/nan.pimg", 24, 3, odd=math.nan)
        self.refused("data.target=odd", "train.loss=squared", f"data.train={self.folder}/nan.pimg", "data.shuffle=no",
                     says=["data.target = odd: sample 5 has nan", "a sample may lack a sparse value"])  # fmt: skip
        with Writer(f"{self.folder}/wrong.pimg", "image: image u8[h,w,3]\nkinds: class i32[*]", classes=CLASSES) as writer:
            for _ in range(12):
                writer.add({"image": memoryview(bytes(SIDE * SIDE * 3)).cast("B", (SIDE, SIDE, 3)), "kinds": [1, -1]})
        self.refused(*LABELS, f"data.train={self.folder}/wrong.pimg", "data.shuffle=no",
                     says=["data.target = kinds: sample 0 has -1, which is no number of a class"])  # fmt: skip
        with Writer(f"{self.folder}/wide.pimg", "image: image u8[h,w,3]\nwide: value f64") as writer:
            for _ in range(12):
                writer.add({"image": memoryview(bytes(SIDE * SIDE * 3)).cast("B", (SIDE, SIDE, 3)), "wide": -1e39})
        self.refused("data.target=wide", "train.loss=squared", f"data.train={self.folder}/wide.pimg", "data.val=", "data.shuffle=no",
                     says=["data.target = wide: sample 0 has -1e+39, but targets are of 32 bits, up to 3.4e+38 (scale the values)"])  # fmt: skip
        with Writer(f"{self.folder}/other.pimg", "image: image u8[h,w,3]\nlevels: value f32[3]") as writer:
            writer.add({"image": memoryview(bytes(SIDE * SIDE * 3)).cast("B", (SIDE, SIDE, 3)), "levels": [1, 2, 3]})
        self.refused(*NUMBERS, f"data.val={self.folder}/other.pimg", says=["another type or shape", "the same schema"])
        self.trainer("weights", *NUMBERS, "train.epochs=0.25")
        self.refused(*NUMBERS, f"data.val={self.folder}/other.pimg", "data.train=", "--evaluate",
                     f"model.pretrained={self.folder}/weights/model.safetensors",
                     says=["has 3 numbers", "but the network has 2 outputs"])  # fmt: skip


if __name__ == "__main__":
    unittest.main()
