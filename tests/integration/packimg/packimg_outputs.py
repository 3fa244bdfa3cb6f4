"""Output of packimg: codecs, sizes, statistics, indexes; the same for any number of jobs."""

import csv
import json
import shutil
import signal
import subprocess
import tarfile
import time
import unittest

from packimg_test import PACKIMG, PARTS, PackimgTest


class PackimgOutputs(PackimgTest):
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
        """raw and raw+zstd store the same pixels; PNG files extracted from them convert to the same pixels again."""
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
        """Returns the markers of a JPEG up to its first scan."""
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
        # Both have the same pixels: their raw copies are equal.
        self.convert("kept", "--raw", "--class-from", "none", "-o", "a.pimg")
        self.convert("made", "--raw", "--class-from", "none", "-o", "b.pimg")
        pixels = [[p["bytes"] for p in self.list(name)] for name in ("a.pimg", "b.pimg")]
        self.assertEqual(*pixels)
        statistics = [json.loads(self.packimg("info", "--json", name))["mean"] for name in ("a.pimg", "b.pimg")]
        self.assertEqual(*statistics)

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
            self.assertIn("already indexed: 36 of 36", self.stderr)
            self.assertIn("--rebuild", self.stderr)
            self.packimg("index", "-q", "--rebuild", "-j", 1, name)
            self.assertTrue(once == {p.name: p.read_bytes() for p in self.dir.iterdir()})
        shutil.copy(self.images / "pairs.pimg", self.dir)  # further images get an index too
        report = json.loads(self.packimg("index", "-q", "--json", "pairs.pimg"))
        self.assertEqual((report["jpegs"], report["indexed"], report["made"]), (7, 7, 7))
        self.packimg("verify", "-q", "pairs.pimg")
        once = (self.dir / "pairs.pimg").read_bytes()
        self.packimg("index", "-q", "pairs.pimg", rc=2)
        self.assertIn("already indexed: 7 of 7", self.stderr)
        self.packimg("index", "-q", "--rebuild", "-j", 1, "pairs.pimg")
        self.assertTrue(once == (self.dir / "pairs.pimg").read_bytes())
        # Existing indexes are kept; images that cannot have one are reported.
        self.convert(self.images / "kinds", "-o", "kinds.pimg")
        self.packimg("index", "-q", "kinds.pimg", rc=2)
        self.assertIn("and the others cannot have one", self.stderr)
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
        """Killed at any moment, index leaves the old or the new file, and a later run removes leftovers."""
        self.convert(*[self.tree] * 12, "--no-index", "-o", "out.pimg")
        before = (self.dir / "out.pimg").read_bytes()
        shutil.copy(self.dir / "out.pimg", self.dir / "again.pimg")
        self.packimg("index", "-q", "again.pimg")
        after = (self.dir / "again.pimg").read_bytes()
        (self.dir / "again.pimg").unlink()
        for delay in (0.002, 0.005, 0.01, 0.02, 0.03, 0.05):
            for way in (signal.SIGTERM, signal.SIGKILL):
                (self.dir / "out.pimg").write_bytes(before)
                there = set(self.dir.iterdir())  # includes leftovers of runs killed before
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
        """verify names the sample, the field and both values, even if the checksums match."""
        self.convert(self.tree, "-o", "out.pimg")
        # after the headers of the item and of the index
        self.forge("out.pimg", 20, "side", 8 + 12 + 2, 4)
        report = json.loads(self.packimg("verify", "-q", "--json", "out.pimg", rc=1))
        self.assertEqual([s["index"] for s in report["bad_samples"]], [20])
        self.assertRegex(report["bad_samples"][0]["reason"],
                         r"JPEG index: row \d+, column \d+: (place|predictor of component \d) is -?\d+, "
                         r"the scan's -?\d+; packimg index --rebuild out.pimg")
        self.packimg("verify", "-q", "--checksums", "out.pimg")
        self.packimg("index", "-q", "--rebuild", "out.pimg")
        self.packimg("verify", "-q", "out.pimg")

    def advise(self, *args, rc=0):
        return json.loads(self.packimg("advise", "-q", "--json", "--seconds", 0.01, *args, rc=rc))

    def test_advise(self):
        whole = self.advise(self.tree)
        self.assertEqual((whole["images"], whole["sample"], whole["left_out"]), (36, 36, 0))
        ways = {way["way"]: way for way in whole["ways"]}
        # No image is larger than 256, so no smaller sizes are tried.
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
        self.assertIn("This needs", none["advice"])
        # The same images are measured for any number of threads and kind of source.
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


if __name__ == "__main__":
    unittest.main()
