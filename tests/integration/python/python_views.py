"""Views of a pipeline in Python: several finished images of each sample, and what follows them, with the daemon ($LOADERD)."""

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
try:
    from PIL import Image as pillow
except ImportError:
    pillow = None
try:
    import torch
except ImportError:
    torch = None

SAMPLES, WIDTH, HEIGHT, BATCH = 23, 48, 40, 8
GLOBAL, LOCAL = "random_resized_crop(24, scale=0.4:1) hflip", "random_resized_crop(10, scale=0.05:0.4) hflip"
VIEWS = f"view global(2) {{ {GLOBAL} }} view local(3) {{ {LOCAL} }}"
SCHEMA = """image: image u8[h,w,3]
mask: mask(image) u8[h,w]
boxes: boxes(image) f32[*,4] xyxy
kind: class(boxes) i32[*]
weight: value f32
label: class i32
"""


def sample(i):
    random = numpy.random.default_rng(i)
    corners = random.uniform(0, 30, (i % 4, 2))
    return {
        "image": random.integers(0, 256, (HEIGHT, WIDTH, 3), "u1"),
        "mask": random.integers(0, 9, (HEIGHT, WIDTH), "u1"),
        "boxes": numpy.concatenate([corners, corners + 8], 1).astype("f4"),
        "kind": numpy.arange(i % 4, dtype="i4"),
        "label": i % 2,
        "weight": i / 2,
    }


class Views(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = os.path.join(cls.folder.name, "data.pimg")
        with loaderd.Writer(cls.path, SCHEMA) as writer:
            for i in range(SAMPLES):
                writer.add(sample(i))
        cls.daemon = loaderd.Feed(cls.path, pipeline="resize(8x8)", batch_size=1, daemon="private")
        cls.addClassCleanup(cls.daemon.close)

    def open(self, pipeline=VIEWS, path=None, **options):
        options = {"batch_size": BATCH, "shuffle": True, "seed": 3, "socket": self.daemon.socket, "epoch_end": 2, **options}
        return loaderd.Feed(path or self.path, pipeline=pipeline, **options)

    def copies(self, pipeline, name, count, **options):
        """What a feed without views makes of copy 0 .. count - 1 of each sample: {(epoch, sample, copy): value}."""
        made = {}
        with self.open(pipeline, repeats=count, **{**options, "batch_size": count}) as feed:
            for batch in feed:
                for i in range(batch.count):
                    made[batch.epoch, int(batch.samples[i]), i] = numpy.array(batch[name][i])
        return made

    def test_names_and_shapes(self):
        with self.open(values=["mask", "boxes", "weight"]) as feed:
            batch = next(feed)
            self.assertEqual([image.shape for image in batch.images], [(BATCH, 24, 24, 3)] * 2 + [(BATCH, 10, 10, 3)] * 3)
            self.assertEqual([len(batch[name]) for name in ("global", "global.mask", "local.boxes")], [2, 2, 3])
            self.assertEqual(batch["local.mask"][2].shape, (BATCH, 10, 10))
            self.assertTrue((batch["local"][1] == batch.images[3]).all())
            self.assertEqual(batch["weight"].tolist(), (batch.samples / 2).tolist())
            images, labels = batch
            self.assertEqual((len(images), labels.shape), (5, (BATCH,)))
            self.assertNotIn("mask", batch)

    def test_a_copy_is_a_feed_of_its_own(self):
        """Copy v of all has the bytes that a feed without views makes with the v-th seed."""
        names = ["mask", "boxes", "kind"]
        for view, pipeline, numbers in (("global", GLOBAL, (0, 1)), ("local", LOCAL, (2, 3, 4))):
            alone = {name: self.copies(pipeline, name, 5, values=names) for name in ("image", *names)}
            with self.open(values=names) as feed:
                for batch in feed:
                    for copy, number in enumerate(numbers):
                        for name in ("image", *names):
                            got = batch[view if name == "image" else f"{view}.{name}"][copy]
                            for i in range(batch.count):
                                want = alone[name][batch.epoch, int(batch.samples[i]), number]
                                self.assertTrue(numpy.array_equal(numpy.array(got[i]), want), (view, copy, name, i))

    def test_rasters_are_decoded_once_for_all_views(self):
        """More masks and rasters than are kept, of many bands, have the bytes that each view decodes alone."""
        path, names = os.path.join(self.folder.name, "rasters.pimg"), ["m0", "m1", "m2", "m3", "d0", "d1"]
        schema = "image: image u8[h,w,3]\n" + "".join(f"{name}: {'mask(image) u8' if name[0] == 'm' else 'raster(image) f32'}[h,w]\n" for name in names)
        with loaderd.Writer(path, schema) as writer:
            for i in range(6):
                random, shape = numpy.random.default_rng(i), (150 + i, 90)
                smooth = numpy.add.outer(numpy.arange(shape[0]), numpy.arange(shape[1])) // 16 % 7
                values = {name: (smooth + random.integers(0, 2, shape) * k).astype("u1" if name[0] == "m" else "f4") for k, name in enumerate(names)}
                writer.add({"image": random.integers(0, 256, (*shape, 3), "u1"), **values})
        options = {"path": path, "values": names, "batch_size": 3}
        pipelines = ["random_resized_crop(40) hflip", "random_resized_crop(16, scale=0.05:0.4) d0: filter(bilinear)"]
        alone = [{name: self.copies(pipeline, name, 4, **options) for name in names} for pipeline in pipelines]
        with self.open(f"view a(2) {{ {pipelines[0]} }} view b(2) {{ {pipelines[1]} }}", **options) as feed:
            for batch in feed:
                for copy in range(4):
                    for name in names:
                        made = batch[f"{'ab'[copy // 2]}.{name}"][copy % 2]
                        for i in range(batch.count):
                            want = alone[copy // 2][name][batch.epoch, int(batch.samples[i]), copy]
                            self.assertTrue(numpy.array_equal(made[i], want), (name, copy, i))

    def test_jpegs_are_decoded_once_for_all_views(self):
        """The pictures that views share have the bytes that each decodes alone, at full and at reduced scale, of any kind of JPEG."""
        images, path = os.path.join(self.folder.name, "images"), os.path.join(self.folder.name, "jpegs.pimg")
        subprocess.run([os.environ["SHAPES"], images, "--count", "30", "--size", "210"], check=True, capture_output=True)
        if pillow is not None:
            for i, name in enumerate(sorted(pathlib.Path(images).rglob("*.jpg"))):
                exif = pillow.Exif()
                exif[0x112] = 1 + i % 8  # orientation
                picture = pillow.open(name).crop((0, 0, 210 - i, 200))
                picture.convert("L" if i % 5 == 0 else "RGB").save(name, progressive=i % 3 == 0, subsampling=i % 3, exif=exif)
        subprocess.run([os.environ["PACKIMG"], "convert", images, "-o", path], check=True, capture_output=True)
        pipelines = ["random_resized_crop(60, scale=0.4:1) hflip", "random_resized_crop(24)", "random_resized_crop(12, scale=0.5:1)", "random_resized_crop(7)"]
        text = " ".join(f"view v{i}(2) {{ {pipeline} }}" for i, pipeline in enumerate(pipelines))
        options = {"batch_size": 8, "socket": self.daemon.socket, "epoch_end": 1}
        with loaderd.Feed(path, pipeline=text, seed=3, **options) as feed:
            made = {(int(batch.samples[i]), v): image[i].tobytes() for batch in feed for v, image in enumerate(batch.images) for i in range(batch.count)}
        self.assertEqual(len(made), 30 * 8)
        for number, pipeline in enumerate(pipelines):
            with loaderd.Feed(path, pipeline=pipeline, seed=3, repeats=8, **options) as feed:
                for batch in feed:
                    for v in (2 * number, 2 * number + 1):
                        self.assertEqual(batch.images[v].tobytes() == made[int(batch.samples[v]), v], True, (pipeline, int(batch.samples[v])))

    def test_steps_before_the_views_decide_alike(self):
        with self.open("hflip view a(2) { resize(48x40) } view b { resize(24x20) }", values=["mask"]) as feed:
            mirrored = set()
            for batch in feed:
                first, second = batch["a"]
                self.assertTrue((first == second).all() and (batch["a.mask"][0] == batch["a.mask"][1]).all())
                for i, number in enumerate(batch.samples):
                    stored = sample(int(number))["image"]
                    self.assertIn(True, [(first[i] == stored).all(), (first[i] == stored[:, ::-1]).all()])
                    mirrored.add(bool((first[i] == stored[:, ::-1]).all()))
            self.assertEqual(mirrored, {False, True})

    def test_steps_before_the_views_are_drawn_apart(self):
        """A view's own decisions do not repeat those of the steps before, in the first copy either."""
        mirrored = {0: set(), 1: set()}
        with self.open("hflip view a(2) { resize(48x40) vflip }") as feed:
            for batch in feed:
                for copy, images in enumerate(batch["a"]):
                    for i, number in enumerate(batch.samples):
                        stored = sample(int(number))["image"]
                        ways = {(x, y): stored[::y, ::x] for x in (1, -1) for y in (1, -1)}
                        mirrored[copy].update(way for way, image in ways.items() if (images[i] == image).all())
        self.assertEqual([len(ways) for ways in mirrored.values()], [4, 4])

    def test_names_of_views_are_those_of_nothing_else(self):
        path = os.path.join(self.folder.name, "names.pimg")
        schema = "image: image u8[h,w,3]\nmask: mask(image) u8[h,w]\na.mask: value i32\nc.weight: value i32\nweight: value i32\n"
        with loaderd.Writer(path, schema) as writer:
            writer.add({"image": sample(0)["image"], "mask": sample(0)["mask"], "a.mask": 1, "c.weight": 2, "weight": 3})
        options = {"batch_size": 1, "socket": self.daemon.socket, "values": ["mask", "a.mask", "c.weight", "weight"]}
        for name, text in (("a", 'begins with "a."'), ("flags", "has the name of a value")):
            with self.assertRaisesRegex(loaderd.FeedError, text):
                loaderd.Feed(path, pipeline=f"view {name} {{ resize(8x8) }}", **options).close()
        with loaderd.Feed(path, pipeline="view b { resize(8x8) } view c { resize(8x8) }", **options) as feed:
            batch = next(feed)
            self.assertEqual([int(batch[name][0]) for name in ("a.mask", "c.weight", "weight")], [1, 2, 3])
            self.assertEqual([len(batch[name]) for name in ("b.mask", "c.mask")], [1, 1])

    def test_boxes_are_dropped_view_by_view(self):
        """Rows that a view's sanitize_boxes drops go from its own values alone."""
        pipeline = "view all { resize(48x40) } view few { resize(48x40) sanitize_boxes(min_size=100) }"
        with self.open(pipeline, values=["boxes", "kind"]) as feed:
            for batch in feed:
                for i, number in enumerate(batch.samples):
                    self.assertEqual(len(batch["all.kind"][0][i]), int(number) % 4)
                    self.assertEqual((len(batch["few.kind"][0][i]), len(batch["few.boxes"][0][i])), (0, 0))

    def test_resumes_in_the_middle(self):
        def digests(**position):
            with self.open(values=["mask"], **position) as feed:
                return [hashlib.sha256(b"".join(image.tobytes() for image in (*batch.images, *batch["local.mask"]))).digest() for batch in feed]

        self.assertEqual(digests()[1:], digests(batch=1))
        self.assertEqual(len(digests(epoch=1, batch=1)), 2)

    def test_ranks_share_a_batch(self):
        with self.open(batch_size=6) as feed:
            whole = [[image.copy() for image in batch.images] for batch in feed]
        halves = []
        for rank in (0, 1):
            with self.open(batch_size=3, rank=rank, world=2) as feed:
                halves.append([[image.copy() for image in batch.images] for batch in feed])
        for both, first, second in zip(whole, *halves):
            for view, one, other in zip(both, first, second):
                self.assertTrue((view == numpy.concatenate([one, other])).all())

    def test_bad_samples_leave_all_views(self):
        path = os.path.join(self.folder.name, "bad.pimg")
        noise = [numpy.random.default_rng(i).integers(0, 256, (32, 32, 3), "u1") for i in range(4)]
        with loaderd.Writer(path, {"image": "image u8[h,w,3]", "label": "class i32"}) as writer:
            for i, image in enumerate(noise):
                writer.add({"image": image, "label": i})
        with open(path, "r+b") as file:
            file.seek(file.read().index(noise[2].tobytes()[500:600]))
            file.write(b"----")
        pipeline = "view a(2) { resize(32x32) } view b { center_crop(16) }"
        with loaderd.Feed(path, pipeline=pipeline, batch_size=4, bad="skip", socket=self.daemon.socket, epoch_end=1) as feed:
            for batch in feed:
                self.assertEqual((batch.samples.tolist(), batch.bad), ([0, 1, 3], 1))
                for i, number in enumerate(batch.samples):
                    for got, want in zip(batch.images, (noise[number], noise[number], noise[number][8:24, 8:24])):
                        self.assertTrue((got[i] == want).all())

    def test_refusals(self):
        for options, text in (
            ({"pipeline": "view mask { resize(8x8) }"}, "has the name of a value"),
            ({"pipeline": "view a { resize(8x8) "}, "'}' in view a"),
            ({"pipeline": "view a(16) { resize(8x8) }", "values": ["mask", "boxes", "kind"]}, "at most 64 values"),
            ({"fields": ["weight"]}, "takes one finished image"),
            ({"pipeline": "view a { random_iou_crop resize(8x8) } view b { nosuch: fill(1) }"}, 'no value "nosuch"'),
            ({"pipeline": "view a(2) { resize(4096x4096) to(f32) }", "batch_size": 65536, "slots": 64}, 'of 402653184 bytes .* "image" of view a takes'),
            ({"pipeline": "view a { resize(8x8) } view b { resize(5000x5000) }"}, "at most 4096"),
        ):
            with self.assertRaisesRegex((loaderd.FeedError, ValueError), text):
                self.open(**options).close()

    @unittest.skipIf(torch is None, "PyTorch is not installed")
    def test_tensors(self):
        with self.open(values=["mask"]) as feed:
            batch = next(feed)
            images, labels = batch.torch()
            self.assertEqual([tuple(image.shape) for image in images], [(BATCH, 3, 24, 24)] * 2 + [(BATCH, 3, 10, 10)] * 3)
            self.assertEqual(labels.dtype, torch.int64)
            tensors = batch.tensors()
            self.assertEqual([len(tensors[name]) for name in ("global", "local", "global.mask")], [2, 3, 2])
            self.assertTrue(torch.equal(tensors["local"][0], images[2]))
            self.assertEqual([tuple(image.shape) for image in batch.to("cpu").images][2], (BATCH, 3, 10, 10))

    @unittest.skipIf(torch is None, "PyTorch is not installed")
    def test_data_loader(self):
        """As torchvision's datasets do with a transform that returns a list of crops."""
        options = {"seed": 3, "socket": self.daemon.socket}
        dataset = loaderd.ImageDataset(self.path, VIEWS, **options)
        images, label = dataset[4]
        self.assertEqual(([tuple(image.shape) for image in images], label), ([(3, 24, 24)] * 2 + [(3, 10, 10)] * 3, 0))
        loader = loaderd.DataLoader(dataset, batch_size=BATCH)
        images, labels = next(iter(loader))
        self.assertEqual([tuple(image.shape) for image in images], [(BATCH, 3, 24, 24)] * 2 + [(BATCH, 3, 10, 10)] * 3)
        collated = next(iter(loaderd.DataLoader(dataset, batch_size=BATCH, collate_fn=lambda samples: [sample[0] for sample in samples])))
        self.assertEqual([tuple(image.shape) for image in collated[1]], [(3, 24, 24)] * 2 + [(3, 10, 10)] * 3)
        doubled = loaderd.ImageDataset(self.path, VIEWS, transform=lambda views: [view.float() * 2 for view in views], **options)
        halved, _ = next(iter(loaderd.DataLoader(doubled, batch_size=BATCH)))
        self.assertEqual([image.dtype for image in halved], [torch.float32] * 5)
        self.assertEqual(tuple(halved[4].shape), (BATCH, 3, 10, 10))
        with self.assertRaisesRegex(loaderd.BadOption, "follows the image into each view"):
            loaderd.ImageDataset(self.path, VIEWS, as_dict=True, values=["mask"], **options)


if __name__ == "__main__":
    unittest.main()
