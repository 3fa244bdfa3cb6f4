"""python -m loaderd.convert: datasets with annotations in lists next to the images; and FFCV's format with a fake reader
(tests/release/converters uses FFCV's own).
"""

import contextlib
import io
import json
import pathlib
import struct
import types
import unittest
from unittest import mock

from images_test import ImagesTest, listed, numpy, packimg, pillow
from loaderd import convert


class ConvertLists(ImagesTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.jpegs = [file.read_bytes() for file in cls.files]

    def convert(self, source, status=0):
        """Runs the converter in this process; returns its output."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            result = convert.main([str(self.dir / source), str(self.dir / "out.pimg"), "--force"])
        self.assertEqual(result, status, said.getvalue())
        return said.getvalue()

    def put(self, name, content):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def fields(self, name="out.pimg"):
        return [(pathlib.Path(s["source"]).stem, s["label"], s.get("fields", {})) for s in listed(self.dir / name)]

    def test_celeba(self):
        """The project's lists and Kaggle's tables: attributes become a vector of 0 and 1, and each split a dataset."""
        for i in range(3):
            self.put(f"c/img_align_celeba/00000{i}.jpg", self.jpegs[i])
        self.put("c/list_attr_celeba.txt", "3\nBald Smiling Young \n000000.jpg -1  1 -1\n000001.jpg  1  1  1\n000002.jpg -1 -1 -1\n")
        said = self.convert("c")
        self.assertEqual(self.fields(), [("000000", -1, {"attributes": [0, 1, 0], "labels": [1]}), ("000001", -1, {"attributes": [1, 1, 1], "labels": [0, 1, 2]}),
                                         ("000002", -1, {"attributes": [0, 0, 0], "labels": []})])
        self.assertIn("1 for yes and 0 for no, in the order of the classes; labels lists those that are 1", said)
        self.assertEqual([kind["name"] for kind in json.loads(packimg("info", "--json", self.dir / "out.pimg"))["classes"]], ["Bald", "Smiling", "Young"])
        self.assertIn("value u8[3]", said)
        self.put("c/list_eval_partition.txt", "000000.jpg 0\n000001.jpg 0\n000002.jpg 2\n")
        self.put("c/identity_CelebA.txt", "000000.jpg 2880\n000001.jpg 7\n000002.jpg 9\n")
        self.put("c/list_landmarks_align_celeba.txt", "3\nlefteye_x lefteye_y righteye_x righteye_y nose_x nose_y leftmouth_x leftmouth_y rightmouth_x rightmouth_y\n"
                 + "".join(f"00000{i}.jpg " + " ".join(map(str, range(i, i + 10))) + "\n" for i in range(3)))
        self.convert("c")
        self.assertEqual([name for name, _, _ in self.fields("out-train.pimg")], ["000000", "000001"])
        self.assertEqual(self.fields("out-test.pimg"), [("000002", -1, {"attributes": [0, 0, 0], "labels": [], "identity": 9, "landmarks": [[2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]})])
        self.convert("c/list_attr_celeba.txt")  # the name of a list stands for its folder
        for cell, told in (("2", "000001.jpg: Smiling is 2, not 1 or -1"), ("", "000001.jpg: 2 numbers, not 3")):
            self.put("c/list_attr_celeba.txt", f"2\nBald Smiling Young\n000000.jpg -1 1 -1\n000001.jpg 1 {cell} 1\n")
            self.assertIn(told, self.convert("c", status=2))
        self.put("c/list_attr_celeba.txt", "3\nBald\n000000.jpg -1\n")
        self.assertIn("line 1 says that there are 3 images, and 1 follow the header", self.convert("c", status=2))
        (self.dir / "c/list_attr_celeba.txt").unlink()
        for name in ("list_eval_partition.txt", "list_landmarks_align_celeba.txt", "identity_CelebA.txt"):
            (self.dir / "c" / name).unlink()
        self.put("c/list_attr_celeba.csv", "image_id,Bald,Young\n000002.jpg,-1,1\n")
        self.put("c/list_eval_partition.csv", "image_id,partition\n000002.jpg,1\n")
        self.convert("c")
        self.assertEqual(self.fields(), [("000002", -1, {"attributes": [0, 1], "labels": [1]})])
        self.put("c/list_attr_celeba.csv", "image_id,Bald,Bald\n000002.jpg,-1,1\n")
        self.assertIn("list_attr_celeba.csv: two columns are called Bald", self.convert("c", status=2))

    @unittest.skipUnless(pillow and numpy, "Pillow or NumPy is not installed")
    def test_pets(self):
        """Classes with the breeds' names, trimaps and boxes of heads, from each list."""
        rows = {"Abyssinian_1": "1 1 1", "american_bulldog_7": "2 2 1", "Abyssinian_3": "1 1 1"}
        for i, name in enumerate(rows):
            self.put(f"p/images/{name}.jpg", self.jpegs[i])
            with pillow.open(io.BytesIO(self.jpegs[i])) as image:
                mask = pillow.new("L", image.size, i + 1)
            (self.dir / "p/annotations/trimaps").mkdir(parents=True, exist_ok=True)
            mask.save(self.dir / f"p/annotations/trimaps/{name}.png")
        box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox>"
        self.put("p/annotations/xmls/Abyssinian_1.xml", f"<annotation><object><name>cat</name>{box}</object></annotation>")
        self.put("p/annotations/list.txt", "#Image CLASS-ID SPECIES BREED ID\n" + "".join(f"{name} {row}\n" for name, row in rows.items()))
        self.assertIn("mask is the trimap", self.convert("p"))
        self.assertEqual([(name, label, fields["species"], fields["boxes"]) for name, label, fields in self.fields()], [
            ("Abyssinian_1", 0, 1, [[1, 2, 3, 4]]), ("american_bulldog_7", 1, 2, []), ("Abyssinian_3", 0, 1, [])])
        packimg("extract", "-q", self.dir / "out.pimg", "-o", self.dir / "back")
        with pillow.open(next((self.dir / "back").rglob("american_bulldog_7.mask.png"))) as mask:
            self.assertEqual(mask.getextrema(), (2, 2))
        for split, name in (("trainval", "Abyssinian_1"), ("test", "american_bulldog_7")):
            self.put(f"p/annotations/{split}.txt", f"{name} {rows[name]}\n")
        self.convert("p")
        self.assertEqual([self.fields(f"out-{split}.pimg")[0][:2] for split in ("trainval", "test")], [("Abyssinian_1", 0), ("american_bulldog_7", 1)])
        for line, told in (("Abyssinian_1 1 1", "trainval.txt, line 1: 'Abyssinian_1 1 1' is not a name"), ("pug_1 2 2 1", "breed 2 has the images pug_... and american_bulldog_7")):
            self.put("p/annotations/trainval.txt", line)
            self.assertIn(told, self.convert("p", status=2))

    def test_cub(self):
        """Images with boxes and parts, which the lists refer to by number, in two splits."""
        for i in range(3):
            self.put(f"b/CUB_200_2011/images/00{i % 2 + 1}.x/{i}.jpg", self.jpegs[i])
        lists = {"images.txt": "1 001.x/0.jpg\n2 002.x/1.jpg\n3 001.x/2.jpg\n", "classes.txt": "1 001.x\n2 002.x\n", "image_class_labels.txt": "1 1\n2 2\n3 1\n",
                 "bounding_boxes.txt": "1 60.0 27.5 3 4\n2 1 1 1 1\n3 2 2 2 2\n", "train_test_split.txt": "1 1\n2 0\n3 1\n",
                 "parts/part_locs.txt": "1 1 5.5 6 1\n1 2 0.0 0.0 0\n2 2 7 8 1\n"}
        for name, text in lists.items():
            self.put(f"b/CUB_200_2011/{name}", text)
        self.convert("b")
        self.assertEqual(self.fields("out-train.pimg"), [("0", 0, {"box": [60, 27.5, 3, 4], "parts": [[5.5, 6, 1], [0, 0, 0]]}), ("2", 0, {"box": [2, 2, 2, 2]})])
        self.assertEqual(self.fields("out-test.pimg"), [("1", 1, {"box": [1, 1, 1, 1], "parts": [[0, 0, 0], [7, 8, 1]]})])
        self.put("b/CUB_200_2011/image_class_labels.txt", "1 9\n")
        self.assertIn("class 9 is not in classes.txt", self.convert("b", status=2))

    def test_imagenet_localization(self):
        """Classes in the order of the synsets; boxes with their classes."""
        for name, i in (("train/n02/n02_1", 0), ("val/ILSVRC2012_val_00000001", 1)):
            self.put(f"i/ILSVRC/Data/CLS-LOC/{name}.JPEG", self.jpegs[i])
        self.put("i/LOC_synset_mapping.txt", "n02 pug, pug-dog\nn01 tench, Tinca tinca\n")
        self.put("i/LOC_train_solution.csv", "ImageId,PredictionString\nn02_1,n02 1 2 3 4 n01 5 6 7 8 \n")
        self.put("i/LOC_val_solution.csv", "ImageId,PredictionString\nILSVRC2012_val_00000001,n01 1 2 3 4 \n")
        self.convert("i")
        self.assertEqual(self.fields("out-train.pimg"), [("n02_1", 1, {"boxes": [[1, 2, 3, 4], [5, 6, 7, 8]], "class": [1, 0]})])
        self.assertEqual(self.fields("out-val.pimg"), [("ILSVRC2012_val_00000001", 0, {"boxes": [[1, 2, 3, 4]], "class": [0]})])
        for text, told in (("n03 1 2 3 4", "class 'n03' is not in LOC_synset_mapping.txt"), ("n01 1 2", "3 words, not 5 for each object")):
            self.put("i/LOC_val_solution.csv", f"ImageId,PredictionString\nILSVRC2012_val_00000001,{text}\n")
            self.assertIn(f"ILSVRC2012_val_00000001: {told}", self.convert("i", status=2))

    def test_open_images(self):
        """Boxes and labels of the images that exist. Columns are found by the tables' headers; there are several splits."""
        for i, name in enumerate(("train/b0", "train/a1", "train/c2", "validation/d3")):
            self.put(f"o/{name}.jpg", self.jpegs[i])
        header = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside"
        boxes = f"{header},XClick1X\nb0,xclick,/m/02,1,0.25,0.5,0,1,0,1,-1,0,0,0.5\na1,xclick,/m/01,1,0,0.5,0.125,0.25,1,0,0,0,0,0.5\nb0,xclick,/m/01,1,0,1,0,1,0,0,0,0,1,0.5\nzz,xclick,/m/09,1,0,1,0,1,0,0,0,0,1,0.5\n"
        self.put("o/oidv6-train-annotations-bbox.csv", boxes)
        self.put("o/annotations/validation-annotations-bbox.csv", f"{header}\nd3,xclick,/m/02,1,0,1,0,1,0,0,0,0,0\n")
        said = self.convert("o")
        self.assertIn("classes     2: /m/01, /m/02", said)
        self.assertIn("oidv6-train-annotations-bbox.csv: left out 1 rows of images that are not there", said)
        self.assertIn("left out 1 images of the folder of train that no table lists", said)
        self.put("o/class-descriptions-boxable.csv", "/m/02,Turtle\n/m/01,Bank\n")
        said = self.convert("o")
        self.assertIn("boxes(image) f32[*,4] xyxy normalized", said)
        self.assertIn("classes     2: Turtle, Bank", said)
        flags = {"occluded": [0, 0], "truncated": [1, 0], "group_of": [-1, 0], "depiction": [0, 0], "inside": [0, 1]}
        self.assertEqual([(name, fields["boxes"], fields["class"]) for name, _, fields in self.fields("out-train.pimg")], [
            ("a1", [[0, 0.125, 0.5, 0.25]], [1]), ("b0", [[0.25, 0, 0.5, 1], [0, 0, 1, 1]], [0, 1])])
        self.assertEqual({name: self.fields("out-train.pimg")[1][2][name] for name in flags}, flags)
        self.assertEqual(self.fields("out-validation.pimg")[0][2]["class"], [0])
        self.put("o/train-annotations-human-imagelabels.csv", "ImageID,Source,LabelName,Confidence\nc2,verification,/m/03,0\nc2,crowdsource-verification,/m/03,0\nc2,verification,/m/01,1\na1,machine,/m/02,0.5\n")
        self.assertIn("human-imagelabels.csv, line 2: LabelName '/m/03' is not in ", self.convert("o", status=2))
        self.put("o/oidv7-class-descriptions.csv", "id,name\n/m/02,Turtle\n/m/03,Bank\n")
        self.put("o/train-annotations-object-segmentation.csv", "MaskPath,ImageID,LabelName\n")
        said = self.convert("o")
        self.assertIn("left out: train-annotations-object-segmentation.csv", said)
        self.assertIn("classes     3: Turtle, Bank, Bank (/m/03)", said)
        self.assertEqual([[fields[name] for name in ("class", "labels", "confidence", "verified", "absent")] for _, _, fields in self.fields("out-train.pimg")], [
            [[1], [0], [0.5], [0], []], [[0, 1], [], [], [], []], [[], [1], [1], [1], [2]]])
        self.put("o/train-annotations-bbox.csv", boxes)
        self.assertIn("oidv6-train-annotations-bbox.csv has boxes of the same images, and both would count", self.convert("o", status=2))
        self.convert("o/annotations/validation-annotations-bbox.csv")
        self.assertEqual([name for name, _, _ in self.fields()], ["d3"])
        for line, told in (("d3,x,/m/02,1,0,2,0,1,0,0,0,0,0", "line 2: XMax is '2', not a number of 0 .. 1"), ("d3,x,/m/02,1,0,nan,0,1,0,0,0,0,0", "XMax is 'nan'"),
                           ("d3,x,/m/02,1,0.5,0.25,0,1,0,0,0,0,0", "line 2: XMin is 0.5, more than XMax, 0.25"), ("d3,x,/m/02,1", "line 2: 4 cells, not 13"),
                           ("d3,x,/m/02,1,0,1,0,1,2,0,0,0,0", "line 2: IsOccluded is '2', not a number of -1 .. 1"), ("zz,x,/m/02,1,0,1,0,1,0,0,0,0,0", "none of its images is in ")):
            self.put("o/annotations/validation-annotations-bbox.csv", f"{header}\n{line}\n")
            self.assertIn(told, self.convert("o/annotations/validation-annotations-bbox.csv", status=2))

    @unittest.skipUnless(numpy, "NumPy is not installed")
    def test_ffcv(self):
        """Each type of field. JPEGs stay unchanged, and pointers in the metadata are checked."""
        pixels = numpy.arange(2 * 3 * 3, dtype="u1").reshape(2, 3, 3)
        blobs = [self.jpegs[0], b"\xff\0", b'{"a": 1}\0', struct.pack("<2f", 1, 2), pixels.tobytes()]
        head = struct.pack("<HHIQQ", 2, 7, 4096, 2, 64 + sum(map(len, blobs))) + b"\2image"
        starts = [64 + sum(map(len, blobs[:i])) for i in range(len(blobs))]
        table = numpy.array([(0, start, len(blob)) for start, blob in zip(starts, blobs)], [("sample_id", "<u8"), ("ptr", "<u8"), ("size", "<u8")])
        image = numpy.dtype([("mode", "<u1"), ("width", "<u2"), ("height", "<u2"), ("data_ptr", "<u8")])
        size = numpy.dtype([("ptr", "<u8"), ("size", "<u8")])
        kinds = numpy.dtype([("", kind) for kind in (image, "<i8", "<f8", size, size, "<u8", "<u8")])
        array = types.SimpleNamespace(dtype=numpy.dtype("<f4"), shape=(2,))
        names = ["image", "label", "score", "raw", "more", "box", "odd"]

        def convert(rows, status=0):
            self.put("a.beton", head.ljust(64, b"\0") + b"".join(blobs))
            found = types.SimpleNamespace(field_names=names, handlers={**dict.fromkeys(names), "box": array}, alloc_table=table, metadata=numpy.array(rows, kinds),
                                          field_descriptors={"type_id": numpy.array([2, 1, 0, 3, 5, 4, 9])})
            reader = types.ModuleType("ffcv.reader")
            reader.Reader = lambda path: found
            with mock.patch.dict("sys.modules", {"ffcv": types.ModuleType("ffcv"), "ffcv.reader": reader}):
                return self.convert("a.beton", status)

        rest = (0.5, (starts[1], 2), (starts[2], len(blobs[2])), starts[3], 0)
        said = convert([((0, 0, 0, starts[0]), 3, *rest), ((1, 3, 2, starts[4]), 4, *rest)])
        self.assertIn("field odd is left out", said)
        self.assertEqual([(s["label"], s["fields"]) for s in listed(self.dir / "out.pimg")], [(label, {"score": 0.5, "raw": {"hex": "ff00"}, "more": {"a": 1}, "box": [1, 2]}) for label in (3, 4)])
        packimg("extract", "-q", self.dir / "out.pimg", "-o", self.dir / "back")
        self.assertIn(self.jpegs[0], [file.read_bytes() for file in (self.dir / "back").rglob("*.jpg")])
        for entry, told in (((0, 0, 0, 7), "nothing is at byte 7, to which a sample points"), ((1, 3, 3, starts[4]), "an image of 3 x 3 pixels has 18 bytes, not 27")):
            self.assertIn(f"a.beton: damaged: {told}", convert([(entry, 3, *rest)], 2))
        table[1] = (0, starts[1], 5)
        self.assertIn("a.beton: damaged: 99 bytes", convert([((0, 0, 0, starts[0]), 3, 0.5, (starts[1], 99), *rest[2:])], 2))
        with mock.patch.dict("sys.modules", {"ffcv": None, "ffcv.reader": None}):
            self.assertIn(".beton files are read with FFCV, which is not installed: pip install ffcv", self.convert("a.beton", 2))


if __name__ == "__main__":
    unittest.main()
