"""Mosaics: images, masks and rows of four samples in one, as a feed of the daemon ($LOADERD) delivers them."""

import contextlib
import hashlib
import os
import pathlib
import sys
import tempfile
import unittest

import loaderd

try:
    import numpy
except ImportError:
    print("NumPy is not installed")
    sys.exit(77)

SIDE, SAMPLES, FILL, EPOCHS = 64, 12, 250, 6
SCHEMA = """image: image u8[h,w,3]
mask: mask(image) u8[h,w]
boxes: boxes(image) f32[*,4] xyxy
kinds: class(boxes) i32[*]
polygons: polygons(boxes) f32[*,2]
points: keypoints(boxes) f32[*,1,2]
others: keypoints(image) f32[*,2]
weight: value f32
"""
VALUES = ["mask", "boxes", "kinds", "polygons", "points", "others", "weight"]
PIPELINE = f"mosaic({SIDE}, scale=1:1, fill={FILL}) mask: fill({FILL})"


def boxes_of(i):
    random = numpy.random.default_rng(i)
    low = random.integers(0, 48, (i % 5, 2))
    return numpy.concatenate([low, low + random.integers(2, 16, low.shape)], 1)


def sample(i, width=SIDE, height=SIDE):
    """An image whose pixels say where they are, and of which sample."""
    y, x = numpy.mgrid[0:height, 0:width]
    boxes = boxes_of(i)
    return {
        "image": numpy.stack([x, y, numpy.full_like(x, i)], 2).astype("u1"),
        "mask": ((x ^ y) + i).astype("u1"),
        "boxes": boxes.astype("f4"),
        "kinds": [10 * i + k for k in range(len(boxes))],
        "polygons": loaderd.join_polygons([[[box[:2], box[2:]]] * (k % 3) for k, box in enumerate(boxes.tolist())]),
        "points": boxes[:, None, :2].astype("f4"),
        "others": numpy.array([[i, 1]] * (i % 3), "f4").reshape(-1, 2),
        "weight": i / 2,
    }


def tiles_of(image):
    """The samples in a picture, each with the position of its first pixel."""
    shown = image[image[..., 2] != FILL].astype(int)
    y, x = numpy.nonzero(image[..., 2] != FILL)
    return numpy.unique(numpy.stack([shown[:, 2], x - shown[:, 0], y - shown[:, 1]], 1), axis=0).tolist()


def expected_boxes(tiles):
    """What is left of the samples' boxes, with kinds."""
    rows = []
    for i, left, top in tiles:
        for k, box in enumerate(boxes_of(i)):
            moved = box + [left, top, left, top]
            clipped = moved.clip(0, SIDE)
            sides = clipped[2:] - clipped[:2]
            if sides.min() > 0 and numpy.prod(sides) >= 0.1 * numpy.prod(box[2:] - box[:2]):
                rows.append((10 * i + k, *clipped.tolist()))
    return sorted(rows)


def epochs(feed):
    for _ in range(EPOCHS):
        yield from feed


class Mosaic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="mosaic-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = cls.write("samples.pimg", [sample(i) for i in range(SAMPLES)])

    @classmethod
    def write(cls, name, samples, schema=SCHEMA):
        path = pathlib.Path(cls.folder.name) / name
        with loaderd.Writer(path, schema, classes=[f"class {i}" for i in range(10 * SAMPLES)]) as writer:
            for one in samples:
                writer.add(one)
        return path

    def feed(self, path=None, pipeline=PIPELINE, **options):
        if "socket" not in options:
            options["daemon"] = "private"
        return loaderd.Feed(path or self.path, pipeline=pipeline, **{"batch_size": 4, "seed": 5, "epoch_end": EPOCHS, "values": VALUES, **options})

    def samples(self, *arguments, **options):
        with self.feed(*arguments, **options) as feed:
            for batch in epochs(feed):
                for k, number in enumerate(batch.samples):
                    yield int(number), {"image": batch.images[k].copy(), **{name: batch[name][k].copy() for name in VALUES}}

    def test_pictures_and_rows_of_four_samples_stay_together(self):
        counts = []
        for number, made in self.samples():
            tiles = tiles_of(made["image"])
            counts.append(len(tiles))
            self.assertIn(number, [i for i, *_ in tiles] if len(tiles) == 4 else [number])
            self.assertEqual(made["weight"], number / 2)
            y, x = numpy.mgrid[0:SIDE, 0:SIDE]
            stored = made["image"].astype(int)
            numpy.testing.assert_array_equal(made["mask"], numpy.where(stored[..., 2] == FILL, FILL, (stored[..., 0] ^ stored[..., 1]) + stored[..., 2]))
            lefts, tops = {left for _, left, _ in tiles}, {top for _, _, top in tiles}
            self.assertLessEqual(len(lefts), 2, "all four meet at one point")
            self.assertEqual(max(lefts) - min(lefts), SIDE if len(lefts) == 2 else 0)
            self.assertEqual(max(tops) - min(tops), SIDE if len(tops) == 2 else 0)
            rows = sorted((int(kind), *box.tolist()) for kind, box in zip(made["kinds"], made["boxes"]))
            self.assertEqual(rows, expected_boxes(tiles))
            places = {}
            for i, left, top in tiles:
                for k, box in enumerate(boxes_of(i)):
                    places.setdefault(10 * i + k, []).append((box + [left, top, left, top]).astype(float).tolist())
            objects = loaderd.split_polygons(made["polygons"])
            self.assertEqual(len(objects), len(made["kinds"]))
            for kind, point, polygons in zip(made["kinds"].tolist(), made["points"].tolist(), objects):
                self.assertIn(point[0], [place[:2] for place in places[kind]])
                self.assertEqual(len(polygons), kind % 10 % 3)
                for polygon in polygons:
                    self.assertIn(polygon.ravel().tolist(), places[kind])
            self.assertEqual(sorted(made["others"].tolist()), sorted([float(i + left), float(1 + top)] for i, left, top in tiles for _ in range(i % 3)))
        self.assertEqual(len(counts), EPOCHS * SAMPLES)
        self.assertGreater(counts.count(4), 60)

    def test_later_steps_act_on_all_of_it(self):
        for (_, plain), (_, mirrored) in zip(self.samples(), self.samples(pipeline=f"{PIPELINE} hflip(p=1)")):
            numpy.testing.assert_array_equal(mirrored["image"], plain["image"][:, ::-1])
            numpy.testing.assert_array_equal(mirrored["mask"], plain["mask"][:, ::-1])
            numpy.testing.assert_array_equal(mirrored["boxes"], (plain["boxes"] * [-1, 1, -1, 1] + [SIDE, 0, SIDE, 0])[:, [2, 1, 0, 3]])
            numpy.testing.assert_array_equal(mirrored["kinds"], plain["kinds"])

    def test_random_later_steps_follow_the_first_sample(self):
        """Each box is where its image is, whichever sample it comes from."""
        flips = set()
        for _, made in self.samples(pipeline=f"{PIPELINE} hflip"):
            flip = made["image"][0, 0, 0] % SIDE == (made["image"][0, 1, 0] + 1) % SIDE
            flips.add(bool(flip))
            upright = made["image"][:, ::-1] if flip else made["image"]
            boxes = (made["boxes"] * [-1, 1, -1, 1] + [SIDE, 0, SIDE, 0])[:, [2, 1, 0, 3]] if flip else made["boxes"]
            self.assertEqual(sorted((int(kind), *box.tolist()) for kind, box in zip(made["kinds"], boxes)), expected_boxes(tiles_of(upright)))
        self.assertEqual(flips, {False, True})

    def test_without_a_mosaic_the_sample_is_in_the_middle(self):
        path = self.write("shapes.pimg", [sample(3, 32, 16), sample(4, 16, 32)])
        for number, made in self.samples(path, f"mosaic({SIDE}, p=0, scale=0.5:0.5)", batch_size=2):
            inside = made["image"][..., 2] != 114
            wide, high = (32, 16) if number == 0 else (16, 32)
            expected = numpy.zeros((SIDE, SIDE), bool)
            expected[(SIDE - high) // 2:(SIDE + high) // 2, (SIDE - wide) // 2:(SIDE + wide) // 2] = True
            numpy.testing.assert_array_equal(inside, expected)
            numpy.testing.assert_array_equal(made["mask"][~inside], 0)

    def test_partners_are_samples_of_the_feed(self):
        seen = set()
        for _, made in self.samples(where="sample in (2, 7, 9)", batch_size=3):
            seen.update(i for i, *_ in tiles_of(made["image"]))
        self.assertEqual(seen, {2, 7, 9})

    def test_threads_and_instruction_sets_change_nothing(self):
        digests = set()
        path = self.write("sizes.pimg", [sample(i, 30 + 17 * i % 50, 30 + 29 * i % 50) for i in range(SAMPLES)])
        for isa, threads in (("", 1), ("", 4), ("c", 2), ("avx2", 1)):
            with contextlib.ExitStack() as stack:
                if isa:
                    os.environ["LOADERD_ISA"] = isa
                    stack.callback(os.environ.pop, "LOADERD_ISA")
                daemon = stack.enter_context(loaderd.Daemon(threads))
                digest = hashlib.sha256()
                for number, made in self.samples(path, "mosaic(48x40, p=0.8) hflip random_affine(10) color_jitter(0.3)", socket=daemon.socket):
                    digest.update(b"".join([bytes([number]), *(made[name].tobytes() for name in made)]))
                digests.add(digest.hexdigest())
        self.assertEqual(len(digests), 1)

    def test_a_damaged_partner_is_left_out(self):
        bad, noise = 4, numpy.random.default_rng(9).integers(0, 256, (SIDE, SIDE), "u1")
        path = self.write("damaged.pimg", [{**sample(i), **({"mask": noise} if i == bad else {})} for i in range(SAMPLES)])
        whole = dict(self.keyed(path))
        data = bytearray(path.read_bytes())
        data[data.index(noise.tobytes()[:64])] ^= 1  # noise is stored as it is
        path.unlink()
        path.write_bytes(data)
        gone = 0
        with self.feed(path) as feed:
            bads = sum(batch.bad for batch in epochs(feed))
        for key, made in self.keyed(path):
            if key[1] == bad:
                continue
            before = whole[key]["image"]
            of_bad = before[..., 2] == bad
            gone += bool(of_bad.any())
            numpy.testing.assert_array_equal(made["image"], numpy.where(of_bad[..., None], FILL, before))
            numpy.testing.assert_array_equal(made["mask"], numpy.where(of_bad, FILL, whole[key]["mask"]))
            stays = whole[key]["kinds"] // 10 != bad
            for name in ("kinds", "boxes", "points"):
                numpy.testing.assert_array_equal(made[name], whole[key][name][stays])
            self.assertEqual(len(loaderd.split_polygons(made["polygons"])), stays.sum())
        self.assertGreater(gone, 5)
        self.assertGreaterEqual(bads, gone)
        with self.feed(path, bad="fail", where=f"sample != {bad}") as feed:
            self.assertEqual(sum(batch.bad for batch in epochs(feed)), 0, "a sample that is not chosen is no partner")
        with self.feed(path, bad="fail") as feed, self.assertRaisesRegex(loaderd.FeedError, f"sample {bad}"):
            list(epochs(feed))

    def keyed(self, *arguments):
        with self.feed(*arguments, batch_size=1) as feed:
            for batch in epochs(feed):
                if not batch.flags[0] & loaderd.SUBSTITUTED:
                    yield (batch.epoch, int(batch.samples[0])), {"image": batch.images[0].copy(), **{name: batch[name][0].copy() for name in VALUES}}

    def test_refuses_what_it_cannot_join(self):
        fixed = self.write("fixed.pimg", [{"image": numpy.zeros((8, 8, 3), "u1"), "eyes": numpy.zeros((2, 2), "f4"), "all": [[1, 2]]}],
                           "image: image u8[h,w,3]\neyes: keypoints(image) f32[2,2]\nall: polygons(image) f32[*,2]\n")
        for path, pipeline, values, words in (
            (None, "hflip mosaic(64)", [], "put it before all other steps"),
            (None, "mosaic(64) mosaic(64)", [], "mosaic is given twice"),
            (None, "mosaic(64) random_iou_crop resize(64x64)", [], "random_iou_crop chooses by the boxes or the shape of one sample"),
            (None, "mosaic(64) view a { hflip } view b { vflip }", [], "leave it or the views out"),
            (None, "mosaic(64) mixup", [], "mixup and cutmix blend images of two samples, and mosaic"),
            (None, "mosaic(64)", ["__crop_top_left__"], "each with a crop of its own"),
            (fixed, "mosaic(64)", ["eyes"], "this has a fixed number"),
            (fixed, "mosaic(64)", ["all"], "these belong to none"),
        ):
            with self.subTest(words), self.assertRaisesRegex(loaderd.FeedError, words):
                self.feed(path, pipeline, values=values).close()


if __name__ == "__main__":
    unittest.main()
