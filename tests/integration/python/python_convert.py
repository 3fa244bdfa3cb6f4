"""python -m loaderd.convert: pixels and fields equal those of the source. Formats whose readers are not installed are skipped."""

import contextlib
import io
import json
import math
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import tempfile
import unittest

from images_test import ImagesTest, listed, numpy, packimg, pillow
from loaderd import convert
from loaderd.convert import _part, _streams, _tfrecord

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None


def message(number, data):
    """Encodes a field of bytes in protobuf's wire format."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value):
    value &= (1 << 64) - 1
    coded = b""
    while value > 127:
        coded += bytes([value & 127 | 128])
        value >>= 7
    return coded + bytes([value])


def example(values, packed=True):
    """Encodes a tf.train.Example."""
    entries = b""
    for name, items in values.items():
        items = items if isinstance(items, list) else [items]
        if not items:
            feature = b""
        elif isinstance(items[0], bytes):
            feature = message(1, b"".join(message(1, item) for item in items))
        elif isinstance(items[0], float):
            feature = message(2, message(1, struct.pack(f"<{len(items)}f", *items)) if packed else b"".join(varint(1 << 3 | 5) + struct.pack("<f", item) for item in items))
        else:
            feature = message(3, message(1, b"".join(map(varint, items))) if packed else b"".join(varint(1 << 3) + varint(item) for item in items))
        entries += message(1, message(1, name.encode()) + message(2, feature))
    return message(1, entries)


def tfrecord(path, records):
    with open(path, "wb") as file:
        for data in records:
            length = struct.pack("<Q", len(data))
            file.write(length + struct.pack("<I", _tfrecord._masked_crc(length)) + data + struct.pack("<I", _tfrecord._masked_crc(data)))


class Convert(ImagesTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.jpegs = [file.read_bytes() for file in cls.files]

    def convert(self, source, *options, status=0, out="out.pimg", force=True):
        """Runs the converter in this process; returns its output."""
        arguments = [self.dir / source, self.dir / out, *(["--force"] if force else []), *options]
        said, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
            result = convert.main([*map(str, arguments)])
        self.assertEqual(result, status, said.getvalue() + errors.getvalue())
        return said.getvalue() + errors.getvalue()

    def listed(self, name="out.pimg"):
        return listed(self.dir / name)

    def stored(self, name="out.pimg"):
        """Returns the image files of the samples, in order."""
        back = tempfile.TemporaryDirectory(prefix="convert-test-")
        self.addCleanup(back.cleanup)
        packimg("extract", "-q", "--manifest", self.dir / name, "-o", back.name)
        lines = (pathlib.Path(back.name) / "manifest.csv").read_text("latin-1").splitlines()[1:]
        return [(pathlib.Path(back.name) / line.split(",")[0]).read_bytes() for line in lines]

    def test_tfrecord(self):
        """Features of every kind, packed or not, in one file and in splits."""
        def features(i):
            return {"image/encoded": self.jpegs[i], "image/class/label": i - 1, "score": i / 4, "box": [0.5, float(i)], "ids": [i, -i], "text": f"é{i}".encode(),
                    "words": [b"a", b"b"], "raw": b"\xff\0", **({"rare": 7} if i == 2 else {"rare": []})}

        for packed in (True, False):
            tfrecord(self.dir / "a.tfrecord", [example(features(i), packed) for i in range(4)])
            said = self.convert("a.tfrecord")
            samples = self.listed()
            self.assertEqual(self.stored(), self.jpegs[:4])
            self.assertEqual([s["label"] for s in samples], [-1, 0, 1, 2])
            self.assertEqual(samples[2]["fields"], {"box": [0.5, 2], "ids": [2, -2], "rare": 7, "raw": {"hex": "ff00"}, "score": 0.5, "text": "é2", "words": ["a", "b"]})
            self.assertNotIn("rare", samples[1]["fields"])
            self.assertIn("image/class/label", said)
        (self.dir / "set").mkdir()
        for name, first in (("mnist-train.tfrecord-00000-of-00002", 0), ("mnist-train.tfrecord-00001-of-00002", 2), ("mnist-test.tfrecord-00000-of-00001", 4)):
            tfrecord(self.dir / "set" / name, [example(features(i)) for i in range(first, first + 2)])
        self.convert("set")
        self.assertEqual((self.stored("out-train.pimg"), self.stored("out-test.pimg")), (self.jpegs[:4], self.jpegs[4:6]))
        self.convert("set", "--split", "test", "--limit", 1)
        self.assertEqual(self.stored(), self.jpegs[4:5])
        self.assertIn("there is no such split but test, train", self.convert("set", "--split", "dev", status=2))
        (self.dir / "one").mkdir()
        (self.dir / "set" / "mnist-test.tfrecord-00000-of-00001").rename(self.dir / "one" / "mnist-test.tfrecord-00000-of-00001")
        self.convert("one", "--split", "test")
        self.assertEqual(self.stored(), self.jpegs[4:6])
        self.assertIn("there is no such split but test", self.convert("one", "--split", "train", status=2))
        for damage, told in ((lambda data: data[:-3], "record 1 is cut off"), (lambda data: b"\1" + data[1:], "record 0: the checksum of its length is wrong")):
            tfrecord(self.dir / "bad.tfrecord", [example(features(i)) for i in range(2)])
            (self.dir / "bad.tfrecord").write_bytes(damage((self.dir / "bad.tfrecord").read_bytes()))
            self.assertIn(told, self.convert("bad.tfrecord", status=2))
        tfrecord(self.dir / "bad.tfrecord", [b"\xff\xff\xff"])
        self.assertIn("record 0 is no tf.train.Example", self.convert("bad.tfrecord", status=2))
        tfrecord(self.dir / "bad.tfrecord", [example({"a": 1})])
        self.assertIn("no feature holds images, which are bytes of image files; its features are a", self.convert("bad.tfrecord", status=2))
        tfrecord(self.dir / "bad.tfrecord", [example({"image": self.jpegs[i]} if i else {"image": self.jpegs[0][:99]}) for i in range(3)])
        said = self.convert("bad.tfrecord", status=1)
        self.assertIn("NO SAMPLE HAS A LABEL", said)
        self.assertIn("skipped     1", said)
        self.assertEqual(self.stored(), self.jpegs[1:3])

    def test_schemas_of_splits(self):
        """All splits get the same fields, of types that hold the values of every split."""
        (self.dir / "set").mkdir()
        for i, (split, values) in enumerate((("train", {"n": 1, "ids": [1, 2], "only": b"x"}), ("test", {"n": [1, 2], "ids": [1, 2]}))):
            tfrecord(self.dir / "set" / f"{split}.tfrecord", [example({"image": self.jpegs[i], **values})])
        self.convert("set")
        kinds = self.info("out-train.pimg")
        self.assertEqual(kinds.keys(), self.info("out-test.pimg").keys())
        self.assertTrue(kinds["n"].startswith("value i64[*]") and self.info("out-test.pimg")["n"].startswith("value i64[*]"), kinds)
        datasets = {"train": [{"jpg": self.jpegs[0], "n": 1}], "test": [{"jpg": self.jpegs[1], "n": 0.5, "text": "a"}]}
        train, test = _streams._parts({name: pathlib.Path(name) for name in datasets}, lambda folder: datasets[folder.name], _part.Choice())
        self.assertEqual(train.fields, test.fields)
        self.assertEqual({field.name: field.kind for field in train.fields}, {"image": "image u8[h,w,3]", "n": "value f64 sparse", "text": "text sparse"})
        self.assertEqual([*test.rows()], [{"jpg": self.jpegs[1], "n": 0.5, "text": "a"}])

    def test_imagefolder(self):
        """Hugging Face's image folders: each split has a table, and classes have the same numbers in all splits."""
        for split, rows in (("train", [("b", 0), ("a", 1)]), ("test", [("b", 2)])):
            (self.dir / "in" / split / "sub").mkdir(parents=True)
            lines = []
            for kind, i in rows:
                (self.dir / "in" / split / "sub" / f"{i}.jpg").write_bytes(self.jpegs[i])
                lines.append(json.dumps({"file_name": f"sub/{i}.jpg", "label": kind, "n": i, "w": i / 2, "boxes": [[0, 1]], "text": "é" if i else None}))
            (self.dir / "in" / split / "metadata.jsonl").write_text("\n".join(lines) + "\n\n")
        self.convert("in")
        self.assertEqual((self.stored("out-train.pimg"), self.stored("out-test.pimg")), (self.jpegs[:2], self.jpegs[2:3]))
        samples = self.listed("out-train.pimg")
        self.assertEqual([(s["label"], s["class"], s["source"]) for s in samples], [(1, "b", "sub/0.jpg"), (0, "a", "sub/1.jpg")])
        self.assertEqual([s["fields"] for s in samples], [{"n": 0, "w": 0.0, "boxes": [[0, 1]]}, {"n": 1, "w": 0.5, "boxes": [[0, 1]], "text": "é"}])
        self.assertEqual(self.listed("out-test.pimg")[0]["label"], 1)
        (self.dir / "in" / "train" / "metadata.jsonl").unlink()
        (self.dir / "in" / "train" / "metadata.csv").write_text("file_name,label,n\nsub/0.jpg,3,x\nsub/1.jpg,0,5\nsub/none.jpg,1,\n")
        self.assertIn("sub/none.jpg: [Errno 2] No such file", self.convert("in/train", status=1))
        self.assertIn("none.jpg", self.convert("in/train", "--on-error", "fail", status=2))
        (self.dir / "in" / "train" / "metadata.csv").write_text("file_name,label,n\nsub/0.jpg,3,x\nsub/1.jpg,0,5\n,1,\n")
        self.assertIn("skipped     1 that have no image", self.convert("in/train", status=1))
        self.assertEqual([(s["label"], s["fields"]) for s in self.listed()], [(3, {"n": "x"}), (0, {"n": "5"})])
        (self.dir / "in" / "test" / "metadata.jsonl").write_text("[1]\n")
        self.assertIn("metadata.jsonl, line 1: not an object of columns", self.convert("in/test", status=2))

    def test_imagefolder_columns(self):
        """A column of a CSV has one type in all splits; it is a number only if every cell reads back unchanged. All splits have the same
        fields.
        """
        tables = {"train": "file_name,code,mixed,whole,real,price\n0.jpg,007,a cat,3,0.5,1.50\n1.jpg,008,42,-4,2,2.25\n",
                  "test": "file_name,code,mixed,whole,real,price,more\n2.jpg,9,43,5,1,2.25,7\n"}
        for split, table in tables.items():
            self.put(f"in/{split}/metadata.csv", table)
        for i, split in enumerate(("train", "train", "test")):
            self.put(f"in/{split}/{i}.jpg", self.jpegs[i])
        self.convert("in")
        self.assertEqual([s["fields"] for s in self.listed("out-train.pimg")], [
            {"code": "007", "mixed": "a cat", "whole": 3, "real": 0.5, "price": "1.50"}, {"code": "008", "mixed": "42", "whole": -4, "real": 2.0, "price": "2.25"}])
        self.assertEqual([s["fields"] for s in self.listed("out-test.pimg")], [{"code": "9", "mixed": "43", "whole": 5, "real": 1.0, "price": "2.25", "more": 7}])
        self.assertEqual(self.info("out-train.pimg").keys(), self.info("out-test.pimg").keys())

    def test_imagefolder_names(self):
        """Folders of the same name become different datasets; two tables in one folder are refused."""
        for i, folder in enumerate(("x/train", "y/train", "y/test")):
            self.put(f"in/{folder}/{i}.jpg", self.jpegs[i])
            self.put(f"in/{folder}/metadata.jsonl", {"file_name": f"{i}.jpg"})
        self.convert("in")
        self.assertEqual([self.stored(f"out-{name}.pimg") for name in ("x-train", "y-train", "test")], [[jpeg] for jpeg in self.jpegs[:3]])
        self.put("in/y/test/metadata.csv", "file_name\n2.jpg\n")
        self.assertIn("y/test/metadata.csv: metadata.jsonl describes the images of this folder, too", self.convert("in", status=2))
        self.convert("in/y/test/metadata.csv")

    def put(self, name, content):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else (content if isinstance(content, str) else json.dumps(content)).encode())

    def info(self, name="out.pimg"):
        text = packimg("info", self.dir / name)
        return {line.split(":")[0].split()[1]: line.split(": ", 1)[1].split(",")[0] if "[" not in line else line.split(": ", 1)[1] for line in text.splitlines() if line.startswith("value ")}

    def holds(self, *values, name="out.pimg"):
        """Checks that the file contains each of these byte strings once."""
        data = (self.dir / name).read_bytes()
        for value in values:
            self.assertEqual(data.count(value), 1, value)

    def test_coco(self):
        """Boxes, classes in the order of their ids, keypoints and captions, from the splits of a folder and from one file."""
        images = [{"id": 7 + i, "file_name": f"{i}.jpg"} for i in range(3)]
        categories = [{"id": 18, "name": "dog"}, {"id": 3, "name": "car"}]
        boxes = [{"id": 1, "image_id": 7, "category_id": 18, "bbox": [1, 2, 3, 4.5], "area": 9, "iscrowd": 0, "segmentation": [[1, 2, 3, 4, 5, 6], [0, 0, 0.5, 1]]},
                 {"id": 2, "image_id": 7, "category_id": 3, "bbox": [5, 6, 7, 8], "iscrowd": 1, "segmentation": {"counts": "04", "size": [2, 2]}},
                 {"id": 3, "image_id": 9, "category_id": 3, "bbox": [0.5, 0, 1, 1]}]
        points = [{"id": 1, "image_id": 7, "category_id": 18, "bbox": [1, 2, 3, 4.5], "keypoints": [10, 20, 2, 0, 0, 0]}]
        captions = [{"id": 50, "image_id": 9, "caption": "a car"}, {"id": 51, "image_id": 9, "caption": "blue"}]
        for i in range(3):
            self.put(f"coco/train2017/{i}.jpg", self.jpegs[i])
        self.put("coco/annotations/instances_train2017.json", {"images": images, "categories": categories, "annotations": boxes})
        self.put("coco/annotations/captions_train2017.json", {"images": images, "annotations": captions})
        said = self.convert("coco", "--masks", "none")
        self.assertNotIn("NO SAMPLE HAS A LABEL", said)
        self.assertIn("classes 0 .. 1 are the categories in the order of their ids, 3 .. 18", said)
        self.assertEqual(self.stored(), self.jpegs[:3])
        self.holds(struct.pack("<8f", 1, 2, 3, 4.5, 5, 6, 7, 8), struct.pack("<2f", 9, 56), struct.pack("<2q", 1, 2), b'["a car", "blue"]')
        self.assertEqual([s["fields"]["class"] for s in self.listed()], [[1, 0], [], [0]])
        values = self.info()
        self.assertTrue(values["boxes"].startswith("boxes(image) f32[*,4] xywh, up to 2 rows"), values)
        self.assertTrue(values["polygons"].startswith("polygons(boxes) f32[*,2] xy, up to 9 rows"), values)
        end = (math.nan, math.nan)
        self.holds(struct.pack("<18f", 1, 2, 3, 4, 5, 6, *end, 0, 0, 0.5, 1, *end, *end, *end))  # two polygons of the first box, none of the second
        self.assertEqual([s["fields"].get("rle") for s in self.listed()], [{"2": {"counts": "04", "size": [2, 2]}}, None, None])
        self.assertNotIn("instances", values)
        self.assertIn("a row of NaN ends each polygon, and one more each box", said)
        self.assertTrue(values["class"].startswith("class(boxes) i32[*]"))
        self.convert("coco/annotations/instances_train2017.json", "--masks", "none")
        self.assertEqual(self.stored(), self.jpegs[:3])
        self.put("coco/annotations/person_keypoints_train2017.json", {"images": images, "categories": [{**categories[0], "keypoints": ["nose", "eye"]}], "annotations": points})
        self.convert("coco", "--masks", "none")
        self.holds(struct.pack("<12f", 10, 20, 2, *[0] * 9))
        self.put("rf/train/a.jpg", self.jpegs[0])
        self.put("rf/train/_annotations.coco.json", {"images": [{"id": 0, "file_name": "a.jpg"}, {"id": 1, "file_name": "gone.jpg"}], "categories": categories, "annotations": []})
        self.assertIn("gone.jpg: [Errno 2]", self.convert("rf", status=1))
        self.put("rf/train/_annotations.coco.json", {"images": [{"id": 0, "file_name": "a.jpg"}], "categories": categories[:1], "annotations": []})
        self.assertIn("class 0 is category 18", self.convert("rf"))
        self.put("bad.json", '{"images": 5, "annotations": []}')
        self.assertIn("it has no list of images", self.convert("bad.json", status=2))
        self.put("bad.json", {"images": images, "annotations": [{"id": 4, "image_id": 99, "bbox": [0, 0, 1, 1]}]})
        self.assertIn("annotation 4 is of image 99, which is not listed", self.convert("bad.json", status=2))
        for polygons in ([[1, 2, 3]], [["1", 2]], "x", [[1, math.inf]], [[1, math.nan]]):
            self.put("bad.json", {"images": images, "categories": categories, "annotations": [{**boxes[0], "segmentation": polygons}]})
            self.assertIn("annotations[0] with id 1: its segmentation has ", self.convert("bad.json", status=2))

    def classes(self, name="out.pimg"):
        text = packimg("info", "--json", self.dir / name)
        return [kind["name"] for kind in json.loads(text)["classes"]]

    def test_names_of_two_classes(self):
        """If two categories have the same name and one has no objects, as in Roboflow's exports, that one is renamed; if both have objects,
        they are refused.
        """
        categories = [{"id": 0, "name": "pill", "supercategory": "none"}, {"id": 1, "name": "pill", "supercategory": "pill"}]
        for split, used in (("train", 1), ("valid", 1), ("test", 0)):
            self.put(f"rf/{split}/a.jpg", self.jpegs[0])
            annotations = [{"id": 1, "image_id": 0, "category_id": used, "bbox": [1, 2, 3, 4]}]
            self.put(f"rf/{split}/_annotations.coco.json", {"images": [{"id": 0, "file_name": "a.jpg"}], "categories": categories, "annotations": annotations})
        said = self.convert("rf", status=2)
        self.assertIn("/_annotations.coco.json: classes 0 and 1 are both called 'pill', and objects are of both: rename one", said)
        (self.dir / "rf/test/_annotations.coco.json").unlink()
        self.assertIn("class 0 is called pill_0 here: class 1 is pill, too, and no object is of class 0", self.convert("rf"))
        self.assertEqual([s["fields"]["class"] for s in self.listed("out-train.pimg")], [[1]])
        self.assertEqual(self.classes("out-train.pimg"), ["pill_0", "pill"])

    def test_manifest_of_coco(self):
        """packimg converts the manifest of such a dataset, which has a column for the classes of boxes in addition to the sample's class."""
        self.put("coco/a.jpg", self.jpegs[0])
        self.put("coco/_annotations.coco.json", {"images": [{"id": 1, "file_name": "a.jpg"}], "categories": [{"id": 0, "name": "car"}],
                                                 "annotations": [{"id": 1, "image_id": 1, "category_id": 0, "bbox": [1, 2, 3, 4]}]})
        self.convert("coco")
        packimg("extract", "-q", "--manifest", self.dir / "out.pimg", "-o", self.dir / "back")
        header = (self.dir / "back/manifest.csv").read_text().splitlines()[0].split(",")
        self.assertEqual(header, ["path", "label", "class", "boxes", "class_2", "id", "area", "iscrowd"])
        packimg("convert", "-q", self.dir / "back/manifest.csv", "-o", self.dir / "again.pimg")
        self.assertEqual(self.listed("again.pimg")[0]["fields"]["class_2"], "[0]")

    def test_coco_entries(self):
        """Entries that lack a required key, or repeat an id, are refused; the error names file and entry."""
        image, category = {"id": 7, "file_name": "0.jpg"}, {"id": 3, "name": "car"}
        box = {"id": 1, "image_id": 7, "category_id": 3, "bbox": [1, 2, 3, 4]}

        def without(entry, name):
            return {key: value for key, value in entry.items() if key != name}

        for images, categories, annotations, told in (
            ([image], [category], [box, {**box, "bbox": [5, 6, 7, 8]}], "annotations[1] with id 1: an entry before it has the same id"),
            ([image, {**image, "file_name": "1.jpg"}], [category], [], "images[1] with id 7: an entry before it has the same id"),
            ([without(image, "id")], [category], [], "images[0]: its id is missing; it has to be a whole number or a text"),
            ([without(image, "file_name")], [category], [], "images[0] with id 7: its file_name is missing; it has to be a text"),
            ([image], [without(category, "name")], [], "categories[0] with id 3: its name is missing"),
            ([image], [without(category, "id")], [], "categories[0]: its id is missing"),
            ([image], [category], [without(box, "id")], "annotations[0]: its id is missing"),
            ([image], [category], [without(box, "category_id")], "annotations[0] with id 1: its category_id is missing"),
            ([image], [category], [{**box, "category_id": 4}], "its category_id is 4, which is not in the list of categories"),
            ([image], [category], [{**box, "image_id": [7]}], "its image_id is [7]; it has to be"),
            ([image], [category], [{**box, "bbox": [1, 2]}], "its bbox is [1, 2], not the four numbers"),
            ([image], [category], [5], "annotations[0]: its image_id is missing"),
            ([image], {"3": "car"}, [], "bad.json: categories is not a list"),
        ):
            self.put("bad.json", {"images": images, "categories": categories, "annotations": annotations})
            with self.subTest(told):
                self.assertIn(told, self.convert("bad.json", status=2))

    def test_yolo(self):
        """Boxes and polygons; classes from data.yaml in its various notations."""
        for split, lines in (("train", ["1 0.5 0.5 0.25 0.125\n0 0.25 0.25 0.5 0.5\n", ""]), ("val", ["0 0.25 0.25 0.75 0.25 0.75 0.5\n"])):
            for i, text in enumerate(lines):
                self.put(f"yolo/images/{split}/{i}.jpg", self.jpegs[i])
                self.put(f"yolo/labels/{split}/{i}.txt", text)
        for yaml in ("names: ['cat', dog]\n", 'names: ["cat", "dog"]\nnc: 2\n', "path: x\nnames:\n  0: cat\n  1: dog # tail\nnc: 2\n", "names:\n- cat\n- dog\n",
                     "names:\n  1: dog\n\n# 2: none\n  0: cat\nnc: 2\n", "names: {0: cat, 1: dog}\n", "names: {'1': dog, # one\n  0: \"cat\",\n}\nnc: 2\n",
                     "names:  # of animals\n  0: cat\n  1: dog", "names: [\n  cat, # first\n  dog\n]\n"):
            self.put("yolo/data.yaml", yaml)
            self.convert("yolo")
            self.assertEqual(self.stored("out-train.pimg"), self.jpegs[:2])
            self.holds(struct.pack("<8f", 0.5, 0.5, 0.25, 0.125, 0.25, 0.25, 0.5, 0.5), name="out-train.pimg")
            self.holds(struct.pack("<4f", 0.5, 0.375, 0.5, 0.25), struct.pack("<10f", 0.25, 0.25, 0.75, 0.25, 0.75, 0.5, *[math.nan] * 4), name="out-val.pimg")
            self.holds(struct.pack("<4f", *[math.nan] * 4), name="out-train.pimg")  # two boxes without polygons
            self.assertIn("polygons(boxes) f32[*,2] xy normalized", self.info("out-val.pimg")["polygons"])
            self.assertIn("cxcywh normalized", self.info("out-train.pimg")["boxes"])
            self.assertEqual(self.classes("out-val.pimg"), ["cat", "dog"])
        for yaml, names in (("names: ['a, b', \"it's\", 'don''t', traffic light]", ["a, b", "it's", "don't", "traffic light"]), ("names:\n- 'a # b'\n- c: d\n", ["a # b", "c: d"])):
            self.put("yolo/data.yaml", yaml)
            self.convert("yolo")
            self.assertEqual(self.classes("out-val.pimg"), names)
        for yaml, told in (("names:\n  0: cat\n  2: dog\n", "data.yaml: names: class 1 is missing among 0 .. 2"), ("names: {0: cat, 0: dog}", "class 0 is both 'cat' and 'dog'"),
                           ("names: {cat: 0}\n", "cannot read 'cat: 0}'"), ("names:\n  cat: 0\n", "cannot read 'cat: 0'"), ("names: [cat, dog", "cannot read"),
                           ("names: animals.txt\n", "names: is 'animals.txt', not a list or a mapping"), ("names: [cat, cat]", "classes 0 and 1 are both called 'cat'")):
            self.put("yolo/data.yaml", yaml)
            with self.subTest(yaml):
                self.assertIn(told, self.convert("yolo", status=2))
        (self.dir / "yolo/data.yaml").unlink()
        self.put("yolo/classes.txt", "cat\ndog")  # without a newline at the end
        self.convert("yolo")
        self.assertEqual(self.classes("out-val.pimg"), ["cat", "dog"])
        self.put("yolo/labels/val/0.txt", "0 0.5 0.5 0.25\n")
        self.assertIn("val/0.txt, line 1: 3 numbers follow the class", self.convert("yolo", status=2))
        self.put("yolo/labels/val/0.txt", "5 0.5 0.5 0.25 0.25\n")
        self.assertIn("there is no class 5 among 2", self.convert("yolo", status=2))

    def test_yolo_poses(self):
        """With kpt_shape, the numbers after a box are keypoints; without it, the same lines would be polygons."""
        for i, text in enumerate(("0 0.5 0.5 0.25 0.25 0.125 0.25 2 0 0 0\n", "")):
            self.put(f"pose/images/{i}.jpg", self.jpegs[i])
            self.put(f"pose/labels/{i}.txt", text)
        for shape in ("[2, 3]", "\n  - 2\n  - 3"):
            self.put("pose/data.yaml", f"kpt_shape: {shape}  # of a face\nflip_idx: [0, 1]\nnames: [face]\n")
            self.convert("pose")
            self.assertTrue(self.info()["keypoints"].startswith("keypoints(boxes) f32[*,2,3] xyv normalized, up to 1 row"), self.info())
            self.assertNotIn("polygons", self.info())
            self.holds(struct.pack("<4f", 0.5, 0.5, 0.25, 0.25), struct.pack("<6f", 0.125, 0.25, 2, 0, 0, 0))
        self.put("pose/labels/1.txt", "0 0.5 0.5 0.25 0.25\n")
        self.assertIn("1.txt, line 1: 4 numbers follow the class; with kpt_shape [2, 3] in data.yaml there are 10", self.convert("pose", status=2))
        self.put("pose/data.yaml", "kpt_shape: [3, 2]\nnames: [face]\n")
        self.put("pose/labels/1.txt", "")
        self.convert("pose")
        self.assertIn("f32[*,3,2] xy normalized", self.info()["keypoints"])
        self.put("pose/data.yaml", "kpt_shape: [6]\nnames: [face]\n")
        self.assertIn("data.yaml: kpt_shape: is '[6]', not the number of keypoints and 2 or 3", self.convert("pose", status=2))

    def voc_object(self, name, *box):
        corners = "".join(f"<{tag}>{value}</{tag}>" for tag, value in zip(("xmin", "ymin", "xmax", "ymax"), box))
        return f"<object><name>{name}</name><difficult>1</difficult><bndbox>{corners}</bndbox></object>"

    def test_voc(self):
        top = "VOCdevkit/VOC2012"
        for i in range(3):
            self.put(f"{top}/JPEGImages/{i}.jpg", self.jpegs[i])
        self.put(f"{top}/Annotations/0.xml", f"<annotation>{self.voc_object('dog', 1, 2, 3, 4.5)}{self.voc_object('cat', 5, 6, 7, 8)}</annotation>")
        self.put(f"{top}/Annotations/1.xml", f"<annotation>{self.voc_object('dog', 9, 9, 11, 12)}</annotation>")
        self.convert(".")
        self.assertEqual(self.stored(), self.jpegs[:3])
        self.holds(struct.pack("<8f", 1, 2, 3, 4.5, 5, 6, 7, 8), struct.pack("<4f", 9, 9, 11, 12))
        self.assertIn("1 of 3 images have no file in Annotations/ and so no boxes, the first 2", self.convert("."))
        self.put(f"{top}/ImageSets/Main/train.txt", "0\n2\n")
        self.put(f"{top}/ImageSets/Main/val.txt", "1\n")
        self.convert("VOCdevkit")
        self.assertEqual((self.stored("out-train.pimg"), self.stored("out-val.pimg")), ([self.jpegs[0], self.jpegs[2]], self.jpegs[1:2]))
        for i, name in enumerate(("a", "a.1", "[0]")):
            self.put(f"names/JPEGImages/{name}.jpg", self.jpegs[i])
            self.put(f"names/Annotations/{name}.xml", "<annotation/>")
        self.convert("names")
        samples = {sample["source"]: data for sample, data in zip(self.listed(), self.stored())}
        self.assertEqual(samples, {"a": self.jpegs[0], "a.1": self.jpegs[1], "[0]": self.jpegs[2]})
        self.put("names/JPEGImages/a.png", b"")
        self.assertIn("a.png: a.jpg has the same name", self.convert("names", status=2))
        self.put(f"{top}/Annotations/1.xml", "<annotation><object/></annotation>")
        self.assertIn("1.xml: not an annotation of Pascal VOC: an object lacks its name or its bndbox", self.convert("VOCdevkit", status=2))

    @unittest.skipUnless(pillow and numpy, "needs Pillow and NumPy")
    def test_masks(self):
        """Masks are the indices of palette images, in the folder layouts of ADE20K, Cityscapes and VOC."""
        def masked(image, mask):
            self.put(image, self.jpegs[0])
            with pillow.open(self.dir / image) as opened:
                size = opened.size
            indices = numpy.arange(size[0] * size[1], dtype="uint8").reshape(size[1], size[0]) % 21
            indices[0, 0] = 255
            palette = pillow.fromarray(indices, "P")
            palette.putpalette([*range(250)] * 3)
            (self.dir / mask).parent.mkdir(parents=True, exist_ok=True)
            palette.save(self.dir / mask)
            return indices

        for source, image, mask in (("ade", "ade/images/training/0.jpg", "ade/annotations/training/0.png"), ("plain", "plain/images/a/0.jpg", "plain/masks/a/0.png"),
                                    ("split", "split/train/imgs/0.jpg", "split/train/masks/0.png"),
                                    ("city", "city/leftImg8bit/train/ulm/ulm_1_leftImg8bit.jpg", "city/gtFine/train/ulm/ulm_1_gtFine_labelIds.png"),
                                    ("voc", "voc/JPEGImages/0.jpg", "voc/SegmentationClass/0.png")):
            indices = masked(image, mask)
            (self.dir / "voc" / "Annotations").mkdir(parents=True, exist_ok=True)
            self.convert(source)
            found = self.dir / f"back-{source}"
            packimg("extract", "-q", self.dir / "out.pimg", "-o", found)
            masks = [name for name in found.rglob("*mask*") if name.is_file()]
            self.assertEqual(len(masks), 1, source)
            with pillow.open(masks[0]) as opened:
                self.assertTrue((numpy.asarray(opened) == indices).all(), source)
        objects = masked("voc/JPEGImages/0.jpg", "voc/SegmentationObject/0.png") + 1  # an additional mask of objects
        pillow.fromarray(objects, "P").save(self.dir / "voc/SegmentationObject/0.png")
        self.convert("voc")
        packimg("extract", "-q", self.dir / "out.pimg", "-o", self.dir / "both")
        for name, wanted in (("mask", objects - 1), ("instances", objects)):
            with pillow.open(next((self.dir / "both").rglob(f"*{name}*"))) as opened:
                self.assertTrue((numpy.asarray(opened) == wanted).all(), name)
        self.put("ade/images/training/1.jpg", self.jpegs[1])
        self.assertIn("1 of 2 images have no mask, the first ", self.convert("ade"))
        self.put("ade/annotations/training/1.png", b"\x89PNG\r\n\x1a\n")
        self.assertIn("Pillow cannot read it", self.convert("ade", status=1))
        self.assertEqual(self.stored(), self.jpegs[:1])
        pillow.new("L", (3, 3)).save(self.dir / "ade/annotations/training/1.png")
        self.assertIn("mask: it is 3 x 3", self.convert("ade", "--on-error", "fail", status=2).replace("None: ", ""))

    def test_outputs(self):
        """The names of all output files are checked before the first one is written."""
        for split in ("train", "test"):
            self.put(f"in/{split}/0.jpg", self.jpegs[0])
            self.put(f"in/{split}/metadata.csv", "file_name\n0.jpg\n")
        self.put("out-train.pimg", "")
        self.assertIn("out-train.pimg exists; --force replaces it", self.convert("in", status=2, force=False))
        self.assertFalse((self.dir / "out-test.pimg").exists())
        with self.assertRaisesRegex(convert.Refusal, "o-a.pimg: two splits of the source would have this name, 'a' and 'a'"):
            convert._outputs(pathlib.Path("o.pimg"), [_part.Part("a", (), lambda: iter(())), _part.Part("a", (), lambda: iter(()))], False)
        self.put("in/train/metadata.csv", b"\xff")
        self.assertIn("out.bin: the name of a dataset ends in .pimg", self.convert("in", out="out.bin", status=2))

    def test_options_without_effect(self):
        for i in range(2):
            self.put(f"yolo/images/{i}.jpg", self.jpegs[i])
            self.put(f"yolo/labels/{i}.txt", "0 0.5 0.5 0.25 0.25\n")
        for option in ("--image", "--label", "--key"):
            self.assertIn(f"{option} x: sources of the format yolo have no columns to choose for it", self.convert("yolo", option, "x", status=2))
        for limit in ("-1", "x"):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as said:
                convert.main([str(self.dir / "yolo"), "--limit", limit])
            self.assertIn("is not a number of samples", said.getvalue())
        self.convert("yolo", "--limit", 0)
        self.assertEqual(self.listed(), [])

    def test_files_that_cannot_be_read(self):
        """An unreadable file ends the conversion with status 2 and an error that names it."""
        self.put("yolo/images/0.jpg", self.jpegs[0])
        self.put("yolo/labels/0.txt", b"0 0.5\xff")
        self.assertIn("0.txt: not UTF-8", self.convert("yolo", status=2))
        self.put("yolo/labels/0.txt", "")
        (self.dir / "yolo/data.yaml").mkdir()
        self.assertIn("data.yaml'", self.convert("yolo", status=2))

    def test_names_that_are_not_utf8(self):
        """File names are bytes: any name can be a key, and messages can show it."""
        name = os.fsdecode(b"\xff.jpg")
        self.put(f"yolo/images/{name}", self.jpegs[0])
        self.put(f"yolo/images/bad{name}", b"")
        self.put("yolo/labels/a.txt", "0 0.5 0.5 0.25 0.25\n")
        command = [sys.executable, "-m", "loaderd.convert", self.dir / "yolo", self.dir / "out.pimg"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"})
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(b"bad\\udcff.jpg: ", done.stdout)
        self.assertEqual((self.dir / "out.pimg").read_bytes().count(b"\xff.jpg"), 1)

    def test_not_recognised(self):
        (self.dir / "a.bin").write_bytes(b"x")
        self.assertIn("a.bin: none of panoptic, coco, voc, yolo, masks, celeba, pets, cub, imagenet, openimages, cifar, imagefolder, tfrecord, arrow, ffcv, mds, litdata, numpy; --format NAME says which it is", self.convert("a.bin", status=2))
        self.assertIn("there is no such file", self.convert("none", status=2))

    @unittest.skipUnless(numpy, "needs NumPy")
    def test_numpy(self):
        generator = numpy.random.default_rng(1)
        colour, grey = generator.integers(0, 256, (3, 5, 4, 3), numpy.uint8), generator.integers(0, 256, (3, 5, 4), numpy.uint8)
        labels = numpy.array([2, 0, 1])
        for images in (colour, grey, grey[..., None], colour.transpose(0, 3, 1, 2)):
            numpy.save(self.dir / "images.npy", images)
            numpy.save(self.dir / "labels.npy", labels)
            self.convert("images.npy", "--non-jpeg", "raw")
            self.assertEqual([(s["label"], s["width"], s["height"]) for s in self.listed()], [(2, 4, 5), (0, 4, 5), (1, 4, 5)])
            data = (self.dir / "out.pimg").read_bytes()
            for image in colour if images.ndim == 4 and 1 not in images.shape else grey:
                self.assertEqual(data.count(image.tobytes()), 1)
        numpy.savez(self.dir / "m.npz", x_train=colour, y_train=labels[:, None], x_test=grey[:1], y_test=labels[:1])
        self.convert("m.npz")
        self.assertEqual([s["label"] for s in self.listed("out-train.pimg")], [2, 0, 1])
        self.assertEqual([s["label"] for s in self.listed("out-test.pimg")], [2])
        numpy.savez(self.dir / "n.npz", pictures=grey, kinds=labels)
        self.assertIn("its arrays are pictures, kinds", self.convert("n.npz", status=2))
        self.convert("n.npz", "--image", "pictures", "--label", "kinds")
        numpy.save(self.dir / "floats.npy", colour / 255)
        self.assertIn("its elements are float64; images are uint8", self.convert("floats.npy", status=2))
        numpy.save(self.dir / "code.npy", numpy.array([object()]), allow_pickle=True)
        self.assertIn("code.npy: ", self.convert("code.npy", status=2))

    @unittest.skipUnless(numpy, "needs NumPy")
    def test_cifar(self):
        """The Python version of CIFAR-10; a pickle that would run code is refused."""
        folder = self.dir / "cifar-10-batches-py"
        folder.mkdir()
        planes = numpy.random.default_rng(1).integers(0, 256, (5, 3072), numpy.uint8)
        for name, rows in (("data_batch_1", slice(0, 2)), ("data_batch_2", slice(2, 3)), ("test_batch", slice(3, 5))):
            count = len(planes[rows])
            (folder / name).write_bytes(pickle.dumps({b"data": planes[rows], b"labels": [*range(count)], b"filenames": [b"%d.png" % i for i in range(count)]}, 2))
        (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"airplane", b"automobile"]}, 2))
        self.convert(folder, "--non-jpeg", "raw")
        self.assertEqual([(s["class"], s["source"]) for s in self.listed("out-train.pimg")], [("airplane", "0.png"), ("automobile", "1.png"), ("airplane", "0.png")])
        data = (self.dir / "out-train.pimg").read_bytes()
        for plane in planes[:3]:
            self.assertEqual(data.count(plane.reshape(3, 1024).T.tobytes()), 1)

        class Harm:
            def __reduce__(self):
                return os.mkdir, (str(folder / "harmed"),)

        (folder / "test_batch").write_bytes(pickle.dumps({b"data": Harm()}, 2))
        self.assertIn("loading it could run any code", self.convert(folder, status=2))
        self.assertFalse((folder / "harmed").exists())

    @unittest.skipUnless(pyarrow, "needs pyarrow")
    def test_parquet(self):
        """Hugging Face's structures and types, plain bytes, splits, and values that no field can hold."""
        names = ["ant", "bee"]
        features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": names}}
        rows = [{"image": {"bytes": jpeg, "path": f"{i}.jpg"}, "label": i % 2, "n": i, "w": i / 2, "ok": True, "text": "é", "boxes": [[i, 1.5]],
                 "when": None, "blob": b"\xff", "parts": [b"x"], "vector": [i, 0.5], "corners": [[0, 1, 2, 3], [4, 5, 6, 7]], "holes": [1, None]} for i, jpeg in enumerate(self.jpegs[:5])]
        kinds = pyarrow.Table.from_pylist(rows).schema
        kinds = kinds.set(kinds.get_field_index("corners"), pyarrow.field("corners", pyarrow.list_(pyarrow.list_(pyarrow.float32(), 4))))
        table = pyarrow.Table.from_pylist(rows, kinds).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        pyarrow.parquet.write_table(table, self.dir / "a.parquet", row_group_size=2)
        with pyarrow.ipc.new_file(str(self.dir / "a.arrow"), table.schema) as file:
            file.write_table(table)
        with pyarrow.ipc.new_stream(str(self.dir / "b.arrow"), table.schema) as file:
            file.write_table(table)
        for name in ("a.parquet", "a.arrow", "b.arrow"):
            said = self.convert(name)
            self.assertEqual(self.stored(), self.jpegs[:5])
            samples = self.listed()
            self.assertEqual([(s["class"], s["source"]) for s in samples], [(names[i % 2], f"{i}.jpg") for i in range(5)])
            self.assertEqual(samples[3]["fields"], {"n": 3, "w": 1.5, "ok": 1, "text": "é", "boxes": [[3.0, 1.5]], "blob": {"hex": "ff"}, "vector": [3, 0.5],
                                                    "corners": [[0, 1, 2, 3], [4, 5, 6, 7]], "holes": [1, None]})
            self.assertIn("column parts is left out: no field holds list<", said)
        unlabelled = pyarrow.table({"jpg": self.jpegs[:3], "label": [1, None, 0], "path": [None, "b", "c"]})
        pyarrow.parquet.write_table(unlabelled, self.dir / "u.parquet")
        self.convert("u.parquet")
        self.assertEqual([s["label"] for s in self.listed()], [1, -1, 0])
        plain = pyarrow.table({"jpg": self.jpegs[:3], "kind": ["b", "a", "b"]})
        pyarrow.parquet.write_table(plain, self.dir / "p.parquet")
        self.convert("p.parquet", "--label", "kind")
        self.assertEqual([s["class"] for s in self.listed()], ["b", "a", "b"])
        (self.dir / "hub" / "data").mkdir(parents=True)
        for name, part in (("train-00000-of-00002", plain[:1]), ("train-00001-of-00002", plain[1:2]), ("test-00000-of-00001", plain[2:])):
            pyarrow.parquet.write_table(part, self.dir / "hub" / "data" / f"{name}.parquet")
        self.convert("hub", "--label", "kind")
        self.assertEqual([s["label"] for s in self.listed("out-train.pimg")], [1, 0])  # numbered over the classes of all splits
        self.assertEqual([s["label"] for s in self.listed("out-test.pimg")], [1])
        lists = pyarrow.list_(pyarrow.int64())
        for name, part in (("train", pyarrow.table({"jpg": self.jpegs[:1], "ids": pyarrow.array([[1, 2]], lists), "kind": ["a"]})),
                           ("test", pyarrow.table({"jpg": self.jpegs[:1], "ids": pyarrow.array([[1, None]], lists)}))):
            (self.dir / "lists").mkdir(exist_ok=True)
            pyarrow.parquet.write_table(part, self.dir / "lists" / f"{name}-00000-of-00001.parquet")
        self.convert("lists")
        self.assertEqual([self.info(f"out-{name}.pimg")["ids"] for name in ("train", "test")], ["json sparse"] * 2)
        twice = {"label": {"_type": "ClassLabel", "names": ["ant", "bee", "ant"]}}
        for labels, names in (([1, 2], ["ant_0", "bee", "ant"]), ([0, 2], None)):
            table = pyarrow.table({"jpg": self.jpegs[:2], "label": labels}).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": twice}})})
            pyarrow.parquet.write_table(table, self.dir / "t.parquet")
            said = self.convert("t.parquet", status=0 if names else 2)
            if names:
                self.assertEqual(self.classes(), names)
            else:
                self.assertIn("t.parquet: classes 0 and 2 are both called 'ant', and objects are of both", said)
        self.assertIn("there is no such column among kind", self.convert("p.parquet", "--label", "knd", status=2))
        pyarrow.parquet.write_table(plain.select(["kind"]), self.dir / "n.parquet")
        self.assertIn("no column holds images", self.convert("n.parquet", status=2))
        (self.dir / "p.parquet").write_bytes((self.dir / "p.parquet").read_bytes()[:-30])
        self.assertIn("p.parquet: ", self.convert("p.parquet", status=2))


if __name__ == "__main__":
    unittest.main()
