"""Mixed batches in Python: mixup, cutmix and targets in the pipeline, with Feed and DataLoader, and the daemon ($LOADERD)."""

import hashlib
import os
import sys
import tempfile
import unittest

import loaderd

try:
    import numpy
except ImportError:
    print("NumPy is not installed")
    sys.exit(77)
try:
    import torch
except ImportError:
    torch = None

SAMPLES, CLASSES, BATCH = 40, 5, 8
PLAIN = "random_resized_crop(24) hflip to(f32) layout(nchw)"
MIXED = f"{PLAIN} mixup(0.4) cutmix targets(label_smoothing=0.1)"
SCHEMA = """image: image u8[h,w,3]
mask: mask(image) u8[h,w]
boxes: boxes(image) f32[*,4] xyxy
kind: class(boxes) i32[*]
weight: value f32
label: class i32
"""
NAMES = [f"class {i}" for i in range(CLASSES)]


def sample(i):
    random = numpy.random.default_rng(i)
    return {
        "image": random.integers(0, 256, (40, 48, 3), "u1"),
        "mask": random.integers(0, 9, (40, 48), "u1"),
        "boxes": numpy.zeros((0, 4), "f4"),
        "kind": numpy.zeros(0, "i4"),
        "label": i % CLASSES,
        "weight": i / 2,
    }


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = os.path.join(cls.folder.name, "data.pimg")
        with loaderd.Writer(cls.path, SCHEMA, classes=NAMES) as writer:
            for i in range(SAMPLES):
                writer.add(sample(i))
        cls.daemon = loaderd.Feed(cls.path, pipeline="resize(8x8)", batch_size=1, daemon="private")
        cls.addClassCleanup(cls.daemon.close)

    def refused(self, words, call, *arguments, **options):
        with self.assertRaises(loaderd.FeedError) as caught:
            call(*arguments, **options)
        self.assertIn(words, str(caught.exception))


class Feeds(Case):
    def open(self, pipeline=MIXED, **options):
        options = {"batch_size": BATCH, "shuffle": True, "seed": 3, "socket": self.daemon.socket, "epoch_end": 2, **options}
        return loaderd.Feed(self.path, pipeline=pipeline, **options)

    def hashes(self, **options):
        with self.open(**options) as feed:
            return [hashlib.sha256(batch.images.tobytes() + batch["target"].tobytes()).hexdigest() for batch in feed]

    def test_targets_describe_the_images(self):
        """The images of a batch are explained by the share that its targets show."""
        methods = set()
        with self.open(PLAIN) as plain, self.open(values=["weight"]) as mixed:
            for one, batch in zip(plain, mixed):
                target, labels = batch["target"], batch.labels
                self.assertEqual((target.dtype, target.shape), (numpy.dtype("f4"), (BATCH, CLASSES)))
                self.assertTrue(numpy.allclose(target.sum(1), 1, atol=1e-6))
                self.assertEqual(batch["weight"].tolist(), (batch.samples / 2).tolist())
                images = numpy.array(one.images)
                for i in range(BATCH):
                    if labels[i] == labels[i ^ 1]:
                        continue
                    share = (target[i, labels[i]] - 0.02) / 0.9
                    blended = share * images[i] + (1 - share) * images[i ^ 1]
                    whole = numpy.isclose(batch.images[i], blended, atol=1e-5)
                    own = numpy.isclose(batch.images[i], images[i], atol=1e-5).all(0)
                    other = numpy.isclose(batch.images[i], images[i ^ 1], atol=1e-5).all(0)
                    self.assertTrue(whole.all() or ((own | other).all() and abs((own & ~other).mean() - share) < 0.05))
                    methods.add(bool(whole.all()))
        self.assertEqual(methods, {False, True})

    def test_resumes_at_any_batch(self):
        whole = self.hashes(epoch=1)
        self.assertEqual(len(set(whole)), SAMPLES // BATCH)
        self.assertEqual(self.hashes(epoch=1, batch=3), whole[3:])
        self.assertFalse(set(whole) & set(self.hashes() + self.hashes(epoch=1, seed=4)))

    def test_threads_give_equal_hashes(self):
        whole = self.hashes()
        for threads in (1, 3):
            self.assertEqual(self.hashes(socket=None, daemon="private", threads=threads), whole)

    def test_pairs(self):
        with self.open(f"{PLAIN} mixup(8) targets(pairs)", drop_last=False, batch_size=6) as feed:
            for batch in feed:
                pairs, share = batch["target"], batch["share"]
                self.assertEqual((pairs.dtype, share.dtype), (numpy.dtype("i4"), numpy.dtype("f4")))
                self.assertEqual(pairs[:, 0].tolist(), batch.labels.tolist())
                self.assertEqual(pairs[:, 1].tolist(), [batch.labels[i ^ 1] for i in range(batch.count)])
                self.assertTrue(((share > 0) & (share < 1)).all())
                self.assertTrue((batch.labels == list(batch)[1]).all())

    def test_a_target_takes_the_place_of_labels(self):
        with self.open() as feed:
            batch = next(feed)
            images, target = batch
            self.assertTrue((target == batch["target"]).all())
            self.assertIn("target", batch)
            if torch is not None:
                images, target = batch.torch()
                self.assertEqual((target.dtype, tuple(target.shape)), (torch.float32, (BATCH, CLASSES)))
                self.assertEqual(batch.tensor("label").tolist(), batch.labels.tolist())
                self.assertEqual(batch.to("cpu").labels.dtype, torch.float32)
                loss = torch.nn.functional.cross_entropy(torch.zeros(BATCH, CLASSES), target)
                self.assertAlmostEqual(float(loss), float(numpy.log(CLASSES)), places=5)

    def test_targets_without_mixing(self):
        with self.open(f"{PLAIN} targets(label_smoothing=0.5)", values=["mask"]) as feed:
            batch = next(feed)
            self.assertEqual(batch["mask"].shape, (BATCH, 24, 24))
            expected = 0.5 * numpy.eye(CLASSES)[batch.labels] + 0.1
            self.assertTrue(numpy.allclose(batch["target"], expected, atol=1e-6))

    def test_names_of_the_schema_come_first(self):
        path = os.path.join(self.folder.name, "named.pimg")
        with loaderd.Writer(path, "image: image u8[h,w,3]\nlabel: class i32\ntarget: value f32\n", classes=NAMES) as writer:
            for i in range(4):
                writer.add({"image": sample(i)["image"], "label": i, "target": i / 4})
        with loaderd.Feed(path, pipeline=MIXED, batch_size=4, socket=self.daemon.socket, values=["target"]) as feed:
            batch = next(feed)
            self.assertEqual(batch["target"].tolist(), (batch.samples / 4).tolist())
            self.assertEqual(batch["__target__"].shape, (4, CLASSES))
            self.assertTrue((list(batch)[1] == batch["__target__"]).all())

    def test_buckets(self):
        """A batch is mixed at the size of its bucket; the last of an odd number stays as it is."""
        buckets = {"buckets": [(48, 40), (24, 20)], "batch_pixels": 5 * 48 * 40, "batch_size": 8, "drop_last": False}
        with self.open("bucket_resize", **buckets) as plain, self.open("bucket_resize mixup(8) targets(pairs)", **buckets) as mixed:
            counts = set()
            for one, batch in zip(plain, mixed):
                counts.add(batch.count)
                for i in range(batch.count):
                    own, other = one.images[i].astype("f4"), one.images[min(i ^ 1, batch.count - 1)].astype("f4")
                    share = batch["share"][i]
                    self.assertEqual(share == 1, (i ^ 1) == batch.count)
                    self.assertTrue(numpy.allclose(batch.images[i], share * own + (1 - share) * other, atol=0.501))
            self.assertIn(5, counts)

    def test_refusals(self):
        for name in ("mask", "boxes", "kind"):
            self.refused(f'value "{name}" belongs to the pixels of its sample alone', self.open, values=[name])
        self.refused("batch_size 7 is odd", self.open, batch_size=7)
        self.refused("leave them or the views out", self.open, "view a { hflip } view b { mixup }")


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Loaders(Case):
    def dataset(self, pipeline=MIXED, **options):
        return loaderd.ImageDataset(self.path, pipeline, seed=3, socket=self.daemon.socket, **options)

    def test_batches_have_targets(self):
        loader = loaderd.DataLoader(self.dataset(), batch_size=BATCH, shuffle=True)
        batches = list(loader)
        self.assertEqual(len(batches), SAMPLES // BATCH)
        for images, target in batches:
            self.assertEqual((tuple(images.shape), tuple(target.shape)), ((BATCH, 3, 24, 24), (BATCH, CLASSES)))
            self.assertTrue(torch.allclose(target.sum(1), torch.ones(BATCH)))
        self.assertTrue(any(((target > 0.05).sum(1) == 2).any() for _, target in batches))

    def test_order_of_the_daemon(self):
        """With the daemon's order, batches are those of a feed."""
        loader = loaderd.DataLoader(self.dataset(), batch_size=BATCH, shuffle="daemon")
        with loaderd.Feed(self.path, pipeline=MIXED, batch_size=BATCH, shuffle=True, seed=3, socket=self.daemon.socket) as feed:
            for (images, target), batch in zip(loader, feed):
                wanted = batch.torch()
                self.assertTrue(torch.equal(images, wanted.images) and torch.equal(target, wanted.labels))

    def test_resumes(self):
        loader = loaderd.DataLoader(self.dataset(), batch_size=BATCH, shuffle=True, generator=torch.Generator().manual_seed(1))
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        rest = [(images.clone(), target.clone()) for images, target in batches]
        again = loaderd.DataLoader(self.dataset(), batch_size=BATCH, shuffle=True, generator=torch.Generator())
        again.load_state_dict(state)
        for (images, target), (wanted, wanted_target) in zip(list(again), rest):
            self.assertTrue(torch.equal(images, wanted) and torch.equal(target, wanted_target))

    def test_dictionaries(self):
        for pipeline, targets in ((MIXED, ["target"]), (f"{PLAIN} cutmix targets(pairs)", ["target", "share"])):
            batch = next(iter(loaderd.DataLoader(self.dataset(pipeline, as_dict=True), batch_size=BATCH)))
            self.assertEqual(list(batch), ["image", "label", "sample", *targets])
            self.assertEqual(batch["label"].tolist(), [i % CLASSES for i in range(BATCH)])
        named = next(iter(loaderd.DataLoader(self.dataset(as_dict={"image": "pixel_values", "target": "labels"}), batch_size=BATCH)))
        self.assertEqual([(name, value.dtype) for name, value in named.items()], [("pixel_values", torch.float32), ("labels", torch.float32)])

    def test_transforms_get_mixed_images(self):
        plain = list(loaderd.DataLoader(self.dataset(), batch_size=BATCH))
        changed = list(loaderd.DataLoader(self.dataset(transform=lambda image: image + 1), batch_size=BATCH))
        for (images, target), (others, other_target) in zip(plain, changed):
            self.assertTrue(torch.allclose(images + 1, others) and torch.equal(target, other_target))

    def test_plain_loaders_of_torch(self):
        own = list(loaderd.DataLoader(self.dataset(), batch_size=BATCH))
        theirs = list(torch.utils.data.DataLoader(self.dataset(), batch_size=BATCH))
        self.assertTrue(all(tuple(target.shape) == (BATCH, CLASSES) for _, target in theirs))
        self.assertEqual(len(own), len(theirs))
        image, target = self.dataset()[7]
        self.assertEqual((tuple(image.shape), tuple(target.shape)), ((3, 24, 24), (CLASSES,)))
        self.assertAlmostEqual(float(target[7 % CLASSES]), 0.92, places=6)

    def test_refusals(self):
        self.refused("as_dict=True delivers them", self.dataset, f"{PLAIN} mixup targets(pairs)")
        self.refused("'target' comes from mixup, cutmix or targets", self.dataset, PLAIN, as_dict={"image": "x", "target": "y"})


if __name__ == "__main__":
    unittest.main()
