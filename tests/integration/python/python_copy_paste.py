"""copy_paste, as a feed of the daemon ($LOADERD) delivers it, against a model: it pastes the samples of feeds without the step by the same draws."""

import contextlib
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import loaderd

try:
    import numpy
except ImportError:
    print("NumPy is not installed")
    sys.exit(77)

WIDTH, HEIGHT, SAMPLES, EPOCHS, SEED = 56, 40, 10, 5, 5
BOX_MOVES, MASK_PIXELS = 4, 60
STEP = f"copy_paste(p=0.8, bbox_occluded_thr={BOX_MOVES}, mask_occluded_thr={MASK_PIXELS})"
COMMON = """image: image u8[h,w,3]
depth: raster(image) f32[h,w]
{boxes}
kinds: class(boxes) i32[*]
points: keypoints(boxes) f32[*,1,2]
others: keypoints(image) f32[*,2]
weight: value f32
"""
MASKS = COMMON.format(boxes="boxes: boxes(image) f32[*,4] xyxy") + "instances: mask(image) u8[h,w]\ninstance: value(boxes) i32[*]\n"
POLYGONS = COMMON.format(boxes="boxes: boxes(image) f32[*,4] cxcywh normalized") + "polygons: polygons(boxes) f32[*,2]\n"
OTHERS = ["depth", "boxes", "kinds", "points", "others", "weight"]


class Random:
    """format/base/random.h."""

    def __init__(self, seed, epoch, sample, purpose):
        self.key = self.philox((seed & 0xffffffff, seed >> 32), (epoch, 0, purpose, 0))[:2]
        self.sample, self.block, self.numbers = sample, 0, []

    @staticmethod
    def philox(key, counter):
        (a, b, c, d), (x, y) = counter, key
        for _ in range(10):
            first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
            a, b, c, d = second >> 32 ^ b ^ x, second & 0xffffffff, first >> 32 ^ d ^ y, first & 0xffffffff
            x, y = x + 0x9E3779B9 & 0xffffffff, y + 0xBB67AE85 & 0xffffffff
        return a, b, c, d

    def u32(self):
        if not self.numbers:
            self.numbers = list(self.philox(self.key, (self.block, 0, self.sample, 0)))
            self.block += 1
        return self.numbers.pop(0)

    def real(self):
        return (self.u32() >> 8) / 2**24

    def below(self, bound):
        product = self.u32() * bound
        while product & 0xffffffff < 2**32 % bound:
            product = self.u32() * bound
        return product >> 32


def sample(i, width=WIDTH, height=HEIGHT, centres=False):
    """Objects are ellipses, or two triangles, which may overlap; some have no pixels."""
    random = numpy.random.default_rng(i)
    y, x = numpy.mgrid[0:height, 0:width]
    instances, boxes, numbers, polygons = numpy.zeros((height, width), "u1"), [], [], []
    for k in range(i % 6):
        left, top = random.uniform(0, [width - 12, height - 12])
        right, bottom = left + random.uniform(6, width / 2), top + random.uniform(6, height / 2)
        boxes.append([left, top, right, bottom])
        numbers.append(0 if k == 3 else 250 if k == 1 else 3 * k + 1)
        inside = ((x + 0.5 - (left + right) / 2) / (right - left) * 2)**2 + ((y + 0.5 - (top + bottom) / 2) / (bottom - top) * 2)**2 <= 1
        instances[inside & (numbers[-1] > 0)] = numbers[-1]
        middle = [(left + right) / 2, (top + bottom) / 2]
        polygons.append([] if k == 3 else [[[left, top], [right, top], middle], [[left, bottom], middle, [right, bottom], [left + 1, bottom - 1]]])
    boxes = numpy.array(boxes, "f4").reshape(-1, 4)
    return {
        "image": random.integers(0, 256, (height, width, 3), "u1"),
        "depth": random.normal(size=(height, width)).astype("f4"),
        "boxes": boxes if not centres else numpy.concatenate([boxes[:, :2] + boxes[:, 2:], 2 * (boxes[:, 2:] - boxes[:, :2])], 1) / (2 * numpy.array([width, height] * 2, "f4")),
        "kinds": [10 * i + k for k in range(len(boxes))],
        "points": boxes[:, None, :2],
        "others": numpy.array([[i, 1]] * (i % 3), "f4").reshape(-1, 2),
        "weight": i / 2,
        "instances": instances,
        "instance": numbers,
        "polygons": loaderd.join_polygons(polygons),
    }


def inside(polygons, height, width):
    """Pixels whose centres are in one of the polygons by the even-odd rule, slowly."""
    found = numpy.zeros((height, width), bool)
    x, y = numpy.arange(width) + 0.5, numpy.arange(height) + 0.5
    for polygon in polygons:
        one = numpy.zeros((height, width), bool)
        for (x0, y0), (x1, y1) in zip(polygon.astype(float), numpy.roll(polygon.astype(float), 1, 0)):
            if y0 > y1:
                x0, y0, x1, y1 = x1, y1, x0, y0
            for row in numpy.flatnonzero((y0 <= y) & (y < y1)):
                one[row] ^= x >= x0 + (y[row] - y0) * (x1 - x0) / (y1 - y0)
        found |= one
    return found


def pixels_of(made):
    """A mask of each object; None where its pixels are not known."""
    height, width = made["depth"].shape
    if "instances" in made:
        return [(made["instances"] == number) & (number > 0) for number in made["instance"]]
    return [inside(polygons, height, width) for polygons in loaderd.split_polygons(made["polygons"])]


def extent(pixels):
    y, x = numpy.nonzero(pixels)
    return numpy.array([x.min(), y.min(), x.max() + 1, y.max() + 1])


def sides(made):
    """Left, top, right and bottom of boxes, in pixels."""
    boxes = made["boxes"].astype("f8")
    if "instances" in made:
        return boxes
    middle, size = boxes[:, :2], boxes[:, 2:]
    return numpy.concatenate([middle - size / 2, middle + size / 2], 1) * ([*made["depth"].shape[::-1]] * 2)


def paste(below, above, draws):
    """The model. Returns the finished sample, boxes as sides, and how many objects are pasted and dropped."""
    height, width = below["depth"].shape
    shapes, shapes_below = pixels_of(above), pixels_of(below)
    chosen = {draws.below(len(shapes)) for _ in shapes}
    chosen = [k for k in sorted(chosen) if shapes[k].any()]
    numbers, made = {}, {name: value.copy() for name, value in below.items()}
    if "instances" in below:
        free = [n for n in range(1, 256) if n not in below["instances"] and n not in below["instance"]]
        for number in sorted({int(above["instance"][k]) for k in chosen}):
            numbers[number] = free.pop(0) if free else 0
        chosen = [k for k in chosen if numbers[int(above["instance"][k])]]
    cover = numpy.zeros((height, width), bool)
    for k in chosen:
        cover |= shapes[k]
    planes = below["image"].shape[1:] == (height, width)
    made["image"][(slice(None), cover) if planes else cover] = above["image"][(slice(None), cover) if planes else cover]
    made["depth"][cover] = above["depth"][cover]
    kept, limits = [], {}
    for k, shape in enumerate(shapes_below):
        visible = shape & ~cover
        if visible.sum() == shape.sum():
            kept.append(k)
        elif visible.any():
            before, after = extent(shape), extent(visible)
            if visible.sum() > MASK_PIXELS or abs(after - before).max() <= BOX_MOVES:
                kept.append(k)
                limits[k] = numpy.where(after == before, [-numpy.inf, -numpy.inf, numpy.inf, numpy.inf], after)
    boxes = sides(below)
    for k, limit in limits.items():
        boxes[k, :2], boxes[k, 2:] = numpy.maximum(boxes[k, :2], limit[:2]), numpy.minimum(boxes[k, 2:], limit[2:])
        boxes[k, 2:] = numpy.maximum(boxes[k, 2:], boxes[k, :2])
    made["boxes"] = numpy.concatenate([boxes[kept], sides(above)[chosen]])
    for name in ("kinds", "points"):
        made[name] = numpy.concatenate([below[name][kept], above[name][chosen]])
    if "instances" in below:
        for k in chosen:
            made["instances"][shapes[k]] = numbers[int(above["instance"][k])]
        made["instance"] = numpy.concatenate([below["instance"][kept], [numbers[int(above["instance"][k])] for k in chosen]])
    else:
        objects = [*loaderd.split_polygons(below["polygons"])], [*loaderd.split_polygons(above["polygons"])]
        made["polygons"] = [objects[0][k] for k in kept] + [objects[1][k] for k in chosen]
    return made, len(chosen), len(shapes_below) - len(kept), len(limits)


class CopyPaste(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="copy-paste-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.with_polygons = set()
        sizes = [(i, WIDTH + 7 * i % 30, HEIGHT + 11 * i % 30) for i in range(SAMPLES)]
        cls.masks = cls.write("masks.pimg", [sample(*size) for size in sizes])
        images = pathlib.Path(cls.folder.name) / "images"
        subprocess.run([os.environ["SHAPES"], images, "--count", str(SAMPLES), "--size", "200"], check=True, capture_output=True)
        jpegs = [file.read_bytes() for file in sorted(images.rglob("*.jpg"))]
        cls.jpegs = cls.write("jpegs.pimg", [{**sample(i, 200, 200), "image": jpeg} for i, jpeg in enumerate(jpegs)])
        cls.polygons = cls.write("polygons.pimg", [sample(*size, True) for size in sizes], POLYGONS)

    @classmethod
    def write(cls, name, samples, schema=MASKS):
        path = pathlib.Path(cls.folder.name) / name
        cls.with_polygons |= {path} if schema == POLYGONS else set()
        wanted = [line.split(":")[0] for line in schema.splitlines()]
        with loaderd.Writer(path, schema, classes=[f"class {i}" for i in range(10 * SAMPLES)]) as writer:
            for one in samples:
                writer.add({name: one[name] for name in wanted})
        return path

    def values_of(self, path):
        return [*OTHERS, *(["polygons"] if path in self.with_polygons else ["instances", "instance"])]

    def feed(self, path, pipeline, **options):
        if "socket" not in options:
            options["daemon"] = "private"
        return loaderd.Feed(path, pipeline=pipeline, **{"batch_size": 5, "seed": SEED, "epoch_end": EPOCHS, "values": self.values_of(path), **options})

    def samples(self, path, pipeline, **options):
        with self.feed(path, pipeline, **options) as feed:
            for _ in range(EPOCHS):
                for batch in feed:
                    for k, number in enumerate(batch.samples):
                        if not batch.flags[k] & loaderd.SUBSTITUTED:
                            values = {name: numpy.array(batch[name][k]) for name in self.values_of(path)}
                            yield (batch.epoch, int(number)), {"image": batch.images[k].copy(), **values}

    def compare(self, made, expected, where):
        for name, value in expected.items():
            if name == "boxes":
                numpy.testing.assert_allclose(sides(made), value, atol=1e-4, err_msg=f"{name} of {where}")
            elif name == "polygons":
                found = loaderd.split_polygons(made[name])
                self.assertEqual([[one.tolist() for one in polygons] for polygons in found], [[one.tolist() for one in polygons] for polygons in value], where)
            else:
                numpy.testing.assert_array_equal(made[name], value, err_msg=f"{name} of {where}")

    def check(self, path, pipeline, **options):
        plain, counts = dict(self.samples(path, pipeline, **options)), numpy.zeros(4, int)
        for where, made in self.samples(path, f"{pipeline} {STEP}", **options):
            draws = Random(SEED, *where, 18)
            pasted, (high, low) = draws.real() < 0.8, (draws.u32(), draws.u32())
            expected, found = plain[where], (0, 0, 0)
            expected = {**expected, "boxes": sides(expected)}
            if "polygons" in expected:
                expected["polygons"] = loaderd.split_polygons(expected["polygons"])
            if pasted:
                bits = high << 32 | low
                other = bits * SAMPLES >> 64 if "buckets" in options else bits % SAMPLES
                expected, *found = paste(plain[where], plain[where[0], other], draws)
            counts += [pasted, *found]
            self.compare(made, expected, f"sample {where[1]} of epoch {where[0]}")
        return counts

    def test_pastes_as_the_model_does(self):
        for path in (self.masks, self.polygons):
            counts = 0
            for pipeline in (
                "random_resized_crop(48x36) hflip",
                "random_resized_crop(48x36, scale=0.5:1) vflip color_jitter(0.4, 0.4) normalize(imagenet) to(f16) layout(nchw) sanitize_boxes",
                "resize(40) random_crop(40x40) random_affine(10) random_erasing channels(4)",
                "resize(48x36) to(f32) cutout(12, value=9, p=1)",
                "random_zoom_out(p=1) random_iou_crop resize(44x44) hflip boxes: sanitize_boxes(2)",
            ):
                with self.subTest(path.name, pipeline=pipeline):
                    counts = counts + self.check(path, pipeline)
            self.assertTrue((counts > [160, 160, 10, 25]).all(), f"samples over which is pasted, objects, dropped and shrunk objects: {counts}")

    def test_parts_of_jpegs_have_the_pixels_of_the_whole(self):
        for pipeline in ("random_resized_crop(48x36) hflip", "random_resized_crop(48x36, scale=0.4:1, chroma=fast) vflip", "random_crop(90)"):
            with self.subTest(pipeline):
                self.check(self.jpegs, pipeline)

    def test_a_damaged_partner_pastes_nothing(self):
        bad, noise = 4, numpy.random.default_rng(99).integers(0, 256, (HEIGHT, WIDTH, 3), "u1")
        path = self.write("damaged.pimg", [{**sample(i), **({"image": noise} if i == bad else {})} for i in range(SAMPLES)])
        plain, pasted = (dict(self.samples(path, f"resize(48x36) {step}")) for step in ("", STEP))
        data = bytearray(path.read_bytes())
        data[data.index(noise.tobytes()[:64])] ^= 1  # noise is stored as it is
        path.unlink()
        path.write_bytes(data)
        gone = 0
        for where, made in self.samples(path, f"resize(48x36) {STEP}"):
            draws = Random(SEED, *where, 18)
            on, (high, low) = draws.real() < 0.8, (draws.u32(), draws.u32())
            of_bad = on and (high << 32 | low) % SAMPLES == bad
            gone += of_bad
            for name, value in (plain if of_bad else pasted)[where].items():
                numpy.testing.assert_array_equal(made[name], value, err_msg=f"{name} of {where}")
        self.assertGreater(gone, 1)
        with self.feed(path, f"resize(48x36) {STEP}") as feed:
            self.assertGreaterEqual(sum(batch.bad for _ in range(EPOCHS) for batch in feed), gone + EPOCHS)
        with self.feed(path, f"resize(48x36) {STEP}", bad="fail", where=f"sample != {bad}") as feed:
            self.assertEqual(sum(batch.bad for _ in range(EPOCHS) for batch in feed), 0, "a sample that is not chosen is no partner")

    def test_objects_for_which_no_number_is_left_are_not_pasted(self):
        """A mask of bytes has 255 numbers."""
        instances = numpy.arange(256).reshape(16, 16).astype("u1")
        one = {**sample(1), "image": numpy.zeros((16, 16, 3), "u1"), "depth": numpy.zeros((16, 16), "f4"), "instances": instances,
               "instance": list(range(253)), "boxes": [[0, 0, 16, 16]] * 253, "kinds": [0] * 253, "points": numpy.zeros((253, 1, 2), "f4")}
        two = {**one, "instances": instances * (instances < 99), "image": one["image"] + 1}
        path = self.write("full.pimg", [one, two])
        for (_, number), made in self.samples(path, "copy_paste(p=1, mask_occluded_thr=0)", batch_size=1):
            shown = [(n, (made["instances"] == n).sum()) for n in made["instance"].tolist() if n > 0]
            self.assertTrue(all(count <= 1 for _, count in shown), shown)
            self.assertEqual(len({n for n, _ in shown}), len(shown))
            if number == 0:
                self.assertFalse(made["image"].any(), "0, 253, 254 and 255 are pixels of no box, but taken")

    def test_hostile_polygons_end(self):
        far = 3e38
        square = [[-far, -far], [far, -far], [far, far], [-far, far]]
        zigzag = numpy.array([[4, -far], [5, far]] * 4000, "f4")
        corners = [[[0, 0], [2, 0], [0, 2]], [[WIDTH, HEIGHT], [WIDTH - 2, HEIGHT], [WIDTH, HEIGHT - 2]]]
        for name, objects in (("far", [[square]]), ("corners", [corners] * 800), ("zigzag", [[zigzag], [square]]), ("points", [[[[1, 1]]], [[[2, 2], [9, 9]]], [], [square[:3]]])):
            count = len(objects)
            one = {**sample(1, centres=True), "boxes": [[0.5, 0.5, 1, 1]] * count, "kinds": [0] * count, "points": numpy.zeros((count, 1, 2), "f4"),
                   "polygons": loaderd.join_polygons(objects)}
            path = self.write(f"{name}.pimg", [one, {**one, "image": one["image"] + 1}], POLYGONS)
            for _, made in self.samples(path, "to(f32) copy_paste(p=1)", batch_size=1):
                self.assertGreaterEqual(len(made["kinds"]), 1)
                self.assertEqual(len(loaderd.split_polygons(made["polygons"])), len(made["kinds"]))

    def test_named_values_tell_the_pixels(self):
        schema = MASKS.replace("instances", "who").replace("instance", "number") + "polygons: polygons(boxes) f32[*,2]\n"
        samples = [{**one, "who": one["instances"], "number": one["instance"]} for one in map(sample, range(SAMPLES))]
        path = self.write("named.pimg", samples, schema)
        values = [*OTHERS, "who", "number", "polygons"]
        found = {}
        for names in ("", "polygons: ", "who, number: ", "number, who, polygons: "):
            with self.feed(path, f"resize(48x36) {names}copy_paste(p=1)", values=values) as feed:
                found[names] = [batch["who"].tobytes() for batch in feed]
        self.assertEqual(found[""], found["polygons: "], "the mask has none of the usual names")
        self.assertEqual(found["who, number: "], found["number, who, polygons: "], "a mask counts before polygons")
        self.assertNotEqual(found[""], found["who, number: "])

    def test_refuses_what_it_cannot_paste(self):
        fixed = self.write("fixed.pimg", [{"image": numpy.zeros((8, 8, 3), "u1"), "right": numpy.zeros((8, 8, 3), "u1"), "box": [[1, 2, 3, 4]]}],
                           "image: image u8[h,w,3]\nright: image u8[h,w,3]\nbox: boxes(image) f32[1,4] xyxy\n")
        boxes = ["boxes", "kinds"]
        for path, pipeline, values, words in (
            (self.masks, "resize(8x8) copy_paste hflip", None, "hflip must stand before copy_paste"),
            (self.masks, "resize(8x8) mixup copy_paste", None, "copy_paste must stand before mixup"),
            (self.masks, "resize(8x8) copy_paste copy_paste", None, "copy_paste is given twice"),
            (self.masks, "resize(8x8) copy_paste mixup", None, "mixup and cutmix blend images without their boxes"),
            (self.masks, "mosaic(8) copy_paste", None, "mosaic joins four: leave one"),
            (self.masks, "resize(8x8) copy_paste view a { hflip }", None, "leave them or the views out"),
            (self.masks, "view a { resize(8x8) copy_paste }", None, "leave them or the views out"),
            (self.masks, "resize(8x8) copy_paste(p=2)", None, "p"),
            (self.masks, "resize(8x8) copy_paste", boxes, "pastes objects whose pixels a value tells"),
            (self.masks, "resize(8x8) copy_paste", ["instances"], "pastes objects whose pixels a value tells"),
            (self.masks, "resize(8x8) kinds: copy_paste", None, "has the role class"),
            (self.masks, "resize(8x8) instance, instances: copy_paste", ["instances"], "needs the value \"instance\", which it names"),
            (self.masks, "resize(8x8) instances: copy_paste", None, "pastes objects whose pixels a value tells"),
            (fixed, "resize(8x8) copy_paste", ["box"], "cannot drop boxes of a fixed number"),
            (fixed, "resize(8x8) copy_paste", ["right"], "pastes on first images"),
        ):
            with self.subTest(words, pipeline=pipeline), self.assertRaisesRegex(loaderd.FeedError, words):
                self.feed(path, pipeline, **({} if values is None else {"values": values})).close()

    def test_both_samples_are_made_for_the_bucket(self):
        self.check(self.masks, "bucket_resize(crop=random) hflip", buckets=[(48, 36)])

    def test_threads_and_instruction_sets_change_nothing(self):
        for path in (self.masks, self.polygons, self.jpegs):
            digests = set()
            for isa, threads in (("", 1), ("", 4), ("c", 2), ("avx2", 1)):
                with contextlib.ExitStack() as stack:
                    if isa:
                        os.environ["LOADERD_ISA"] = isa
                        stack.callback(os.environ.pop, "LOADERD_ISA")
                    daemon = stack.enter_context(loaderd.Daemon(threads))
                    digest = hashlib.sha256()
                    for where, made in self.samples(path, f"random_resized_crop(48x40) hflip random_affine(10) color_jitter(0.3) {STEP}", socket=daemon.socket):
                        digest.update(b"".join([repr(where).encode(), *(made[name].tobytes() for name in made)]))
                    digests.add(digest.hexdigest())
            self.assertEqual(len(digests), 1)


if __name__ == "__main__":
    unittest.main()
