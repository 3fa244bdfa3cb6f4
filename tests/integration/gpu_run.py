"""tests/gpu/run without a GPU: its budgets, report and verdicts, and the whole command with the CPU as the device."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

TREE = pathlib.Path(os.environ["TREE"])
RUN = TREE / "tests/gpu/run"
PATIENCE = 80  # seconds: shorter than the sleeps that must be interrupted, longer than any other step on a busy machine
sys.dont_write_bytecode = True
sys.path[:0] = [str(TREE / "tests/gpu"), str(TREE / "bench/peers")]

import ahead  # noqa: E402
import budget  # noqa: E402
import checks  # noqa: E402
import loaders  # noqa: E402
import gpu  # noqa: E402
import networks  # noqa: E402
import report  # noqa: E402
import setup  # noqa: E402


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_gone(pid):
    """A process that was just killed may not be reaped yet."""
    end = time.monotonic() + PATIENCE
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not is_alive(pid)


class Folder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)


class Budgets(Folder):
    def test_done(self):
        done = budget.run(["sh", "-c", "echo out; echo first >&2; echo last >&2; exit 3"], budget.Budget(30), self.folder)
        self.assertEqual((done.status, done.output, done.last_output()), (3, "out\n", "last"))
        self.assertIn("exit status 1", budget.run(["false"], budget.Budget(30), self.folder).last_output())
        self.assertEqual(budget.run(["sh", "-c", "echo so far; kill -ABRT $$"], budget.Budget(30), self.folder).last_output(), "so far (ended by SIGABRT)")

    def test_late_shows_its_output(self):
        """The output of a killed command is known even if it goes to a pipe, for which stdio buffers by block."""
        command = ["sh", "-c", "(echo on the way; sleep 600) | grep way"]
        with self.assertRaisesRegex(budget.BudgetSpent, "^sh was killed after [0-9]+ s; it had said: on the way$"):
            budget.run(command, budget.Budget(5), self.folder, os.environ | checks.by_lines())

    def test_late_is_killed_with_its_children(self):
        pids = self.folder / "pids"
        pids.touch()
        for seconds in (0.5, 5, 50):  # the last one for a machine that is too busy to start the command in time
            begin = time.monotonic()
            with self.assertRaisesRegex(budget.BudgetSpent, "sh was killed after"):
                budget.run(["sh", "-c", f"sleep 600 & echo $! $$ > {pids}; trap '' TERM INT; wait"], budget.Budget(seconds), self.folder)
            self.assertLess(time.monotonic() - begin, seconds + PATIENCE)
            if pids.read_text():
                break
        for pid in pids.read_text().split():
            self.assertTrue(wait_gone(pid), pid)

    def test_failures_are_logged(self):
        log = self.folder / "failures.log"
        budget.run(["sh", "-c", "exit 77"], budget.Budget(30), self.folder, log=log)
        self.assertFalse(log.exists())
        budget.run(["sh", "-c", "seq 100; echo what >&2; exit 3"], budget.Budget(30), self.folder, log=log)
        with self.assertRaises(budget.BudgetSpent):
            budget.run(["sleep", "100"], budget.Budget(0.5), self.folder, log=log)
        lines = log.read_text().splitlines()
        self.assertRegex(lines[0], "^==== sh -c seq .*: exit status 3$")
        self.assertEqual((lines[1], lines[budget.LOG_LINES], lines[budget.LOG_LINES + 1]), (str(101 - budget.LOG_LINES), "100", "what"))
        self.assertEqual(lines[-2], "==== sleep 100: killed, its time was spent")


GOALS = [("speed", "rate", "at least", 8000, ""), ("wait", "share", "at most", 1, "%"), ("other", "none", "at least", 1, "x")]


class Reports(Folder):
    def read(self):
        return json.loads((self.folder / "report.json").read_text()), (self.folder / "report.md").read_text()

    def test_written_after_every_finding(self):
        found = report.Report(self.folder, {"gpu": "none"}, GOALS)
        part = found.part("first", "First part", 10)
        self.assertEqual(self.read()[0]["parts"][0]["verdict"], "running")
        part.test("good", "passed")
        part.test("bad", "failed", 1.5, "a | b\nc")
        findings, text = self.read()
        self.assertEqual([test["name"] for test in findings["parts"][0]["tests"]], ["good", "bad"])
        self.assertIn("**Not complete**", text)
        self.assertIn("1 failed, 1 passed.", text)
        self.assertIn("| FAILED | bad | 1.5 | a \\| b c |", text)
        part.table("Rates", ["net", "images/s"], [["a", 12345.6], ["b", None]], ["A note."])
        part.table("Rates", ["net", "images/s"], [["a", 0.51234]], ["Another."])
        text = self.read()[1]
        self.assertIn("| net | images/s |\n| --- | ---: |\n| a | 0.5123 |\n\nAnother.", text)
        self.assertNotIn("A note.", text)
        self.assertEqual(os.listdir(self.folder).count("report.json"), 1)
        self.assertFalse(list(self.folder.glob("*.part")))

    def test_verdicts(self):
        found = report.Report(self.folder, {}, [])
        for verdicts, stopped, expected in (
            ([], None, "passed"), (["passed"], None, "passed"), (["passed", "failed"], "late", "failed"), (["passed"], "late", "late"),
            (["skipped"], None, "skipped"), (["passed", "skipped"], None, "passed"), ([], "skipped", "skipped"), (["passed"], "failed", "failed"),
            (["late", "passed"], None, "late"),
        ):  # fmt: skip
            part = found.part("name", "Title", 1)
            for verdict in verdicts:
                part.test("test", verdict)
            part.end(stopped, "why" if stopped else "")
            self.assertEqual(part.findings["verdict"], expected, (verdicts, stopped))
        self.assertIn("| Title | late | ", self.read()[1])
        part = found.part("name", "Title", 1)
        part.test("peer", "skipped")
        part.table("Rates", ["images/s"], [[1.0]])
        part.end()
        self.assertEqual(part.findings["verdict"], "passed")

    def test_goals(self):
        found = report.Report(self.folder, {}, GOALS)
        part = found.part("name", "Title", 1)
        part.figure("rate", 8000.0)
        part.figure("share", 1.5)
        part.end()
        verdicts = {goal["goal"]: goal["verdict"] for goal in self.read()[0]["goals"]}
        self.assertEqual(verdicts, {"speed": "met", "wait": "missed", "other": "not measured", "every test green": "not measured"})
        found.complete = True
        found.write()
        findings, text = self.read()
        self.assertEqual(findings["goals"][-1]["verdict"], "met")
        self.assertIn("| wait | at most 1 % | 1.5 | **missed** |", text)
        self.assertNotIn("Not complete", text)
        part.test("bad", "late")
        self.assertEqual(self.read()[0]["goals"][-1]["verdict"], "missed")


class Judgements(unittest.TestCase):
    def test_tap(self):
        text = "1..3\nok 1 - test_a\nnot ok 2 - test_b\n# a.c:3: error\n# second\nnot ok 3 # SKIP test_c\n# ok - tests\n"
        self.assertEqual(checks.tap(text), [["test_a", "passed", ""], ["test_b", "failed", "a.c:3: error second"], ["test_c", "skipped", ""]])

    def test_sanitizer(self):
        def verdict_of(status, output):
            return checks.judge_sanitizer(budget.Finished(["tool"], status, output, "", 1.0))

        self.assertEqual(verdict_of(0, "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"), ("passed", 1.0, "ERROR SUMMARY: 0 errors"))
        verdict, _, words = verdict_of(99, "========= COMPUTE-SANITIZER\n========= Invalid __global__ read\n=========   at k\n========= ERROR SUMMARY: 1 error\n")
        self.assertEqual((verdict, words), ("failed", "ERROR SUMMARY: 1 error; exit status 99; first: Invalid __global__ read"))
        self.assertEqual(verdict_of(0, "========= Error: Device not supported\n")[0], "skipped")
        self.assertEqual(verdict_of(-11, "========= COMPUTE-SANITIZER\n")[0], "failed")

    def losses(self, *values):
        return {step: {"loss": value} for step, value in enumerate(values, 1)}

    def test_losses(self):
        reference = self.losses(2.0, 1.0)
        self.assertEqual(checks.judge_losses(reference, self.losses(2.0001, 1.05), 2, (1e-4, 0.1))[0], "passed")
        for found, words in (
            (self.losses(2.001, 1.0), "the first step"), (self.losses(2.0, 1.2), "of a step"), (self.losses(2.0), "1 steps on the device"),
            (self.losses(2.0, float("nan")), "of a step"), (self.losses(float("nan"), 1.0), "the first step"),
        ):  # fmt: skip
            verdict, _, detail = checks.judge_losses(reference, found, 2, (1e-4, 0.1))
            self.assertEqual(verdict, "failed")
            self.assertIn(words, detail)


# Other tests on the machine must not make a part late.
PATIENT = ("--part-seconds", "250", "--seconds", "560")

PEER = """import json, sys, time
time.sleep(float(sys.argv[1]))
print(json.dumps({"ready": True, "settings": "made up"}), flush=True)
for line in sys.stdin:
    time.sleep(min(1, float(line.split()[2])))
    print(json.dumps({"images_per_s": float(sys.argv[2]), "data_wait": 0.25, "steps": 18}), flush=True)
    if len(sys.argv) > 3 and float(line.split()[2]):
        sys.exit(sys.argv[3])
"""


class Programs(Folder):
    """networks.py and ahead.py with programs that are still compiling."""

    def peer(self, *words):
        program = loaders.Program([sys.executable, "-c", PEER, *map(str, words)], ahead.cpus(), 30)
        self.addCleanup(program.close)
        return program

    def setup_like(self, **more):
        return setup.Setup(self.folder, self.folder, dict(os.environ), {"memory GiB": 0}, fake_gpu="cpu", **more)

    def ready(self, *words):
        program = self.peer(*words)
        program.wait_started()
        program.pause()
        return program

    def test_one_fails(self):
        running = {"loaderd": self.ready(0, 100), "other": self.ready(0, 1, "out of luck")}
        rounds, lost = networks.measure_in_turn(self.setup_like(), running, budget.Budget(60))
        self.assertEqual((len(rounds["loaderd"]), len(rounds["other"]), lost), (2, 1, {"other": "out of luck"}))
        self.assertEqual(networks.ratios(rounds, "loaderd"), {})

    def run_measure(self, found, background):
        """Runs measure() with fake programs: ours with a speed of 100, PyTorch's with those of `background`."""
        made = self.setup_like(background=background, torch="made up")
        made.build, self.speeds = self.folder, []
        properties = dict.fromkeys(("flops", "peak_flops", "bytes_forward", "bytes_backward", "roofline_seconds"), 0) | {"batch": 4}
        ours = f"import sys, time\nsys.argv = ['', 0, 100]\n{PEER}".replace('"made up"', f'"made up", **{properties}')
        made.bench_command = lambda *_: [sys.executable, "-c", ours]
        part = found.part("networks", "Networks", 60)
        return made, part, networks.Comparison(made, part, budget.Budget(60), (("resnet18", 32, 4), "fp32"))

    def test_comparison(self):
        """Measures compiled programs and leaves the others compiling; measures eager mode separately."""
        key = ("resnet18", 32, 4), "fp32"
        background = {(*key, "quick"): self.peer(0, 50), (*key, "slow"): self.peer(100, 50)}
        found = report.Report(self.folder, {}, [])
        made, part, comparison = self.run_measure(found, background)
        eager = ahead.resnet_program
        ahead.resnet_program = lambda *_, **__: self.peer(0, 25)
        self.assertTrue(background[(*key, "quick")].has_output(60))
        try:
            comparison.run(0)
        finally:
            ahead.resnet_program = eager
        self.assertEqual([each[2] for each in made.background], ["slow"])
        self.assertEqual(comparison.against, {"PyTorch, quick": 2.0, "PyTorch, eager": 4.0})
        self.assertEqual([row[3] for row in comparison.table_rows("loaderd")], ["loaderd", "PyTorch, quick", "PyTorch, eager"])
        self.assertEqual(comparison.speeds, [100.0] * 4)
        self.assertEqual(part.findings["tests"], [])

    def test_ours_fails(self):
        made, part, comparison = self.run_measure(report.Report(self.folder, {}, []), {})
        made.bench_command = lambda *_: ["sh", "-c", "echo no plan >&2; exit 2"]
        made.torch = None
        comparison.run(0)
        self.assertEqual([(test["verdict"], test["detail"]) for test in part.findings["tests"]], [("failed", "no plan")])
        self.assertEqual(comparison.table_rows("loaderd"), [])


class Tuning(Folder):
    """ahead.Tuning with sleeping commands."""

    def tuning(self, *seconds):
        made = setup.Setup(self.folder, self.folder, dict(os.environ), {})
        made.bench_command = lambda network, *_: ["sh", "-c", f"sleep {network}; while [ -e {self.folder}/wait ]; do sleep 0.05; done; echo '{{}}'"]
        tuning = ahead.Tuning(made, [(each, "fp16") for each in seconds], budget.Budget(100))
        self.addCleanup(tuning.close)
        return tuning

    def test_in_order(self):
        tuning = self.tuning(0.1, 0.2)
        self.assertRegex(tuning.wait((0.2, "fp16"), 30), "^tuned in [0-9]+ s$")
        self.assertRegex(tuning.wait((0.1, "fp16"), 0), "^tuned in [0-9]+ s$")

    def test_what_takes_too_long(self):
        tuning = self.tuning(100, 100.5, 0.1)
        begin = time.monotonic()
        self.assertEqual(tuning.wait((100.5, "fp16"), 0), "not tuned: the heuristics' plans")
        self.assertRegex(tuning.wait((100, "fp16"), 0.5), "^tuned in part")
        self.assertRegex(tuning.wait((0.1, "fp16"), 60), "^tuned in [0-9]+ s$")
        self.assertLess(time.monotonic() - begin, 95)


class Runs(Folder):
    def run_command(self, *words, timeout=570, **variables):
        environment = {name: value for name, value in os.environ.items() if name != "DEVICE_TEST_BACKEND"} | variables
        command = [sys.executable, RUN, self.folder / "out", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment)

    def findings(self):
        return json.loads((self.folder / "out/report.json").read_text())


class Command(Runs):
    def test_without_a_gpu(self):
        try:
            gpu.describe()
            self.skipTest("there is a GPU")
        except gpu.NoGpu:
            pass
        done = self.run_command("--build", os.environ["BUILD"])
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertIn("skipped: ", done.stderr)

    def test_mistakes(self):
        for words, said in ((["--parts", "smoke,what"], "no part is called what"), (["--build", "/nowhere"], "/nowhere is not there")):
            done = self.run_command(*words)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)

    def test_fake_gpu(self):
        done = self.run_command("--fake-gpu", "cpu", "--build", os.environ["BUILD"], *PATIENT,
                           "--parts", "smoke,losses,replay,ranks,networks,cifar,variants,sanitizer")  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        findings = self.findings()
        self.assertTrue(findings["complete"])
        verdicts = {part["name"]: part["verdict"] for part in findings["parts"]}
        for name in ("smoke", "losses", "replay", "ranks", "networks", "variants"):
            self.assertEqual(verdicts[name], "passed", findings)
        self.assertEqual((verdicts["cifar"], verdicts["sanitizer"]), ("skipped", "skipped"))
        rows = {table["title"]: table["rows"] for part in findings["parts"] for table in part["tables"]}
        training = next(table for title, table in rows.items() if title.startswith("Training"))
        self.assertGreater(training[0][4], 0)
        self.assertTrue(any("layers" in title for title in rows), list(rows))

    def test_taken_apart(self):
        """Counts patterns without a plan for every variant, and lists them for the first one."""
        done = self.run_command("--fake-gpu", "cuda-emulated", "--build", os.environ["BUILD"], *PATIENT, "--parts", "variants",
                           LOADERD_EMULATED_PLANS="plain")  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        part = self.findings()["parts"][1]
        apart = {row[0]: row[-1] for row in part["tables"][0]["rows"][:4]}
        self.assertEqual(apart["heuristics' plans, fusion none"], 0)
        self.assertGreater(apart["heuristics' plans, fusion c"], 0)
        self.assertEqual(len([note for note in part["notes"] if ": no plan for " in note]), apart["as measured above"])

    def test_late_part_does_not_stop_the_others(self):
        build = self.folder / "build"
        for path in ("bench", "tests/unit/trainer"):
            (build / path).mkdir(parents=True)
        slow, quick = build / "bench/device_bench", build / "tests/unit/trainer/test_device_ops"
        slow.write_text("#!/bin/sh\nsleep 600\n")
        quick.write_text("#!/bin/sh\necho 'ok 1 - test_quick'\n")
        for name in ("ops", "net", "update"):
            (build / f"tests/unit/trainer/test_device_{name}").write_text(quick.read_text())
        for program in (slow, *(build / "tests/unit/trainer").iterdir()):
            program.chmod(0o755)
        begin = time.monotonic()
        done = self.run_command("--fake-gpu", "cpu", "--build", build, "--parts", "smoke,operations,losses", "--part-seconds", "10")
        self.assertLess(time.monotonic() - begin, 10 + PATIENCE)
        self.assertEqual(done.returncode, 1, done.stderr)
        parts = {part["name"]: part for part in self.findings()["parts"]}
        self.assertEqual(parts["smoke"]["verdict"], "late")
        self.assertIn("device_bench was killed after", parts["smoke"]["tests"][0]["detail"])
        self.assertEqual(parts["operations"]["verdict"], "passed")
        self.assertEqual(parts["losses"]["verdict"], "failed")
        self.assertIn("tools/shapes/shapes is not there", parts["losses"]["reason"])

    def test_ended_early(self):
        build = self.folder / "build"
        (build / "bench").mkdir(parents=True)
        (build / "bench/device_bench").write_text(f"#!/bin/sh\necho $$ > {self.folder}/pid\nexec sleep 600\n")
        (build / "bench/device_bench").chmod(0o755)
        command = [sys.executable, RUN, self.folder / "out", "--fake-gpu", "cpu", "--build", build, "--parts", "smoke"]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        pid, end = self.folder / "pid", time.monotonic() + PATIENCE
        while not (pid.exists() and pid.read_text()) and time.monotonic() < end:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(PATIENCE), 1)
        self.assertTrue(wait_gone(int(pid.read_text())))
        findings = self.findings()
        self.assertFalse(findings["complete"])
        self.assertEqual([part["verdict"] for part in findings["parts"]], ["passed", "running"])


class Variants(Runs):
    def test_emulated_gpu(self):
        """The whole trainer, with its feed, on a device with asynchronous execution and separate memory like a GPU's."""
        images = self.folder / "data/imagenet.pimg"
        images.parent.mkdir()
        for command in (["tools/shapes/shapes", self.folder / "drawn", "--count", "60"],
                        ["tools/packimg/packimg", "convert", self.folder / "drawn/train", "-o", images, "--quiet"]):  # fmt: skip
            subprocess.run([pathlib.Path(os.environ["BUILD"]) / command[0], *command[1:]], check=True, stdout=subprocess.DEVNULL)
        done = self.run_command("--fake-gpu", "cuda-emulated", "--build", os.environ["BUILD"], "--data", images.parent, *PATIENT,
                           "--parts", "smoke,kernels,losses,replay,networks,feeding,variants,loader")  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        self.check_emulated()
        done = self.run_command("--fake-gpu", "cuda-emulated", "--build", os.environ["BUILD"], "--data", images.parent, *PATIENT, "--models")
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        parts = {part["name"]: part for part in self.findings()["parts"]}
        self.assertEqual(parts["networks"]["tables"][0]["rows"][0][0], "resnet18 model.blur=all")
        self.assertIn(parts["decoding"]["verdict"], ("passed", "skipped"))

    def check_emulated(self):
        findings = self.findings()
        parts = {part["name"]: part for part in findings["parts"]}
        self.assertEqual(len(parts["smoke"]["tests"]), 9)
        self.assertEqual([test["name"] for test in parts["losses"]["tests"]][6:], ["resnet50, fp16, tuned plans"])
        self.assertEqual(len(parts["replay"]["tests"]), 3)
        self.assertGreater(findings["figures"]["data_wait_percent"], 0)
        rows = parts["kernels"]["tables"][0]["rows"]
        # "pool_max" belongs to pooling, "layer_norm_backward" to layer_norm
        families = {family.removesuffix("ing").split("_")[0] for family in setup.KERNELS}
        self.assertEqual({row[0].split("_")[0] for row in rows}, families)
        self.assertTrue(all(row[5] > 0 for row in rows), rows)
        self.assertTrue(any("fp16: plans " in note for note in parts["networks"]["notes"]), parts["networks"]["notes"])
        self.assertGreater(findings["figures"]["loader_images_per_s"], 0)
        self.assertEqual([row[-1] for row in parts["variants"]["tables"][0]["rows"]], [0] * 8)


if __name__ == "__main__":
    if "Variants" not in sys.argv:
        del Variants
    unittest.main()
