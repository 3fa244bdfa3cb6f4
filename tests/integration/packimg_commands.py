"""packimg as a user runs it: every source, every command, damage, interrupts. Needs Python's standard library only."""

import csv
import filecmp
import io
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import zipfile
import zlib

PACKIMG = os.environ["PACKIMG"]
IMAGES = os.environ["PACKIMG_IMAGES"]  # the program that draws them
FORGE = os.environ["PACKIMG_FORGE"]  # one that changes a byte of a sample's side data and mends the checksums
PARTS = os.environ.get("PACKIMG_PARTS", "png webp").split()


class PackimgTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory(prefix="packimg-test-")
        cls.images = pathlib.Path(cls.shared.name)
        subprocess.run([IMAGES, str(cls.images)], check=True)
        cls.tree = cls.images / "tree"

    @classmethod
    def tearDownClass(cls):
        cls.shared.cleanup()

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="packimg-test-")
        self.dir = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def packimg(self, *args, rc=0, **options):
        """Runs packimg, checks its exit status, returns its standard output."""
        done = subprocess.run([PACKIMG, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              cwd=self.dir, **options)
        self.stderr = done.stderr.decode()
        if done.returncode != rc:
            self.fail(f"packimg {' '.join(map(str, args))}: exit status {done.returncode}, not {rc}:\n"
                      f"{done.stdout.decode()}{self.stderr}")
        return done.stdout.decode()

    def convert(self, *args, rc=0, **options):
        return json.loads(self.packimg("convert", "-q", "--json", *args, rc=rc, **options))

    def list(self, path):
        return [json.loads(line) for line in self.packimg("list", "--json", path).splitlines()]

    def same_images(self, extracted, source):
        """Every file of source is in extracted with the same bytes, and no other."""
        names = sorted(p.relative_to(source) for p in source.rglob("*") if p.is_file())
        found = sorted(p.relative_to(extracted) for p in extracted.rglob("*") if p.is_file())
        self.assertEqual(names, found)
        for name in names:
            self.assertTrue(filecmp.cmp(source / name, extracted / name, shallow=False), name)

    def nothing_left(self):
        self.assertEqual([p.name for p in self.dir.iterdir()], [])

    # What comes out

    def test_jobs_never_show(self):
        for options in ([], ["--no-index"], ["--jpeg", "quality=80", "--short-side", "32"], ["--raw"],
                        ["--raw-zstd=5"], ["--mix", "0.5"], ["--shuffle", "3"],
                        ["--check", "--shard-size", "64K"]):
            results = []
            for jobs in (1, 4):
                folder = self.dir / f"jobs{jobs}"
                folder.mkdir()
                self.convert(self.tree, "-o", folder / "out.pimg", "-j", jobs, *options)
                results.append({p.name: p.read_bytes() for p in folder.iterdir()})
                shutil.rmtree(folder)
            self.assertEqual(results[0].keys(), results[1].keys(), options)
            self.assertTrue(results[0] == results[1], options)

    def test_verbatim_comes_back(self):
        summary = self.convert(self.tree, "-o", "out.pimg")
        self.assertEqual(summary["samples"], 36)
        self.assertEqual(summary["verbatim"], 36)
        self.assertEqual(summary["indexed"], 36)
        self.assertEqual(summary["classes"], 3)
        self.packimg("verify", "-q", "out.pimg")
        self.packimg("extract", "-q", "out.pimg", "-o", "back")
        self.same_images(self.dir / "back", self.tree)
        samples = self.list("out.pimg")
        self.assertEqual([s["class"] for s in samples], ["ant"] * 12 + ["bee"] * 12 + ["cat"] * 12)
        self.assertEqual([s["label"] for s in samples], [0] * 12 + [1] * 12 + [2] * 12)
        self.assertEqual([s["source"] for s in samples], sorted(s["source"] for s in samples))

    def test_sizes(self):
        whole = self.list(self.converted(self.tree))
        for option, limit, of in (("--short-side", 40, min), ("--max-side", 40, max)):
            for codec in (["--jpeg", "quality=70"], ["--raw"], ["--jpeg", "verbatim"]):
                small = self.list(self.converted(self.tree, option, limit, *codec))
                for before, after in zip(whole, small):
                    side = of(before["width"], before["height"])
                    self.assertEqual(of(after["width"], after["height"]), min(side, limit))
                    scale = min(side, limit) / side
                    self.assertLessEqual(abs(after["width"] - before["width"] * scale), 0.51)
                    self.assertLessEqual(abs(after["height"] - before["height"] * scale), 0.51)
                    if codec[-1] == "verbatim" and side <= limit:
                        self.assertEqual(before["bytes"], after["bytes"])

    def converted(self, *args):
        self.count = getattr(self, "count", 0) + 1
        path = self.dir / f"out{self.count}.pimg"
        self.convert(*args, "-o", path)
        return path

    def test_codecs(self):
        raw = self.list(self.converted(self.tree, "--raw"))
        self.assertEqual({s["codec"] for s in raw}, {"raw"})
        for s in raw:
            self.assertEqual(s["bytes"], s["width"] * s["height"] * s["channels"])
        self.assertEqual(sum(s["channels"] == 1 for s in raw), 3)
        packed = self.list(self.converted(self.tree, "--raw-zstd"))
        self.assertIn("raw+zstd", {s["codec"] for s in packed})
        self.assertTrue(all(p["bytes"] <= r["bytes"] for p, r in zip(packed, raw)))
        mixed = self.list(self.converted(self.tree, "--mix", "0.5"))
        self.assertTrue(5 < sum(s["codec"] == "raw" for s in mixed) < 31)
        for path in self.dir.glob("*.pimg"):
            self.packimg("verify", "-q", path)

    def test_pixels_survive(self):
        """Raw and raw+zstd hold the same pixels; PNG files extracted from them convert to the same again."""
        self.converted(self.tree, "--raw")
        self.converted(self.tree, "--raw-zstd")
        if "png" not in PARTS:
            self.skipTest("built without PNG")
        for n in (1, 2):
            self.packimg("extract", "-q", f"out{n}.pimg", "-o", f"png{n}")
        self.same_images(self.dir / "png1", self.dir / "png2")
        again = self.list(self.converted(self.dir / "png1", "--raw"))
        self.assertEqual([s["bytes"] for s in again], [s["bytes"] for s in self.list("out1.pimg")])
        self.packimg("extract", "-q", "out3.pimg", "-o", "png3")
        self.same_images(self.dir / "png1", self.dir / "png3")

    def test_every_kind(self):
        for options in ([], ["--raw"], ["--jpeg", "quality=90"], ["--non-jpeg", "zstd"]):
            path = self.converted(self.images / "kinds", *options)
            samples = {s["source"]: s for s in self.list(path)}
            self.packimg("verify", "-q", path)
            upright, turned = samples["one/upright.jpg"], samples["one/turned.jpg"]
            self.assertEqual((upright["width"], upright["height"]), (40, 20))
            self.assertEqual((turned["width"], turned["height"]), (20, 40))
            self.assertEqual(turned["orientation"], 1 if options[:1] in (["--raw"], ["--jpeg"]) else 6)
            self.assertIn("two/cmyk.jpg", samples)
            if options == ["--raw"]:
                self.assertEqual(samples["two/cmyk.jpg"]["channels"], 3)
                self.assertEqual(samples["one/grey.jpg"]["channels"], 1)
            if "png" in PARTS:
                for name in ("rgb", "alpha", "deep", "grey", "palette"):
                    sample = samples[f"two/{name}.png"]
                    self.assertEqual((sample["width"], sample["height"]), (30, 50))
                    wanted = {"--raw": {"raw"}, "--non-jpeg": {"raw+zstd", "raw"}}
                    self.assertIn(sample["codec"], wanted.get(options[0] if options else "", {"jpeg"}))

    def test_statistics(self):
        exact = self.convert(self.tree, "--raw", "-o", "raw.pimg")["datasets"][0]
        self.assertEqual(exact["statistics_images"], 36)
        sampled = self.convert(self.tree, "--statistics", 9, "-o", "some.pimg")["datasets"][0]
        self.assertEqual(sampled["statistics_images"], 9)
        for key in ("mean", "std"):
            for a, b in zip(exact[key], sampled[key]):
                self.assertLess(abs(a - b), 12)
        none = self.convert(self.tree, "--statistics", 0, "-o", "none.pimg")["datasets"][0]
        self.assertNotIn("mean", none)
        info = json.loads(self.packimg("info", "--json", "raw.pimg"))
        self.assertEqual(info["metadata"]["statistics.images"], "36")
        self.assertEqual([round(x, 6) for x in info["mean"]], [round(x, 6) for x in exact["mean"]])

    def markers(self, data):
        """Markers of a JPEG up to its first scan."""
        found, at = [], 2
        while not found or found[-1] != 0xda:
            found.append(data[at + 1])
            at += 2 + int.from_bytes(data[at + 2:at + 4], "big")
        return found

    def test_what_has_no_index(self):
        kinds = self.images / "kinds"
        summary = self.convert(kinds, "-o", "kept.pimg")
        self.assertEqual(summary["unindexed"], {"progressive": 1, "restart_intervals": 1, "cmyk": 1})
        self.assertEqual(summary["indexed"] + 3, summary["codecs"]["jpeg"])
        text = self.packimg("convert", "-q", kinds, "-o", "text.pimg")
        self.assertIn("1 progressive: convert with --progressive transcode", text)
        self.assertIn("1 in CMYK: convert with --jpeg quality", text)
        self.packimg("extract", "-q", "kept.pimg", "-o", "kept")
        self.packimg("convert", "-q", kinds, "-o", "no.pimg", "--progressive", "squeeze", rc=2)
        self.assertIn("keep, transcode", self.stderr)
        for jobs in (1, 3):
            summary = self.convert(kinds, "-o", f"{jobs}.pimg", "--progressive", "transcode", "--check", "-j", jobs)
            self.assertEqual(summary["unindexed"], {"cmyk": 1})
            self.assertEqual(summary["transcoded"], 2)
        self.assertEqual((self.dir / "1.pimg").read_bytes(), (self.dir / "3.pimg").read_bytes())
        self.packimg("verify", "-q", "1.pimg")
        self.packimg("extract", "-q", "1.pimg", "-o", "made")
        changed = sorted(p.name for p in (self.dir / "kept").rglob("*.jp*g")
                   if p.read_bytes() != (self.dir / "made" / p.relative_to(self.dir / "kept")).read_bytes())
        self.assertEqual(changed, ["progressive.jpg", "restart-within.jpg"])
        self.assertIn(0xc2, self.markers(next((self.dir / "kept").rglob("progressive.jpg")).read_bytes()))
        self.assertIn(0xc0, self.markers(next((self.dir / "made").rglob("progressive.jpg")).read_bytes()))
        # The same pixels: raw copies of both are equal.
        self.convert("kept", "--raw", "--class-from", "none", "-o", "a.pimg")
        self.convert("made", "--raw", "--class-from", "none", "-o", "b.pimg")
        pixels = [[p["bytes"] for p in self.list(name)] for name in ("a.pimg", "b.pimg")]
        self.assertEqual(*pixels)
        statistics = [json.loads(self.packimg("info", "--json", name))["mean"] for name in ("a.pimg", "b.pimg")]
        self.assertEqual(*statistics)

    def facts_of(self, path):
        info = json.loads(self.packimg("info", "--json", path))
        listed = [{key: s[key] for key in s if key != "side_bytes"} for s in self.list(path)]
        return info["uuid"], info["metadata"], info.get("mean"), info["classes"], listed

    def test_index(self):
        self.convert(self.tree, "--no-index", "-o", "one.pimg")
        self.convert(self.tree, "--no-index", "-o", "set.pimg", "--shard-size", "64K")
        self.assertGreater(len(list(self.dir.glob("set-*"))), 1)
        for name in ("one.pimg", "set.pimg"):
            before, files = self.facts_of(name), sorted(p.name for p in self.dir.iterdir())
            report = json.loads(self.packimg("index", "-q", "--json", name))
            self.assertEqual((report["jpegs"], report["indexed"], report["made"]), (36, 36, 36))
            self.assertEqual(report["unindexed"], {})
            self.assertEqual(self.facts_of(name), before)
            self.assertEqual(sorted(p.name for p in self.dir.iterdir()), files)
            self.packimg("verify", "-q", name)
            self.assertEqual(json.loads(self.packimg("info", "--json", name))["bytes"], report["bytes"])
            once = {p.name: p.read_bytes() for p in self.dir.iterdir()}
            self.packimg("index", "-q", name, rc=2)
            self.assertIn("indexed already: 36 of 36", self.stderr)
            self.assertIn("--rebuild", self.stderr)
            self.packimg("index", "-q", "--rebuild", "-j", 1, name)
            self.assertTrue(once == {p.name: p.read_bytes() for p in self.dir.iterdir()})
        # What has one keeps it, what can have none is named.
        self.convert(self.images / "kinds", "-o", "kinds.pimg")
        self.packimg("index", "-q", "kinds.pimg", rc=2)
        self.assertIn("and the others can have none", self.stderr)
        self.convert(self.tree, "--no-index", "-o", "plain.pimg")
        self.packimg("split", "-q", "one.pimg", "--into", "a=0.5")
        self.packimg("merge", "-q", "one-a.pimg", "plain.pimg", "-o", "some.pimg")
        report = json.loads(self.packimg("index", "-q", "--json", "some.pimg"))
        self.assertEqual((report["indexed"], report["made"]), (54, 36))
        self.packimg("verify", "-q", "some.pimg")
        self.convert(self.images / "kinds", "--no-index", "-o", "bare.pimg")
        report = json.loads(self.packimg("index", "-q", "--json", "bare.pimg"))
        self.assertEqual(report["unindexed"], {"progressive": 1, "restart_intervals": 1, "cmyk": 1})
        self.assertEqual(report["made"] + 3, report["jpegs"])
        self.convert(self.tree, "--raw", "-o", "raw.pimg")
        self.packimg("index", "-q", "raw.pimg", rc=2)
        self.assertIn("no JPEGs", self.stderr)
        self.packimg("index", "-q", "nowhere.pimg", rc=2)

    def test_index_of_damage(self):
        self.convert(self.tree, "--no-index", "-o", "out.pimg")
        self.damage("out.pimg", 5)
        report = json.loads(self.packimg("index", "-q", "--json", "out.pimg", rc=1))
        self.assertEqual((report["made"], report["damaged"], report["unindexed"]), (35, 1, {"damaged": 1}))
        self.assertIn("sample 5 (ant/05.jpg)", self.stderr)
        report = json.loads(self.packimg("verify", "-q", "--json", "out.pimg", rc=1))
        self.assertEqual([s["index"] for s in report["bad_samples"]], [5])

    def test_index_interrupted(self):
        """Killed at any moment, the file is the old one or the new one, and a later run tidies up."""
        self.convert(*[self.tree] * 12, "--no-index", "-o", "out.pimg")
        before = (self.dir / "out.pimg").read_bytes()
        shutil.copy(self.dir / "out.pimg", self.dir / "again.pimg")
        self.packimg("index", "-q", "again.pimg")
        after = (self.dir / "again.pimg").read_bytes()
        (self.dir / "again.pimg").unlink()
        for delay in (0.002, 0.005, 0.01, 0.02, 0.03, 0.05):
            for way in (signal.SIGTERM, signal.SIGKILL):
                (self.dir / "out.pimg").write_bytes(before)
                there = set(self.dir.iterdir())  # also what the one before was killed over
                process = subprocess.Popen([PACKIMG, "index", "-q", "out.pimg"], cwd=self.dir,
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(delay)
                process.send_signal(way)
                process.wait()
                self.assertIn((self.dir / "out.pimg").read_bytes(), (before, after))
                if way == signal.SIGTERM:
                    self.assertLessEqual(set(self.dir.iterdir()), there)
        (self.dir / "out.pimg").write_bytes(before)
        self.packimg("index", "-q", "out.pimg")
        self.assertEqual([p.name for p in self.dir.iterdir()], ["out.pimg"])

    def test_wrong_index_is_found(self):
        """verify names the sample, the field and both values even where the checksums were made to fit."""
        self.convert(self.tree, "-o", "out.pimg")
        # behind the heads of the item and the index
        self.forge("out.pimg", 20, "side", 8 + 12 + 2, 4)
        report = json.loads(self.packimg("verify", "-q", "--json", "out.pimg", rc=1))
        self.assertEqual([s["index"] for s in report["bad_samples"]], [20])
        self.assertRegex(report["bad_samples"][0]["reason"],
                         r"JPEG index: row \d+, column \d+: (place|predictor of component \d) is -?\d+, "
                         r"the scan's -?\d+; packimg index --rebuild out.pimg")
        self.packimg("verify", "-q", "--checksums", "out.pimg")
        self.packimg("index", "-q", "--rebuild", "out.pimg")
        self.packimg("verify", "-q", "out.pimg")

    def forge(self, name, sample, part, at, value):
        """Sets a byte of a sample's side data, and mends the checksums."""
        subprocess.run([FORGE, str(self.dir / name), str(sample), part, str(at), str(value)], check=True)

    def advise(self, *args, rc=0):
        return json.loads(self.packimg("advise", "-q", "--json", "--seconds", 0.01, *args, rc=rc))

    def test_advise(self):
        whole = self.advise(self.tree)
        self.assertEqual((whole["images"], whole["sample"], whole["left_out"]), (36, 36, 0))
        ways = {way["way"]: way for way in whole["ways"]}
        # No image here is larger than 256.
        self.assertEqual(list(ways), ["originals", "originals, no index", "quality 95", "quality 90", "quality 85",
                                      "raw+zstd", "raw"])
        self.assertTrue(all(way["images"] == 36 and way["images_per_s_core"] > 0 for way in ways.values()))
        mean = sum(p.stat().st_size for p in self.tree.rglob("*.jpg")) / 36
        self.assertAlmostEqual(ways["originals, no index"]["bytes_per_image"], mean)
        self.assertAlmostEqual(ways["originals"]["bytes_per_image"] - ways["originals"]["index_bytes_per_image"], mean)
        pixels = [s["bytes"] for s in self.list(self.converted(self.tree, "--raw"))]
        self.assertAlmostEqual(ways["raw"]["bytes_per_image"], sum(pixels) / 36)
        self.assertEqual(whole["choice"], "originals")
        none = self.advise(self.tree, "--rate", 1e11, "--cores", 1)
        self.assertIsNone(none["choice"])
        self.assertIn("It would take", none["advice"])
        # The same images whatever the threads, and wherever they come from.
        sizes = lambda found: [(way["way"], way["bytes_per_image"]) for way in found["ways"]]
        some = self.advise(self.tree, "-n", 7, "-j", 1)
        self.assertEqual(some["sample"], 7)
        self.assertEqual(sizes(some), sizes(self.advise(self.tree, "-n", 7, "-j", 3)))
        self.convert(self.tree, "-o", "out.pimg")
        self.assertEqual(sizes(some), sizes(self.advise("out.pimg", "-n", 7)))
        for name, mode in (("a.tar", "w"), ("a.tar.gz", "w:gz")):
            with tarfile.open(self.dir / name, mode) as tar:
                for path in sorted(self.tree.rglob("*.jpg")):
                    tar.add(path, str(path.relative_to(self.tree)))
            self.assertEqual(sizes(some), sizes(self.advise(name, "-n", 7)))

    def test_advise_kinds(self):
        kinds = self.advise(self.images / "kinds", "--pipeline", "resize(16x16) normalize(dataset) to(f16)")
        self.assertEqual(kinds["unindexed"], {"progressive": 1, "restart_intervals": 1, "cmyk": 1})
        text = self.packimg("advise", "-q", "--seconds", 0.01, self.images / "kinds", "--csv", "ways.csv")
        self.assertIn("1 progressive: convert with --progressive transcode", text)
        with open(self.dir / "ways.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["way"] for row in rows], [way["way"] for way in kinds["ways"]])
        self.assertEqual([float(row["bytes_per_image"]) for row in rows],
                         [round(way["bytes_per_image"], 1) for way in kinds["ways"]])
        for row in rows:
            self.assertAlmostEqual(float(row["images_per_s"]),
                                   float(row["images_per_s_core"]) * float(row["cores"]), delta=1)
        bad = self.advise(self.images / "bad")
        self.assertEqual([way["images"] for way in bad["ways"]][:1], [1])
        self.assertEqual((bad["images"], bad["left_out"]), (8, 5))
        self.convert(self.tree, "--raw", "-o", "raw.pimg")
        raw = {way["way"]: way for way in self.advise("raw.pimg")["ways"]}
        self.assertEqual(list(raw)[0], "as stored")
        self.assertEqual(raw["as stored"]["bytes_per_image"], raw["raw"]["bytes_per_image"])
        for args in (["nowhere"], [self.tree, "--pipeline", "hflip"], [self.tree, "--pipeline", "nonsense(3)"],
                     [self.tree, "--rate", "-5"], [self.tree, "-n", "0"], [self.tree, "--csv", "nowhere/x.csv"], []):
            self.packimg("advise", "-q", "--seconds", 0.01, *args, rc=2)
            self.assertNotEqual(self.stderr, "")

    # Where it comes from

    def facts(self, path):
        return [(s["source"].split("/")[-1], s["class"], s["width"], s["height"]) for s in self.list(path)]

    def test_archives(self):
        wanted = self.facts(self.converted(self.tree))
        shuffled = self.facts(self.converted(self.tree, "--shuffle", 9))
        self.assertNotEqual(wanted, shuffled)
        self.assertEqual(sorted(wanted), sorted(shuffled))
        files = sorted(p for p in self.tree.rglob("*") if p.is_file())
        for suffix, mode in ((".tar", "w"), (".tar.gz", "w:gz"), (".tar.xz", "w:xz")):
            with tarfile.open(self.dir / ("a" + suffix), mode) as tar:
                for p in files:
                    tar.add(p, "data/" + str(p.relative_to(self.tree)))
        for suffix, method in ((".zip", zipfile.ZIP_STORED), ("-deflated.zip", zipfile.ZIP_DEFLATED)):
            with zipfile.ZipFile(self.dir / ("a" + suffix), "w", method) as archive:
                for p in files:
                    archive.write(p, "data/" + str(p.relative_to(self.tree)))
        archives = [p for p in self.dir.iterdir() if p.name.startswith("a")]
        if shutil.which("zstd"):
            subprocess.run(["zstd", "-q", "a.tar"], cwd=self.dir, check=True)
            archives.append(self.dir / "a.tar.zst")
        for archive in archives:
            plain, random_order = self.converted(archive), self.converted(archive, "--shuffle", 9, "-j", 3)
            self.assertEqual(self.facts(plain), wanted, archive.name)
            self.assertEqual(self.facts(random_order), shuffled, archive.name)
            self.packimg("verify", "-q", random_order)
            shutil.rmtree(self.dir / "back", ignore_errors=True)
            self.packimg("extract", "-q", random_order, "-o", "back")
            self.same_images(self.dir / "back", self.tree)
        for name in ("a.tar", "a.tar.gz"):
            with open(self.dir / name, "rb") as file:
                self.convert("-", "-o", "stdin.pimg", "--force", stdin=file)
            self.assertEqual(self.facts("stdin.pimg"), wanted)

    def bytes_written(self, *args, pipe=None):
        """Runs packimg, with a pipe of a file's bytes if any, and returns how many bytes it wrote anywhere."""
        feeder = subprocess.Popen(["cat", pipe], cwd=self.dir, stdout=subprocess.PIPE) if pipe else None
        process = subprocess.Popen([PACKIMG, *map(str, args)], cwd=self.dir, stdout=subprocess.DEVNULL,
                                   stdin=feeder.stdout if feeder else subprocess.DEVNULL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        counters = dict(line.split(": ") for line in pathlib.Path(f"/proc/{process.pid}/io").read_text().splitlines())
        self.assertEqual(process.wait(), 0)
        if feeder:
            feeder.stdout.close()
            self.assertEqual(feeder.wait(), 0)
        return int(counters["wchar"])

    def test_archives_in_place_and_from_pipes(self):
        """What lies in a file uncompressed is read there, in any order, and what is compressed in its own; of a pipe, nothing is there to be read again."""
        files = sorted(p for p in self.tree.rglob("*") if p.is_file())
        for name, mode in (("a.tar", "w"), ("a.tar.gz", "w:gz")):
            with tarfile.open(self.dir / name, mode) as tar:
                for p in files:
                    tar.add(p, "data/" + str(p.relative_to(self.tree)))
        with zipfile.ZipFile(self.dir / "a.zip", "w", zipfile.ZIP_STORED) as archive:
            for p in files:
                archive.write(p, "data/" + str(p.relative_to(self.tree)))
        stored = sum(p.stat().st_size for p in files)
        for options in ((), ("--shuffle", 9)):
            wanted = self.converted(self.tree, *options)
            alone = wanted.stat().st_size
            for name in ("a.tar", "a.zip") if options else ("a.tar", "a.zip", "a.tar.gz"):
                with self.subTest(name=name, options=options):
                    written = self.bytes_written("convert", "-q", name, "-o", "in-place.pimg", "--force", *options)
                    self.assertEqual(self.facts("in-place.pimg"), self.facts(wanted))
                    self.assertLess(written, alone + stored // 2)
            for name in ("a.tar", "a.tar.gz"):
                with self.subTest(pipe=name, options=options):
                    written = self.bytes_written("convert", "-q", "-", "-o", "pipe.pimg", "--force", *options, pipe=name)
                    self.assertEqual(self.facts("pipe.pimg"), self.facts(wanted))
                    self.packimg("verify", "-q", "pipe.pimg")
                    if options:  # the measure is one
                        self.assertGreater(written, alone + stored // 2)

    def test_damaged_archives(self):
        with tarfile.open(self.dir / "a.tar.gz", "w:gz") as tar:
            tar.add(self.tree, "tree")
        with tarfile.open(self.dir / "a.tar", "w") as tar:
            tar.add(self.tree, "tree")
        for name in ("a.tar", "a.tar.gz"):
            data = (self.dir / name).read_bytes()
            (self.dir / name).write_bytes(data[:len(data) // 2 + 77])
            for options in ([], ["--shuffle", "1"]):
                self.packimg("convert", "-q", name, "-o", "out.pimg", *options, rc=2)
                self.assertIn(name, self.stderr)
        (self.dir / "junk.tar").write_bytes(random.Random(1).randbytes(5000))
        self.packimg("convert", "-q", "junk.tar", "-o", "out.pimg", rc=2)
        self.assertEqual([p.name for p in self.dir.glob("*.pimg")], [])

    def shard(self, name, samples):
        with tarfile.open(self.dir / name, "w") as tar:
            for key, members in samples:
                for extension, data in members.items():
                    entry = tarfile.TarInfo(f"{key}.{extension}")
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))

    def peak(self, *args, rc=0):
        """Runs packimg, checks its exit status and returns the memory that it took at most, in MiB."""
        process = subprocess.Popen([PACKIMG, *map(str, args)], cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.said = process.stdout.read().decode()
        process.stdout.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, rc, self.said)
        return usage.ru_maxrss >> 10

    def test_archives_that_expand(self):
        """What unpacks to too much is left out and named, before it takes the memory."""
        image = next((self.tree / "ant").iterdir()).read_bytes()

        def write_zeros(file, mebibytes):
            for _ in range(mebibytes):
                file.write(bytes(1 << 20))

        with zipfile.ZipFile(self.dir / "one.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            with archive.open("a/bomb.jpg", "w") as member:
                member.write(image)
                write_zeros(member, 600)
            archive.writestr("a/good.jpg", image)
        for options in ([], ["--shuffle", "1"]):
            self.assertLess(self.peak("convert", "one.zip", "-o", "one.pimg", "--force", *options, rc=1), 450)
            self.assertIn("a/bomb.jpg: unpacks to more than it may (256.0 MiB, --max-file)", self.said)
            self.assertEqual([s["source"] for s in self.list("one.pimg")], ["a/good.jpg"])
        self.packimg("convert", "-q", "one.zip", "-o", "no.pimg", "--on-error", "fail", rc=2)
        self.assertIn("a/bomb.jpg: unpacks to more", self.stderr)

        # Each member is small enough, all of them together are not.
        with zipfile.ZipFile(self.dir / "many.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for i in range(6):
                with archive.open(f"a/{i}.jpg", "w") as member:
                    member.write(image)
                    write_zeros(member, 100)
        self.peak("convert", "many.zip", "-o", "many.pimg", rc=1)
        self.assertRegex(self.said, r"a/\d.jpg( and \d more)?: the archive unpacks to more than 100 times its size, which --max-expansion allows")
        kept = [s["source"] for s in self.list("many.pimg")]
        self.assertEqual(kept, [f"a/{i}.jpg" for i in range(len(kept))])
        self.assertIn(len(kept), range(2, 5))

        # Nor is a member cheap that nobody wants, and what was listed before it is kept.
        with tarfile.open(self.dir / "skipped.tar.gz", "w:gz") as archive:
            for name, content in (("a/good.jpg", io.BytesIO(image)), ("a/zeros", open("/dev/zero", "rb")),
                                  ("a/late.jpg", io.BytesIO(image))):
                member = tarfile.TarInfo(name)
                member.size = 500 << 20 if name == "a/zeros" else len(image)
                with content:
                    archive.addfile(member, content)
        self.assertEqual(self.convert("skipped.tar.gz", "-o", "skipped.pimg", rc=1)["samples"], 1)
        self.packimg("convert", "-q", "skipped.tar.gz", "-o", "no.pimg", "--on-error", "fail", rc=2)
        self.assertIn("skipped.tar.gz: the archive unpacks to more", self.stderr)
        self.assertEqual(self.convert("skipped.tar.gz", "-o", "all.pimg", "--max-expansion", 10000)["samples"], 2)

        # Whose header promises more than there is takes no memory for it.
        member = tarfile.TarInfo("a/lie.jpg")
        member.size = 250 << 20
        (self.dir / "lie.tar").write_bytes(member.tobuf() + image)
        self.assertLess(self.peak("convert", "-q", "lie.tar", "-o", "no.pimg", "--shuffle", "1", rc=2), 200)

    def test_large_images(self):
        """An image's size is looked at before there is memory for its pixels."""
        folder = self.dir / "tree" / "a"
        folder.mkdir(parents=True)
        shutil.copy(next((self.tree / "ant").iterdir()), folder / "good.jpg")
        if "png" in PARTS:
            png = bytearray(next((self.images / "kinds").rglob("*.png")).read_bytes())
            png[16:24] = (65535).to_bytes(4, "big") * 2
            png[29:33] = zlib.crc32(png[12:29]).to_bytes(4, "big")
            (folder / "huge.png").write_bytes(png)
        jpeg = bytearray((folder / "good.jpg").read_bytes())
        at = jpeg.index(b"\xff\xc0")
        jpeg[at + 5:at + 9] = (65500).to_bytes(2, "big") * 2
        (folder / "huge.jpg").write_bytes(jpeg)
        self.assertLess(self.peak("convert", "tree", "-o", "out.pimg", "--raw", rc=1), 200)
        self.assertIn("huge.jpg: 65500x65500 pixels are more", self.said)
        if "png" in PARTS:
            self.assertIn("huge.png: 65535x65535 pixels are more", self.said)
        self.packimg("convert", "-q", self.tree, "-o", "small.pimg", "--max-pixels", 100, rc=2)
        self.assertIn("pixels are more than --max-pixels allows (100)", self.stderr)
        self.packimg("convert", "-q", self.tree, "-o", "small.pimg", "--max-file", 100, rc=2)
        self.assertIn("larger than an image's file may be (100 B, --max-file)", self.stderr)

    def flat_jpeg(self, width, height):
        """A grey JPEG of one colour: two bits for each block, both codes being 0."""
        def segment(marker, content):
            return bytes((0xFF, marker)) + (len(content) + 2).to_bytes(2, "big") + content

        code = bytes([1] + [0] * 15 + [0])  # one code of one bit, for the value 0
        blocks = ((width + 7) // 8) * ((height + 7) // 8)
        return (b"\xff\xd8" + segment(0xDB, bytes([0] + [16] * 64)) +
                segment(0xC0, b"\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big") + b"\x01\x01\x11\0") +
                segment(0xC4, b"\0" + code) + segment(0xC4, b"\x10" + code) + segment(0xDA, b"\x01\x01\0\0\x3f\0") +
                bytes(blocks // 4) + bytes([0xFF >> blocks % 4 * 2]) + b"\xff\xd9")

    def test_very_large(self):
        """More than 2^28 pixels are no reason to refuse an image; the memory that they take is."""
        folder = self.dir / "large"
        folder.mkdir()
        (folder / "a.jpg").write_bytes(self.flat_jpeg(65496, 4104))
        self.packimg("convert", folder, "-o", "out.pimg", rc=2)
        self.assertIn("65496x4104 pixels are more than --max-pixels allows (134217728)", self.stderr)
        allowed = ["--max-pixels", 2**32 - 131071, "--statistics", 0]
        self.assertLess(self.peak("convert", folder, "-o", "out.pimg", *allowed), 300)
        self.assertEqual([(s["width"], s["height"]) for s in self.list("out.pimg")], [(65496, 4104)])
        self.assertLess(self.peak("convert", folder, "-o", "small.pimg", *allowed, "--max-side", 1000), 300)
        self.assertEqual([(s["width"], s["height"]) for s in self.list("small.pimg")], [(1000, 63)])
        (folder / "a.jpg").unlink()
        (folder / "b.ppm").write_bytes(b"P6 65535 65535 255\n")
        (folder / "c.jpg").write_bytes(self.flat_jpeg(65496, 40000))
        self.packimg("convert", folder, "-o", "none.pimg", *allowed, "--raw", "--on-error", "fail", rc=2)
        self.assertIn("65535x65535 pixels of PNM take 12.0 GiB to decode; the limit is 3.0 GiB", self.stderr)
        (folder / "b.ppm").unlink()
        self.packimg("convert", folder, "-o", "none.pimg", *allowed, "--raw", rc=2)
        self.assertRegex(self.stderr, "c.jpg: .*(memory|limit)")

    def test_webdataset(self):
        images = sorted(self.tree.rglob("*.jpg"))[:8]
        samples = []
        for i, path in enumerate(images):
            described = {"id": i, "score": i / 4, "caption": f"nr {i}, \"quoted\"", "box": [i, 2], "none": None,
                         "ok": True}
            samples.append((f"part/{i:06d}", {"json": json.dumps(described).encode(), "jpg": path.read_bytes(),
                                              "cls": str(i % 3).encode(), "txt": b"free text\n"}))
        self.shard("s-000.tar", samples[:5])
        self.shard("s-001.tar", samples[5:] + [("part/lonely", {"cls": b"1"})])
        summary = self.convert("s-{000..001}.tar", "-o", "out.pimg", rc=1)
        self.assertEqual(len(summary["skipped"]), 1)
        self.assertIn("lonely", summary["skipped"][0]["name"])
        listed = self.list("out.pimg")
        self.assertEqual([s["label"] for s in listed], [i % 3 for i in range(8)])
        self.assertEqual(listed[3]["source"], "part/000003.jpg")
        fields = listed[3]["fields"]
        self.assertEqual(fields["id"], 3)
        self.assertEqual(fields["score"], 0.75)
        self.assertEqual(fields["caption"], 'nr 3, "quoted"')
        self.assertEqual(fields["box"], [3, 2])
        self.assertEqual(fields["ok"], 1)
        self.assertEqual(fields["txt"], "free text\n")
        self.assertEqual(fields["json"]["caption"], 'nr 3, "quoted"')
        self.assertNotIn("none", fields)
        types = {f["name"]: f["type"] for f in json.loads(self.packimg("info", "--json", "out.pimg"))["fields"]}
        self.assertEqual(types, {"json": "json", "id": "int64", "score": "float64", "caption": "text",
                                 "box": "json", "ok": "int64", "txt": "text"})
        self.packimg("convert", "-q", "s-001.tar", "-o", "fail.pimg", "--on-error", "fail", rc=2)
        self.packimg("extract", "-q", "out.pimg", "-o", "back", "-i", "0")
        self.assertEqual(next((self.dir / "back").rglob("*.jpg")).read_bytes(), images[0].read_bytes())

    def test_field_lengths(self):
        """Types by what members hold; the longest value recorded, and named where the daemon would refuse it."""
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        binary = bytes(range(256)) * 2
        self.shard("s.tar", [("a", {"jpg": image, "txt": "é".encode(), "npy": binary, "text": b"x", "ocr.txt": b"T" * 65536}),
                             ("b", {"jpg": image, "txt": b"four", "text": b"\xff\xfe", "dump": b"d" * 65537})])
        summary = self.convert("s.tar", "-o", "out.pimg")
        self.assertEqual(summary["too_long"], [{"field": "dump", "bytes": 65537, "sample": "b.jpg"}])
        said = self.packimg("convert", "s.tar", "-o", "again.pimg")
        self.assertRegex(said, r"field dump has values of up to 65,537 bytes \(b\.jpg\); loaderd delivers at most 65,536")
        self.assertNotIn("field ocr", said)
        expected = {"txt": ("text", 4), "npy": ("bytes", 512), "text": ("bytes", 2), "ocr.txt": ("text", 65536),
                    "dump": ("bytes", 65537)}
        for path in ("out.pimg", "again.pimg"):
            listed = json.loads(self.packimg("info", "--json", path))["fields"]
            self.assertEqual({f["name"]: (f["type"], f["longest"]) for f in listed}, expected)
        said = self.packimg("info", "out.pimg")
        self.assertIn("field       txt (text, up to 4 bytes)\n", said)
        self.assertIn("field       dump (bytes, up to 65,537 bytes, more than loaderd delivers of one)\n", said)
        self.packimg("verify", "-q", "out.pimg")
        # What one dataset calls text and another bytes is bytes together.
        self.shard("t.tar", [("c", {"jpg": image, "txt": b"\xff" * 9})])
        self.convert("t.tar", "-o", "t.pimg")
        self.packimg("merge", "-q", "out.pimg", "t.pimg", "-o", "both.pimg")
        listed = json.loads(self.packimg("info", "--json", "both.pimg"))["fields"]
        self.assertEqual({f["name"]: (f["type"], f["longest"]) for f in listed}, expected | {"txt": ("bytes", 9)})

    def test_fields_of_earlier_versions(self):
        """Lengths are unknown until the file is merged, which leaves all else as it is."""
        old = pathlib.Path(os.environ["PIMG_GOLDEN"]) / "good" / "traitless.pimg"
        self.assertIn("field       blob (bytes, lengths not recorded)", self.packimg("info", old))
        self.packimg("merge", "-q", old, "-o", "new.pimg")
        self.assertIn("field       blob (bytes, up to 7 bytes)", self.packimg("info", "new.pimg"))
        self.assertEqual(self.list("new.pimg"), self.list(old))
        for name in ("check_traits_short", "check_traits_long", "check_traits_text"):
            said = self.packimg("verify", old.parents[1] / "bad" / f"{name}.pimg", rc=1)
            self.assertIn("field blob", said + self.stderr)

    def test_webdataset_names(self):
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        self.shard("names.tar", [("a", {"jpg": image, "cls": b"zebra\n"}), ("b", {"jpg": image, "cls": b"ant"})])
        self.convert("names.tar", "-o", "out.pimg")
        self.assertEqual([(s["class"], s["label"]) for s in self.list("out.pimg")], [("zebra", 1), ("ant", 0)])

    def test_manifest(self):
        rows = [["path", "class", "age", "weight", "note"],
                ["ant/00.jpg", "a", "3", "1.5", 'says "hi", twice'],
                ["cat/01.jpg", "c", "-4", "2", ""],
                ["bee/02.jpg", "a", "", "", "two\nlines"]]
        with open(self.dir / "m.csv", "w", newline="") as file:
            csv.writer(file).writerows(rows)
        self.convert("m.csv", "--root", self.tree, "-o", "csv.pimg")
        with open(self.dir / "m.tsv", "w", newline="") as file:
            csv.writer(file, delimiter="\t").writerows(rows)
        self.convert(self.tree, "--manifest", "m.tsv", "-o", "tsv.pimg")
        listed = self.list("csv.pimg")
        self.assertEqual(listed, self.list("tsv.pimg"))
        self.assertEqual([s["class"] for s in listed], ["a", "c", "a"])
        self.assertEqual(listed[0]["fields"], {"age": 3, "weight": 1.5, "note": 'says "hi", twice'})
        self.assertEqual(listed[1]["fields"], {"age": -4, "weight": 2.0})
        self.assertEqual(listed[2]["fields"], {"note": "two\nlines"})
        # There and back: what extract writes, convert reads.
        self.packimg("extract", "-q", "--manifest", "csv.pimg", "-o", "back")
        self.convert("back/manifest.csv", "-o", "again.pimg")
        again = self.list("again.pimg")
        for key in ("label", "class", "bytes", "fields"):
            self.assertEqual([s.get(key) for s in again], [s.get(key) for s in listed])
        with open(self.dir / "gone.csv", "w") as file:
            file.write("path\nant/00.jpg\nnowhere.jpg\n../../../etc\n")
        summary = self.convert("gone.csv", "--root", self.tree, "-o", "gone.pimg", rc=1)
        self.assertEqual([s["name"] for s in summary["skipped"]], ["nowhere.jpg", "../../../etc"])

    def test_targets_of_a_regression(self):
        """Labels that are no classes become a field, which is said; what contradicts itself is refused."""
        names = sorted(str(p.relative_to(self.tree)) for p in self.tree.rglob("*.jpg"))[:12]
        for table, first in (("train.csv", 0.5), ("val.csv", 1)):
            (self.dir / table).write_text("path,target\n" +
                                          "".join(f"{name},{i + first}\n" for i, name in enumerate(names)))
        summary = self.convert("train.csv", "--root", self.tree, "-o", "out.pimg")
        self.assertEqual((summary["classes"], summary["fields"]), (0, 1))
        self.assertEqual([note for note in summary["notes"] if 'the field "target"; --labels classes' in note], summary["notes"])
        self.assertEqual([(s["label"], s["fields"]) for s in self.list("out.pimg")], [(-1, {"target": i + 0.5}) for i in range(12)])
        self.packimg("convert", "-q", "train.csv", "val.csv", "--root", self.tree, "-o", "no.pimg", rc=2)
        self.assertIn("--labels classes or --labels field", self.stderr)
        self.assertEqual(self.convert("train.csv", "val.csv", "--root", self.tree, "--labels", "field", "-o", "both.pimg")["notes"], [])
        info = json.loads(self.packimg("info", "--json", "both.pimg"))
        self.assertEqual((info["fields"], info["metadata"]["packimg.options"]),
                         ([{"name": "target", "type": "float64"}], "jpeg=verbatim labels=field"))
        text = self.packimg("convert", "-q", "train.csv", "--root", self.tree, "-o", "classes.pimg", "--labels", "classes")
        self.assertIn("  classes   12\n", text)
        self.assertIn("  note      most labels are of one image alone: 12 classes of 12 images; --labels field", text)
        # The same of shards, where a label is a member or in the JSON.
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        for name, members in (("cls", [{"cls": b"0.5"}, {"cls": b"2.0\n"}]), ("label", [{"json": b'{"label": 0.5}'}, {"json": b'{"label": 2.0}'}])):
            self.shard(f"{name}.tar", [(str(i), {"jpg": image, **more}) for i, more in enumerate(members)])
            summary = self.convert(f"{name}.tar", "-o", f"{name}.pimg")
            self.assertEqual(summary["classes"], 0)
            self.assertIn(f'the field "{name}"', summary["notes"][0])
            self.assertEqual([s["fields"][name] for s in self.list(f"{name}.pimg")], [0.5, 2.0])
        self.shard("int.tar", [("a", {"jpg": image, "cls": b"1"}), ("b", {"jpg": image, "json": b'{"label": 2}'})])
        self.convert("int.tar", "--labels", "field", "-o", "int.pimg")
        self.assertEqual([(s["label"], s["fields"]) for s in self.list("int.pimg")], [(-1, {"cls": 1}), (-1, {"json": {"label": 2}, "label": 2})])
        self.packimg("convert", "-q", "int.tar", "cls.tar", "-o", "no.pimg", rc=2)
        self.assertIn("the label of a.jpg is a whole number or a name, and that of 0.jpg is not", self.stderr)

    def archived(self, folder):
        """The folder, and archives of it: by its name and by its contents."""
        with tarfile.open(self.dir / "by-name.tar", "w") as tar:
            tar.add(self.dir / folder, folder)
        with tarfile.open(self.dir / "contents.tar.gz", "w:gz") as tar:
            tar.add(self.dir / folder, ".")
        with zipfile.ZipFile(self.dir / "by-name.zip", "w") as archive:
            for path in sorted((self.dir / folder).rglob("*")):
                if path.is_file():
                    archive.write(path, path.relative_to(self.dir))
        return [folder, "by-name.tar", "contents.tar.gz", "by-name.zip"]

    def test_folders_and_archives_agree(self):
        """One tree gives the same classes, notes and counts in whatever it comes."""
        for part, classes in (("train", ["ant", "bee"]), ("val", ["ant", "cat"])):
            for name in classes:
                shutil.copytree(self.tree / name, self.dir / "data" / part / name)
        (self.dir / "data" / "val" / "cat" / ".hidden.jpg").write_bytes(b"x")
        (self.dir / "data" / "train" / "bee" / "labels.TXT").write_text("x")
        (self.dir / "data" / "train" / "dog").mkdir()
        for i in range(3):
            (self.dir / "data" / "train" / "dog" / f"{i}.dcm").write_text("x")
        (self.dir / "data" / ".git").mkdir()
        (self.dir / "data" / "README").write_text("x")
        split = "train (24 images) and val (24) are in one dataset, whose classes are the folders in them; --split folders makes"
        for source in self.archived("data"):
            for options, classes, notes in (
                    ([], {"ant": 24, "bee": 12, "cat": 12}, [split, '1 folder that would be a class holds no image: "dog" (3 files in ']),
                    (["--class-from", "top"], {"data": 48} if "name" in source else {"train": 24, "val": 24}, []),
                    (["--class-from", "parent"], {"ant": 24, "bee": 12, "cat": 12}, ['holds no image: "dog"']),
                    (["--include", "train"], {"ant": 12, "bee": 12}, ["train/, so the classes are the folders in it", 'holds no image: "dog"']),
                    (["--exclude", "train", "--exclude", "*.exe"], {"ant": 12, "cat": 12}, ["val/, so the classes", "no name matches --exclude *.exe"]),
                    (["--include", "a??", "--exclude", "val/ant", "--exclude", "data/val/ant"], {"ant": 12}, None)):
                summary = self.convert(source, "-o", "out.pimg", "--force", *options)
                listed = [s["class"] for s in self.list("out.pimg")]
                self.assertEqual({name: listed.count(name) for name in sorted(set(listed))}, classes, (source, options))
                told = [note for note in summary["notes"] if "by-name" not in source or "lies in data/, so" not in note]
                for wanted in notes or []:
                    self.assertTrue(any(wanted in note for note in told), (source, options, wanted, told))
                if notes is not None:
                    self.assertEqual(len(told), len(notes), told)
            summary = self.convert(source, "-o", "out.pimg", "--force")
            kinds = {kind["kind"]: kind["files"] for kind in summary["ignored_kinds"]}
            kinds.pop("hidden")  # a folder by its name, files of an archive each
            self.assertEqual(kinds, {".dcm": 3, ".txt": 1, "without an ending": 1}, source)
            # Each by itself, and the same class has the same number.
            for options, class_of in (([], {"ant": 0, "bee": 1, "cat": 2}), (["--class-from", "parent"], {"ant": 0, "bee": 1, "cat": 2}),
                                      (["--class-from", "none"], {None: -1})):
                summary = self.convert(source, "-o", "parts.pimg", "--force", "--split", "folders", "--shuffle", 1, *options)
                self.assertEqual(sorted((d["part"], d["samples"]) for d in summary["datasets"]), [("train", 24), ("val", 24)])
                self.assertNotIn("--split folders", str(summary["notes"]))
                parts = self.list("parts-train.pimg"), self.list("parts-val.pimg")
                self.assertEqual([{part for s in samples for part in ("train", "val") if f"{part}/" in s["source"]} for samples in parts], [{"train"}, {"val"}])
                self.assertEqual({s.get("class"): s["label"] for samples in parts for s in samples}, class_of)
        self.assertEqual(json.loads(self.packimg("info", "--json", "parts-val.pimg"))["metadata"]["packimg.split"], "val")
        for source, told in ((self.tree, "among them ant/00.jpg;"), ("data/train", "among them ant/00.jpg;"), ("m.csv", "among them data/train/ant/00.jpg;")):
            (self.dir / "m.csv").write_text("path\ndata/train/ant/00.jpg\ndata/val/ant/00.jpg\n")
            self.packimg("convert", "-q", source, "-o", "no.pimg", "--split", "folders", rc=2)
            self.assertIn(told, self.stderr)
        text = self.packimg("convert", "-q", "data", "-o", "out.pimg", "--force", "--exclude", "val")
        self.assertIn("  excluded  1 by --include and --exclude\n  ignored   6 files that are not images by name\n"
                      "    3 .dcm: train/dog/0.dcm, ...\n    1 .txt: train/bee/labels.TXT\n    1 hidden: .git/\n"
                      "    1 without an ending: README\n", text)
        self.packimg("convert", "-q", "data", "-o", "no.pimg", "--include", "*.webp", rc=2)
        self.assertIn("--include and --exclude leave out 48\n", self.stderr)
        (self.dir / "none").mkdir()
        (self.dir / "none" / "a.dcm").write_text("x")
        self.packimg("convert", "-q", "none", "-o", "no.pimg", rc=2)
        self.assertIn("among 1 file, such as a.dcm", self.stderr)

    def test_notes_on_what_came_of_it(self):
        """A class that lost all its images, and pixels that became JPEGs."""
        shutil.copytree(self.tree, self.dir / "in")
        for name in ("dog", "eel"):
            (self.dir / "in" / name).mkdir()
            (self.dir / "in" / name / "a.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
        summary = self.convert("in", "-o", "out.pimg", rc=1)
        self.assertEqual([s["name"] for s in summary["skipped"]], ["dog/a.heic", "eel/a.heic"])
        self.assertEqual(summary["notes"], ['2 of 5 classes have no image: "dog", "eel"'])
        self.assertEqual(self.convert("in", "-o", "some.pimg", "--limit", 5)["notes"], [])
        (self.dir / "m.csv").write_text("path,label\nant/00.jpg,5\nbee/00.jpg,250000\n")
        self.assertEqual(self.convert("m.csv", "--root", self.tree, "-o", "m.pimg")["notes"],
                         ['249,999 of 250,001 classes have no image: "0", "1", "2", "3", "4" and more; '
                          "--labels field makes a field of labels that are no classes"])
        if "png" not in PARTS:
            self.skipTest("built without PNG")
        kinds = self.images / "kinds"
        count = self.convert(kinds, "-o", "k.pimg")["sources"]["PNG"]
        self.assertIn(f"{count} PNG became JPEG of quality 95, which loses a little; --non-jpeg zstd keeps their pixels",
                      self.convert(kinds, "-o", "k.pimg", "--force", "--include", "*.png")["notes"])
        for options in (["--non-jpeg", "zstd"], ["--raw"], ["--jpeg", "quality=80"]):
            self.assertNotIn("became", str(self.convert(kinds, "-o", "k.pimg", "--force", *options)["notes"]))

    def test_names_of_other_alphabets(self):
        """Whatever the locale, an archive gives every name that it holds; one that is too long is skipped."""
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        names = ["日本/é.jpg", "plain/a.jpg", "ü/b.jpg"]
        with zipfile.ZipFile(self.dir / "a.zip", "w") as archive:
            for name in names:
                archive.writestr(name, image)
        for name, kind in (("pax.tar", tarfile.PAX_FORMAT), ("gnu.tar", tarfile.GNU_FORMAT)):
            with tarfile.open(self.dir / name, "w", format=kind, errors="surrogateescape") as tar:
                for member in (*names, "\udcff/c.jpg", "x" * 70000 + ".jpg"):
                    entry = tarfile.TarInfo(member)
                    entry.size = len(image)
                    tar.addfile(entry, io.BytesIO(image))
        for name, skipped in (("a.zip", 0), ("pax.tar", 2), ("gnu.tar", 2)):
            for locale in ("C", "C.UTF-8"):
                summary = self.convert(name, "-o", "out.pimg", "--force", rc=bool(skipped), env={**os.environ, "LC_ALL": locale})
                self.assertEqual(len(summary["skipped"]), skipped)
                self.assertEqual([s["source"] for s in self.list("out.pimg")], names)
        self.assertIn("a name of more than 65535 bytes", summary["skipped"][0]["reason"])

    def test_links_in_archives(self):
        """What a folder has as a link or twice by one name's inode is not lost without a word in a tar."""
        shutil.copytree(self.tree / "ant", self.dir / "in" / "ant")
        os.link(self.dir / "in" / "ant" / "00.jpg", self.dir / "in" / "ant" / "hard.jpg")
        (self.dir / "in" / "ant" / "soft.jpg").symlink_to("01.jpg")
        self.assertEqual(self.convert("in", "-o", "folder.pimg")["samples"], 14)
        for name, mode in (("in.tar", "w"), ("in.tar.gz", "w:gz")):
            with tarfile.open(self.dir / name, mode) as tar:
                tar.add(self.dir / "in", "in")
            for options in ([], ["--shuffle", "1"]):
                summary = self.convert(name, "-o", "out.pimg", "--force", *options, rc=1)
                self.assertEqual(summary["samples"], 12)
                self.assertEqual(len(summary["skipped"]), 2)
                self.assertIn("a link in an archive, which is not followed; tar --dereference", summary["skipped"][0]["reason"])
        with tarfile.open(self.dir / "in.tar", "a") as tar:
            for name in ("in/cat", "in/notes.txt"):
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, "elsewhere"
                tar.addfile(entry)
        self.assertEqual([s["name"] for s in self.convert("in.tar", "-o", "out.pimg", "--force", rc=1)["skipped"]][2:], ["in/cat"])
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        self.shard("s.tar", [("a", {"jpg": image, "cls": b"1"})])
        with tarfile.open(self.dir / "s.tar", "a") as tar:
            for key, kind in (("b", tarfile.SYMTYPE), ("c", tarfile.LNKTYPE)):
                for extension in ("jpg", "cls"):
                    entry = tarfile.TarInfo(f"{key}.{extension}")
                    entry.type, entry.linkname = kind, f"a.{extension}"
                    tar.addfile(entry)
        self.assertEqual([s["name"] for s in self.convert("s.tar", "-o", "s.pimg", rc=1)["skipped"]], ["b", "c"])

    def test_filtered_tables_and_shards(self):
        (self.dir / "m.csv").write_text("path\nant/00.jpg\nbee/00.jpg\ncat/00.jpg\n")
        summary = self.convert("m.csv", "--root", self.tree, "-o", "m.pimg", "--include", "ant", "--include", "c*", "--exclude", "cat/01*")
        self.assertEqual([s["source"] for s in self.list("m.pimg")], ["ant/00.jpg", "cat/00.jpg"])
        self.assertEqual((summary["excluded"], summary["notes"]), (1, ["no name matches --exclude cat/01*"]))
        self.assertEqual(json.loads(self.packimg("info", "--json", "m.pimg"))["metadata"]["packimg.filter"],
                         "include ant\ninclude c*\nexclude cat/01*")
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        self.shard("s.tar", [(f"p/{key}", {"jpg": image, "cls": b"1"}) for key in "abc"] + [("p/._a", {"jpg": b""})])
        summary = self.convert("s.tar", "-o", "s.pimg", "--exclude", "b.jpg")
        self.assertEqual((summary["excluded"], summary["ignored"]), (1, 1))
        self.assertEqual([s["source"] for s in self.list("s.pimg")], ["p/a.jpg", "p/c.jpg"])

    def test_classes_file(self):
        (self.dir / "classes.txt").write_text("cat\ndog\nbee\nant\n")
        self.convert(self.tree, "--classes", "classes.txt", "-o", "out.pimg")
        self.assertEqual({s["class"]: s["label"] for s in self.list("out.pimg")}, {"cat": 0, "bee": 2, "ant": 3})
        (self.dir / "classes.txt").write_text("cat\nbee\n")
        self.packimg("convert", "-q", self.tree, "--classes", "classes.txt", "-o", "no.pimg", rc=2)
        self.assertIn("ant", self.stderr)

    def test_several_sources(self):
        listed = self.list(self.converted(self.tree / "ant", self.tree / "bee" / "00.jpg"))
        self.assertEqual(len(listed), 13)
        self.assertEqual({s["label"] for s in listed}, {-1})
        both = self.list(self.converted(self.tree, self.images / "kinds" / "one"))
        self.assertEqual(len(both), 40)
        self.assertEqual({s.get("class") for s in both}, {"ant", "bee", "cat", None})

    # What can go wrong

    def test_bad_images(self):
        summary = self.convert(self.images / "bad", "-o", "out.pimg", rc=1)
        self.assertEqual(summary["samples"], 1)
        skipped = {s["name"]: s["reason"] for s in summary["skipped"]}
        self.assertEqual(sorted(skipped), ["x/empty.jpg", "x/gif.jpg", "x/header.png", "x/scan.jpg", "x/text.jpg",
                                           "x/truncated.jpg", "x/twelve.jpg"])
        self.assertIn("12 bits", skipped["x/twelve.jpg"])
        self.assertIn("truncated", skipped["x/truncated.jpg"])
        self.assertIn("GIF", skipped["x/gif.jpg"])
        self.assertNotIn("sample", skipped["x/scan.jpg"])  # it is none
        for options in (["--raw"], ["--no-index"], ["--progressive", "transcode"]):
            self.assertEqual(self.convert(self.images / "bad", "-o", "out.pimg", "--force", *options, rc=1)
                             ["samples"], 1)
        os.unlink(self.dir / "out.pimg")
        self.packimg("convert", "-q", self.images / "bad", "-o", "out.pimg", "--on-error", "fail", rc=2)
        self.assertIn("x/empty.jpg", self.stderr)
        self.nothing_left()

    def test_odd_folders(self):
        """Names that cannot be classes and folders that cannot be entered are skipped by name; the rest is converted."""
        images = sorted((self.tree / "ant").iterdir())[:4]
        for name in (b"cat", b"d\xffg", b"x" * 100):
            folder = os.path.join(self.dir, "in", os.fsdecode(name))
            os.makedirs(folder)
            for image in images:
                shutil.copy(image, folder)
        inside = self.dir / "in"
        (inside / "cat" / "up").symlink_to("..")
        (inside / "dog").symlink_to("dog")
        (inside / "gone").symlink_to("/nowhere/at/all")
        (inside / "notes.txt").symlink_to("/nowhere/at/all")
        (inside / "cat" / "lost.jpg").symlink_to("lost.jpg")
        deep = inside / "deep" / "/".join(["d"] * 64)
        deep.mkdir(parents=True)
        shutil.copy(images[0], deep.parent.parent / "in.jpg")
        shutil.copy(images[0], deep / "beyond.jpg")
        summary = self.convert("in", "-o", "out.pimg", rc=1)
        skipped = {s["name"]: s["reason"] for s in summary["skipped"]}
        self.assertEqual(summary["samples"], 9)
        self.assertEqual(summary["ignored"], 1)
        self.assertEqual(sorted(skipped), sorted([
            *(f"d\\xffg/{image.name}" for image in images), "cat/lost.jpg", "cat/up/", "dog/", "gone/", f"deep/{'d/' * 63}"]))
        self.assertIn("leads back to a folder above", skipped["cat/up/"])
        self.assertIn("Too many levels of symbolic links", skipped["dog/"])
        self.assertIn("No such file", skipped["gone/"])
        self.assertIn("more than 64 folders", skipped[f"deep/{'d/' * 63}"])
        self.assertIn("UTF-8 of at most 4096 bytes; rename it", skipped[f"d\\xffg/{images[0].name}"])
        self.assertEqual({s["class"] for s in self.list("out.pimg")}, {"cat", "deep", "x" * 100})
        text = self.packimg("convert", "-q", "in", "-o", "out.pimg", "--force", rc=1)
        self.assertIn(f"  skipped   9\n", text)
        self.assertIn(f"d\\xffg/{images[0].name} and 3 more: its class ", text)
        self.packimg("convert", "-q", "in", "-o", "no.pimg", "--include", os.fsdecode(b"d\xffg"), rc=2)
        self.assertRegex(self.stderr, r"no image could be converted; the first, cat/up/: ")
        self.packimg("convert", "-q", "in", "-o", "no.pimg", "--on-error", "fail", rc=2)
        self.assertIn("cat/up/: cannot be entered: it leads back", self.stderr)
        if os.geteuid():  # whom nothing is closed to
            (inside / "deep").chmod(0)
            self.assertIn("deep/", [s["name"] for s in self.convert("in", "-o", "more.pimg", rc=1)["skipped"]])
            (inside / "deep").chmod(0o700)

    def test_odd_fields(self):
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        many = {f"f{i}": b"1" for i in range(247)}
        with tarfile.open(self.dir / "s.tar", "w", errors="surrogateescape") as tar:
            for key, members in (("a", {"jpg": image, "x": b"1"}), ("b", {"jpg": image, "x": b"1", "": b"2"}),
                                 ("c", {"jpg": image, "n\udcff": b"1"}), ("d", {"jpg": image, "x": b"1", "x ": b"1", **many}),
                                 ("e", {"jpg": image, **{f"g{i}": b"1" for i in range(8)}}),
                                 ("f", {"jpg": image, "x": b"1", "json": b'{"x": {"y": 2}, "box": [1]}'}),
                                 ("g", {"jpg": image, "box": b"\xff\x00"}), ("h", {"jpg": image, "x": b"1"})):
                for extension, data in members.items():
                    entry = tarfile.TarInfo(f"{key}.{extension}")
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))
            entry = tarfile.TarInfo("g.box")
            entry.size = 1
            tar.addfile(entry, io.BytesIO(b"1"))
        self.packimg("convert", "-q", "s.tar", "-o", "out.pimg", "--format", "webdataset", rc=1)
        listed = {s["source"]: s.get("fields", {}) for s in self.list("out.pimg")}
        self.assertEqual(listed["f.jpg"]["x"], "1")  # and what the JSON calls x is in the field json
        self.assertEqual(listed["f.jpg"]["json"]["x"], {"y": 2})
        self.assertEqual(listed["f.jpg"]["box"], "[1]")
        self.assertEqual(listed["g.jpg"]["box"], {"hex": "ff00"})
        self.assertEqual(sorted(listed), ["a.jpg", "d.jpg", "f.jpg", "g.jpg", "h.jpg"])
        for header, reason in (("path,a,a", "columns 2 and 3 are both called"), ("path,\udcff,b", "not UTF-8")):
            (self.dir / "t.csv").write_bytes(f"{header}\nant/00.jpg,1,2\n".encode(errors="surrogateescape"))
            self.packimg("convert", "-q", "t.csv", "-o", "no.pimg", rc=2)
            self.assertIn("t.csv: line 1: ", self.stderr)
            self.assertIn(reason, self.stderr)
    def test_incomplete(self):
        """What is missing, or too much, weighs the same with an index and without, transcoded and encoded again."""
        two = self.images / "kinds" / "two"
        progressive, restarts, cmyk = ((two / name).read_bytes() for name in
                                       ("progressive.jpg", "restart-within.jpg", "cmyk.jpg"))
        second = progressive.index(b"\xff\xda", progressive.index(b"\xff\xda") + 2)
        tables = progressive.rfind(b"\xff\xc4", 0, second)
        odd = {"junk.jpg": progressive[:-2] + b"junk" + progressive[-2:], "endless.jpg": restarts[:-2],
               "header.jpg": cmyk.replace(b"\xff\xdb", b"junk\xff\xdb", 1)}
        bad = {"scan.jpg": progressive[:tables] + b"\xff\xd9", "half.jpg": restarts[:-len(restarts) // 6] + b"\xff\xd9",
               "cmyk.jpg": cmyk[:-6]}
        (self.dir / "odd").mkdir()
        for name, data in {**odd, **bad}.items():
            (self.dir / "odd" / name).write_bytes(data)
        for number, options in enumerate(([], ["--no-index"], ["--progressive", "transcode"], ["--raw"],
                                          ["--jpeg", "quality=90"])):
            summary = self.convert("odd", "-o", f"{number}.pimg", *options, rc=1)
            self.assertEqual(sorted(s["name"] for s in summary["skipped"]), sorted(bad), options)
            self.assertEqual(summary["samples"], 3)
            self.packimg("verify", "-q", f"{number}.pimg")
        self.forge("1.pimg", 0, "data", 1, 0)  # no marker begins the file any more
        self.assertRegex(self.packimg("verify", "-q", "1.pimg", rc=1), r"sample 0 \(\S+\): (?!sample)")

    def test_wrong_commands(self):
        for args in (["convert"], ["convert", self.tree], ["convert", self.tree, "-o", "x.pimg", "--jpeg", "q=5"],
                     ["convert", self.tree, "-o", "wrong.bin"], ["convert", "nowhere", "-o", "x.pimg"],
                     ["convert", self.tree, "-o", "nowhere/x.pimg"], ["convert", self.tree, "-o", "x.pimg",
                      "--split", "a=0.7,b=0.7"], ["nonsense"], [], ["info"], ["info", "nowhere.pimg"],
                     ["verify", "nowhere.pimg"], ["split", "nowhere.pimg"],
                     ["convert", self.tree, "-o", "x.pimg", "--raw", "--jpeg", "quality=80"],
                     ["convert", self.dir, "-o", "x.pimg"]):
            self.packimg(*args, rc=2)
            self.assertNotEqual(self.stderr, "")
        self.nothing_left()
        self.assertIn("convert", self.packimg("--help"))
        self.assertIn("--short-side", self.packimg("convert", "--help"))

    def test_overwriting(self):
        self.convert(self.tree, "-o", "out.pimg", "--shard-size", "64K", "--raw")
        shards = sorted(p.name for p in self.dir.iterdir())
        self.assertGreater(len(shards), 2)
        self.assertEqual(len(self.list("out.pimg")), 36)
        self.packimg("verify", "-q", "out.pimg")
        self.packimg("convert", "-q", self.tree, "-o", "out.pimg", rc=2)
        self.assertIn("--force", self.stderr)
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), shards)
        self.convert(self.tree, "-o", "out.pimg", "--force")
        self.assertEqual([p.name for p in self.dir.iterdir()], ["out.pimg"])
        # Killed before any of its files had its name: they are a dataset all the same.
        (self.dir / "out.pimg").rename(self.dir / ".out.pimg.partial.0123456789abcdef.0")
        (self.dir / ".out.pimg.replaced").write_text(".out.pimg.partial.0123456789abcdef.0\n")
        self.packimg("verify", "-q", "out.pimg")
        self.packimg("convert", "-q", self.tree, "-o", "out.pimg", rc=2)
        self.assertIn(".out.pimg.replaced exists; --force", self.stderr)
        self.convert(self.tree, "-o", "out.pimg", "--force", "--shard-size", "64K", "--raw")
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), shards)
        self.convert(self.tree, "-o", "out.pimg", "--force")
        before = (self.dir / "out.pimg").read_bytes()
        self.packimg("convert", "-q", self.images / "nowhere", "-o", "out.pimg", "--force", rc=2)
        self.assertEqual((self.dir / "out.pimg").read_bytes(), before)

    def damage(self, path, sample):
        """Flips a byte of that sample's stored bytes, which must occur once in the file."""
        self.packimg("extract", "-q", path, "-o", "victim", "-i", sample)
        data, stored = (self.dir / path).read_bytes(), next((self.dir / "victim").rglob("*.jpg")).read_bytes()
        self.assertEqual(data.count(stored), 1)
        at = data.index(stored) + len(stored) // 2
        (self.dir / path).write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1:])
        shutil.rmtree(self.dir / "victim")

    def test_damage_is_found(self):
        self.convert(self.tree, "-o", "out.pimg")
        self.damage("out.pimg", 5)
        self.damage("out.pimg", 30)
        report = json.loads(self.packimg("verify", "-q", "--json", "out.pimg", rc=1))
        self.assertEqual([s["index"] for s in report["bad_samples"]], [5, 30])
        self.assertEqual(report["bad_samples"][0]["source"], "ant/05.jpg")
        self.assertIn("sample 30 (cat/06.jpg)", self.packimg("verify", "-q", "out.pimg", rc=1))
        self.packimg("extract", "-q", "out.pimg", "-o", "back", rc=1)
        self.assertEqual(len(list((self.dir / "back").rglob("*.jpg"))), 34)
        self.packimg("merge", "-q", "out.pimg", "-o", "no.pimg", rc=2)
        self.assertFalse((self.dir / "no.pimg").exists())
        self.packimg("merge", "-q", "out.pimg", "-o", "rest.pimg", "--on-error", "skip", rc=1)
        self.packimg("verify", "-q", "rest.pimg")
        self.assertEqual(len(self.list("rest.pimg")), 34)
        data = (self.dir / "out.pimg").read_bytes()
        for size in (0, 10, 4096, len(data) // 2, len(data) - 1):
            (self.dir / "cut.pimg").write_bytes(data[:size])
            self.packimg("verify", "-q", "cut.pimg", rc=2)
            self.packimg("info", "cut.pimg", rc=2)

    def test_damaged_records(self):
        """A record of the index that cannot be is counted by info and named by verify; the other samples are there."""
        self.convert(self.tree, "-o", "out.pimg")
        self.assertNotIn("DAMAGED", self.packimg("info", "out.pimg"))
        self.assertEqual(json.loads(self.packimg("info", "--json", "out.pimg"))["damaged_records"], 0)
        data = bytearray((self.dir / "out.pimg").read_bytes())
        records = next(offset for kind, _, offset, _, _ in struct.iter_unpack("<IIQQQ", data[256:256 + 7 * 32]) if kind == 1)
        for sample in (3, 20):
            data[records + 64 * sample + 54] = 9  # an orientation that there is not
        (self.dir / "out.pimg").write_bytes(data)
        self.assertIn("\nDAMAGED     2 index records; packimg verify names them\n", self.packimg("info", "out.pimg"))
        self.assertEqual(json.loads(self.packimg("info", "--json", "out.pimg"))["damaged_records"], 2)
        report = json.loads(self.packimg("verify", "-q", "--json", "out.pimg", rc=1))
        self.assertEqual([s["index"] for s in report["bad_samples"]], [3, 20])

    def start(self, *args):
        many = [str(self.tree)] * 150
        return subprocess.Popen([PACKIMG, "convert", "-q", *many, "-o", "out.pimg", *args], cwd=self.dir,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def test_killed(self):
        """Whenever it is killed, either nothing is there that opens, or all of it."""
        killed = 0
        for i in range(8):
            process = self.start("--jpeg", "quality=90", *(["--shard-size", "1M"] if i % 2 else []))
            time.sleep(0.02 * (i + 1) ** 1.5)
            process.kill()
            process.communicate()
            visible = [p for p in self.dir.iterdir() if not p.name.startswith(".")]
            if visible:
                self.packimg("verify", "-q", "out.pimg")
                self.assertEqual(len(self.list("out.pimg")), 36 * 150)
                for p in visible:
                    p.unlink()
            else:
                killed += 1
                self.packimg("info", "out.pimg", rc=2)
                self.packimg("info", ".", rc=2)
        self.assertGreater(killed, 0)
        # What the killed ones left is cleared by the next that succeeds.
        self.convert(self.tree, "-o", "out.pimg")
        self.assertEqual([p.name for p in self.dir.iterdir()], ["out.pimg"])

    def test_interrupted(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start("--jpeg", "quality=90")
            for _ in range(400):
                if any(self.dir.iterdir()):
                    break
                time.sleep(0.005)
            process.send_signal(number)
            _, stderr = process.communicate()
            self.assertEqual(process.returncode, -number, stderr.decode())
            self.nothing_left()

    # From datasets to datasets

    def test_split_while_converting(self):
        summary = self.convert(self.tree, "--split", "train=0.75,val=0.25", "-o", "d.pimg", "--shuffle", 1)
        self.assertEqual([d["samples"] for d in summary["datasets"]], [27, 9])
        train, val = self.list("d-train.pimg"), self.list("d-val.pimg")
        self.assertEqual(len({s["source"] for s in train + val}), 36)
        self.assertEqual([sum(s["label"] == c for s in val) for c in range(3)], [3, 3, 3])
        self.convert(self.tree, "--split", "train=0.75,val=0.25", "-o", "e.pimg", "--shuffle", 1, "-j", 1)
        self.assertEqual((self.dir / "d-val.pimg").read_bytes(), (self.dir / "e-val.pimg").read_bytes())
        self.convert(self.tree, "--split", "a=0.5", "-o", "half.pimg")
        self.assertEqual(len(self.list("half-a.pimg")), 18)

    def test_limit(self):
        self.assertEqual(len(self.list(self.converted(self.tree, "--limit", 5))), 5)
        first = self.list(self.converted(self.tree, "--shuffle", 4, "--limit", 5))
        whole = self.list(self.converted(self.tree, "--shuffle", 4))
        self.assertEqual([s["source"] for s in first], [s["source"] for s in whole[:5]])

    def test_split_and_merge(self):
        self.convert(self.tree, "-o", "all.pimg")
        self.packimg("split", "-q", "all.pimg", "--into", "train=0.75,val=0.25", "--seed", 2)
        train, val = self.list("all-train.pimg"), self.list("all-val.pimg")
        self.assertEqual((len(train), len(val)), (27, 9))
        self.packimg("merge", "-q", "all-train.pimg", "all-val.pimg", "-o", "again.pimg")
        self.packimg("verify", "-q", "again.pimg")
        strip = lambda samples: sorted((s["source"], s["class"], s["bytes"]) for s in samples)
        self.assertEqual(strip(self.list("again.pimg")), strip(self.list("all.pimg")))
        self.packimg("split", "-q", "all.pimg", "--by-class", "-o", "by.pimg")
        self.assertEqual({s["class"] for s in self.list("by-bee.pimg")}, {"bee"})
        self.packimg("merge", "-q", "by-{cat,ant,bee}.pimg", "-o", "shuffled.pimg", "--shuffle", 5)
        self.assertEqual(strip(self.list("shuffled.pimg")), strip(self.list("all.pimg")))
        info, other = (json.loads(self.packimg("info", "--json", p)) for p in ("all.pimg", "again.pimg"))
        for key in ("mean", "std"):
            for a, b in zip(info[key], other[key]):
                self.assertLess(abs(a - b), 0.01)

    def test_other_shards(self):
        """A dataset has one UUID, however it is divided and indexed, and whatever version derived it."""
        uuids = []
        for name, options in (("one", []), ("set", ["--shard-size", "64K"]), ("plain", ["--no-index", "--shard-size", "100K"])):
            self.convert(self.tree, *options, "-o", f"{name}.pimg")
            uuids.append(self.facts_of(f"{name}.pimg"))
        self.assertGreater(len(list(self.dir.glob("set-*"))), 1)
        self.assertEqual([facts[0] for facts in uuids], [uuids[0][0]] * 3)
        self.packimg("merge", "-q", "set.pimg", "-o", "again.pimg")
        again = self.facts_of("again.pimg")
        self.assertEqual((again[0], again[2:]), (uuids[0][0], uuids[0][2:]))
        self.packimg("merge", "-q", "--shuffle", "3", "set.pimg", "-o", "mixed.pimg")
        self.assertNotEqual(self.facts_of("mixed.pimg")[0], uuids[0][0])
        # as an earlier version derived it
        shutil.copy(os.path.join(os.environ["PIMG_GOLDEN"], "good", "full.pimg"), self.dir / "old.pimg")
        self.packimg("merge", "-q", "old.pimg", "-o", "old-set.pimg", "--shard-size", "64K")
        self.assertEqual(self.facts_of("old-set.pimg")[0], self.facts_of("old.pimg")[0])

    def test_merge_unites(self):
        for name, text in (("one", "path,class,n,x\nant/00.jpg,cat,1,a\nant/01.jpg,ant,2,b\n"),
                           ("two", "path,class,n,y\nbee/00.jpg,bee,0.5,9\nbee/01.jpg,cat,1,8\n")):
            (self.dir / f"{name}.csv").write_text(text)
            self.convert(f"{name}.csv", "--root", self.tree, "-o", f"{name}.pimg")
        self.packimg("merge", "-q", "one.pimg", "two.pimg", "-o", "both.pimg")
        listed = self.list("both.pimg")
        self.assertEqual([(s["class"], s["label"]) for s in listed],
                         [("cat", 1), ("ant", 0), ("bee", 2), ("cat", 1)])
        self.assertEqual([s["fields"] for s in listed], [{"n": 1.0, "x": "a"}, {"n": 2.0, "x": "b"},
                                                         {"n": 0.5, "y": 9}, {"n": 1.0, "y": 8}])
        (self.dir / "three.csv").write_text("path,class,n\nbee/00.jpg,bee,word\n")
        self.convert("three.csv", "--root", self.tree, "-o", "three.pimg")
        self.packimg("merge", "-q", "one.pimg", "three.pimg", "-o", "no.pimg", rc=2)
        self.assertIn('"n"', self.stderr)

    def test_extract_chosen(self):
        self.convert(self.tree, "-o", "out.pimg")
        self.packimg("extract", "-q", "out.pimg", "-o", "some", "-i", "0-2,35")
        self.assertEqual(sorted(p.name for p in (self.dir / "some").rglob("*.jpg")),
                         ["00.jpg", "01.jpg", "02.jpg", "11.jpg"])
        self.packimg("extract", "-q", "out.pimg", "-o", "bees", "-c", "bee")
        self.assertEqual(len(list((self.dir / "bees").rglob("*.jpg"))), 12)
        self.packimg("extract", "-q", "out.pimg", "-o", "some", "-i", "0", rc=2)
        self.assertIn("--force", self.stderr)
        self.packimg("extract", "-q", "out.pimg", "-o", "some", "-i", "0", "--force")
        self.packimg("extract", "-q", "out.pimg", "-o", "x", "-i", "99", rc=2)
        self.packimg("extract", "-q", "out.pimg", "-o", "x", "-c", "wolf", rc=2)
        # Two samples of one name become two files.
        self.convert(self.tree / "ant", self.tree / "bee", "-o", "flat.pimg")
        self.packimg("extract", "-q", "flat.pimg", "-o", "flat")
        self.assertEqual(len(list((self.dir / "flat").iterdir())), 24)

    def test_hostile_names(self):
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        with tarfile.open(self.dir / "evil.tar", "w") as tar:
            for name in ("../../escape.jpg", "/abs/olute.jpg", "a/../../b.jpg", "x..jpg/x.jpg"):
                entry = tarfile.TarInfo(name)
                entry.size = len(image)
                tar.addfile(entry, io.BytesIO(image))
        self.convert("evil.tar", "-o", "out.pimg")
        (self.dir / "in").mkdir()
        self.packimg("extract", "-q", "out.pimg", "-o", "in/side")
        found = [p for p in self.dir.rglob("*.jpg") if p.is_file()]
        self.assertEqual(len(found), 4)
        self.assertTrue(all((self.dir / "in/side") in p.parents for p in found))

    def test_terminals_obey_nobody(self):
        """Names, metadata and what is said of them reach a terminal without anything that it would obey."""
        evil = "\x1b[31mcat\u009b\u202e\nx"
        shown = "\\x1b[31mcat\\u009b\\u202e\\x0ax"
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        with tarfile.open(self.dir / f"{evil}.tar", "w", format=tarfile.PAX_FORMAT) as tar:
            for name, content in ((f"{evil}/{evil}.jpg", image), (f"{evil}/bad-{evil}.jpg", b"no image"),
                                  (f"{evil}/two.jpg", image)):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        (self.dir / "evil.csv").write_text(f'path,class,{"f" + evil.split(chr(10))[0]}\n"{evil}/a.jpg","{evil}","{evil}"\n')
        (self.dir / evil).mkdir()
        (self.dir / evil / "a.jpg").write_bytes(image)

        def check(text):
            for character in "\x1b\x9b\u202e":
                self.assertNotIn(character, text)
            return text

        def said(*args, rc=0):
            out = self.packimg(*args, rc=rc)
            return check(out) + check(self.stderr)

        self.assertIn(f"    {shown}/bad-{shown}.jpg: not an image", said("convert", f"{evil}.tar", "-o", "evil.pimg", rc=1))
        said("convert", "evil.csv", "-o", f"{evil}.pimg")
        said("convert", f"{evil}.tar", "-o", "no.pimg", "--on-error", "fail", rc=2)
        said("convert", f"{evil}.tar", "-o", "no.pimg", "--json", rc=1)
        for path in ("evil.pimg", f"{evil}.pimg"):
            self.assertIn(f"  {shown}  ", said("info", path))
            self.assertIn(f"packimg.sources={'evil.csv' if path[0] == chr(27) else shown.replace('x0a', 'n') + '.tar'}", said("info", path))
            self.assertIn(f"\t{shown}\t", said("list", path))
            for command in (["info", "--json"], ["list", "--json"], ["verify"], ["verify", "--json"],
                            ["advise", "--seconds", "0.01"], ["split", "--by-class", "--force"],
                            ["merge", "-o", "both.pimg", "--force"]):
                said(command[0], path, *command[1:])
            said("extract", path, "-o", evil + "-out")
            self.assertIn(f"{shown}.jpg: File exists; --force" if path == "evil.pimg" else "a.jpg: File exists",
                          said("extract", path, "-o", evil + "-out", rc=2))
        self.assertEqual(self.list("evil.pimg")[0]["class"], evil)
        # Damage is told of in words, too.
        data = bytearray((self.dir / "evil.pimg").read_bytes())
        data[data.index(image) + len(image) // 2] ^= 1
        (self.dir / "evil.pimg").write_bytes(data)
        self.assertIn(f"({shown}/", said("verify", "evil.pimg", rc=1))
        said("verify", f"{evil}-none.pimg", rc=2)

    def test_extract_among_links(self):
        """What lies in wait in the folder is not followed: nothing outside it changes, and --force replaces what is in the way."""
        self.convert(self.tree, "-o", "out.pimg")
        outside = self.dir / "outside"
        outside.mkdir()
        (outside / "kept").write_text("kept")
        (outside / "linked").write_text("kept")

        def lay(folder):
            folder.mkdir()
            (folder / "ant").symlink_to(outside)  # a class folder
            (folder / "bee").mkdir()
            (folder / "bee" / "00.jpg").symlink_to(outside / "kept")
            (folder / "bee" / "01.jpg").symlink_to(outside / "new")
            os.mkfifo(folder / "bee" / "02.jpg")
            os.link(outside / "linked", folder / "bee" / "03.jpg")
            (folder / "cat").write_text("a file")

        def unharmed():
            self.assertEqual({p.name: p.read_text() for p in outside.iterdir()}, {"kept": "kept", "linked": "kept"})

        for options, bees in ([], 8), (["--force"], 12):
            folder = self.dir / f"back{bees}"
            lay(folder)
            self.packimg("extract", "-q", "out.pimg", "-o", folder, *options, rc=1, timeout=60)
            unharmed()
            self.assertIn("ant is a symbolic link or a file; extract writes to folders that are really there", self.stderr)
            self.assertIn("cat is a symbolic link or a file", self.stderr)
            found = [p for p in (folder / "bee").iterdir() if p.is_file() and not p.is_symlink() and p.stat().st_nlink == 1]
            self.assertEqual(len(found), bees)
        self.assertEqual(self.stderr.count("packimg:"), 24)
        # And the manifest.
        folder = self.dir / "listed"
        folder.mkdir()
        (folder / "manifest.csv").symlink_to(outside / "kept")
        self.packimg("extract", "-q", "-m", "out.pimg", "-o", folder, rc=2)
        self.assertIn("manifest.csv: File exists; --force replaces it", self.stderr)
        self.packimg("extract", "-q", "-m", "-f", "out.pimg", "-o", folder)
        self.assertFalse((folder / "manifest.csv").is_symlink())
        unharmed()

    def test_list_and_info(self):
        self.convert(self.tree, "-o", "out.pimg")
        lines = self.packimg("list", "out.pimg").splitlines()
        self.assertEqual(len(lines), 36)
        self.assertEqual(lines[0].split("\t")[:2] + lines[0].split("\t")[-1:], ["0", "ant", "ant/00.jpg"])
        self.assertEqual(len(self.packimg("list", "out.pimg", "-c", "cat", "-i", "20-30").splitlines()), 7)
        info = json.loads(self.packimg("info", "--json", "out.pimg"))
        self.assertEqual(info["samples"], 36)
        self.assertEqual([c["samples"] for c in info["classes"]], [12, 12, 12])
        self.assertEqual(info["bytes"], (self.dir / "out.pimg").stat().st_size)
        self.assertIn("36 samples", self.packimg("info", "out.pimg"))

    def test_values_that_are_no_text(self):
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        self.shard("s.tar", [("a", {"jpg": image, "npy": b"\x93NUMPY\x00\xff\n", "txt": "é\n\t".encode()})])
        self.convert("s.tar", "-o", "out.pimg")
        self.assertTrue(self.packimg("list", "out.pimg").endswith("\tnpy=(9 bytes)\ttxt=é\\x0a\\x09\n"))
        self.assertEqual(self.list("out.pimg")[0]["fields"],
                         {"npy": {"hex": b"\x93NUMPY\x00\xff\n".hex()}, "txt": "é\n\t"})

    def test_metadata_of_several_lines(self):
        for name in ("a\\n", "two\nlines"):
            shutil.copytree(self.tree, self.dir / name)
        self.convert("a\\n", "two\nlines", "-o", "out.pimg")
        self.assertEqual(json.loads(self.packimg("info", "--json", "out.pimg"))["metadata"]["packimg.sources"],
                         "a\\n\ntwo\nlines")

    def test_one_sample(self):
        said = self.packimg("convert", "-q", self.tree, "-o", "one.pimg", "--limit", 1, "-j", 1)
        self.assertIn("one.pimg: 1 sample, ", said)
        self.assertIn(", 1 job\n", said)
        self.assertIn("one.pimg: 1 sample, ", self.packimg("info", "one.pimg"))
        self.assertIn("one.pimg: 1 sample, ", self.packimg("verify", "-q", "one.pimg"))

    def test_unknown_instruction_set(self):
        self.packimg("info", "out.pimg", rc=2, env={**os.environ, "LOADERD_ISA": "avx3"})
        self.assertIn('packimg: LOADERD_ISA = "avx3" in the environment: expected c, avx2, avx512bw or avx512', self.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
