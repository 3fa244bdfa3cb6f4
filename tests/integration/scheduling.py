"""bench/scheduling as a process, and its count of system calls, which must be far below the number of samples."""

import os
import re
import subprocess
import tempfile
import unittest


class Scheduling(unittest.TestCase):
    def test_all_parts(self):
        with tempfile.TemporaryDirectory() as folder:
            images, path = os.path.join(folder, "images"), os.path.join(folder, "small.pimg")
            for command in (
                [os.environ["SHAPES"], images, "--count", "1200"],
                [os.environ["PACKIMG"], "convert", images + "/train", "-o", path, "--quiet"],
            ):
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            done = subprocess.run(
                [os.path.join(os.environ["TREE"], "bench/scheduling"), "--programs", os.environ["BUILD"], "--seconds", "0.3", "--rounds", "1", path,
                 "random_resized_crop(48) hflip"],
                stdout=subprocess.PIPE, text=True, timeout=600)  # fmt: skip
        self.assertEqual(done.returncode, 0)
        text = done.stdout
        cpus = len(os.sched_getaffinity(0))
        for count in (cpus, 2 * cpus, 4 * cpus):
            self.assertRegex(text, rf"(?m)^ +{count} +\d+ images/s +[\d.]+ % ")
        for size in (32, 64, 128, 256, 512):
            self.assertRegex(text, rf"(?m)^ +{size} +\d+ images/s +[\d.]+ % ")
        self.assertIn("left out: ", text)  # a batch of 1024 exceeds the dataset
        self.assertRegex(text, r"took [\d.]+ % of all CPU time; the rate fell from \d+ to \d+ images/s")
        calls = re.search(r"images in batches of 256: ([\d.]+) a sample, ([\d.]+) a batch", text)
        if not calls:
            self.skipTest(text.splitlines()[-1])
        self.assertLess(float(calls[1]), 0.25)


if __name__ == "__main__":
    unittest.main()
