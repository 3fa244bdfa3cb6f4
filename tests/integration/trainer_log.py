"""Output of a run besides log.jsonl: metrics.csv, TensorBoard event files, and others, also in runs that resume from a checkpoint."""

import collections
import csv
import glob
import json
import math
import os
import re
import shutil
import struct
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    EventAccumulator = None

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
[train]
epochs = 2
threads = 1
[log]
interval = 2
csv = yes
tensorboard = yes
mlperf = yes
[checkpoint]
keep = 9
"""
MEASURED = ("step", "epoch", "eval")


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked_crc(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    with open(path, "rb") as file:
        data = file.read()
    while data:
        size, head = struct.unpack("<QI", data[:12])
        body, tail = data[12 : 12 + size], data[12 + size : 16 + size]
        assert masked_crc(data[:8]) == head and (masked_crc(body),) == struct.unpack("<I", tail), path
        yield body
        data = data[16 + size :]


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """Yields (number, value) of a protobuf message's fields in order."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            value, at = struct.unpack_from({1: "<d", 5: "<f"}[kind], data, at)[0], at + {1: 8, 5: 4}[kind]
        yield key >> 3, value


class Log(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = cls.temporary.name
        subprocess.run([os.environ["SHAPES"], f"{cls.folder}/images", "--count", "258"], check=True, stdout=subprocess.DEVNULL)
        for part in ("train", "val"):
            command = [os.environ["PACKIMG"], "convert", f"{cls.folder}/images/{part}", "-o", f"{cls.folder}/{part}.pimg", "--quiet"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(f"{cls.folder}/tiny.ini", "w") as file:
            file.write(RECIPE.format(folder=cls.folder))
        cls.run_trainer("run")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def run_trainer(cls, name, *arguments, status=0):
        command = [os.environ["TRAINER"], f"{cls.folder}/tiny.ini", "--output", f"{cls.folder}/{name}", *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == status, f"status {done.returncode}:\n{done.stdout}"
        return done.stdout

    def lines(self, name):
        with open(f"{self.folder}/{name}/log.jsonl") as file:
            lines = [json.loads(line) for line in file]
        return [line for line in lines if line["event"] in MEASURED]

    def numbers(self, line):
        return {key: value for key, value in line.items() if isinstance(value, (int, float)) and key not in ("step", "time")}

    def rows(self, name):
        with open(f"{self.folder}/{name}/metrics.csv", newline="") as file:
            return list(csv.DictReader(file))

    def check_csv(self, name):
        rows, lines = self.rows(name), self.lines(name)
        self.assertEqual(len(rows), len(lines))
        for row, line in zip(rows, lines):
            self.assertEqual((row.pop("event"), int(row.pop("step"))), (line["event"], line["step"]))
            self.assertAlmostEqual(float(row.pop("time")), line["time"], delta=0.0011)
            found = {key: float(text) for key, text in row.items() if text}
            expected = self.numbers(line)
            self.assertEqual(found.keys(), expected.keys(), "a number of log.jsonl has no column in trainer/log/csv.c, or none has it")
            for key, value in expected.items():
                self.assertAlmostEqual(found[key], value, delta=1e-5 * abs(value))

    def event_files(self, name):
        return sorted(glob.glob(f"{self.folder}/{name}/events.out.tfevents.*.trainer"), key=os.path.getmtime)

    def events(self, name):
        """Returns scalars by (tag, step), without those that a resumed run has purged."""
        found = {}
        for path in self.event_files(name):
            for index, record in enumerate(records(path)):
                event = dict(fields(record))
                if index == 0:
                    self.assertEqual(event[3], b"brain.Event:2")
                if 7 in event:
                    self.assertEqual(dict(fields(event[7])), {1: 1})
                    found = {key: value for key, value in found.items() if key[1] < event[2]}
                for number, value in fields(event.get(5, b"")):
                    scalar = dict(fields(value))
                    found[scalar[1].decode(), event[2]] = scalar[2]
        return found

    def check_events(self, name):
        expected = {(f"{line['event']}/{key}", line["step"]): value for line in self.lines(name) for key, value in self.numbers(line).items()}
        found = self.events(name)
        self.assertEqual(found.keys(), expected.keys())
        for key, value in expected.items():
            self.assertAlmostEqual(found[key], value, delta=1e-5 * abs(value))

    def test_csv_has_every_number(self):
        self.assertGreater(len(self.lines("run")), 20)
        self.check_csv("run")

    def test_mlperf_has_the_run(self):
        with open(f"{self.folder}/run/mlperf.log") as file:
            lines = [line.split(" ", 1) for line in file]
        self.assertEqual({begin for begin, _ in lines}, {":::MLLOG"})
        events = [json.loads(line) for _, line in lines]
        keys = [event["key"] for event in events]
        epoch = ["epoch_start", "epoch_stop", "eval_start", "eval_accuracy", "eval_stop"]
        facts = ["run_start", "global_batch_size", "gradient_accumulation_steps", "train_samples", "seed"]
        self.assertEqual(keys, [*facts, *epoch, *epoch, "run_stop"])
        self.assertEqual([event["value"] for event in events[1:5]], [12, 1, 210, 0])
        self.assertEqual(events[-1]["metadata"], {"status": "success"})
        evals = [line for line in self.lines("run") if line["event"] == "eval"]
        told = [event for event in events if event["key"] == "eval_accuracy"]
        for event, line in zip(told, evals, strict=True):
            self.assertAlmostEqual(event["value"], line["top1"], delta=1e-5)
            self.assertEqual(event["metadata"]["epoch_num"], line["epoch"])
            self.assertAlmostEqual(event["time_ms"] / 1000, line["time"], delta=0.002)
        for kind in ("run", "epoch", "eval"):
            starts, stops = ([event["time_ms"] for event in events if event["key"] == f"{kind}_{end}"] for end in ("start", "stop"))
            self.assertTrue(all(a <= b for a, b in zip(starts, stops, strict=True)))

    def test_events_have_every_number(self):
        self.check_events("run")

    def test_a_resumed_run_goes_on_where_its_checkpoint_is(self):
        self.run_trainer("again")
        checkpoint = min(glob.glob(f"{self.folder}/again/checkpoint-*.safetensors"))
        with open(f"{self.folder}/again/metrics.csv", "a") as file:
            file.write("step,9")
        self.run_trainer("again", f"--resume={checkpoint}", "--overwrite")
        self.check_csv("again")
        self.assertEqual(len(self.event_files("again")), 2)
        self.check_events("again")
        # a run that starts from scratch removes them, but no other files
        other = f"{self.folder}/again/events.out.tfevents.1.other"
        open(other, "w").close()
        self.run_trainer("again", "--overwrite")
        self.assertEqual(len(self.event_files("again")), 1)
        self.assertTrue(os.path.exists(other))
        self.check_csv("again")
        self.check_events("again")

    def test_other_columns_are_refused(self):
        self.run_trainer("columns", "train.epochs=1")
        with open(f"{self.folder}/columns/metrics.csv", "w") as file:
            file.write("event,step,loss\nstep,1,2\n")
        said = self.run_trainer("columns", "--resume", "train.epochs=2", "--allow-changes", status=1)
        self.assertIn("metrics.csv: has other columns", said)
        with open(f"{self.folder}/columns/metrics.csv") as file:
            self.assertEqual(file.read(), "event,step,loss\nstep,1,2\n")

    def plot(self, *runs, status=0):
        command = [os.environ["TRAINER"], f"--plot={self.folder}/plot.svg", *(f"{self.folder}/{run}" for run in runs)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30)
        self.assertEqual(done.returncode, status, done.stdout)
        return done.stdout

    def test_losses_of_any_size_are_plotted(self):
        os.mkdir(f"{self.folder}/large")
        for losses in ([1e17, 1e17 + 64], [1e17, 1e17], [-3e38, 3e38], [0, 0], [0.001, 2], [1e308, -1e308, 2], [1e-300]):
            with open(f"{self.folder}/large/log.jsonl", "w") as file:
                for epoch, loss in enumerate(losses):
                    file.write(json.dumps({"event": "eval", "epoch": epoch, "loss": loss, "top1": loss}) + "\n")
            self.plot("large")
            with open(f"{self.folder}/plot.svg") as file:
                picture = file.read()
            self.assertNotRegex(picture, "nan|inf|>-0<")
            self.assertLess(picture.count("<line"), 100)

    def test_runs_are_plotted(self):
        os.symlink("run", f"{self.folder}/<&>")
        shutil.copytree(f"{self.folder}/run", f"{self.folder}/torn")
        with open(f"{self.folder}/torn/log.jsonl", "a") as file:
            file.write('{"event":"step","st')
        self.plot("<&>", "torn")
        tree = xml.etree.ElementTree.parse(f"{self.folder}/plot.svg")
        named = "{http://www.w3.org/2000/svg}"
        texts = [text.text for text in tree.getroot().iter(f"{named}text")]
        top1 = [line["top1"] for line in self.lines("run") if line["event"] == "eval"]
        self.assertIn(f"{self.folder}/<&>: top-1 {100 * top1[-1]:.2f} %", texts)
        self.assertIn("thin: training, mean since the previous line of the log; thick, with dots: evaluation", texts)
        for panel in tree.getroot().findall(f"{named}g"):
            curves = [curve.get("points").split() for curve in panel.iter(f"{named}polyline")]
            self.assertEqual([len(points) for points in curves], [17, 17, len(top1), len(top1)])
            heights = [float(point.split(",")[1]) for points in curves for point in points]
            self.assertTrue(32 <= min(heights) < 60 and 340 < max(heights) <= 372, heights)  # the curves fill the panel

    def test_names_of_any_bytes_are_plotted(self):
        for name in (b"\xff\xfe", "\uffff\x1b\u202e".encode(), "\u00fc".encode() * 120):
            os.symlink("run", os.fsencode(self.folder) + b"/" + name)
            self.plot(os.fsdecode(name))
            xml.etree.ElementTree.parse(f"{self.folder}/plot.svg")
        self.plot("./" * 150 + "/" * (481 - len(f"{self.folder}/./")) + "\u00fc" * 120)
        xml.etree.ElementTree.parse(f"{self.folder}/plot.svg")

    def test_no_run_has_a_plot_wait_or_take_all_memory(self):
        os.mkdir(f"{self.folder}/nobodys")
        os.mkfifo(f"{self.folder}/nobodys/log.jsonl")
        self.assertIn("log.jsonl: is not a regular file", self.plot("nobodys", status=1))
        os.mkdir(f"{self.folder}/endless")
        with open(f"{self.folder}/endless/log.jsonl", "w") as file:
            file.truncate(1 << 40)
        self.assertIn("log.jsonl:1: is not JSON: the line is longer than", self.plot("endless", status=1))

    def test_what_is_no_run_is_not_plotted(self):
        self.assertIn("expects folders of runs", self.plot("images", status=1))
        os.mkdir(f"{self.folder}/odd")
        with open(f"{self.folder}/odd/log.jsonl", "w") as file:
            file.write('{"event":"step"}\n{"event"\n')
        self.assertIn("log.jsonl:2: is not JSON", self.plot("odd", status=1))
        with open(f"{self.folder}/odd/log.jsonl", "w") as file:
            file.write('{"event":"start","step":0}\n[]\n')
        self.assertIn("contains no step and no evaluation yet", self.plot("odd", status=1))
        self.assertIn("missing the folder of a run", self.plot(status=1))

    def evaluate(self, name, *arguments):
        command = [os.environ["TRAINER"], f"{self.folder}/tiny.ini", "--evaluate", f"model.pretrained={self.folder}/run/model.safetensors"]
        done = subprocess.run([*command, f"--predictions={self.folder}/{name}", *arguments], stdout=subprocess.PIPE, text=True, check=True, timeout=60)
        with open(f"{self.folder}/{name}.csv", newline="") as file:
            images = list(csv.DictReader(file))
        with open(f"{self.folder}/{name}.json") as file:
            return json.loads(done.stdout), images, json.load(file)

    def check_predictions(self, said, images, report):
        self.assertEqual([int(image["sample"]) for image in images], list(range(said["val_samples"])))
        right = [image for image in images if image["label"] == image["predicted"]]
        self.assertAlmostEqual(len(right) / len(images), said["top1"], delta=1e-6)
        self.assertEqual([image["rank"] for image in right], ["1"] * len(right))
        self.assertAlmostEqual(sum(int(image["rank"]) <= 5 for image in images) / len(images), said["top5"], delta=1e-6)
        loss = -sum(math.log(float(image["label_probability"])) for image in images) / len(images)
        self.assertAlmostEqual(loss, said["val_loss"], delta=1e-5)
        for image in images:
            self.assertLessEqual(float(image["label_probability"]), float(image["probability"]))
            self.assertEqual(image["substituted"], "0")
        taken = collections.Counter((image["label"], image["predicted"]) for image in images)
        for number, one in enumerate(report["classes"]):
            self.assertEqual(one["class"], number)
            self.assertEqual(one["taken_for"], {guess: count for (label, guess), count in taken.items() if label == str(number)})
            self.assertEqual(one["samples"], sum(one["taken_for"].values()))
            self.assertEqual(one["predicted"], sum(count for (_, guess), count in taken.items() if guess == str(number)))
            self.assertEqual(one["correct"], one["taken_for"].get(str(number), 0))
            self.assertEqual(one["recall"], one["correct"] / one["samples"])
            self.assertEqual(one["precision"], one["correct"] / one["predicted"] if one["predicted"] else None)
        self.assertEqual([one["name"] for one in report["classes"]], sorted(os.listdir(f"{self.folder}/images/val")))

    def test_predictions_agree_with_the_evaluation(self):
        said, images, report = self.evaluate("predicted")
        self.check_predictions(said, images, report)
        last = [line for line in self.lines("run") if line["event"] == "eval"][-1]
        self.assertAlmostEqual(report["top1"], last["top1"], delta=1e-6)
        self.assertAlmostEqual(report["loss"], last["loss"], delta=1e-5)
        self.check_predictions(*self.evaluate("flipped", "train.eval_flip=yes", "train.eval_shift=1"))
        cells = [rect for rect in xml.etree.ElementTree.parse(f"{self.folder}/predicted.svg").getroot() if "rgb" in rect.get("fill", "")]
        self.assertEqual(len(cells), sum(len(one["taken_for"]) for one in report["classes"]))

    def test_onnx(self):
        said, images, _ = self.evaluate("exported", f"--onnx={self.folder}/exported.onnx")
        self.check_predictions(said, images, self.evaluate("again")[2])
        with open(f"{self.folder}/exported.onnx", "rb") as file:
            model = file.read()
        for text in (b"loaderd trainer", b"pipeline", b"resize(48)", b"classes", json.dumps(sorted(os.listdir(f"{self.folder}/images/val")), separators=(",", ":")).encode()):
            self.assertTrue(text in model, text)

    def expect_unwritable(self, *arguments):
        """Checks the error for files that cannot be written, which must come before the search whose result they would hold."""
        command = [os.environ["TRAINER"], f"{self.folder}/tiny.ini", f"model.pretrained={self.folder}/run/model.safetensors", *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(len(done.stdout.splitlines()), 1, done.stdout)
        return done.stdout

    def test_files_that_cannot_be_written_are_found_before_the_work(self):
        os.mkdir(f"{self.folder}/taken.svg")
        for option in ("--predictions", "--find-lr", "--find-batch-size"):
            what = ["--evaluate"] if option == "--predictions" else []
            self.assertIn(f"{option}: {self.folder}/none/x.csv cannot be written: No such file", self.expect_unwritable(f"{option}={self.folder}/none/x", *what))
            self.assertIn(f"{option}: {self.folder}/taken.svg cannot be written: Is a directory", self.expect_unwritable(f"{option}={self.folder}/taken", *what))
            self.assertIn(f"{option} is empty", self.expect_unwritable(f"{option}=", *what))
        self.assertIn(f"--onnx: {self.folder}/none/x cannot be written: No such file", self.expect_unwritable(f"--onnx={self.folder}/none/x", "--evaluate"))
        self.assertEqual(glob.glob(f"{self.folder}/taken.*"), [f"{self.folder}/taken.svg"])

    def test_predictions_are_written_through_nothing(self):
        kept = f"{self.folder}/kept"
        with open(kept, "w") as file:
            file.write("kept")
        os.symlink(kept, f"{self.folder}/through.csv")
        os.mkfifo(f"{self.folder}/through.json")
        self.check_predictions(*self.evaluate("through"))
        with open(kept) as file:
            self.assertEqual(file.read(), "kept")
        self.assertEqual(glob.glob(f"{self.folder}/through.*.tmp"), [])

    def test_logs_are_regular_files(self):
        for name in ("log.jsonl", "samples.jsonl", "metrics.csv", "mlperf.log"):
            for make, why in ((os.mkfifo, "is not a regular file: remove it"), (lambda path: os.symlink("x", path), "is a symbolic link")):
                shutil.rmtree(f"{self.folder}/odd-log", ignore_errors=True)
                os.mkdir(f"{self.folder}/odd-log")
                make(f"{self.folder}/odd-log/{name}")
                self.assertIn(f"odd-log/{name}: {why}", self.run_trainer("odd-log", "log.samples=yes", status=1))

    def test_waiting_for_data_is_said(self):
        slow = "data.pipeline=resize(1200) gaussian_blur(15) resize(24)"
        self.assertIn("of the time was spent waiting for data", self.run_trainer("slow", slow, "train.epochs=1"))
        self.assertNotIn("waiting for data", self.run_trainer("fast", "train.epochs=1"))

    def trace(self, name, device, *arguments):
        """A traced run with an evaluation and a checkpoint: returns its events by row, in nanoseconds, and its output."""
        path = f"{self.folder}/{name}.json"
        program = os.environ["TRAINER_EMULATED" if device == "cuda" else "TRAINER"]
        command = [program, f"{self.folder}/tiny.ini", "--output", f"{self.folder}/{name}", f"--device={device}", f"--trace={path}", "--trace-steps=16-19"]
        done = subprocess.run([*command, "train.epochs=1.5", "--profile", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stdout)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
        rows = {event["args"]["name"]: event["tid"] for event in events if event["name"] == "thread_name"}
        self.assertEqual({event["ph"] for event in events}, {"X", "M"})
        found = [[], []]
        for event in events:
            if event["ph"] == "X":
                begin, duration = round(event["ts"] * 1000), round(event["dur"] * 1000)
                self.assertAlmostEqual(begin, event["ts"] * 1000, delta=1e-3)
                found[event["tid"] != rows["loop"]].append((event["name"], begin, begin + duration, event.get("cat", ""), event.get("args")))
        self.assertEqual(len(rows), 2)
        self.assertEqual(min(event[1] for row in found for event in row), 0)
        return *found, done.stdout

    def parents(self, row):
        """Returns for each event of a row, in file order, the event that encloses it; each must lie fully inside one."""
        open_events, parents, last = [], [], 0
        for event in row:
            self.assertGreaterEqual(event[1], last, event)
            last = event[1]
            while open_events and open_events[-1][2] <= event[1] and open_events[-1][1:3] != event[1:3]:
                open_events.pop()
            if open_events:
                self.assertLessEqual(event[2], open_events[-1][2], (event, open_events[-1]))
            parents.append(open_events[-1] if open_events else None)
            open_events.append(event)
        return parents

    def check_trace(self, loop, device, said):
        steps = [event for event, parent in zip(loop, self.parents(loop)) if not parent and event[0] != "results"]
        self.assertEqual([event[0] for event in steps], ["step 16", "step 17", "evaluation", "checkpoint", "step 18", "step 19"])
        for event, parent in zip(loop, self.parents(loop)):
            if event[0] in ("feed", "compute"):
                self.assertRegex(parent[0], "^step ")
        self.assertEqual([sum(event[0] == name for event in loop) for name in ("feed", "compute")], [4, 4])
        self.assertGreaterEqual(sum(event[0] == "wait for data" for event in loop), 4)
        layers = re.findall(r"^(\S+) .*? [\d.]+ +([\d.]+) +[\d.]+  ", said.split("layer  ")[1], re.M)
        names = [name for name, _ in layers]
        self.assertEqual(len(names), len(set(names)))
        passes, within = [], collections.defaultdict(list)
        for event, parent in zip(device, self.parents(device)):
            if not parent:
                passes.append(event)
            else:
                self.assertEqual(event[3], parent[0])
                self.assertTrue(event[4]["kind"])
                within[parent].append(event[0])
        expected = ["forward", "backward", "update"]
        self.assertEqual([event[0] for event in passes], [*expected * 2, "evaluation", *expected * 2])
        backward = {name for name, spent in layers if float(spent) > 0}
        for event in passes:
            inside = list(dict.fromkeys(within[event]))
            if event[0] == "backward":
                self.assertEqual(inside, sorted(inside, key=names.index, reverse=True))
                self.assertTrue(backward <= set(inside) <= set(names), backward ^ set(inside))
            elif event[0] == "forward":
                self.assertEqual([name for name in inside if name in names], inside)
                self.assertEqual(set(inside), set(names))
            elif event[0] == "evaluation":
                self.assertTrue(set(inside) <= set(names) and len(inside) > len(names) / 2)
            holders = [one for one in loop if one[0] == ("evaluation" if event[0] == "evaluation" else "compute")]
            self.assertEqual(sum(one[1] <= event[1] and event[2] <= one[2] for one in holders), 1, event)

    def test_steps_are_traced(self):
        for device in ("cpu", "cuda"):
            with self.subTest(device=device):
                self.check_trace(*self.trace(f"traced-{device}", device))
        self.run_trainer("untraced", "--device=cpu", "train.epochs=1.5")
        losses = [[line["loss"] for line in self.lines(name)] for name in ("traced-cpu", "untraced")]
        self.assertEqual(*losses)

    def test_what_is_computed_anew_is_traced(self):
        _, device, _ = self.trace("anew", "cpu", "train.recompute=1")
        self.parents(device)
        both = [collections.Counter(event[0] for event in device if event[3] == one) for one in ("forward", "backward")]
        self.assertTrue(any(both[1][name] == 2 * count for name, count in both[0].items()))

    def test_traces_that_cannot_be_had_are_refused(self):
        path = f"{self.folder}/none.json"
        self.assertIn("but only 9 remain", self.run_trainer("none", f"--trace={path}", "train.epochs=0.5", status=1))
        self.assertIn("none/x cannot be written: No such file", self.run_trainer("none", f"--trace={self.folder}/none/x", status=1))
        for steps in ("0-4", "5", "7-6", "-1-4", "1-5x", "1-9000", "1--4"):
            self.assertIn("expected FIRST-LAST", self.run_trainer("none", f"--trace={path}", f"--trace-steps={steps}", status=1))
        self.assertIn("requires --trace", self.run_trainer("none", "--trace-steps=1-2", status=1))
        self.assertIn("--trace records training", self.run_trainer("none", f"--trace={path}", "--dry-run", status=1))
        self.assertFalse(os.path.exists(path))

    def test_nothing_is_written_unasked(self):
        self.run_trainer("plain", "log.csv=no", "log.tensorboard=no", "log.mlperf=no", "train.epochs=0.2")
        self.assertEqual([name for name in os.listdir(f"{self.folder}/plain") if "tfevents" in name or name in ("metrics.csv", "mlperf.log")], [])

    @unittest.skipUnless(EventAccumulator, "needs tensorboard")
    def test_tensorboard_reads_them(self):
        reader = EventAccumulator(f"{self.folder}/run")
        reader.Reload()
        found = {(tag, event.step): event.value for tag in reader.Tags()["scalars"] for event in reader.Scalars(tag)}
        self.assertEqual(found, self.events("run"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
