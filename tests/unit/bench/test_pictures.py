"""Scripts of bench/ without measurements: rateplot on valid and invalid tables, tables and pictures of bench/peers on made-up rows."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

BENCH = os.environ["BENCH"]
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(BENCH, "peers"))
import against  # noqa: E402
import picture  # noqa: E402
import results  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
HEADING = "way,codec,verbatim,indexed,short_side,quality,bytes_per_image,images_per_s_core\n"


class Rateplot(unittest.TestCase):
    def run_on(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            file.write(text)
            file.flush()
            return subprocess.run([os.path.join(BENCH, "rateplot"), file.name], capture_output=True, text=True, timeout=60)

    def test_points(self):
        done = self.run_on(
            HEADING + '"as they are, <b>",jpeg,1,1,,,110000,2500\n"side 256, 80",jpeg,0,1,256,80,21000,7100\n'
            '"side 256, 90",jpeg,0,1,256,90,30000,6200\nraw,raw,0,0,256,,260000,37000\n'
        )
        self.assertEqual(done.stderr, "")
        root = xml.etree.ElementTree.fromstring(done.stdout)
        titles = [title.text for title in root.iter(SVG + "title")]
        self.assertEqual(len(titles), 4)
        self.assertIn("as they are, <b>: 110,000 bytes, 2,500 images/s", titles)
        self.assertEqual(len(root.findall(SVG + "polyline")), 3)
        # No point beats the smallest and the fastest one. Each has a dot and two more circles.
        self.assertEqual(len(root.findall(SVG + "circle")), 4 + 2 * 2)
        # Fewer bytes are further left, a higher rate is further up.
        dots = {circle[0].text.split(":")[0]: circle for circle in root.findall(SVG + "circle") if len(circle)}
        self.assertLess(float(dots["side 256, 80"].get("cx")), float(dots["raw"].get("cx")))
        self.assertGreater(float(dots["side 256, 80"].get("cy")), float(dots["raw"].get("cy")))

    def test_refusals(self):
        for text, reason in (
            ("", "has no column way"),
            (HEADING, "no rows"),
            (HEADING.replace("quality,", "") + "a,raw,0,0,256,1,2\n", "has no column quality"),
            (HEADING + "a,raw,0,0,256,,many,2\n", "line 2: bytes_per_image is 'many'"),
            (HEADING + "a,raw,0,0,256,,5,0\n", "line 2: images_per_s_core is '0'"),
            (HEADING + "a,raw\n", "line 2: bytes_per_image is None"),
        ):
            done = self.run_on(text)
            self.assertEqual(done.returncode, 1, text)
            self.assertIn(reason, done.stderr)


def feed_row(name, speeds):
    loaders = {
        key: {"name": key, "peer": not key.startswith("loaderd"), "images_per_s": values} for key, values in speeds.items()
    }
    return results.judge(
        {"name": name, "kind": "feed", "title": "A row", "loaders": results.summarise(loaders), "rounds": 3,
         "seconds": 4, "workers": 2, "date": "2000-01-01", "revision": "r"}
    )  # fmt: skip


class Rows(unittest.TestCase):
    def test_ratios_are_of_rounds(self):
        # The machine slows down for all loaders alike, so the ratios of the rounds stay the same.
        row = feed_row("original", {"loaderd": [800, 400, 80], "tf.data": [200, 100, 20], "torch": [100, 50, 10], "ffcv": [1, 1, 1]})
        targets = {target["what"]: target for target in row["targets"]}
        self.assertEqual(targets["best peer"]["against"], "tf.data")
        self.assertEqual([targets["best peer"][key] for key in ("median", "min", "max")], [4, 4, 4])
        self.assertEqual(targets["PyTorch"]["median"], 8)
        self.assertFalse(results.is_missed(targets["best peer"]) or results.is_missed(targets["PyTorch"]))
        self.assertNotIn("median", targets["AVX2"])

    def test_missed(self):
        row = feed_row("raw", {"loaderd": [499, 499, 499], "loaderd-avx2": [250, 250, 250], "ffcv": [100, 100, 100]})
        text = results.table(row)
        self.assertIn("**4.99 x** best peer, ffcv", text)
        self.assertIn("at least 5 x: **missed**", text)
        self.assertIn("**4.99 x**", results.overview([row]))

    def test_cpu_time_has_a_best_peer_of_its_own(self):
        # The fastest peer takes the most CPU time.
        row = feed_row("mask512", {"loaderd": [600, 600], "dali": [100, 100], "torch": [50, 50]})
        for key, value in (("loaderd", 40), ("dali", 2), ("torch", 4)):
            row["loaders"][key]["images_per_cpu_s"] = [value, value]
        targets = {target["what"]: target for target in results.judge(row)["targets"]}
        self.assertEqual((targets["best peer"]["against"], targets["best peer"]["median"]), ("dali", 6))
        self.assertEqual((targets[results.BY_CPU]["against"], targets[results.BY_CPU]["median"]), ("torch", 10))
        self.assertIn("| torch | 50 | 50 - 50 | 12.00 x | 4 |", results.table(row))

    def test_failed_peer_is_named(self):
        row = feed_row("raw", {"loaderd": [500], "ffcv": [100]})
        row["loaders"]["dali"] = {"name": "DALI", "peer": True, "images_per_s": [], "error": "not installed"}
        self.assertIn("| DALI | not measured: not installed |", results.table(row))
        root = xml.etree.ElementTree.fromstring(picture.draw({"cpu": "<c>", "isa": "avx2", "cores_used": 2}, [row]))
        texts = [text.text for text in root.iter(SVG + "text")]
        self.assertIn("not measured", texts)
        self.assertIn("5 x best peer", texts)

    def test_readme_shows_a_recorded_run(self):
        results = pathlib.Path(BENCH, "results")
        (shown,) = re.findall(r"!\[[^]]*\]\(bench/results/([^)]*)\)", pathlib.Path(BENCH, "../README.md").read_text())
        drawn = picture.draw_recorded((results / shown).with_name("peers.json"), ["short256", "original"])
        self.assertEqual((results / shown).read_text(), drawn, f"bench/peers/picture.py makes another {shown} now")

    def steadiness(self, more=None, **speeds):
        loaders = {key.replace("_", "-"): {"name": key, "peer": False, "images_per_s": values} for key, values in speeds.items()}
        for key, values in (more or {}).items():
            loaders[key].update(values)
        row = results.judge(
            {"name": "steadiness", "kind": "steadiness", "title": "A row", "loaders": results.summarise(loaders), "rounds": 3,
             "seconds": 1, "workers": 2, "date": "2000-01-01", "revision": "r"}
        )  # fmt: skip
        return row, {target["what"]: target for target in row["targets"]}

    def test_rounds_are_levelled(self):
        # The machine is ten times slower in the second round. The remaining difference: one batch size is a tenth slower.
        row, found = self.steadiness(usual=[1000, 100, 1000], batch_32=[900, 90, 900], batch_64=[1000, 100, 1000])
        self.assertAlmostEqual(found["batch sizes"]["median"], 0.9)
        self.assertAlmostEqual(found["batch sizes"]["error"], 0)
        self.assertIn("at least 0.95 x: **missed**", results.table(row))

    def test_error_leaves_undecided(self):
        noisy = {"usual": [100, 108, 92, 100], "threads_8": [96, 100, 88, 92]}
        row, found = self.steadiness(**noisy)
        self.assertLess(found["8 threads"]["median"], 0.95)
        self.assertGreater(found["8 threads"]["median"] + found["8 threads"]["error"], 0.95)
        self.assertIn("within the error of measurement", results.table(row))
        row, found = self.steadiness(usual=noisy["usual"], threads_8=[0.8 * value for value in noisy["threads_8"]])
        self.assertIn("at least 0.95 x: **missed**", results.table(row))


class Against(unittest.TestCase):
    def row(self, ours):
        def of(speeds):
            return {"name": "it", "images_per_s": speeds, "images_per_cpu_s": [2 * speed for speed in speeds]}

        found = {"usual": of(ours), "usual other": of([100, 200, 100]), "usual again": of([100, 200, 110])}
        return {"name": "short256", "kind": "against", "title": "Some", "loaders": found, "targets": against.targets(found),
                "rounds": 3, "seconds": 1, "date": "today", "revision": "0"}  # fmt: skip

    def test_a_loss_is_told(self):
        self.assertIn("**missed**", results.table(self.row([50, 100, 50])))
        self.assertNotIn("**missed**", results.table(self.row([100, 200, 101])))
        text = results.report({key: 2 for key in ("cpu", "isa", "cores_used", "cores", "memory_gib", "system")}, [self.row([99, 198, 99])])
        self.assertIn("# Against another build", text)
        self.assertIn("| it | 99 | 99 - 198 | 198 |", text)


if __name__ == "__main__":
    unittest.main()
