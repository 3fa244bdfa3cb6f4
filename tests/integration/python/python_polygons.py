"""Polygons of objects: join_polygons() and split_polygons(), the writer's checks, and that they go with the boxes that a feed of the daemon ($LOADERD) drops."""

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

SIDE, SAMPLES = 40, 12
SCHEMA = """
image: image u8[h,w,3]
boxes: boxes(image) f32[*,4] xyxy
polygons: polygons(boxes) f32[*,2]
padded: polygons(boxes) f32[*,4,2]
kinds: class(boxes) i32[*]
"""
END = [numpy.nan] * 2


def corners(box):
    left, top, right, bottom = box
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def sample(i):
    """Boxes with as many polygons as their number, of which each has the box's corners."""
    random = numpy.random.default_rng(i)
    low = random.integers(0, 30, (i % 6, 2))
    boxes = numpy.concatenate([low, low + random.integers(2, 10, low.shape)], 1).tolist()
    return {"image": numpy.full((SIDE, SIDE, 3), i, numpy.uint8), "boxes": boxes, "kinds": list(range(len(boxes))),
            "polygons": loaderd.join_polygons([[corners(box)] * number for number, box in enumerate(boxes)]),
            "padded": [corners(box) for box in boxes], "label": 0}


class Polygons(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="polygons-")
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "polygons.pimg"

    def write(self, *samples, schema=SCHEMA):
        with loaderd.Writer(self.path, schema, classes=[*"abcdef"], overwrite=True) as writer:
            for one in samples:
                writer.add(one)

    def test_join_and_split(self):
        objects = [[[(1, 2), (3, 4), (5, 6)], [(0, 0.5)]], [], [[(7, 8), (9, 9)]]]
        rows = loaderd.join_polygons(objects)
        self.assertEqual(numpy.nan_to_num(rows, nan=-1).tolist(), [[1, 2], [3, 4], [5, 6], [-1, -1], [0, 0.5], [-1, -1], [-1, -1], [-1, -1], [7, 8], [9, 9], [-1, -1], [-1, -1]])
        split = loaderd.split_polygons(numpy.array(rows, numpy.float32))
        self.assertEqual([[polygon.tolist() for polygon in polygons] for polygons in split], [[[list(map(float, xy)) for xy in polygon] for polygon in polygons] for polygons in objects])
        self.assertEqual(loaderd.split_polygons(numpy.zeros((0, 2), numpy.float32)), [])
        for cut in ([[1, 2]], [[1, 2], END], [END, [1, 2], END]):
            with self.assertRaisesRegex(ValueError, "end within an object"):
                loaderd.split_polygons(numpy.array(cut, numpy.float32))
        with self.assertRaisesRegex(ValueError, "object 1 has a polygon without vertices"):
            loaderd.join_polygons([[[(1, 2)]], [[]]])
        with self.assertRaisesRegex(ValueError, r"object 0 has the vertex \(inf, 2.0\), which is not finite"):
            loaderd.join_polygons([[[(numpy.inf, 2)]]])

    def test_writer_counts_objects(self):
        boxes = [[0, 0, 9, 9]] * 2
        for polygons, words in (([[1, 2], [3, 4]], "it ends within an object: .*join_polygons"), ([[1, 2], END, END], "it has 1 objects, but boxes, to whose rows they belong, has 2"),
                                ([END] * 3, "it has 3 objects")):
            with self.subTest(words), self.assertRaisesRegex(loaderd.BadSample, f"sample 0: polygons: .*{words}"):
                self.write({**sample(0), "boxes": boxes, "kinds": [0, 1], "padded": [corners(box) for box in boxes], "polygons": polygons})

    def test_polygons_go_with_the_boxes_that_a_pipeline_drops(self):
        self.write(*map(sample, range(SAMPLES)))
        dropped = 0
        for pipeline in ("random_crop(24) hflip", "random_iou_crop(sampler_options=0.3:0.7) hflip resize(24x24)"):
            for values in (["boxes", "polygons", "padded", "kinds"], ["polygons", "kinds"]):
                options = {"batch_size": SAMPLES, "seed": 3, "epoch_end": 4, "daemon": "private", "values": values}
                with loaderd.Feed(self.path, pipeline=pipeline, **options) as whole, loaderd.Feed(self.path, pipeline=f"{pipeline} sanitize_boxes(min_size=3)", **options) as feed:
                    for all_of, batch in zip(whole, feed):
                        for i in range(len(batch.samples)):
                            kinds, objects = batch["kinds"][i].tolist(), loaderd.split_polygons(batch["polygons"][i])
                            before = loaderd.split_polygons(all_of["polygons"][i])
                            self.assertEqual([len(polygons) for polygons in objects], kinds, "object k has k polygons")
                            for kind, polygons in zip(kinds, objects):
                                numpy.testing.assert_array_equal(polygons, before[kind])
                            if "padded" in values:
                                numpy.testing.assert_array_equal(batch["padded"][i], all_of["padded"][i][kinds])
                                numpy.testing.assert_array_equal(batch["boxes"][i], all_of["boxes"][i][kinds])
                            dropped += len(before) - len(objects)
        self.assertGreater(dropped, 50)

    def test_polygons_leave_the_picture_and_the_image_keeps_those_of_its_own(self):
        """Vertices are not clipped; polygons of the image belong to no box."""
        self.write({"image": numpy.zeros((SIDE, SIDE, 3), numpy.uint8), "boxes": [[0, 0, 4, 4], [10, 10, 30, 30]], "all": [*corners([0, 0, 4, 4]), END, *corners([10, 10, 30, 30])],
                    "polygons": loaderd.join_polygons([[corners([0, 0, 4, 4])], [corners([10, 10, 30, 30]), [(3e38, 1), (2, -3e38)]]]), "label": 0},
                   schema="image: image u8[h,w,3]\nboxes: boxes(image) f32[*,4]\npolygons: polygons(boxes) f32[*,2]\nall: polygons(image) f32[*,2]")
        with loaderd.Feed(self.path, pipeline="center_crop(20) resize(40x40) sanitize_boxes", batch_size=1, epoch_end=1, daemon="private", values=["boxes", "polygons", "all"]) as feed:
            batch = next(iter(feed))
            self.assertEqual(batch["boxes"][0].tolist(), [[0, 0, 40, 40]])
            objects = loaderd.split_polygons(batch["polygons"][0])
            self.assertEqual(len(objects), 1)
            self.assertEqual(objects[0][0].tolist(), [list(map(float, xy)) for xy in corners([0, 0, 40, 40])])
            self.assertTrue(numpy.isfinite(objects[0][1]).all(), "a vertex that overflows does not end its polygon")
            self.assertEqual(batch["all"][0][:4].tolist(), [[-20, -20], [-12, -20], [-12, -12], [-20, -12]])

    def test_a_feed_that_drops_boxes_refuses_samples_with_other_objects(self):
        one = sample(5)
        self.write(one)
        data, rows = self.path.read_bytes(), numpy.array(one["polygons"], numpy.float32)
        at = data.index(rows.tobytes())
        for row, change, words in ((len(rows) - 1, [0, 0], 'the polygons of its value "polygons" end within a box'),
                                   (1, END, 'its value "polygons" has 6 objects, but the boxes "boxes", to which they belong, are 5')):
            bad = bytearray(data)
            bad[at + 8 * row:at + 8 * row + 8] = numpy.array(change, numpy.float32).tobytes()
            self.path.write_bytes(bad)
            with self.subTest(words), loaderd.Feed(self.path, pipeline="center_crop(20) sanitize_boxes", batch_size=1, epoch_end=1, bad="fail", daemon="private",
                                                   values=["polygons"]) as feed, self.assertRaisesRegex(loaderd.FeedError, f"sample 0: {words}"):
                next(iter(feed))


if __name__ == "__main__":
    unittest.main()
