"""Values of the schema in Python, with the daemon ($LOADERD) and a table that packimg converts: Feed(values=...), Batch and Ragged."""

import contextlib
import csv
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

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

SAMPLES = 40
NUMBERS = [f"number{i}" for i in range(20)]


def caption(i):
    return "é" * (i % 7)


class Values(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        images, cls.path = os.path.join(cls.folder.name, "images"), os.path.join(cls.folder.name, "data.pimg")
        table = os.path.join(cls.folder.name, "table.csv")
        subprocess.run([os.environ["SHAPES"], images, "--count", str(SAMPLES)], check=True, capture_output=True)
        found = sorted(os.path.join(folder, name) for folder, _, names in os.walk(images) for name in names if name.endswith("g"))[:SAMPLES]
        with open(table, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["path", "label", "caption", "half", *NUMBERS])
            for i, path in enumerate(found):
                writer.writerow([path, f"class{i % 3}" if i else "", caption(i), i / 2, *(i * 10 + k for k in range(len(NUMBERS)))])
        cls.count = len(found)
        subprocess.run([os.environ["PACKIMG"], "convert", table, "-o", cls.path], check=True, capture_output=True)

    def open(self, **options):
        options = {"pipeline": "resize(16x12)", "batch_size": 8, "daemon": "private", "shuffle": True, "seed": 3, **options}
        return loaderd.Feed(self.path, **options)

    def test_warns_of_missing_labels_if_they_are_delivered(self):
        for values, count in ((["caption"], 0), (["caption", "label"], 1), ([], 1)):
            with warnings.catch_warnings(record=True) as given, self.open(values=values) as feed:
                warnings.simplefilter("always")
                self.assertEqual(sum(batch.count for batch in feed), self.count)
            self.assertEqual(sum(warning.category is loaderd.LabelWarning for warning in given), count, values)

    def test_values_may_have_the_names_of_the_labels(self):
        """If a value has the name of a section that every feed has, that section gets another name."""
        for schema, given in (({"label": "value f32", "__label__": "value i32", "___label__": "value i32"}, {"label": 0.5, "__label__": 7, "___label__": 8}),
                              ({"label": "class i32[*]", "__label__": "value i32"}, {"label": [1, 0], "__label__": 7}),
                              ({"sample": "value i32", "__sample__": "value i32", "flags": "value i32", "__flags__": "value i32"}, dict(zip(("sample", "__sample__", "flags", "__flags__"), range(4))))):
            path = os.path.join(self.folder.name, "names.pimg")
            with loaderd.Writer(path, {"image": "image u8[h,w,3]", **schema}, overwrite=True) as writer:
                writer.add({"image": numpy.zeros((8, 8, 3), "u1"), **given})
            with loaderd.Feed(path, pipeline="resize(8x8)", batch_size=1, values=list(given), daemon="private", epoch_end=1) as feed:
                batch = next(iter(feed))
                self.assertEqual({name: batch[name][0].tolist() for name in given}, given)
                self.assertEqual((batch.samples.tolist(), batch.labels.tolist()), ([0], [-1]))

    def test_values_are_the_samples_own(self):
        names = ["caption", "half", "key", *NUMBERS]
        with self.open(values=names) as feed:
            for batch in feed:
                samples = [int(sample) for sample in batch.samples]
                self.assertEqual(batch["caption"], [caption(i) for i in samples])
                self.assertEqual([i / 2 for i in samples], batch["half"].tolist())
                self.assertEqual([os.path.splitext(name)[1] != "" for name in batch["key"]], [True] * batch.count)
                for k, name in enumerate(NUMBERS):
                    self.assertEqual([i * 10 + k for i in samples], batch[name].tolist())
                self.assertEqual(batch.keys()[:4], ("images", "labels", "samples", "flags"))
                self.assertEqual(batch.keys()[4:], ("image", "label", "sample", *names))
                self.assertTrue((batch["image"] == batch.images).all() and (batch["label"] == batch.labels).all())
                self.assertTrue(batch["sample"] is batch.samples)
                self.assertTrue("half" in batch and "other" not in batch)
                with self.assertRaisesRegex(KeyError, "'other'"):
                    batch.value("other")

    def test_values_are_copies(self):
        with self.open(values=["half"], slots=2) as feed:
            kept = []
            for batch in feed:
                kept.append((batch.samples, batch["half"]))
                del batch
            for samples, half in kept:
                self.assertEqual((samples / 2).tolist(), half.tolist())

    @unittest.skipIf(torch is None, "PyTorch is not installed")
    def test_tensors(self):
        with self.open(values=["caption", "half"]) as feed:
            batch = next(feed)
            tensors = batch.tensors()
            self.assertEqual(list(tensors), ["image", "label", "sample", "flags", "caption", "half"])
            self.assertEqual(tensors["image"].shape, (8, 3, 12, 16))
            self.assertEqual((tensors["label"].dtype, tensors["half"].dtype), (torch.int64, torch.float64))
            self.assertEqual((tensors["sample"] / 2).tolist(), tensors["half"].tolist())
            self.assertEqual(batch.tensors("stored")["image"].shape, (8, 12, 16, 3))

    def test_images_are_those_of_a_feed_without_values(self):
        with self.open(values=["half"]) as one, self.open() as other, self.open(fields=["half"]) as third:
            for a, b, c in zip(one, other, third):
                self.assertTrue((a.images == b.images).all() and (a.images == c.images).all())
                self.assertTrue((a["half"] == c["half"]).all())

    def test_refusals(self):
        for options, text in (
            ({"values": "half"}, "values: must be a list of names"),
            ({"values": ["hlaf"]}, 'no value "hlaf"; did you mean "half"'),
            ({"values": ["half", "half"]}, 'value "half" twice'),
            ({"values": ["half"], "fields": ["half"]}, "values: not together with fields"),
        ):
            with self.subTest(text), self.assertRaisesRegex(loaderd.BadOption, text):
                self.open(**options)
        with self.assertRaisesRegex(ValueError, "values: 65 given, at most 64"):
            self.open(values=[f"v{i}" for i in range(65)])


class Typed(unittest.TestCase):
    """Files with a schema, from tests/golden/good."""

    def open(self, name, **options):
        path = pathlib.Path(__file__).parents[2] / "golden" / "good" / name
        return loaderd.Feed(path, pipeline="resize(16x12)", batch_size=3, drop_last=False, daemon="private", **options)

    def test_pictures(self):
        with self.open("images.pimg", values=["mask", "depth"]) as feed:
            batch = next(feed)
            mask, depth = batch["mask"], batch["depth"]
            self.assertEqual((mask.shape, mask.dtype), ((3, 12, 16), numpy.uint8))
            self.assertEqual((depth.shape, depth.dtype), ((3, 12, 16), numpy.uint16))
            missing = [flag & loaderd.FIELD_MISSING != 0 for flag in batch.flags]
            self.assertEqual([not one.any() for one in depth], missing)
            self.assertTrue(any(missing) and not all(missing))
            if torch is not None:
                tensors = batch.tensors()
                self.assertEqual(tensors["mask"].tolist(), mask.tolist())
                self.assertEqual(tensors["depth"].tolist(), depth.tolist())
            batch.release()
            self.assertEqual(mask.tolist(), mask.copy().tolist())  # a view, which keeps the batch alive

    def test_types(self):
        with self.open("typed.pimg", values=["boxes", "class", "target", "area", "small"]) as feed:
            for batch in feed:
                boxes, classes = batch["boxes"], batch["class"]
                self.assertEqual((boxes.values.dtype, boxes.values.shape[1:]), (numpy.float32, (4,)))
                self.assertEqual((classes.values.dtype, classes.values.shape[1:]), (numpy.int32, ()))
                self.assertEqual(boxes.offsets.tolist(), classes.offsets.tolist())
                self.assertEqual((batch["target"].shape, batch["target"].dtype), ((batch.count, 2), numpy.float32))
                self.assertEqual((batch["area"].dtype, batch["small"].dtype), (numpy.float32, numpy.uint8))

    def test_names_of_sections(self):
        """batch[NAME] returns the value of the schema, even if the batch has an attribute of the same name."""
        pixels = memoryview(bytes(16 * 12 * 3)).cast("B", (12, 16, 3))
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "names.pimg"
            with loaderd.Writer(path, "image: image\nboxes: boxes(image) f32[*,4] xyxy\nlabels: class(boxes) i32[*]\nsamples: value i64") as writer:
                for i in range(3):
                    writer.add({"image": pixels, "label": 1, "boxes": [[0, 0, 4, 4]] * i, "labels": [5] * i, "samples": 70 + i})
            with loaderd.Feed(path, pipeline="", batch_size=3, daemon="private", values=["boxes", "labels", "samples"]) as feed:
                batch = next(feed)
                self.assertEqual([rows.tolist() for rows in batch["labels"]], [[], [5], [5, 5]])
                self.assertEqual((batch["samples"].tolist(), batch["flags"].tolist()), ([70, 71, 72], [0, 0, 0]))
                self.assertEqual((batch.labels.tolist(), batch.samples.tolist()), ([1, 1, 1], [0, 1, 2]))
                self.assertEqual(batch.keys().count("labels"), 1)


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Loader(unittest.TestCase):
    """Values in ImageDataset and DataLoader equal those of a Feed, under the names that as_dict gives them."""

    PIPELINE = "resize(16x12)"

    def dataset(self, name, values, **options):
        path = pathlib.Path(__file__).parents[2] / "golden" / "good" / name
        return loaderd.ImageDataset(path, self.PIPELINE, as_dict=True, values=values, daemon="private", **options)

    def expected(self, name, values):
        """Returns the values of all samples as lists, in the order of the file."""
        path = pathlib.Path(__file__).parents[2] / "golden" / "good" / name
        samples = []
        with loaderd.Feed(path, pipeline=self.PIPELINE, batch_size=2, daemon="private", values=values) as feed:
            for batch in feed:
                tensors = batch.tensors()
                columns = {name: [*tensors[name].list()] if isinstance(tensors[name], loaderd.Ragged) else tensors[name] for name in values}
                samples += [{name: column[i].tolist() for name, column in columns.items()} for i in range(batch.count)]
        return samples

    def of(self, sample, values):
        return {name: sample[name].tolist() if hasattr(sample[name], "tolist") else sample[name] for name in values}

    def test_batches_and_samples(self):
        for name, values in (("images.pimg", ["mask", "depth"]), ("typed.pimg", ["boxes", "class", "target", "area"])):
            expected = self.expected(name, values)
            for options in ({}, {"transform": dict}, {"batch_transform": dict}, {"transform": dict, "transform_processes": True}):
                with self.subTest(name, **options), contextlib.closing(self.dataset(name, values, **options)) as dataset:
                    self.assertEqual([self.of(dataset[i], values) for i in range(len(dataset))], expected)
                    for loader in (loaderd.DataLoader(dataset, 2), torch.utils.data.DataLoader(dataset, 2, collate_fn=self.collate)):
                        found = [self.of({name: batch[name][i] for name in values}, values) for batch in loader for i in range(len(batch["image"]))]
                        self.assertEqual(found, expected)
            with contextlib.closing(self.dataset(name, values)) as dataset:
                batch = next(iter(loaderd.DataLoader(dataset, 2)))
                for value in values:
                    self.assertEqual(type(batch[value]), list if value in ("boxes", "class") else torch.Tensor, value)
                kept = [batch["image"], *map(batch.get, values)]
                self.assertEqual([len(column) for column in kept], [2] * len(kept))

    @staticmethod
    def collate(samples):
        return samples.finish()

    def test_one_image_as_a_list(self):
        """Batches of one sample, or of samples with equal numbers of rows, are lists of tensors too."""
        with contextlib.closing(self.dataset("typed.pimg", ["boxes"], transform=lambda sample: sample)) as dataset:
            for batch in loaderd.DataLoader(dataset, 1):
                self.assertEqual(([type(rows) for rows in batch["boxes"]], batch["boxes"][0].shape[1:]), ([torch.Tensor], (4,)))

    def test_numpy(self):
        def check(sample):
            assert sample["image"].shape == (12, 16, 3) and sample["mask"].shape == (12, 16), sample["mask"].shape
            assert all(type(sample[name]) is numpy.ndarray for name in ("image", "mask", "depth")), sample
            return {**sample, "mask": sample["mask"] + 1}

        expected = self.expected("images.pimg", ["mask"])
        with contextlib.closing(self.dataset("images.pimg", ["mask", "depth"], numpy=True, transform=check)) as dataset:
            masks = [mask for batch in loaderd.DataLoader(dataset, 2) for mask in batch["mask"]]
            self.assertEqual([(mask - 1).tolist() for mask in masks], [sample["mask"] for sample in expected])

    def test_names(self):
        with contextlib.closing(self.dataset("images.pimg", ["mask", "label"])) as dataset:
            self.assertEqual(list(dataset[0]), ["image", "label", "sample", "mask"])
        path = pathlib.Path(__file__).parents[2] / "golden" / "good" / "images.pimg"
        names = {"image": "pixel_values", "mask": "labels"}
        with contextlib.closing(loaderd.ImageDataset(path, self.PIPELINE, as_dict=names, values=["mask"], daemon="private")) as dataset:
            self.assertEqual(list(next(iter(loaderd.DataLoader(dataset, 2)))), ["pixel_values", "labels"])
        for options, text in (
            ({"values": "mask", "as_dict": True}, "values: must be a list of names"),
            ({"values": ["mask"]}, "values: samples are .image, label.; as_dict=True makes them dictionaries that have mask"),
            ({"values": ["mask"], "fields": ["half"], "as_dict": True}, "values: not together with fields"),
            ({"values": ["maks"], "as_dict": True}, 'no value "maks"; did you mean "mask"'),
        ):
            with self.subTest(text), self.assertRaisesRegex(loaderd.BadOption, text):
                loaderd.ImageDataset(path, self.PIPELINE, daemon="private", **options)


class RaggedRows(unittest.TestCase):
    """Ragged alone, with rows that are neither adjacent nor in order."""

    def setUp(self):
        rows = numpy.arange(40, dtype=numpy.float32).reshape(10, 4)
        self.ragged = loaderd.Ragged(rows, [6, 0, 3], [2, 0, 3])
        self.expected = [rows[6:8], rows[0:0], rows[3:6]]

    def test_rows(self):
        self.assertEqual(len(self.ragged), 3)
        self.assertEqual(self.ragged.offsets.tolist(), [0, 2, 2, 5])
        for i, rows in enumerate(self.expected):
            self.assertTrue(numpy.array_equal(self.ragged[i], rows) and numpy.array_equal(self.ragged[i - 3], rows))
        self.assertEqual([len(rows) for rows in self.ragged], [2, 0, 3])
        self.assertIn("3 samples: 5 rows (4,) float32", repr(self.ragged))
        for beyond in (3, -4):
            with self.assertRaises(IndexError):
                self.ragged[beyond]

    @unittest.skipIf(torch is None, "PyTorch is not installed")
    def test_tensors(self):
        self.assertEqual([tensor.tolist() for tensor in self.ragged.list()], [rows.tolist() for rows in self.expected])
        if hasattr(torch.nested, "nested_tensor_from_jagged"):
            self.assertEqual([part.tolist() for part in self.ragged.nested().unbind()], [rows.tolist() for rows in self.expected])
        else:
            with self.assertRaisesRegex(RuntimeError, "PyTorch 2.5"):
                self.ragged.nested()


unittest.main(verbosity=2)
