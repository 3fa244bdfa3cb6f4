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


if __name__ == "__main__":
    unittest.main()
