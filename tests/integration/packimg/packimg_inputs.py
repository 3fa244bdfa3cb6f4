"""Datasets as others publish them: which packimg convert reads as they are, and which it refuses to take for classes."""

import shutil
import tarfile
import unittest

from packimg_test import PackimgTest

COCO = '{"info": {}, "images": [{"id": 1, "file_name": "0.jpg"}], "annotations": [{"image_id": 1, "bbox": [0, 0, 4, 4]}]}'
VOC = "<annotation><filename>0.jpg</filename><object><name>ant</name></object></annotation>"


class PackimgInputs(PackimgTest):
    def put(self, name, content=None):
        """A file below the test's folder: a text, or an image."""
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            shutil.copy(next(self.tree.rglob("*.jpg")), path)
        else:
            path.write_text(content)

    def test_annotations(self):
        """Folders of detection and segmentation datasets become classes only if the user asks for it."""
        layouts = {
            "coco": ({"coco/train2017/0.jpg": None, "coco/val2017/0.jpg": None, "coco/annotations/instances_val2017.json": COCO}, "a COCO dataset"),
            "roboflow": ({"roboflow/train/0.jpg": None, "roboflow/train/_annotations.coco.json": COCO}, "a COCO dataset"),
            "keys": ({"keys/a/0.jpg": None, "keys/b/0.jpg": None, "keys/all.json": COCO}, "a COCO dataset"),
            "voc": ({"voc/JPEGImages/0.jpg": None, "voc/Annotations/0.xml": VOC}, "a Pascal VOC dataset"),
            "labelimg": ({"labelimg/a/0.jpg": None, "labelimg/a/0.xml": VOC, "labelimg/b/0.jpg": None}, "a Pascal VOC dataset"),
            "vocmasks": ({"vocmasks/JPEGImages/0.jpg": None, "vocmasks/SegmentationClass/0.png": None}, "a segmentation dataset"),
            "ade": ({"ade/images/training/0.jpg": None, "ade/annotations/training/0.png": None}, "a segmentation dataset"),
            "cityscapes": ({"cityscapes/leftImg8bit/train/0.png": None, "cityscapes/gtFine/train/0.png": None}, "a segmentation dataset"),
            "yolo": ({"yolo/images/train/0.jpg": None, "yolo/labels/train/0.txt": "0 0.5 0.5 0.25 0.25\n"}, "a YOLO dataset"),
            "darknet": ({"darknet/a/0.jpg": None, "darknet/a/0.txt": "3 0.5 0.5 0.25 1\n1 0.1 0.1 0.1 0.1\n", "darknet/b/0.jpg": None}, "a YOLO dataset"),
        }
        for name, (files, what) in layouts.items():
            for file, content in files.items():
                self.put(file, content)
            self.packimg("convert", "-q", name, "-o", "out.pimg", rc=2)
            self.assertIn(f"the images look like those of {what} (", self.stderr, name)
            self.assertFalse((self.dir / "out.pimg").exists())
            images = sum(content is None for content in files.values())
            for asked in ("none", "top"):
                summary = self.convert(name, "-o", "out.pimg", "--force", "--class-from", asked)
                self.assertEqual(summary["datasets"][0]["samples"], images, name)
                self.assertEqual(summary["classes"] > 0, asked == "top")
            (self.dir / "out.pimg").unlink()
        for name in ("coco", "voc", "ade", "yolo"):  # of an archive, only names are known
            with tarfile.open(self.dir / "a.tar", "w") as tar:
                tar.add(self.dir / name, name)
            self.packimg("convert", "-q", "a.tar", "-o", "out.pimg", rc=2)
            self.assertIn("the images look like those of ", self.stderr)
        # COCO's annotations lie beside the folder of its images
        self.put("coco/annotations/instances_train2017.json", COCO)
        self.packimg("convert", "-q", "coco/train2017", "-o", "out.pimg", rc=2)
        self.assertIn("a COCO dataset (coco/train2017/../annotations/instances_train2017.json)", self.stderr)

    def test_classes_that_resemble_annotations(self):
        """Classes may be called like folders of masks, and class folders hold texts and JSON of other kinds."""
        for name in ("faces/mask/0.jpg", "faces/no_mask/0.jpg", "images/mask/0.jpg", "images/labels/0.jpg", "train/annotations/0.jpg", "train/other/0.jpg"):
            self.put(name)
        self.put("faces/mask/0.txt", "12 May\n")
        self.put("faces/mask/notes.json", '{"images": 3}')
        self.put("faces/mask/notes.xml", "<notes/>")
        for name in ("faces", "images", "train"):
            self.assertEqual(self.convert(name, "-o", f"{name}.pimg")["classes"], 2, name)

    def test_no_classes(self):
        """A dataset without classes says so, unless that was asked for."""
        self.put("flat/0.jpg")
        self.put("flat/1.jpg")
        said = self.packimg("convert", "-q", "flat", "-o", "out.pimg")
        self.assertIn("  classes   0: NO SAMPLE HAS A LABEL\n", said)
        self.assertIn("  note      no image has a class: classes come from folders, ", said)
        self.assertEqual(self.convert("flat", "-o", "out.pimg", "--force", "--class-from", "none")["notes"], [])

    def test_tars_in_a_tar(self):
        """ILSVRC2012_img_train.tar as it is: each tar in it is a class, and its images are read in place."""
        for name in ("n01", "n02"):
            for i in range(3):
                self.put(f"in/{name}/{name}_{i}.JPEG")
            with tarfile.open(self.dir / f"{name}.tar", "w") as tar:
                for i in range(3):
                    tar.add(self.dir / f"in/{name}/{name}_{i}.JPEG", f"{name}_{i}.JPEG")
        with tarfile.open(self.dir / "train.tar", "w") as tar:
            for name in ("n01.tar", "n02.tar"):
                tar.add(self.dir / name, name)
        summary = self.convert("train.tar", "-o", "out.pimg")
        self.assertEqual(summary["notes"], ["train.tar: 2 tars in it count as folders of their names"])
        self.packimg("extract", "-q", "out.pimg", "-o", "back")
        self.same_images(self.dir / "back", self.dir / "in")
        self.convert("in", "-o", "in.pimg")
        self.assertEqual(self.facts_of("out.pimg")[-1], self.facts_of("in.pimg")[-1])
        for options, count in ((["--exclude", "n01.tar"], 3), (["--exclude", "n01"], 3), (["--include", "n01"], 3), (["--include", "*_1.JPEG"], 2), (["--shuffle", 1], 6)):
            self.assertEqual(self.convert("train.tar", "-o", "some.pimg", "--force", *options)["datasets"][0]["samples"], count, options)
        with tarfile.open(self.dir / "packed.tar.gz", "w:gz") as tar:
            tar.add(self.dir / "n01.tar", "n01.tar")
        self.packimg("convert", "-q", "packed.tar.gz", "-o", "no.pimg", rc=2)
        self.assertIn("such as n01.tar, which is an archive; give it to packimg convert", self.stderr)
        damaged = bytearray((self.dir / "train.tar").read_bytes())
        header = damaged.index(b"n01_2.JPEG")
        damaged[header:header + 100] = bytes([255] * 100)
        (self.dir / "train.tar").write_bytes(damaged)
        self.packimg("convert", "-q", "train.tar", "-o", "no.pimg", rc=2)
        self.assertIn("train.tar: n01.tar: ", self.stderr)


if __name__ == "__main__":
    unittest.main()
