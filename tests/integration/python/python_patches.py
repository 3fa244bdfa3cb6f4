"""Images of patches: bytes, grids and batches under a budget of tokens are those of slow models, at any world, after any restart."""

import os
import signal
import struct
import sys
import tempfile
import unittest
import unittest.mock
import warnings

import loaderd

try:
    import numpy
except ImportError:
    print("NumPy is not installed")
    sys.exit(77)
import order_model as model

COUNT, SEED, PATCH, MOST, BUDGET, BATCH = 157, 77, 8, 30, 100, 12
STEPS = f"patch_resize({PATCH}, max_tokens={MOST})"


def size_of(i):
    return 10 + i * 7 % 61, 10 + i * i % 53


IMAGES = [size_of(i) for i in range(COUNT)]
GRIDS = [model.patch_grid(*size, PATCH, MOST) for size in IMAGES]
PATCHES = [rows * columns for rows, columns in GRIDS]
CAPTIONS = [i * 5 % 23 for i in range(COUNT)]


def cut(picture, grid, patch=PATCH):
    rows, columns = grid
    return picture.reshape(rows, patch, columns, patch, -1).transpose(0, 2, 1, 3, 4).reshape(rows * columns, -1)


class Patches(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = os.path.join(cls.folder.name, "a.pimg")
        cls.write(cls.path)

    @staticmethod
    def write(path, count=COUNT):
        rng = numpy.random.default_rng(3)
        schema = (
            "image: image u8[h,w,3]\ncaption: value i64\nmask: mask(image) u8[h,w]\nbox: boxes(image) f32[*,4] xyxy\nprice: value f32\n"
        )
        with loaderd.Writer(path, schema) as writer:
            for i, (width, height) in enumerate(IMAGES[:count]):
                image = rng.integers(0, 256, (height, width, 3), dtype="u1")
                box = numpy.array([[0, 0, width, height]], "f4")
                mask = numpy.zeros((height, width), "u1")
                writer.add({"image": image, "caption": CAPTIONS[i], "mask": mask, "box": box, "price": 0.5})

    def feed(self, path=None, **options):
        given = {"batch_size": BATCH, "pipeline": STEPS, "shuffle": True, "seed": SEED, "daemon": "private", "batch_tokens": BUDGET, **options}
        return loaderd.Feed(path or self.path, **given)

    def model(self, field=False, entries=range(COUNT), budget=BUDGET, shuffle=True, batch_size=BATCH):
        tokens = [(PATCHES[i] + CAPTIONS[i] * field, PATCHES[i]) for i in range(COUNT)]
        return model.Packs(tokens, entries, SEED, budget, batch_size, shuffle)

    def taken(self, batch):
        samples = [int(sample) for sample in batch.samples]
        self.assertEqual([len(rows) for rows in batch.images], [PATCHES[sample] for sample in samples])
        self.assertEqual(list(batch.images.offsets), [0, *numpy.cumsum([PATCHES[sample] for sample in samples])])
        return samples

    def epoch(self, feed):
        return [self.taken(batch) for batch in feed]

    def test_bytes(self):
        """The same as a resize to the grid's pixels, cut into patches in NumPy; one sample at a time as many (I9), and without a budget."""
        for steps in ("hflip {} color_jitter(0.4)", "{} vflip normalize(imagenet) to(f16)", "{} normalize(imagenet) to(f32)"):
            found = {}
            for options in ({}, {"batch_tokens": 0}, {"batch_size": 1}):
                for batch in self.feed(pipeline=steps.format(STEPS), values=["__grid__"], **options):
                    for sample, rows, grid in zip(batch.samples, batch.images, batch["__grid__"]):
                        self.assertEqual(tuple(grid), GRIDS[sample])
                        before = found.setdefault(int(sample), rows.copy())
                        self.assertTrue((before == rows).all())
            self.assertEqual(len(found), COUNT)
            for grid in sorted(set(GRIDS))[::3]:
                whole = steps.format(f"resize({grid[1] * PATCH}x{grid[0] * PATCH})")
                for batch in self.feed(pipeline=whole, batch_tokens=0, samples=[i for i in range(COUNT) if GRIDS[i] == grid]):
                    for sample, picture in zip(batch.samples, batch.images):
                        self.assertTrue((cut(picture, grid) == found[int(sample)]).all())

    def test_order(self):
        for shuffle in (True, False):
            order, feed = self.model(shuffle=shuffle), self.feed(shuffle=shuffle)
            self.assertEqual([self.epoch(feed) for _ in range(2)], [order.epoch(0), order.epoch(1)])
            self.assertEqual(len(feed), len(order.packs))
            self.assertEqual(sorted(sum(order.epoch(0), [])), list(range(COUNT)))
        self.assertTrue(all(sum(PATCHES[i] for i in pack) <= BUDGET for pack in order.epoch(0)))
        self.assertEqual(self.epoch(self.feed(batch_size=3)), self.model(batch_size=3).epoch(0))

    def test_ranks(self):
        expected = self.model().epoch(1)
        for world in (2, 3, 8):
            ranks = [self.epoch(self.feed(rank=rank, world=world, epoch=1, epoch_end=2)) for rank in range(world)]
            self.assertEqual([rank[i] for i in range(len(ranks[0])) for rank in ranks if i < len(rank)], expected)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self.feed(rank=0, world=world)
            texts = [str(one.message) for one in caught if one.category is loaderd.RankWarning]
            few = world - len(expected) % world
            self.assertEqual(texts != [], few < world)
            self.assertTrue(all(f"{len(expected)} batches for {world} ranks, so {few} of them get one batch less" in text for text in texts))
            whole = [len(self.feed(rank=rank, world=world, drop_last=True)) for rank in range(world)]
            self.assertEqual(whole, [len(expected) // world] * world)

    def test_tokens_field(self):
        order = self.model(True)
        self.assertEqual(self.epoch(self.feed(tokens_field="caption")), order.epoch(0))
        whole = self.feed(pipeline="resize(8x8)", tokens_field="caption", values=["caption"])
        counts = [int(batch["caption"].sum()) for batch in whole]
        self.assertTrue(max(counts) <= BUDGET)
        self.assertEqual(sum(counts), sum(CAPTIONS))

    def test_choices(self):
        listed = [5, 5, 9, 100, 33, 12, 80, 81, 82]
        self.assertEqual(self.epoch(self.feed(samples=listed)), self.model(entries=listed).epoch(0))
        wide = [i for i, (width, height) in enumerate(IMAGES) if width >= 40]
        self.assertEqual(self.epoch(self.feed(where="width >= 40")), self.model(entries=wide).epoch(0))

    def test_room(self):
        """The ring has room for the budget, not for the largest images; patches of a budget are views, which hold their batch."""
        patch = PATCH * PATCH * 3
        ring, larger = (self.feed(slots=2, **options)._source.info["bytes"] for options in ({}, {"batch_tokens": 0}))
        self.assertAlmostEqual(larger - ring, 2 * patch * (MOST * BATCH - BUDGET), delta=2 * 4096)
        feed = self.feed()
        images = next(feed).images
        self.assertEqual(feed.held, 1)
        self.assertIsNotNone(images.values.base)
        del images
        self.assertEqual(feed.held, 0)

    def test_boxes(self):
        for batch in self.feed(pipeline=f"{STEPS} box: clamp_boxes", values=["box"]):
            for i, sample in enumerate(batch.samples):
                rows, columns = GRIDS[sample]
                numpy.testing.assert_allclose(batch["box"][i], [[0, 0, columns * PATCH, rows * PATCH]], rtol=1e-6)

    def test_state(self):
        feed = self.feed()
        for _ in range(8):
            next(feed)
        state, rest = feed.state_dict(), self.epoch(feed)
        ranks = []
        for rank in range(2):
            again = self.feed(rank=rank, world=2)
            again.load_state_dict(state)
            ranks.append(self.epoch(again))
        self.assertEqual([rank[i] for i in range(len(ranks[0])) for rank in ranks if i < len(rank)], rest)
        for options, text in (
            ({"batch_tokens": BUDGET + 1}, "batch_tokens, tokens_field and batch_size was"),
            ({"tokens_field": "caption"}, "batch_tokens, tokens_field and batch_size was"),
            ({"batch_size": BATCH // 2}, "batch_tokens, tokens_field and batch_size was"),
            ({"pipeline": f"patch_resize({PATCH}, max_tokens={MOST - 1})"}, "orders the samples otherwise"),
        ):
            with self.assertRaisesRegex(loaderd.BadOption, text):
                self.feed(**options).load_state_dict(state)

    def test_killed(self):
        """The daemon dies in the middle of an epoch; the next one goes on with the same packs."""
        with loaderd.Daemon() as daemon:
            feed = self.feed(socket=daemon.socket, daemon="auto", slots=2)
            found = [self.taken(next(feed)) for _ in range(6)]
            os.kill(daemon.pid, signal.SIGKILL)
            found += self.epoch(feed)
        self.assertEqual(found, self.model().epoch(0))
        self.assertEqual(feed.reconnects, 1)

    def test_bad_samples(self):
        """In place of a damaged sample comes one that fits its place."""
        path = os.path.join(self.folder.name, "bad.pimg")
        self.write(path)
        with open(path, "rb") as file:
            original = file.read()
        image = numpy.random.default_rng(3).integers(0, 256, (*IMAGES[0][::-1], 3), dtype="u1").tobytes()
        at = original.find(image[:64])
        self.assertGreater(at, 0)
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(bytes(64))
        seen = 0
        for batch in self.feed(path):
            for sample, flag, rows in zip(batch.samples, batch.flags, batch.images):
                self.assertNotEqual(int(sample), 0)
                self.assertEqual(len(rows), PATCHES[sample])
                seen += bool(flag & loaderd.SUBSTITUTED)
                if flag & loaderd.SUBSTITUTED:
                    self.assertLessEqual(PATCHES[sample], PATCHES[0])
        self.assertEqual(seen, 1)
        skipped = [int(sample) for batch in self.feed(path, bad="skip") for sample in self.skipping(batch)]
        self.assertEqual(sorted(skipped), list(range(1, COUNT)))

    def test_lying_sizes(self):
        """A list of sizes that makes an image smaller than it is gives a bad sample, and leaves those beside it as they are."""
        path = os.path.join(self.folder.name, "lying.pimg")
        self.write(path)
        listed = b"".join(struct.pack("<HH", *size) for size in IMAGES)
        large = PATCHES.index(MOST)
        small = next(i for i in range(COUNT) if PATCHES[i] < 10 and PATCHES.count(PATCHES[i]) > 4)
        with open(path, "r+b") as file:
            at = file.read().find(listed)
            self.assertGreater(at, 0)
            file.seek(at + 4 * large)
            file.write(struct.pack("<HH", *IMAGES[small]))
        right = {int(s): rows.copy() for batch in self.feed() for s, rows in zip(batch.samples, batch.images)}
        for bad in ("substitute", "skip"):
            seen = []
            for batch in self.feed(path, bad=bad):
                self.assertEqual([len(rows) for rows in batch.images], [PATCHES[sample] for sample in batch.samples])
                for sample, flag, rows in zip(batch.samples, batch.flags, batch.images):
                    self.assertTrue((rows == right[int(sample)]).all())
                    if flag & loaderd.SUBSTITUTED:
                        self.assertEqual(len(rows), PATCHES[small])
                    else:
                        seen.append(int(sample))
            self.assertEqual(sorted(seen), [i for i in range(COUNT) if i != large])
        with self.assertRaisesRegex(loaderd.FeedError, f"its image of .* makes {MOST} patches, but the size that the file lists for it makes {PATCHES[small]}"):
            self.epoch(self.feed(path, bad="fail"))
        with open(path, "r+b") as file:
            file.seek(at + 4 * large)
            file.write(struct.pack("<HH", 1, 1))
        with self.assertRaisesRegex(loaderd.FeedError, f"sample {large} cannot be delivered, and none that has as few patches, 1, can take its place"):
            self.epoch(self.feed(path, where=f"sample = {large} or width > 30 and height > 30"))

    def skipping(self, batch):
        self.assertEqual([len(rows) for rows in batch.images], [PATCHES[sample] for sample in batch.samples])
        return batch.samples

    def test_refusals(self):
        for options, text in (
            ({"pipeline": "resize(8x8)"}, "nothing says how many tokens a sample has: add patch_resize"),
            ({"batch_tokens": 29}, "sample [0-9]+ has 30 patches, more than the 29 tokens of a batch: raise batch_tokens"),
            ({"batch_tokens": 40, "tokens_field": "caption"}, 'patches and [0-9]+ of "caption", more than the 40 tokens'),
            ({"tokens_field": "price"}, '"price" is no column of integers'),
            ({"tokens_field": "words"}, '"words" is no column of integers'),
            ({"batch_tokens": 0, "tokens_field": "caption"}, "is for feeds with batch_tokens"),
            ({"batch_tokens": 1 << 30}, "a batch has at most"),
            ({"repeats": 2}, "repeats 2: with batch_tokens each sample comes once"),
            ({"epoch_samples": 50}, "leave epoch_samples unset, not 50"),
            ({"weights": [1] * COUNT}, "leave out weights"),
            ({"values": ["mask"]}, 'value "mask": masks, rasters and further images are whole pictures'),
            ({"batch_tokens": 0, "pipeline": "resize(8x8)", "values": ["__grid__"]}, "the pipeline makes no patches"),
            ({"batch_tokens": 0, "fields": ["caption"]}, "this program takes whole images"),
            ({"pipeline": f"resize(64) {STEPS}"}, "resize changes the size of an image"),
            ({"pipeline": f"{STEPS} mixup"}, "leave one of them out"),
            ({"pipeline": f"view a {{ {STEPS} }}"}, "leave it or the views out"),
            ({"pipeline": f"mosaic(64) {STEPS}"}, "mosaic changes the size"),
            ({"wanted": True, "shuffle": False}, "batch_tokens: .* has no meaning in a wanted feed"),
            ({"world": 200, "rank": 150, "drop_last": True}, "would never get a batch: the 157 samples make fewer batches"),
        ):
            with self.subTest(options), self.assertRaisesRegex(loaderd.FeedError, text):
                self.feed(**options)
        with self.assertRaisesRegex(loaderd.FeedError, "a mixture of 2 parts is not packed by tokens"):
            loaderd.Feed([loaderd.Part(self.path)] * 2, batch_size=BATCH, pipeline=STEPS, daemon="private", batch_tokens=BUDGET)

    def test_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("PyTorch is not installed")
        for element in ("f32", "bf16"):
            batch = next(self.feed(pipeline=f"{STEPS} to({element})"))
            made = []
            with unittest.mock.patch.object(torch.nested, "nested_tensor_from_jagged", lambda *given: made.append(given), create=True):
                batch.torch()
                batch.to("cpu")
            for values, offsets in made:
                self.assertEqual(values.dtype, torch.float32 if element == "f32" else torch.bfloat16)
                self.assertEqual(values.data_ptr(), batch.buffer("images").address)
                self.assertEqual(offsets.tolist(), batch.images.offsets.tolist())
            self.assertEqual(len(made), 2)
        with self.assertRaisesRegex(loaderd.BadOption, "use a Feed"):
            loaderd.ImageDataset(self.path, pipeline=STEPS, daemon="private")[3]
        batch = next(self.feed(pipeline=f"{STEPS} to(f32)"))
        self.assertEqual([one.shape for one in batch.images.list()], [(PATCHES[s], PATCH * PATCH * 3) for s in batch.samples])
        if hasattr(torch.nested, "nested_tensor_from_jagged"):
            nested = batch.torch().images
            self.assertTrue((nested.values().numpy() == batch.images.values).all())
            self.assertTrue((nested.offsets().numpy() == batch.images.offsets).all())
        else:
            with self.assertRaisesRegex(RuntimeError, "PyTorch 2.5"):
                batch.torch()


if __name__ == "__main__":
    unittest.main()
