"""proto/python/examples: each example packs its source with one command and trains; those with targets give the ones that torchvision's
transforms.v2 give.
"""

import hashlib
import importlib
import json
import math
import os
import pathlib
import sys
import tempfile
import unittest

from loaderd import Feed

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "proto/python/examples"))
try:
    import numpy
    import sources
    import torch
    import torchvision
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

os.environ["PATH"] = f"{pathlib.Path(os.environ['PACKIMG']).parent}{os.pathsep}{os.environ['PATH']}"
GOLDEN = json.loads((ROOT / "tests/golden/frame/examples.json").read_text())
SAMPLES, SEED = GOLDEN["samples"], GOLDEN["seed"]
STEPS = 2


def digest(tensor, element):
    return hashlib.sha256(tensor.numpy().astype(element).tobytes()).hexdigest()


class Examples(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.scenes = [sources.scene(number)[1] for number in range(SAMPLES)]

    def run_example(self, name, make_source):
        """Packs and trains. Returns the example's module, and its targets of the first batch in stored order."""
        example = importlib.import_module(name)
        packed = pathlib.Path(self.folder.name) / "train.pimg"
        example.pack(make_source(pathlib.Path(self.folder.name) / "source"), packed)
        losses = list(example.train(packed, STEPS))
        self.assertEqual(len(losses), STEPS)
        self.assertTrue(all(map(math.isfinite, losses)), losses)
        with Feed(packed, pipeline=example.PIPELINE, batch_size=SAMPLES, seed=SEED, values=example.VALUES) as feed:
            return example, example.targets(next(feed))

    def assert_rows_close(self, found, golden):
        """Compares coordinates to within 1e-4 of a pixel, because torchvision rounds at other places."""
        self.assertEqual(len(found), len(golden))
        if golden:
            numpy.testing.assert_allclose(found.numpy(), golden, rtol=0, atol=1e-4)

    def test_segmentation(self):
        _, targets = self.run_example("segmentation", sources.ade20k)
        self.assertEqual([digest(mask, "<u1") for mask in targets], GOLDEN["segmentation"])

    def test_depth(self):
        example, targets = self.run_example("depth", sources.rgbd)
        self.assertEqual([digest((metres * example.UNITS).round(), "<u2") for metres in targets], GOLDEN["depth"])

    def test_detection(self):
        _, targets = self.run_example("detection", lambda folder: sources.coco(folder, "instances"))
        for found, golden in zip(targets, GOLDEN["detection"], strict=True):
            self.assert_rows_close(found["boxes"], golden["boxes"])
            self.assertEqual(found["labels"].tolist(), golden["labels"])

    def test_instances(self):
        _, targets = self.run_example("instances", sources.penn_fudan)
        for found, golden in zip(targets, GOLDEN["instances"], strict=True):
            self.assert_rows_close(found["boxes"], golden["boxes"])
            self.assertEqual([digest(mask, "<u1") for mask in found["masks"]], golden["masks"])

    def test_keypoints(self):
        _, targets = self.run_example("keypoints", lambda folder: sources.coco(folder, "person_keypoints"))
        for found, golden in zip(targets, GOLDEN["keypoints"], strict=True):
            self.assert_rows_close(found["boxes"], golden["boxes"])
            self.assert_rows_close(found["keypoints"], golden["keypoints"])

    def test_captioning(self):
        _, targets = self.run_example("captioning", lambda folder: sources.coco(folder, "captions"))
        for text, shapes in zip(targets, self.scenes, strict=True):
            self.assertEqual(bytes(text.tolist()).strip(b"\0").decode(), sources.caption(shapes))

    def test_multi_label(self):
        _, targets = self.run_example("multi_label", sources.multi_label)
        self.assertEqual(targets.tolist(), [list(map(float, sources.colours(shapes).values())) for shapes in self.scenes])

    def test_regression(self):
        _, targets = self.run_example("regression", sources.regression)
        for row, shapes in zip(targets, self.scenes, strict=True):
            numpy.testing.assert_allclose(row.numpy(), list(sources.measures(shapes).values()), rtol=1e-6)

    def test_dino(self):
        """The loss falls, and two runs that share a checkpoint, the first ending in the middle of an epoch, have the losses of one."""
        example = importlib.import_module("dino")
        packed, checkpoint = (pathlib.Path(self.folder.name) / name for name in ("train.pimg", "checkpoint"))
        example.pack(sources.images(pathlib.Path(self.folder.name) / "source"), packed)
        losses = list(example.train(packed, 12))
        self.assertLess(sum(losses[-3:]), sum(losses[:3]) - 0.5, losses)
        parts = [list(example.train(packed, steps, checkpoint)) for steps in (3, 2)]
        numpy.testing.assert_allclose(sum(parts, []), losses[:5], rtol=1e-5)

    def test_diffusion_buckets(self):
        """Batches have the shapes of buckets, and conditions of their images; the loss falls, and two runs that share a checkpoint have the losses of one."""
        example = importlib.import_module("diffusion_buckets")
        packed, checkpoint = (pathlib.Path(self.folder.name) / name for name in ("train.pimg", "checkpoint"))
        example.pack(sources.images_in_several_sizes(pathlib.Path(self.folder.name) / "source"), packed)
        seen = set()
        with Feed(packed, buckets=example.BUCKETS, pipeline=example.PIPELINE, values=["image", *example.CONDITIONS], batch_size=4) as feed:
            for batch in feed:
                seen.add(batch.images.shape[2:0:-1])
                for sample, row in zip(batch.samples, example.conditions(batch).tolist(), strict=True):
                    self.assertEqual(row[:2], list(sources.size_of_image(int(sample)))[::-1])
                    scale = max(row[4] / row[0], row[5] / row[1])
                    self.assertTrue(all(0 <= row[2 + i] <= math.ceil(scale * row[i]) - row[4 + i] for i in range(2)), row)
                    self.assertEqual(tuple(row[4:]), batch.images.shape[1:3])
        self.assertTrue(len(seen) > 1 and seen <= set(example.BUCKETS), seen)
        losses = list(example.train(packed, 30))
        self.assertLess(sum(losses[-5:]), sum(losses[:5]) - 1, losses)
        parts = [list(example.train(packed, steps, checkpoint)) for steps in (3, 2)]
        numpy.testing.assert_allclose(sum(parts, []), losses[:5], rtol=1e-5)

    def test_navit(self):
        """Batches keep their budget, tokens attend only within their image; the loss falls, and two runs that share a checkpoint have the losses of one."""
        example = importlib.import_module("navit")
        packed, checkpoint = (pathlib.Path(self.folder.name) / name for name in ("train.pimg", "checkpoint"))
        example.pack(sources.images_in_several_sizes(pathlib.Path(self.folder.name) / "source"), packed)
        model = example.NaViT()
        with example.open_feed(packed) as feed:
            batches = list(feed)
        self.assertEqual(sorted(int(sample) for batch in batches for sample in batch.samples), list(range(sources.COUNT)))
        self.assertEqual(sum(len(batch.images.values) for batch in batches) // example.BATCH_TOKENS, len(batches) - 1)
        patches, places, offsets = example.tokens_of(batches[0])
        self.assertLessEqual(len(patches), example.BATCH_TOKENS)
        masked = torch.arange(len(patches)) % 3 == 0
        together = model(patches, masked, places, offsets)
        for first, end in zip(offsets[:-1], offsets[1:]):
            alone = model(patches[first:end], masked[first:end], places[first:end], torch.tensor([0, end - first]))
            torch.testing.assert_close(together[first:end], alone, rtol=1e-4, atol=1e-5)
        losses = list(example.train(packed, 40))
        self.assertLess(sum(losses[-5:]), sum(losses[:5]) * 0.7, losses)
        parts = [list(example.train(packed, steps, checkpoint)) for steps in (3, 4)]
        numpy.testing.assert_allclose(sum(parts, []), losses[:7], rtol=1e-5)


if __name__ == "__main__":
    print(f"torch {torch.__version__}, torchvision {torchvision.__version__}")
    unittest.main()
