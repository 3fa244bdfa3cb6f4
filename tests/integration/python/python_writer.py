"""loaderd.Writer: writes what packimg convert writes, in order and checked; a file is complete or absent."""

import array
import filecmp
import json
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import unittest
import unittest.mock

import loaderd
from images_test import ImagesTest, listed, numpy, packimg, pillow
from loaderd import _processes

SCHEMA = "image: image u8[h,w,3]\nlabel: class i32\nage: value i32 sparse\nweight: value f64 sparse\ncaption: text sparse\nraw: bytes sparse\nboxes: json sparse\n"
TYPED = """
image: image u8[h,w,3]
mask: mask(image) u8[h,w] sparse
depth: raster(image) u16[h,w] sparse
right: image u8[h,w,3] sparse
boxes: boxes(image) f32[*,4] xyxy
kinds: class(boxes) i32[*]
target: value f32[2]
tags: class i32[*] sparse
caption: text sparse
label: class i32
"""
WIDTH, HEIGHT = 25, 103  # size of the fourth image


def bytearray_of(view):
    """Returns a copy of the elements in another buffer."""
    return memoryview(bytearray(view.tobytes())).cast("B", view.shape)


def info(path):
    return json.loads(packimg("info", "--json", path))


class Dataset:
    """A map-style dataset of image files."""

    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        if not 0 <= i < len(self.files):
            raise IndexError(i)
        return self.files[i].read_bytes(), i


def to_sample(item):
    return {"image": item[0], "age": item[1]}


def refuse_seven(item):
    if item[1] == 7:
        raise KeyError("no seven")
    return to_sample(item)


def end_at_seven(item):
    if item[1] == 7:
        os._exit(9)
    return to_sample(item)


class PythonWriter(ImagesTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.classes = sorted({file.parent.name for file in cls.files})

    def write(self, name, samples, schema=SCHEMA, **options):
        with loaderd.Writer(self.dir / name, schema, **options) as writer:
            for sample in samples:
                writer.add(sample)
        return self.dir / name

    def samples(self):
        return [{"image": file.read_bytes(), "label": file.parent.name, "key": str(file.relative_to(self.tree))} for file in self.files]

    def test_as_packimg(self):
        """The samples, indexes and statistics equal those of packimg convert; the file is the same for any number of threads."""
        packimg("convert", "-q", self.tree, "-o", self.dir / "p.pimg")
        first = self.write("a.pimg", self.samples(), "image: image", classes=self.classes, jobs=1)
        again = self.write("b.pimg", self.samples(), {"image": "image u8[h,w,3]"}, classes=self.classes, jobs=4)
        self.assertTrue(filecmp.cmp(first, again, shallow=False))
        self.assertEqual(listed(first), listed(self.dir / "p.pimg"))
        for key in ("uuid", "mean", "std", "classes"):
            self.assertEqual(info(first)[key], info(self.dir / "p.pimg")[key])
        packimg("verify", "-q", first)

    def test_values(self):
        """Numbers, text, bytes and JSON come back as given; missing values stay missing."""
        image = self.files[0].read_bytes()
        path = self.write("v.pimg", [
            {"image": image, "label": 3, "age": -4, "weight": 1.5, "caption": "é", "raw": b"\0\xff", "boxes": [{"box": [1, 2.5]}], "key": "a/b"},
            {"image": bytearray(image), "label": None, "age": None},
            {"image": memoryview(image), "label": -1, "weight": float("inf")},
            {"image": self.files[1], "label": 0, "age": 2.0, "boxes": None},
        ])
        samples = listed(path)
        self.assertEqual([s["label"] for s in samples], [3, -1, -1, 0])
        self.assertEqual(samples[0]["fields"].pop("raw"), {"hex": "00ff"})
        self.assertEqual(samples[0]["fields"], {"age": -4, "weight": 1.5, "caption": "é", "boxes": [{"box": [1, 2.5]}]})
        self.assertNotIn("fields", samples[1])
        self.assertEqual(samples[3]["fields"], {"age": 2})
        self.assertEqual(samples[3]["class"], "0")
        self.assertEqual(samples[0]["source"], "a/b")
        self.assertEqual({f["name"]: f["type"] for f in info(path)["fields"]},
                         {"age": "int64", "weight": "float64", "caption": "text", "raw": "bytes", "boxes": "json"})

    def test_refusals(self):
        """Each value is checked when its sample is added. The error names sample, value and remedy, and the other samples are written."""
        good = {"image": self.files[0].read_bytes(), "label": "ant"}
        rows = [
            ({"label": 0}, "image: None: the sample lacks it"),
            (good | {"captoin": "x"}, "captoin: 'x': the schema has no such value; did you mean caption?"),
            (good | {"label": "aunt"}, "label: 'aunt': 'aunt' is not one of classes; did you mean 'ant'?"),
            (good | {"label": 3}, "label: 3: there is no class 3 among 3"),
            (good | {"label": 0.5}, "label: 0.5: it is not a whole number"),
            (good | {"age": 1 << 31}, "age: 2147483648: it is not in -2147483648 .. 2147483647"),
            (good | {"age": "12"}, "age: '12': it is not a whole number"),
            (good | {"weight": "heavy"}, "weight: 'heavy': it is not a number"),
            (good | {"caption": b"x"}, "caption: b'x': it is not a text"),
            (good | {"caption": "\ud800"}, "surrogates"),
            (good | {"raw": "x"}, "raw: 'x': it is a text; the role text takes it"),
            (good | {"boxes": [float("nan")]}, "JSON cannot hold it"),
            (good | {"boxes": object()}, "JSON cannot hold it: a object is not a number"),
            (good | {"image": "a.jpg"}, "image: 'a.jpg': it is a text; give a path as pathlib.Path"),
            (good | {"image": self.dir / "none.jpg"}, "No such file"),
            (good | {"image": 5}, "it is a int; give the bytes of an image file"),
            ([1], "sample: [1]: it is not a dictionary of age, boxes, "),
        ]
        with loaderd.Writer(self.dir / "r.pimg", SCHEMA, classes=self.classes) as writer:
            for sample, told in rows:
                writer.add(good)
                with self.assertRaises(loaderd.BadSample) as caught:
                    writer.add(sample)
                self.assertIn(told, str(caught.exception))
                self.assertIn(f"r.pimg: sample {len(writer)}: ", str(caught.exception))
                self.assertEqual(caught.exception.sample, len(writer))
        self.assertEqual(len(listed(self.dir / "r.pimg")), len(rows))
        for schema in ("image: picture", "label: class i32", "image: image\nimage: text", "image", "image: image\na: text i32", "image: image\nb: boxes(img) f32[*,4]"):
            with self.assertRaisesRegex(loaderd.BadOption, "schema: line "):
                loaderd.Writer(self.dir / "s.pimg", schema)
        for options, told in (({"path": "x.bin"}, "ends in .pimg"), ({"quality": 0}, "quality"), ({"shard_size": 5}, "shard_size"), ({"classes": ["a", "a"]}, "'a' is listed twice"),
                              ({"non_jpeg": "png"}, "'png' is not one of jpeg, raw, zstd"), ({"path": self.dir / "r.pimg"}, "overwrite=True")):
            with self.assertRaises(loaderd.BadOption) as caught:
                loaderd.Writer(**({"path": self.dir / "o.pimg"} | options))
            self.assertIn(told, str(caught.exception))
        self.assertEqual(os.listdir(self.dir), ["r.pimg"])

    def test_whole_or_nothing(self):
        """An exception leaves no file, and does not change an existing dataset."""
        good = {"image": self.files[0].read_bytes()}
        path = self.write("w.pimg", [good], "image: image")
        before = path.read_bytes()
        with self.assertRaises(ZeroDivisionError):
            with loaderd.Writer(path, overwrite=True) as writer:
                writer.add(good)
                writer.add(good)
                1 / 0
        self.assertEqual((path.read_bytes(), os.listdir(self.dir)), (before, ["w.pimg"]))
        with self.assertRaisesRegex(loaderd.WriteFailed, "closed"):
            writer.add(good)
        unfinished = loaderd.Writer(self.dir / "u.pimg")
        unfinished.add(good)
        del unfinished
        self.assertEqual(os.listdir(self.dir), ["w.pimg"])
        self.write("w.pimg", [good, good], "image: image", overwrite=True)
        self.assertEqual(len(listed(path)), 2)
        with self.assertRaisesRegex(loaderd.WriteFailed, "none/x.pimg"):
            loaderd.Writer(self.dir / "none" / "x.pimg")

    def test_damaged_images(self):
        """An unreadable image fails the writer with the sample's number; with on_error="skip" it is skipped and counted."""
        good = self.files[0].read_bytes()
        samples = [{"image": good, "key": "a"}, {"image": good[: len(good) // 2], "key": "b"}, {"image": b"text", "key": "c"}, {"image": good, "key": "d"},
                   {"image": self.dir / "none.jpg", "key": "e"}]
        with self.assertRaises(loaderd.BadSample) as caught:
            self.write("d.pimg", samples[:4], "image: image")
        self.assertEqual((caught.exception.sample, caught.exception.field), (1, "image"))
        self.assertEqual(os.listdir(self.dir), [])
        with loaderd.Writer(self.dir / "d.pimg", on_error="skip") as writer:
            for sample in samples:
                writer.add(sample)
        self.assertEqual([(number, key) for number, key, _ in writer.skipped], [(1, "b"), (2, "c"), (4, "e")])
        self.assertEqual((len(writer), [s["source"] for s in listed(self.dir / "d.pimg")]), (2, ["a", "d"]))

    def test_damaged_pixels(self):
        """A damaged mask, raster or further image is an error that names it; on_error="skip" skips such samples, but no other errors."""
        schema = "image: image\nmask: mask(image) u8[h,w] sparse\nright: image u8[h,w,3] sparse\nage: value i32 sparse"
        good = self.files[3].read_bytes()
        rows = [({"mask": b"\x89PNG\r\n\x1a\n"}, "mask", "Pillow"), ({"mask": memoryview(bytes(12)).cast("B", (2, 2, 3))}, "mask", "its shape is [2, 2, 3]"),
                ({"right": good[: len(good) // 2]}, "right", ""), ({"right": self.dir / "none.jpg"}, "right", "No such file"), ({"mask": self.dir / "none.png"}, "mask", "No such file")]
        for change, field, told in rows:
            with self.subTest(change), self.assertRaises(loaderd.BadSample) as caught:
                self.write("d.pimg", [{"image": good, **change}], schema)
            self.assertEqual((caught.exception.sample, caught.exception.field), (0, field))
            self.assertIn(f"sample 0: {field}: ", str(caught.exception))
            self.assertIn(told, str(caught.exception))
        with loaderd.Writer(self.dir / "d.pimg", schema, on_error="skip") as writer:
            for i, (change, _, _) in enumerate(rows):
                writer.add({"image": good, "key": str(i), **change})
            for wrong in ({"age": "x"}, {"image": None}):
                with self.assertRaises(loaderd.BadSample):
                    writer.add({"image": good, **wrong})
            writer.add({"image": good, "key": "good"})
        self.assertEqual([(number, key) for number, key, _ in writer.skipped], [(i, str(i)) for i in range(len(rows))])
        self.assertEqual([s["source"] for s in listed(self.dir / "d.pimg")], ["good"])

    def test_range_of_elements(self):
        """A number that its element cannot hold, and a key that is too long, are errors of their sample; the writer continues."""
        schema = "image: image\nb: value bf16 sparse\nbs: value bf16[*] sparse\nf: value f32 sparse\nh: value f16 sparse\nd: value f64 sparse\nds: value f64[2] sparse"
        image = self.files[0].read_bytes()
        rows = [("b", 1e39), ("b", 3.4e38), ("bs", [1, -1e39]), ("f", 1e39), ("h", 70000), ("d", 10**400), ("ds", [0, -(10**400)]), ("f", 10**400)]
        with loaderd.Writer(self.dir / "e.pimg", schema) as writer:
            for name, given in rows:
                element = {"b": "bf16", "f": "f32", "h": "f16", "d": "f64"}[name[0]]
                with self.subTest(name=name, given=given), self.assertRaisesRegex(loaderd.BadSample, f"sample 1: {name}: .*it has a number that {element} cannot hold"):
                    if not len(writer):
                        writer.add({"image": image})
                    writer.add({"image": image, name: given})
            with self.assertRaisesRegex(loaderd.BadSample, "sample 1: key: .*it has 65536 bytes, and a key at most 65535"):
                writer.add({"image": image, "key": "é" * 32768})
            nan = struct.unpack("<f", struct.pack("<I", 0x7FFFFFFF))[0]
            writer.add({"image": image, "bs": [1, float("inf"), nan, 3.3e38], "f": float("-inf"), "key": "k" * 65535})
        self.assertEqual((self.dir / "e.pimg").read_bytes().count(struct.pack("<4H", 0x3F80, 0x7F80, 0x7FC0, 0x7F78)), 1)
        self.assertEqual(len(listed(self.dir / "e.pimg")), 2)

    def test_keys_are_bytes(self):
        """File names that are not UTF-8 come back unchanged, also those of skipped samples."""
        name = b"a/\xff.jpg"
        with loaderd.Writer(self.dir / "k.pimg", "image: image", on_error="skip") as writer:
            writer.add({"image": self.files[0], "key": os.fsdecode(name)})
            writer.add({"image": b"text", "key": os.fsdecode(name)})
            with self.assertRaisesRegex(loaderd.BadSample, "surrogates other than"):
                writer.add({"image": self.files[0], "key": "\ud800"})
        self.assertEqual(os.fsencode(writer.skipped[0][1]), name)
        self.assertEqual((self.dir / "k.pimg").read_bytes().count(name), 1)

    def test_shards(self):
        self.write("s.pimg", self.samples() * 4, classes=self.classes, shard_size=1 << 16)
        names = sorted(os.listdir(self.dir))
        self.assertGreater(len(names), 2)
        self.assertTrue(names[0].startswith("s-00000-of-"))
        self.assertEqual(len(listed(self.dir / "s.pimg")), 4 * len(self.files))
        with self.assertRaisesRegex(loaderd.BadOption, "exists"):
            loaderd.Writer(self.dir / "s.pimg")

    def test_copy(self):
        """Copies map-style datasets and iterables, in order, with and without worker processes."""
        data = Dataset(self.files)
        items = [data[i] for i in range(len(data))]
        files = []
        for workers in (0, 2):
            for source in (data, items, iter(items)):
                files.append(self.dir / f"{len(files)}.pimg")
                with loaderd.Writer(files[-1], SCHEMA.replace("label: class i32\n", "")) as writer:
                    self.assertEqual(writer.copy(source, map=to_sample, workers=workers), len(data))
        self.assertEqual([s["fields"]["age"] for s in listed(files[0])], [*range(len(data))])
        for file in files[1:]:
            self.assertTrue(filecmp.cmp(files[0], file, shallow=False))
        for workers in (0, 2):
            with self.assertRaisesRegex(loaderd.BadSample, "sample 7: reading or mapping it raised KeyError: 'no seven'") as caught:
                with loaderd.Writer(self.dir / "x.pimg", SCHEMA.replace("label: class i32\n", "")) as writer:
                    writer.copy(data, map=refuse_seven, workers=workers)
            self.assertIsInstance(caught.exception.__cause__, KeyError)
        with self.assertRaisesRegex(loaderd.WriteFailed, "a worker process ended"):
            with loaderd.Writer(self.dir / "x.pimg", SCHEMA.replace("label: class i32\n", "")) as writer:
                writer.copy(Dataset(self.files * 9), map=end_at_seven, workers=2)
        self.assertFalse((self.dir / "x.pimg").exists())

    def test_copy_of_an_iterable_that_raises(self):
        """The samples before the exception are written; the error names the sample at which it was raised."""
        def three():
            for file in self.files[:3]:
                yield {"image": file.read_bytes()}
            raise OSError("no fourth")

        for workers in (0, 2):
            with loaderd.Writer(self.dir / f"{workers}.pimg") as writer:
                with self.assertRaisesRegex(loaderd.BadSample, "sample 3: reading or mapping it raised OSError: no fourth"):
                    writer.copy(three(), map=lambda sample: sample, workers=workers)
            self.assertEqual(len(listed(self.dir / f"{workers}.pimg")), 3)

    def test_start_methods(self):
        """Worker processes work with each start method, and exit when the process that started them dies."""
        code = """if True:
            import multiprocessing, operator, os, signal
            from loaderd._processes import ordered_map

            def numbers():
                yield from range(5)
                os.kill(os.getpid(), signal.SIGKILL)

            multiprocessing.set_start_method({!r})
            for result in ordered_map(operator.neg, numbers(), 2, 1):
                print(result, flush=True)
        """
        for method in multiprocessing.get_all_start_methods():
            with self.subTest(method):
                done = subprocess.run([sys.executable, "-c", code.format(method)], stdout=subprocess.PIPE, text=True, timeout=60)  # reads until all processes have exited
                self.assertEqual((done.returncode, done.stdout), (-signal.SIGKILL, "0\n-1\n-2\n"))

    def test_workers_watch_the_starting_process(self):
        """A worker depends on the process that started it, whatever its parent is."""
        here, there = multiprocessing.Pipe()
        lives, ends = os.pipe()
        self.addCleanup(os.close, lives)
        with unittest.mock.patch("multiprocessing.parent_process", return_value=unittest.mock.Mock(sentinel=lives)), unittest.mock.patch("os.getppid", return_value=1):
            there.send("item")
            self.assertTrue(_processes.message_comes(here))
            here.recv()
            os.close(ends)
            self.assertFalse(_processes.message_comes(here))

    def typed(self, name, samples, schema=None, **options):
        return self.write(name, samples, schema or TYPED, classes=["cat", "dog", "bird"], **options)

    def test_typed_values(self):
        """Boxes, classes of boxes, vectors, lists, masks and further images are stored as SPEC.md describes."""
        image = self.files[3].read_bytes()
        width, height = WIDTH, HEIGHT
        mask = memoryview(bytes(i % 5 for i in range(width * height))).cast("B", (height, width))
        depth = memoryview(array.array("H", [i * 7 % 60000 for i in range(width * height)])).cast("B").cast("H", (height, width))
        boxes = [[0, 0, 5, 5.5], [1, 1, 2, 3]]
        path = self.typed("t.pimg", [
            {"image": image, "mask": mask, "depth": depth, "right": self.files[0], "boxes": boxes, "kinds": ["dog", 2], "target": (0.5, -1), "tags": [0, 2], "caption": "é", "label": 1},
            {"image": image, "boxes": [], "kinds": [], "target": [1, 2], "label": "bird", "key": "b"},
        ])
        packimg("verify", "-q", path)
        values = {line.split(":")[0].split()[1]: line for line in packimg("info", path).splitlines() if line.startswith("value ")}
        for text in ("mask: mask(image) u8[h,w] sparse", "depth: raster(image) u16[h,w] sparse", "boxes: boxes(image) f32[*,4] xyxy, up to 2 rows", "kinds: class(boxes) i32[*], up to 2 rows"):
            self.assertIn(text, values[text.split(":")[0]])
        data = path.read_bytes()
        self.assertEqual(data.count(struct.pack("<8f", *boxes[0], *boxes[1])), 1)
        self.assertEqual(data.count(struct.pack("<2f", 0.5, -1)), 1)
        self.assertEqual([s["label"] for s in listed(path)], [1, 2])
        self.assertTrue(filecmp.cmp(path, self.typed("u.pimg", [
            {"image": image, "mask": bytearray_of(mask), "depth": depth, "right": self.files[0], "boxes": boxes, "kinds": [1, "bird"], "target": [0.5, -1.0], "tags": (0, 2), "caption": "é", "label": "dog"},
            {"image": image, "boxes": (), "kinds": (), "target": [1, 2], "label": 2, "key": "b"},
        ], jobs=1), shallow=False))
        good = {"image": image, "boxes": [], "kinds": [], "target": [0, 0], "label": 0}
        rows = [
            ({"boxes": [[0, 0, 1]]}, "boxes: [[0, 0, 1]]: its shape is [1, 3], not [*,4]"),
            ({"boxes": [[0, 0, 1, 1], [0]]}, "its rows differ in length"),
            ({"boxes": [[0, 0, 1, "x"]], "kinds": [0]}, "it is not a number"),
            ({"boxes": [[0, 0, 1, 1]]}, "kinds: []: it has 0 rows, but boxes, to whose rows they belong, has 1"),
            ({"tags": [3]}, "tags: [3]: there is no class 3 among 3"),
            ({"tags": ["fish"]}, "'fish' is not one of classes"),
            ({"tags": [1.5]}, "it is not a whole number"),
            ({"target": [1]}, "target: [1]: its shape is [1], not [2]"),
            ({"target": 1}, "target: 1: its shape is [], not [2]"),
            ({"mask": depth}, "its elements are of format 'H', not u8"),
            ({"mask": memoryview(b"123456")}, "mask: "),
        ]
        with loaderd.Writer(self.dir / "r.pimg", TYPED, classes=["cat", "dog", "bird"]) as writer:
            for change, told in rows:
                with self.assertRaises(loaderd.BadSample) as caught:
                    writer.add({**good, **change})
                self.assertIn(told, str(caught.exception))
            with self.assertRaisesRegex(loaderd.BadSample, "label: None: the sample lacks it"):
                writer.add({name: value for name, value in good.items() if name != "label"})
            writer.add(good)
        self.assertEqual(len(listed(self.dir / "r.pimg")), 1)

    def test_masks_fit_their_image(self):
        """A mask whose size differs from its image's, or whose image EXIF rotates, is detected when the image is decoded."""
        image = self.files[3].read_bytes()
        small = memoryview(bytes(WIDTH * (HEIGHT - 1))).cast("B", (HEIGHT - 1, WIDTH))
        schema = "image: image\nmask: mask(image) u8[h,w] sparse\nboxes: boxes(image) f32[*,4] xyxy sparse"
        with self.assertRaisesRegex(loaderd.BadSample, f"sample 0: mask: None: it is {WIDTH} x {HEIGHT - 1}, but image is {WIDTH} x {HEIGHT}, upright"):
            self.write("m.pimg", [{"image": image, "mask": small}], schema)
        with loaderd.Writer(self.dir / "m.pimg", schema, on_error="skip") as writer:
            writer.add({"image": image, "mask": small})
            writer.add({"image": image})
        self.assertEqual([number for number, _, _ in writer.skipped], [0])
        # EXIF with orientation 6, inserted after SOI
        exif = b"Exif\0\0MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"
        turned = image[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + image[2:]
        upright = memoryview(bytes(WIDTH * HEIGHT)).cast("B", (WIDTH, HEIGHT))
        for value in ({"mask": upright}, {"boxes": [[0, 0, 1, 1]]}):
            with self.assertRaisesRegex(loaderd.BadSample, "image has the EXIF orientation 6: set annotations='upright'"):
                self.write("e.pimg", [{"image": turned, **value}], schema, overwrite=True)
            self.write("e.pimg", [{"image": turned, **value}], schema, annotations="upright", overwrite=True)
            packimg("verify", "-q", self.dir / "e.pimg")
        self.assertEqual((listed(self.dir / "e.pimg")[0]["width"], listed(self.dir / "e.pimg")[0]["orientation"]), (HEIGHT, 6))

    @unittest.skipUnless(numpy, "needs NumPy")
    def test_typed_arrays(self):
        """Arrays of other element types are converted if no number changes."""
        image, mask = self.files[3].read_bytes(), numpy.arange(WIDTH * HEIGHT).reshape(HEIGHT, WIDTH) % 5
        sample = {"image": image, "mask": mask, "depth": mask.astype("uint16"), "boxes": numpy.float64([[0, 0, 1, 2.5]]), "kinds": numpy.int64([2]), "target": numpy.float32([1, 2]), "label": numpy.int32(0)}
        first = self.typed("a.pimg", [sample])
        for kinds in (numpy.array(["bird"]), numpy.array(["bird"], object), numpy.float32([2]), [numpy.float32(2)]):
            self.assertTrue(filecmp.cmp(first, self.typed("n.pimg", [{**sample, "kinds": kinds, "label": numpy.float16(0)}], overwrite=True), shallow=False))
        again = self.typed("b.pimg", [{**sample, "mask": mask.astype("uint8").copy(), "depth": mask.astype("int32"), "boxes": [[0, 0, 1, 2.5]], "kinds": ["bird"], "target": [1, 2], "label": "cat"}])
        self.assertTrue(filecmp.cmp(first, again, shallow=False))
        for change, told in (({"mask": mask * 100}, "its numbers are 0 .. 400, and u8 holds 0 .. 255"), ({"mask": mask / 2}, "its elements are of format 'd', not u8"),
                             ({"mask": mask[..., None]}, f"its shape is [{HEIGHT}, {WIDTH}, 1], not [any,any]")):
            with self.assertRaises(loaderd.BadSample) as caught:
                self.typed("c.pimg", [{**sample, **change}])
            self.assertIn(told, str(caught.exception))
        packimg("extract", "-q", first, "-o", self.dir / "back")
        found = [name for name in (self.dir / "back").rglob("*") if "mask" in name.name]
        self.assertEqual(len(found), 1)
        if pillow:
            self.assertTrue((numpy.asarray(pillow.open(found[0])) == mask).all())
            palette = pillow.fromarray(mask.astype("uint8"), "P")
            palette.putpalette([0, 0, 0, 255, 0, 0] * 20)
            palette.save(self.dir / "mask.png")
            for given in (palette, self.dir / "mask.png", (self.dir / "mask.png").read_bytes()):
                self.assertTrue(filecmp.cmp(first, self.typed("p.pimg", [{**sample, "mask": given}], overwrite=True), shallow=False))

    @unittest.skipUnless(pillow, "needs Pillow")
    def test_png_of_16_bits(self):
        """A PNG of 16 bits is a mask of u16, even if Pillow returns pixels of 32 bits. Pixels that the element cannot hold are refused."""
        numbers = array.array("H", (i * 7 % 60000 for i in range(WIDTH * HEIGHT)))
        pillow.frombytes("I;16", (WIDTH, HEIGHT), numbers.tobytes()).save(self.dir / "depth.png")
        same = memoryview(numbers).cast("B").cast("H", (HEIGHT, WIDTH))
        schema = "image: image\nmask: mask(image) u16[h,w]"
        paths = [self.write(name, [{"image": self.files[3], "mask": given}], schema) for name, given in (("a.pimg", same), ("b.pimg", self.dir / "depth.png"))]
        self.assertTrue(filecmp.cmp(*paths, shallow=False))
        for low, high in ((-1, 5), (0, 1 << 16)):
            wide = pillow.new("I", (WIDTH, HEIGHT), low)
            wide.putpixel((1, 1), high)
            with self.assertRaisesRegex(loaderd.BadSample, f"mask: .*its numbers are {low} .. {high}, and u16 holds 0 .. 65535"):
                self.write("c.pimg", [{"image": self.files[3], "mask": wide}], schema)

    @unittest.skipUnless(numpy, "needs NumPy")
    def test_arrays(self):
        """Pixels of arrays come back exactly; shapes and types with another meaning are refused."""
        generator = numpy.random.default_rng(1)
        pixels = generator.integers(0, 256, (5, 7, 3), numpy.uint8)
        grey = generator.integers(0, 256, (7, 5), numpy.uint8)
        changed = pixels.copy()
        with loaderd.Writer(self.dir / "a.pimg", "image: image\nn: value i64\nf: value f32\nlist: json") as writer:
            for image in (changed, pixels[::-1], pixels.transpose(1, 0, 2), grey, grey[:, :, None]):
                writer.add({"image": image, "n": numpy.int32(5), "f": numpy.float32(0.5), "list": numpy.arange(3), "label": numpy.int64(0)})
                changed[:] = 0  # the writer keeps no reference to its input
            for wrong, told in ((pixels.astype("float32"), "astype"), (pixels.transpose(2, 0, 1), "transpose(1, 2, 0)"), (pixels[None], "its shape is (1, 5, 7, 3)"),
                                (pixels[:0], "its shape is (0, 7, 3)")):
                with self.assertRaises(loaderd.BadSample) as caught:
                    writer.add({"image": wrong, "n": 1, "f": 0, "list": []})
                self.assertIn(told, str(caught.exception))
        self.assertEqual([(s["width"], s["height"]) for s in listed(self.dir / "a.pimg")], [(7, 5), (7, 5), (5, 7), (5, 7), (5, 7)])
        self.assertEqual(listed(self.dir / "a.pimg")[0]["fields"], {"n": 5, "f": 0.5, "list": [0, 1, 2]})
        expected = [pixels, pixels[::-1], pixels.transpose(1, 0, 2), numpy.stack([grey] * 3, 2), numpy.stack([grey] * 3, 2)]
        for name, images in (("wide", expected[:2]), ("tall", expected[2:])):
            self.write(f"{name}.pimg", [{"image": image} for image in images], "image: image", non_jpeg="raw")
            with loaderd.Feed(self.dir / f"{name}.pimg", pipeline="", batch_size=len(images), daemon="private") as feed:
                batch = next(iter(feed))
                self.assertTrue((batch.images.numpy() if hasattr(batch.images, "numpy") else numpy.asarray(batch.images) == numpy.stack(images)).all())
                batch.release()
        stored = {s["codec"] for s in listed(self.write("j.pimg", [{"image": pixels}], "image: image", non_jpeg="jpeg"))}
        self.assertEqual(stored, {"jpeg"})


if __name__ == "__main__":
    unittest.main()
