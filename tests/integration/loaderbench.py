"""loaderbench as a process: sweeps, figures, JSON, plot, hashes across restarts, and clear errors."""

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import xml.etree.ElementTree

PROGRAM = os.environ["LOADERBENCH"]


def loaderbench(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=600)


class Loaderbench(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.images = os.path.join(cls.folder.name, "images")
        subprocess.run([os.environ["SHAPES"], cls.images, "--count", "400"], check=True, stdout=subprocess.DEVNULL)
        cls.jpeg, cls.raw = (os.path.join(cls.folder.name, name) for name in ("jpeg.pimg", "raw.pimg"))
        for path, how in ((cls.jpeg, ["--jpeg", "verbatim"]), (cls.raw, ["--raw"])):
            subprocess.run(
                [os.environ["PACKIMG"], "convert", os.path.join(cls.images, "train"), "-o", path, "--quiet", *how],
                check=True,
                stdout=subprocess.DEVNULL,
            )

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_output_is_safe_for_terminals(self):
        evil = os.path.join(self.folder.name, "none\x1b[31m\u202e\n.pimg")
        for options in ([], ["--json", "-"], ["--hash", "1"], ["--explain"]):
            done = loaderbench("--seconds", "0.1", "--warmup", "0", *options, evil, "hflip")
            self.assertEqual(done.returncode, 1)
            for character in "\x1b\u202e":
                self.assertNotIn(character, done.stdout + done.stderr)
            self.assertIn("none", done.stdout + done.stderr)
        # in a column of a table too; programs get the name unescaped
        done = loaderbench("--seconds", "0.1", "--warmup", "0", evil, self.jpeg, "hflip")
        self.assertIn("none\\x1b[31m\\u202e\\x0a.pimg ", done.stdout)
        odd = os.path.join(self.folder.name, "none\udcff.pimg")
        done = loaderbench("--seconds", "0.1", "--warmup", "0", "--json", "-", odd, "hflip")
        self.assertEqual([row["dataset"] for row in json.loads(done.stdout)["rows"]], [{"hex": os.fsencode(odd).hex()}])

    def test_sweep(self):
        plot = os.path.join(self.folder.name, "plot.svg")
        done = loaderbench(
            "--seconds", "0.2", "--warmup", "0.05", "--rounds", "2", "--batch", "16,64", "--clients", "1,2", "--threads", "2",
            "--size", "32,48", "--memcpy", "--json", "-", "--plot", plot,
            self.jpeg, self.raw, "random_resized_crop({size}) hflip",
        )  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)["rows"]
        self.assertEqual(len(rows), 16)
        self.assertEqual({(row["dataset"], row["size"], row["batch"], row["clients"]) for row in rows},
                         {(d, s, b, c) for d in (self.jpeg, self.raw) for s in (32, 48) for b in (16, 64) for c in (1, 2)})
        for row in rows:
            with self.subTest(row=row):
                self.assertEqual(row["pipeline"], f"random_resized_crop({row['size']}) hflip")
                self.assertEqual(row["threads"], 2)
                self.assertGreater(row["images"], 0)
                self.assertEqual(row["images"], row["batches"] * row["batch"])
                self.assertGreater(row["images_per_s"], 0)
                self.assertAlmostEqual(row["bytes_per_s"] / row["images_per_s"] / (row["size"] ** 2 * 3), 1, places=3)
                self.assertLessEqual(row["images_per_s_min"], row["images_per_s"])
                self.assertGreaterEqual(row["images_per_s_max"], row["images_per_s"])
                self.assertGreater(row["cpu_us"], 0)
                self.assertGreater(row["resize_us"], 0)
                self.assertLessEqual(row["wait_p50_ms"], row["wait_p99_ms"])
                self.assertGreater(row["wait_p99_ms"], 0)
                self.assertTrue(0 <= row["queued"] < 10)  # a short window may miss time that is counted late
                self.assertTrue(0 < row["stall_client"] <= 1.001)
                self.assertTrue(0 <= row["stall_daemon"] <= 1.001)
                self.assertGreater(row["shared_mib"] * 2**20, row["batch"] * row["size"] ** 2 * 3)
                self.assertGreater(row["memcpy_bytes_per_s"], 1e7)
                self.assertEqual(row["bad"], 0)
        lines = xml.etree.ElementTree.parse(plot).findall(".//{http://www.w3.org/2000/svg}polyline")
        self.assertEqual(len(lines), 8)
        for line in lines:
            self.assertEqual(len(line.get("points").split()), 2)

    def test_mixtures_and_filters(self):
        options = ("--seconds", "0.2", "--warmup", "0", "--batch", "16", "--json", "-", "-p", "random_resized_crop(32)")
        row = json.loads(loaderbench("--mix", "3,1", *options, self.jpeg, self.raw).stdout)["rows"][0]
        self.assertEqual([part["dataset"] for part in row["parts"]], [self.jpeg, self.raw])
        for part, share in zip(row["parts"], (0.75, 0.25)):
            self.assertAlmostEqual(part["share"], share, delta=0.1)
        hashed = loaderbench("--hash", "4", "--mix", "3,1", "--threads", "1,2", "--reopen", "2", *options[4:6], *options[8:], self.jpeg, self.raw)
        self.assertIn("all agree", hashed.stdout)
        blocks = loaderbench("--hash", "4", "--mix", "3,1", "--blocks", "4,2", *options[4:6], *options[8:], self.jpeg, self.raw)
        self.assertEqual(blocks.returncode, 0, blocks.stderr)
        self.assertNotEqual(blocks.stdout.split()[0], hashed.stdout.split()[0])
        few = loaderbench("--hash", "9", "--where", "sample < 20", *options[4:6], *options[8:], self.jpeg)
        self.assertEqual(few.returncode, 0, few.stdout)
        blocks = loaderbench("--hash", "9", "--where", "sample < 20", "--blocks", "4,2", *options[4:6], *options[8:], self.jpeg)
        self.assertEqual(blocks.returncode, 0, blocks.stdout)
        self.assertNotEqual(blocks.stdout, few.stdout)
        buckets = ("--buckets", "32x32,48x24,24x48", "--batch", "16", "-p", "bucket_resize(crop=random) hflip", self.jpeg)
        hashed = loaderbench("--hash", "6", "--threads", "1,3", "--isa", "c,avx2", "--reopen", "2", "--kill", "4", *buckets)
        self.assertIn("all agree", hashed.stdout)
        other = loaderbench("--hash", "6", "--buckets", "24x24", *buckets[2:])
        self.assertNotEqual(hashed.stdout.split()[0], other.stdout.split()[0])
        row = json.loads(loaderbench(*options[:4], "--json", "-", *buckets).stdout)["rows"][0]
        self.assertGreater(row["images_per_s"], 0)
        for arguments, words in (
            (("--buckets", "32", self.jpeg), '--buckets: "32": expected width x height, as in 640x384'),
            (("--buckets", "32x", self.jpeg), '--buckets: "" must be a whole number from 1 to 65535'),
            (("--buckets", ",", self.jpeg), "--buckets: no shape"),
            (("--buckets", "32x32", self.jpeg), "bucket_resize"),
            (("--buckets", "32x32", "--mix", "1,1", self.jpeg, self.raw), "a mixture has no buckets"),
            (("--batch-tokens", "64", "--mix", "1,1", self.jpeg, self.raw), "buckets or packs"),
            (("--mix", "3", self.jpeg, self.raw), "--mix: 1 shares for 2 datasets"),
            (("--where", "sample < 0", self.jpeg), "holds for none of the samples"),
            (("--blocks", "3", self.jpeg), "is not two numbers"),
            (("--blocks", "3,2", "--stored-order", self.jpeg), "blocks are shuffled"),
            (("--mix", "1,1", "--wanted", self.jpeg, self.raw), "--wanted cannot be combined"),
        ):
            done = loaderbench(*options, *arguments)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stdout + done.stderr)

    def test_budgets_of_tokens(self):
        options = ("--batch", "16", "--batch-tokens", "64", "-p", "patch_resize(16, max_tokens=16) hflip normalize(imagenet) to(bf16)", self.jpeg)
        row = json.loads(loaderbench("--seconds", "0.2", "--warmup", "0", "--json", "-", *options).stdout)["rows"][0]
        self.assertTrue(0.5 < row["token_fill"] <= 1, row)
        self.assertIn("% of the tokens", loaderbench("--seconds", "0.1", "--warmup", "0", *options).stdout)
        hashed = loaderbench("--hash", "12", "--threads", "1,2", "--isa", "c,avx2", "--reopen", "2,5", "--kill", "7", *options)
        self.assertEqual(hashed.returncode, 0, hashed.stdout + hashed.stderr)
        self.assertIn("all agree", hashed.stdout)
        gaps = loaderbench("--hash", "9", "--threads", "1,2", *options[:2], *options[4:])
        self.assertIn("all agree", gaps.stdout)
        self.assertIn("--tokens-field requires", loaderbench("--tokens-field", "a", self.jpeg).stderr)

    def test_views_are_explained(self):
        views = "view a(2) { random_resized_crop(32) hflip } view b { random_resized_crop(16) }"
        row = json.loads(loaderbench("--seconds", "0.1", "--warmup", "0", "--batch", "16", "--explain", "--json", "-", "-p", views, self.jpeg).stdout)["rows"][0]
        self.assertEqual([view["view"] for view in row["explanation"]["views"]], ["a(2)", "b"])
        self.assertTrue(all(view["cpu_us"] > 0 for view in row["explanation"]["views"]))

    def test_slow_client_is_seen(self):
        def client_stalls(*how):
            done = loaderbench("--seconds", "0.3", "--batch", "64", "--json", "-", *how, self.raw, "")
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)["rows"][0]

        # A client takes longer to copy 786 KB than the daemon to pass a batch by reference. Other processes may delay
        # one measurement, but not all of them.
        self.assertTrue(any(client_stalls("--consume", "none")["stall_client"] > client_stalls("--consume", "copy")["stall_client"] for _ in range(8)))

    def test_hash(self):
        plain = loaderbench("--hash", "9", "--batch", "32", "--threads", "2", self.jpeg, "random_resized_crop(32) hflip")
        self.assertEqual(plain.returncode, 0, plain.stderr + plain.stdout)
        value = plain.stdout.split()[0]
        self.assertRegex(value, "^[0-9a-f]{32}$")
        again = loaderbench(
            "--hash", "9", "--batch", "32", "--threads", "1,3", "--isa", "c,avx2", "--reopen", "1,5", "--kill", "3,8",
            self.jpeg, "random_resized_crop(32) hflip",
        )  # fmt: skip
        self.assertEqual(again.returncode, 0, again.stderr + again.stdout)
        self.assertEqual([line.split()[0] for line in again.stdout.splitlines()[:4]], [value] * 4)
        other = loaderbench("--hash", "9", "--batch", "32", "--seed", "2", self.jpeg, "random_resized_crop(32) hflip")
        self.assertNotEqual(other.stdout.split()[0], value)

    def test_hash_of_values(self):
        options = ["--hash", "6", "--batch", "32", "--values", "key", self.jpeg, "random_resized_crop(32) hflip"]
        one = loaderbench("--threads", "1,2", *options)
        again = loaderbench("--threads", "2", "--isa", "c", "--reopen", "2", "--kill", "4", *options)
        self.assertEqual((one.returncode, again.returncode), (0, 0), one.stderr + one.stdout + again.stderr)
        plain = loaderbench("--hash", "6", "--batch", "32", self.jpeg, "random_resized_crop(32) hflip")
        hashes = {line.split()[0] for line in one.stdout.splitlines()[:2] + again.stdout.splitlines()[:1]}
        self.assertEqual(len(hashes), 1, one.stdout + again.stdout)
        self.assertNotIn(plain.stdout.split()[0], hashes)
        wrong = loaderbench("--hash", "1", "--batch", "32", "--values", "kez", self.jpeg, "hflip")
        self.assertNotEqual(wrong.returncode, 0)
        self.assertIn('no value "kez": it has image', wrong.stdout + wrong.stderr)

    def start_long_run(self, *more):
        """Runs long enough to be killed three times on a busy machine; one thread of the daemon leaves the CPUs to others."""
        bench = subprocess.Popen(
            [PROGRAM, "--seconds", "8", "--warmup", "0", "--batch", "16", "--clients", "2", "--json", "-", *more, self.jpeg,
             "random_resized_crop(32)"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.addCleanup(bench.kill)
        until = time.monotonic() + 60
        while sum("memfd:loaderd-ring" in maps for maps in self.maps_of_children(bench)) < 2:  # until both feeds are open
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        return bench

    @staticmethod
    def children(bench):
        with open(f"/proc/{bench.pid}/task/{bench.pid}/children") as children:
            return [int(pid) for pid in children.read().split()]

    def maps_of_children(self, bench):
        for pid in self.children(bench):
            with open(f"/proc/{pid}/comm") as name, open(f"/proc/{pid}/maps") as maps:
                yield maps.read() if name.read().startswith("loaderbench") else ""

    def private_daemon(self, bench):
        for pid in self.children(bench):
            with open(f"/proc/{pid}/comm") as name:
                if name.read().startswith("loaderd"):
                    return pid
        self.fail("no private daemon")

    def kill_three_times(self, start, kill):
        """Kills the daemon three times, each time after both clients have reported a reconnect. The first kill may
        come before the measurement.
        """
        for _ in range(20):  # a feed whose ring exists may not be open yet, and then does not reconnect
            bench = start()
            kill(bench)
            lines = [bench.stderr.readline(), bench.stderr.readline()]
            if all(lines):
                break
            output, _ = bench.communicate(timeout=120)
            self.assertRegex(output, self.GONE)
        for _ in range(2):
            kill(bench)
            lines += [bench.stderr.readline() for _ in range(2)]
        for line in lines:
            self.assertRegex(line, "^loaderbench: client [01]: The daemon on .* went away; the feed goes on at epoch ")
        output, complaints = bench.communicate(timeout=120)
        self.assertEqual(bench.returncode, 0, complaints)
        row = json.loads(output)["rows"][0]
        self.assertGreaterEqual(row["reconnects"], 1)
        self.assertEqual(row["bad"], 0)
        self.assertGreater(row["images_per_s"], 0)

    GONE = "went away|closed the connection|ended before it answered|No daemon listens"  # the message depends on which part notices first

    def test_private_daemons_die(self):
        self.kill_three_times(lambda: self.start_long_run("--threads", "1"), lambda bench: os.kill(self.private_daemon(bench), signal.SIGKILL))
        bench = self.start_long_run("--threads", "1", "--no-reconnect")
        os.kill(self.private_daemon(bench), signal.SIGKILL)
        output, _ = bench.communicate(timeout=120)
        self.assertEqual(bench.returncode, 1)
        self.assertRegex(output, self.GONE)

    def test_a_service_dies(self):
        path = os.path.join(self.folder.name, "socket")
        services = []

        def serve():
            services.append(subprocess.Popen([os.environ["LOADERD"], "--config", "/dev/null", "--threads", "1", "--socket", path]))
            self.addCleanup(services[-1].wait)
            self.addCleanup(services[-1].kill)
            for _ in range(3000):
                with socket.socket(socket.AF_UNIX) as probe:
                    if probe.connect_ex(path) == 0:
                        return
                time.sleep(0.01)

        def kill(_):
            services[-1].kill()
            services[-1].wait()
            serve()

        serve()
        self.kill_three_times(lambda: self.start_long_run("--socket", path), kill)

    def test_hash_without_index(self):
        path = os.path.join(self.folder.name, "no-index.pimg")
        subprocess.run(
            [os.environ["PACKIMG"], "convert", os.path.join(self.images, "train"), "-o", path, "--quiet", "--no-index"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        for pipeline in ("random_resized_crop(32) hflip", "resize(40, chroma=fast) center_crop(32)"):
            with self.subTest(pipeline=pipeline):
                done = loaderbench(
                    "--hash", "7", "--batch", "64", "--threads", "1,2", "--isa", "c,avx2,avx512", self.jpeg, path, pipeline
                )
                self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
                self.assertEqual(len({line.split()[0] for line in done.stdout.splitlines()[:12]}), 1, done.stdout)

    def test_refusals(self):
        for status, words, arguments in (
            (2, "a dataset is required", []),
            (2, "{size}", ["--size", "32", self.jpeg, "resize(32)"]),
            (2, "{size}", [self.jpeg, "random_resized_crop({size})"]),
            (2, "--batch", ["--batch", "0", self.jpeg]),
            (2, "--threads", ["--threads", "1,,2", self.jpeg]),
            (2, "private daemons", ["--threads", "2", "--socket", "/nowhere", self.jpeg]),
            (2, "--hash", ["--kill", "2", self.jpeg]),
            (1, "nowhere", ["--seconds", "0.1", self.folder.name + "/nowhere.pimg"]),
            # reported before any measurement; the pipeline is checked first
            (2, "nonsense", [self.jpeg, "nonsense(3)"]),
            (2, "nonsense", ["--batch", "401", self.jpeg, "nonsense(3)"]),
            (2, "at byte 7", ["--size", "32,0007,4097", "--hash", "3", self.jpeg, "resize({size})"]),
            (2, "raw.pimg: 330 samples are fewer than a batch of 331; name a smaller batch, such as --batch 64",
             ["--batch", "331,1000", self.raw, self.jpeg, "random_resized_crop(32)"]),
            (2, "--batch 64", ["--batch", "331", "--socket", "/nowhere", self.jpeg, "of_a_newer_daemon()"]),
        ):
            with self.subTest(arguments=arguments):
                done = loaderbench(*arguments)
                self.assertEqual(done.returncode, status, done.stdout + done.stderr)
                self.assertIn(words, done.stderr)
                self.assertEqual(done.stdout, "")  # not even the heading of an empty table

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be another user")
    def test_memory_that_is_not_told(self):
        os.chmod(self.folder.name, 0o755)
        programs = [shutil.copy(program, self.folder.name) for program in (PROGRAM, os.environ["LOADERD"])]
        for arguments in ([], ["--json", "-"]):
            done = subprocess.run(
                [programs[0], "--daemon", programs[1], "--seconds", "0.1", "--warmup", "0", "--batch", "16", *arguments, self.jpeg],
                capture_output=True, text=True, timeout=600, user=54331, group=54331, extra_groups=[],
            )  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            if arguments:
                row = json.loads(done.stdout)["rows"][0]
                self.assertNotIn("private_mib", row)
                self.assertNotIn("pss_mib", row)
                self.assertGreater(row["shared_mib"], 0)
            else:
                self.assertIn("private memory: -, because", done.stdout)
                self.assertRegex(done.stdout, r"% +- +\d+\n")

    def test_one_batch_too_large(self):
        """The error of one batch size is reported at once; the other batch sizes are still measured."""
        for options in (["--json", "-"], ["--hash", "2"]):
            done = loaderbench("--seconds", "0.1", "--warmup", "0", "--batch", "331,64", *options, self.jpeg, "resize(32x32)")
            self.assertEqual(done.returncode, 1)
            self.assertIn("330 samples are fewer than a batch of 331", done.stderr)
            if options[0] == "--json":
                large, small = json.loads(done.stdout)["rows"]
                self.assertIn("fewer than a batch of 331", large["error"])
                self.assertGreater(small["images_per_s"], 0)
            else:
                self.assertRegex(done.stdout, r"fewer than a batch of 331.*\n[0-9a-f]{32}  batch 64")

    def test_unknown_instruction_set(self):
        done = subprocess.run([PROGRAM, self.jpeg], capture_output=True, text=True, env={**os.environ, "LOADERD_ISA": "avx3"})
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn('LOADERD_ISA = "avx3" in the environment: expected c, avx2, avx512bw or avx512', done.stderr)


if __name__ == "__main__":
    unittest.main()
