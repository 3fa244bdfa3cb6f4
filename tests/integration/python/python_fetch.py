"""Addresses of datasets in stores in place of paths: Feed, DataLoader, dataset(), loaderbench, trainer; with a double of loaderd-fetch ($FETCH_DOUBLE)."""

import hashlib
import json
import os
import random
import re
import subprocess
import tempfile
import unittest
from unittest import mock

import loaderd
from loaderd import _daemon, _stream

try:
    import torch
except ImportError:
    torch = None

SAMPLES, BATCH = 60, 8
SCHEMA = "image: image u8[h,w,3]\nlabel: class i32\n"
PIPELINE = "random_resized_crop(24) hflip(0.5)"
RECIPE = """
[data]
batch_size = 10
pipeline = resize(16x16)
val_pipeline = resize(16x16)
[model]
name = resnet_cifar
depth = 8
width = 0.5
[train]
epochs = 1
threads = 1
class_weights = balanced
[log]
interval = 1
"""


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = os.path.join(cls.folder.name, "data.pimg")
        cls.address = f"s3://test{cls.path}"
        draw = random.Random(1)
        with loaderd.Writer(cls.path, SCHEMA, classes=["a", "b"]) as writer:
            for i in range(SAMPLES):
                pixels = bytes(draw.getrandbits(8) for _ in range(40 * 48 * 3))
                writer.add({"image": memoryview(pixels).cast("B", (40, 48, 3)), "label": i % 2})
        cls.daemon = loaderd.Feed(cls.path, pipeline=PIPELINE, batch_size=1, daemon="private")
        cls.addClassCleanup(cls.daemon.close)

    def setUp(self):
        run = tempfile.mkdtemp(dir=self.folder.name)
        environment = {
            "XDG_RUNTIME_DIR": run,
            "DOUBLE_STARTS": os.path.join(run, "starts"),
            "LOADERD_FETCH": os.environ["FETCH_DOUBLE"],
        }
        self.change(**environment)

    def change(self, **environment):
        """Sets variables until the test's end."""
        patch = mock.patch.dict(os.environ, environment)
        patch.start()
        self.addCleanup(patch.stop)

    def open(self, dataset, **options):
        options = {"batch_size": BATCH, "shuffle": True, "seed": 3, "epoch_end": 2, **options}
        return loaderd.Feed(dataset, pipeline=PIPELINE, socket=self.daemon.socket, **options)

    def hashes(self, dataset, **options):
        with self.open(dataset, **options) as feed:
            return [hashlib.sha256(bytes(batch.buffer("images"))).hexdigest() for batch in feed]

    def refused(self, words, call, *arguments):
        with self.assertRaises(loaderd.FeedError) as caught:
            call(*arguments)
        self.assertIn(words, str(caught.exception))


class Addresses(Case):
    def test_epochs_equal_those_of_the_local_file(self):
        self.change(DOUBLE_EVICTIONS="1")
        local = self.hashes(self.path)
        self.assertEqual(len(local), 8)
        self.assertEqual(self.hashes(self.address), local)
        some = self.hashes(self.path, where='class == "a"')
        self.assertEqual(self.hashes(loaderd.Part(self.address, where='class == "a"')), some)

    def test_the_state_keeps_the_address_and_fits_the_local_file(self):
        with self.open(self.address) as feed:
            next(iter(feed))
            state = feed.state_dict()
        self.assertEqual(state["dataset"], self.address)
        with self.open(self.path) as feed:
            feed.load_state_dict(state)
            self.assertEqual(feed.position, (0, 1))

    def test_facts(self):
        remote, local = (loaderd.dataset(path, socket=self.daemon.socket) for path in (self.address, self.path))
        self.assertEqual(remote, local)

    def test_progress_is_logged(self):
        with mock.patch.object(_stream, "_FETCHING_S", 0), self.assertLogs("loaderd", "WARNING") as logs:
            self.open(self.address).close()
        self.assertIn(f"Opening {self.address}: 0.0 of 0.0 MB of its index are there.", logs.output[0])
        self.assertEqual(_stream._megabytes(12_000_000), "12")

    def test_a_map_style_dataset(self):
        if torch is None:
            self.skipTest("PyTorch is not installed")
        options = {"batch_size": BATCH, "pipeline": PIPELINE, "socket": self.daemon.socket, "seed": 3}
        remote, local = (list(loaderd.DataLoader(path, **options)) for path in (self.address, self.path))
        self.assertEqual(len(remote), len(local))
        for (images, labels), (own_images, own_labels) in zip(remote, local):
            self.assertTrue(torch.equal(images, own_images) and torch.equal(labels, own_labels))

    def test_the_fetcher_fails(self):
        self.change(DOUBLE_FAIL_AFTER="20", DOUBLE_EVICTIONS="1")
        with self.open(self.address, epoch_end=None) as feed:
            self.refused("the dataset was replaced", lambda: [None for _ in iter(feed.next, None)])

    def test_what_cannot_be_opened(self):
        self.refused("the store has no such object", self.open, "s3://test/none.pimg")
        both = [loaderd.Part(self.address, share=1), loaderd.Part(self.address, share=1)]
        self.refused("the fetcher does not know of feeds of several parts", self.open, both)
        self.change(LOADERD_FETCH="/nonexistent/loaderd-fetch", AWS_PROFILE="other")
        self.refused(f"packimg fetch {self.address} -o FILE", self.open, self.address)

    def test_what_is_an_address(self):
        for path in ("s3://a/b", "https://a", "x+y-1.z://"):
            self.assertTrue(_daemon.is_address(path), path)
        for path in ("/a://b", "://a", "s3:/a", ""):
            self.assertFalse(_daemon.is_address(path), path)


class Programs(Case):
    def run_program(self, variable, *arguments):
        if variable not in os.environ:
            self.skipTest(f"{variable} is not built")
        return subprocess.run([os.environ[variable], *arguments], capture_output=True, text=True, timeout=300)

    def test_loaderbench(self):
        remote, local = (self.run_program("LOADERBENCH", "--hash=9", "--pipeline=resize(16x16)", "--threads=1", "--batch=8", path) for path in (self.address, self.path))
        self.assertEqual((remote.returncode, local.returncode), (0, 0), remote.stderr + local.stderr)
        hashes = [re.findall(r"[0-9a-f]{32}", done.stdout) for done in (remote, local)]
        self.assertEqual(len(hashes[0]), 1)
        self.assertEqual(*hashes)
        refused = self.run_program("LOADERBENCH", "--explain", "--pipeline=resize(16x16)", "--batch=8", "--seconds=0.1", "--warmup=0", self.address)
        self.assertIn("the images of a dataset in a store cannot be examined", refused.stdout + refused.stderr)

    def test_the_trainer(self):
        losses = []
        recipe = os.path.join(self.folder.name, "small.ini")
        with open(recipe, "w") as file:
            file.write(RECIPE)
        for name, path in (("remote", self.address), ("local", self.path)):
            output = os.path.join(self.folder.name, name)
            options = ("--device", "cpu", "--socket", self.daemon.socket, "--output", output)
            done = self.run_program("TRAINER", recipe, *options, f"data.train={path}", f"data.val={path}")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("cannot count labels", done.stderr + done.stdout)
            with open(os.path.join(output, "log.jsonl")) as log:
                losses.append([line.get("loss_hex") for line in map(json.loads, log) if line["event"] in ("step", "eval")])
        self.assertGreater(len(losses[0]), 6)
        self.assertEqual(*losses)


if __name__ == "__main__":
    unittest.main()
