"""stages_bench as a process: every instruction set and stage on this machine, the crops' pixels, and errors."""

import json
import os
import struct
import subprocess
import tempfile
import unittest

CROPS = 20


class StagesBench(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        images = os.path.join(cls.folder.name, "images")
        subprocess.run([os.environ["SHAPES"], images, "--count", "60"], check=True, stdout=subprocess.DEVNULL)
        cls.jpeg, cls.raw = (os.path.join(cls.folder.name, name) for name in ("jpeg.pimg", "raw.pimg"))
        for path, how in ((cls.jpeg, ["--jpeg", "verbatim"]), (cls.raw, ["--raw"])):
            subprocess.run(
                [os.environ["PACKIMG"], "convert", os.path.join(images, "train"), "-o", path, "--quiet", *how],
                check=True,
                stdout=subprocess.DEVNULL,
            )

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_on(self, *arguments):
        return subprocess.run([os.environ["STAGES_BENCH"], *arguments], capture_output=True, text=True, timeout=600)

    def test_json_and_pixels(self):
        dump = os.path.join(self.folder.name, "crops")
        done = self.run_on("--json", "--rounds", "2", "--side", "32", "--dump", dump, self.jpeg, str(CROPS))
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual((found["crops"], found["indexed"], found["side"]), (CROPS, CROPS, 32))
        own = {"entropy", "decode", "crop", "warm_entropy", "warm_crop"}
        self.assertEqual(set(found["us"]["c"]), own)
        self.assertEqual(set(found["us"]["libjpeg-turbo"]), {"entropy", "decode", "image", "coefficients"})
        for stages in found["us"].values():
            for values in stages.values():
                self.assertEqual(len(values), 2)
                self.assertGreaterEqual(min(values), 0)
        with open(dump, "rb") as file:
            data = file.read()
        at = pixels = crops = 0
        while at < len(data):
            width, height = struct.unpack_from("<II", data, at)
            at += 8 + 3 * width * height
            pixels, crops = pixels + width * height, crops + 1
        self.assertEqual((at, crops), (len(data), CROPS))
        self.assertAlmostEqual(pixels / CROPS, found["pixels_per_crop"], places=1)

    def test_table(self):
        done = self.run_on("--rounds", "1", self.jpeg, "5")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("entropy stage", done.stdout)
        self.assertIn("5 crops to 224", done.stdout)

    def test_refusals(self):
        for arguments, status, reason in (
            ([], 64, "which dataset"),
            (["--rounds", "0", self.jpeg], 64, "must be a number"),
            ([self.jpeg, "many"], 64, "must be a number"),
            ([self.raw], 1, "no upright baseline JPEGs"),
            ([self.raw + ".not"], 1, ".not"),
        ):
            done = self.run_on(*arguments)
            self.assertEqual(done.returncode, status, arguments)
            self.assertIn(reason, done.stderr)


if __name__ == "__main__":
    unittest.main()
