"""Feeds with buckets: each batch over all ranks has images of one shape, and the samples that a slow model of the order says."""

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
import order_model as model

COUNT, STEP, SEED = 157, 6, 77
SIZES = [(32, 32), (48, 24), (24, 48), (16, 16), (64, 20)]
PIPELINE = "bucket_resize(crop=random) hflip"


def size_of(i):
    return 10 + i * 7 % 61, 10 + i * i % 53


IMAGES = [size_of(i) for i in range(COUNT)]


class Buckets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = os.path.join(cls.folder.name, "a.pimg")
        schema = "image: image u8[h,w,3]\nmask: mask(image) u8[h,w]\nbox: boxes(image) f32[*,4] xyxy\n"
        with loaderd.Writer(cls.path, schema) as writer:
            for i, (width, height) in enumerate(IMAGES):
                image = numpy.zeros((height, width, 3), "u1")
                image[:, :] = (i, 255 - i, 7)
                box = numpy.array([[0, 0, width, height]], "f4")
                writer.add({"image": image, "mask": numpy.full((height, width), i, "u1"), "box": box})

    def feed(self, **options):
        given = {"batch_size": STEP, "pipeline": PIPELINE, "shuffle": True, "seed": SEED, "daemon": "private", "buckets": SIZES, **options}
        return loaderd.Feed(self.path, **given)

    def model(self, entries=range(COUNT), shuffle=True, step=STEP, steps=None):
        return model.Buckets(SIZES, IMAGES, entries, SEED, steps or [step] * len(SIZES), shuffle)

    def taken(self, batch):
        """Returns size and samples of a batch, whose images must be those of the samples."""
        height, width = batch.images.shape[1:3]
        for sample, image in zip(batch.samples, batch.images):
            self.assertTrue((image == (sample, 255 - sample, 7)).all())
        return (width, height), [int(sample) for sample in batch.samples]

    def epoch(self, feed):
        return [self.taken(batch) for batch in feed]

    def test_order(self):
        for shuffle in (True, False):
            for drop_last in (True, False):
                order = self.model(shuffle=shuffle)
                feed = self.feed(shuffle=shuffle, drop_last=drop_last)
                for number in range(2):
                    self.assertEqual(self.epoch(feed), order.epoch(number, not drop_last))
        self.assertEqual(len(feed), len(order.epoch(0)))
        self.assertEqual([tuple(b) for b in feed.buckets], [(*s, STEP, len(m)) for s, m in zip(SIZES, order.members)])
        self.assertEqual(sum(b.samples for b in feed.buckets), COUNT)

    def test_ranks(self):
        """At any world the ranks together have the same batches, and are never at different buckets."""
        expected = self.model(step=24).epoch(0)
        for world in (2, 3, 8):
            feeds = [self.feed(batch_size=24 // world, rank=rank, world=world, daemon="private") for rank in range(world)]
            ranks = [self.epoch(feed) for feed in feeds]
            found = []
            for i in range(max(map(len, ranks))):
                here = [rank[i] for rank in ranks if i < len(rank)]
                self.assertEqual(len({size for size, _ in here}), 1)
                found.append((here[0][0], [sample for _, samples in here for sample in samples]))
            self.assertEqual(found, expected)

    def test_pixels(self):
        """Batches of large images have fewer samples, at any world, and take no more memory."""
        steps = [min(24, 12 * 1024 // (w * h)) // 2 * 2 for w, h in SIZES]
        self.assertEqual(steps, [12, 10, 10, 24, 8])
        expected = self.model(steps=steps)
        for shuffle in (True, False):
            feed = self.feed(batch_size=24, batch_pixels=12 * 1024, shuffle=shuffle)
            alone = self.model(steps=[b.batch_size for b in feed.buckets], shuffle=shuffle)
            self.assertEqual([self.epoch(feed) for _ in range(2)], [alone.epoch(0), alone.epoch(1)])
        self.assertEqual([b.batch_size for b in feed.buckets], [12, 10, 10, 24, 9])
        found = [self.epoch(self.feed(batch_size=12, batch_pixels=6 * 1024, rank=rank, world=2)) for rank in (0, 1)]
        for i, (size, samples) in enumerate(expected.epoch(0)):
            self.assertEqual([sample for rank in found if i < len(rank) for sample in rank[i][1]], samples)
            self.assertEqual({rank[i][0] for rank in found if i < len(rank)}, {size})
        feed = self.feed(batch_size=24, batch_pixels=12 * 1024, epoch=2, batch=5)
        self.assertEqual(self.taken(next(feed)), self.model(steps=[12, 10, 10, 24, 9]).epoch(2)[5])
        repeated = self.epoch(self.feed(batch_size=48, batch_pixels=36 * 1024, repeats=2))
        self.assertEqual(repeated, [(size, samples * 2) for size, samples in self.model(steps=[18, 16, 16, 24, 14]).epoch(0)])
        # The ring has room for 24 of the smallest images, not of the largest: 12 * 1024 pixels, where 24 * 1280 would be.
        ring, larger = (self.feed(batch_size=24, batch_pixels=n, slots=2)._source.info["bytes"] for n in (12 * 1024, 0))
        self.assertAlmostEqual(larger - ring, 2 * 3 * (24 * 1280 - 12 * 1024), delta=2 * 4096)
        with self.assertRaisesRegex(loaderd.BadOption, "orders the samples otherwise"):
            self.feed(batch_size=24, batch_pixels=8 * 1024).load_state_dict(feed.state_dict())

    def test_positions(self):
        for number, batch in ((0, 1), (1, 13), (4, len(self.model().epoch(0)) - 1)):
            feed = self.feed(epoch=number, batch=batch)
            self.assertEqual(self.taken(next(feed)), self.model().epoch(number)[batch])

    def test_choices(self):
        listed = [5, 5, 9, 100, 33, 12, 80, 81, 82]
        self.assertEqual(self.epoch(self.feed(samples=listed)), self.model(listed).epoch(0))
        wide = [i for i, (width, height) in enumerate(IMAGES) if width >= 40]
        self.assertEqual(self.epoch(self.feed(where="width >= 40")), self.model(wide).epoch(0))

    def test_repeats(self):
        found = self.epoch(self.feed(repeats=3, batch_size=3 * STEP))
        self.assertEqual(found, [(size, samples * 3) for size, samples in self.model().epoch(0)])

    def test_values_in_the_frame(self):
        feed = self.feed(pipeline="bucket_resize box: clamp_boxes", values=["mask", "box"])
        for batch in feed:
            height, width = batch.images.shape[1:3]
            self.assertEqual(batch["mask"].shape[1:], (height, width))
            self.assertTrue((batch["mask"] == batch.samples[:, None, None]).all())
            for i in range(len(batch.samples)):
                numpy.testing.assert_allclose(batch["box"][i], [[0, 0, width, height]], rtol=1e-6)

    def test_conditioning(self):
        for pipeline in ("bucket_resize", "bucket_resize hflip(1)"):
            for batch in self.feed(pipeline=pipeline, values=["__crop_top_left__", "__original_size__"]):
                height, width = batch.images.shape[1:3]
                for sample, crop, original in zip(batch.samples, batch["__crop_top_left__"], batch["__original_size__"]):
                    w, h = IMAGES[sample]
                    self.assertEqual(tuple(original), (h, w))
                    covered = (max(width, w * height // h), max(height, h * width // w))
                    left, top = round((covered[0] - width) / 2), round((covered[1] - height) / 2)
                    self.assertEqual(tuple(crop), (top, covered[0] - width - left if "hflip" in pipeline else left))

    def test_views(self):
        feed = self.feed(pipeline="view whole { bucket_resize } view part(2) { center_crop(12) }", values=["__crop_top_left__", "__original_size__"])
        for (size, samples), batch in zip(self.model().epoch(0), feed):
            self.assertEqual([view.shape[1:3] for view in batch["whole"]], [size[::-1]])
            self.assertEqual([view.shape[1:3] for view in batch["part"]], [(12, 12)] * 2)
            self.assertEqual(list(batch.samples), samples)
            self.assertEqual([one.shape for one in batch["part.__crop_top_left__"]], [(len(samples), 2)] * 2)
            for i, sample in enumerate(samples):
                w, h = IMAGES[sample]
                self.assertEqual(tuple(batch["part.__crop_top_left__"][1][i]), (round((h - 12) / 2), round((w - 12) / 2)))
                self.assertEqual(tuple(batch["__original_size__"][i]), (h, w))

    def test_state(self):
        feed = self.feed()
        for _ in range(7):
            next(feed)
        state, rest = feed.state_dict(), self.epoch(feed)
        again = self.feed(batch_size=STEP // 2, rank=1, world=2)
        again.load_state_dict(state)
        self.assertEqual(len(self.epoch(again)), len([samples for _, samples in rest if len(samples) > 1]))
        for options, text in (
            ({"buckets": SIZES[:4]}, "buckets was"),
            ({"buckets": None, "pipeline": "resize(8x8)"}, "order: the state was saved by a feed with parts"),
            ({"batch_size": STEP // 2}, "this order depends on it"),
        ):
            with self.assertRaisesRegex(loaderd.BadOption, text):
                self.feed(**options).load_state_dict(state)

    def test_refusals(self):
        for options, text in (
            ({"pipeline": "resize(32x32)"}, "add bucket_resize"),
            ({"pipeline": "hflip bucket_resize", "buckets": None}, "there are none here"),
            ({"pipeline": "bucket_resize resize(8)"}, "resize would change the size"),
            ({"epoch_samples": 50}, "leave epoch_samples unset, not 50"),
            ({"weights": [1] * COUNT}, "leave out weights"),
            ({"buckets": [(16, 0)]}, "bucket 0 is 16 x 0 pixels"),
            ({"buckets": [(16, 16), (8, 100000)]}, "bucket 1 is 8 x 100000 pixels"),
            ({"batch_pixels": 100}, "fewer than one image of 32 x 32"),
            ({"batch_pixels": 9000, "buckets": None, "pipeline": "resize(8x8)"}, "there are none"),
            ({"batch_pixels": 32 * 32 * 3, "repeats": 2}, "bucket 0 has a batch_size of 3: repeats 2 does not divide it"),
            ({"buckets": []}, "1 to 256"),
            ({"buckets": [(16, 16)] * 257}, "1 to 256"),
            ({"batch_size": 150}, None),
            ({"batch_size": 150, "drop_last": True}, "no bucket has enough"),
            ({"wanted": True, "shuffle": False}, "buckets: .* has no meaning in a wanted feed"),
        ):
            if text is None:
                self.assertEqual(len(self.epoch(self.feed(**options))), len(SIZES))
                continue
            with self.assertRaisesRegex(loaderd.FeedError, text):
                self.feed(**options)
        with self.assertRaisesRegex(loaderd.FeedError, "^buckets: a mixture of 2 parts has no buckets"):
            loaderd.Feed([loaderd.Part(self.path)] * 2, batch_size=STEP, pipeline=PIPELINE, daemon="private", buckets=SIZES)
        with self.assertRaisesRegex(TypeError, "16 is not a size: list sizes as"):
            self.feed(buckets=[16])

    def test_sizes(self):
        sizes = loaderd.bucket_sizes(1024 * 1024)
        for size in ((1024, 1024), (1152, 896), (896, 1152), (1216, 832), (1344, 768), (768, 1344)):
            self.assertIn(size, sizes)
        self.assertNotIn((1600, 640), sizes)
        self.assertIn((1600, 640), loaderd.bucket_sizes(1024 * 1024, ratio=(0.4, 2.5)))
        self.assertEqual(sizes, sorted(set(sizes), key=lambda size: size[0] / size[1]))
        for width, height in sizes:
            self.assertTrue(width % 64 == height % 64 == 0 and width * height <= 1 << 20 < max(width, height) * (min(width, height) + 64))
        with self.assertRaisesRegex(loaderd.BadOption, "give width times height"):
            loaderd.bucket_sizes(512)
        for wrong in ( {"area": 1 << 20, "ratio": (2, 1)}, {"area": 1 << 20, "step": 1}):
            with self.assertRaises(loaderd.BadOption):
                loaderd.bucket_sizes(**wrong)


if __name__ == "__main__":
    unittest.main()
