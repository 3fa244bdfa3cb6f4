"""Published datasets: those that packimg convert reads directly, and those whose folders it refuses to take for classes."""

import gzip
import shutil
import struct
import tarfile
import unittest

from packimg_test import PackimgTest

COCO = '{"info": {}, "images": [{"id": 1, "file_name": "0.jpg"}], "annotations": [{"image_id": 1, "bbox": [0, 0, 4, 4]}]}'
VOC = "<annotation><filename>0.jpg</filename><object><name>ant</name></object></annotation>"


class PackimgInputs(PackimgTest):
    def put(self, name, content=None):
        """Writes a file below the test's folder: a text, or an image if content is None."""
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            shutil.copy(next(self.tree.rglob("*.jpg")), path)
        else:
            path.write_text(content)

    def test_annotations(self):
        """The folders of detection and segmentation datasets become classes only on request."""
        layouts = {
            "coco": ({"coco/train2017/0.jpg": None, "coco/val2017/0.jpg": None, "coco/annotations/instances_val2017.json": COCO}, "a COCO dataset"),
            "roboflow": ({"roboflow/train/0.jpg": None, "roboflow/train/_annotations.coco.json": COCO}, "a COCO dataset"),
            "keys": ({"keys/a/0.jpg": None, "keys/b/0.jpg": None, "keys/all.json": COCO}, "a COCO dataset"),
            "voc": ({"voc/JPEGImages/0.jpg": None, "voc/Annotations/0.xml": VOC}, "a Pascal VOC dataset"),
            "labelimg": ({"labelimg/a/0.jpg": None, "labelimg/a/0.xml": VOC.replace("<annotation>", '<annotation verified="yes">'), "labelimg/b/0.jpg": None}, "a Pascal VOC dataset"),
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
            self.assertIn('"python -m loaderd.convert" with the folder\'s name packs images and annotations', self.stderr)
            self.assertFalse((self.dir / "out.pimg").exists())
            images = sum(content is None for content in files.values())
            for asked in ("none", "top"):
                summary = self.convert(name, "-o", "out.pimg", "--force", "--class-from", asked)
                self.assertEqual(summary["datasets"][0]["samples"], images, name)
                self.assertEqual(summary["classes"] > 0, asked == "top")
            (self.dir / "out.pimg").unlink()
        for name in ("coco", "voc", "ade", "yolo"):  # the contents of an archive are not read, only its names
            with tarfile.open(self.dir / "a.tar", "w") as tar:
                tar.add(self.dir / name, name)
            self.packimg("convert", "-q", "a.tar", "-o", "out.pimg", rc=2)
            self.assertIn("the images look like those of ", self.stderr)
        # the annotations are next to the folder of images
        self.put("coco/annotations/instances_train2017.json", COCO)
        self.packimg("convert", "-q", "coco/train2017", "-o", "out.pimg", rc=2)
        self.assertIn("a COCO dataset (coco/train2017/../annotations/instances_train2017.json)", self.stderr)

    def test_known_lists(self):
        """Lists of well-known datasets, and their images, are refused with the command that converts them."""
        self.put("celeba/img_align_celeba/000001.jpg")
        self.put("celeba/list_attr_celeba.txt", "1\nBald\n000001.jpg -1\n")
        self.packimg("convert", "-q", "celeba", "-o", "no.pimg", rc=2)
        self.assertIn("the images look like those of CelebA (list_attr_celeba.txt), whose folders are no classes: \"python -m loaderd.convert\"", self.stderr)
        self.packimg("convert", "-q", "celeba/list_attr_celeba.txt", "-o", "no.pimg", rc=2)
        self.assertIn("by its name it is CelebA's attributes: \"python -m loaderd.convert\" with the name of the dataset's folder", self.stderr)
        self.packimg("convert", "-q", "celeba", "--manifest", "celeba/list_attr_celeba.txt", "-o", "no.pimg", rc=2)
        self.assertIn("celeba/list_attr_celeba.txt: by its name it is CelebA's attributes", self.stderr)
        self.put("list_eval_partition.txt", "celeba/img_align_celeba/000001.jpg 0\n")
        self.packimg("convert", "-q", "list_eval_partition.txt", "-o", "no.pimg", rc=2)
        self.assertEqual(self.convert("list_eval_partition.txt", "--format", "manifest", "-o", "out.pimg")["classes"], 1)
        self.put("pets/images/Abyssinian_1.jpg")
        self.put("pets/annotations/trimaps/Abyssinian_1.png")
        self.put("pets/annotations/list.txt", "#Image CLASS-ID SPECIES BREED ID\nAbyssinian_1 1 1 1\n")
        self.packimg("convert", "-q", "pets", "-o", "no.pimg", rc=2)
        self.assertIn("like those of the Oxford-IIIT Pet dataset (annotations/list.txt)", self.stderr)
        self.put("pets/annotations/trainval.txt", "Abyssinian_1 1 1 1\n")  # a list with classes, which convert reads
        self.assertEqual(self.convert("pets/annotations/trainval.txt", "-o", "out.pimg", "--force")["unlabelled"], 0)
        for name in ("001.a/0.jpg", "002.b/1.jpg"):
            self.put(f"cub/images/{name}")
        for name, text in (("images.txt", "1 001.a/0.jpg\n2 002.b/1.jpg\n"), ("image_class_labels.txt", "1 1\n2 2\n"), ("bounding_boxes.txt", "1 60.0 27.0 3.0 4.0\n")):
            self.put(f"cub/{name}", text)
        self.assertEqual(self.convert("cub", "-o", "out.pimg", "--force")["classes"], 2)  # the folders are classes
        for name, what in (("cub/images.txt", "the list of images of CUB-200"), ("cub/bounding_boxes.txt", "the boxes of CUB-200"), ("pets/annotations/list.txt", "the list of the Oxford-IIIT Pet"),
                           ("k/LOC_train_solution.csv", "the classes and boxes of ImageNet on Kaggle"), ("v/ImageSets/Main/train.txt", "a list of Pascal VOC"),
                           ("o/oidv6-train-annotations-bbox.csv", "Open Images' boxes"), ("o/validation-annotations-human-imagelabels-boxable.csv", "Open Images' labels")):
            if not (self.dir / name).exists():
                self.put(name, "a,b\n")
            self.packimg("convert", "-q", name, "-o", "no.pimg", rc=2)
            self.assertIn(f"{name}: by its name it is {what}", self.stderr)
            self.assertIn('"python -m loaderd.convert" with the name of the dataset\'s folder', self.stderr)
        self.put("images.txt", "cub/images/001.a/0.jpg\n")  # a common name, so the list is read
        self.convert("images.txt", "-o", "out.pimg", "--force")
        # rows that may be objects: each is a sample, and a note says so
        self.put("boxes.csv", "path,label,x\ncub/images/001.a/0.jpg,a,1\ncub/images/001.a/0.jpg,a,2\ncub/images/002.b/1.jpg,b,3\n")
        summary = self.convert("boxes.csv", "-o", "out.pimg", "--force")
        self.assertIn("boxes.csv: 1 row names the image of the row before, such as cub/images/001.a/0.jpg, and each row is a sample; if rows are objects", summary["notes"][0])
        self.put("celeba/identity_CelebA.txt", "000001.jpg 2\n")  # a list with classes, which convert reads
        self.assertEqual(self.convert("celeba/identity_CelebA.txt", "-o", "out.pimg", "--force")["unlabelled"], 0)

    def test_classes_that_resemble_annotations(self):
        """Classes may have the names of mask folders, and class folders may contain other texts and JSON."""
        for name in ("faces/mask/0.jpg", "faces/no_mask/0.jpg", "images/mask/0.jpg", "images/labels/0.jpg", "train/annotations/0.jpg", "train/other/0.jpg",
                     "top/images/mask/0.jpg", "top/images/none/0.jpg"):
            self.put(name)
        self.put("faces/mask/0.txt", "12 May\n")
        self.put("faces/mask/notes.json", '{"images": 3}')
        self.put("faces/mask/notes.xml", "<notes/>")
        for name in ("faces", "images", "train", "top"):
            self.assertEqual(self.convert(name, "-o", f"{name}.pimg")["classes"], 2, name)

    def test_no_classes(self):
        """A dataset without classes is reported, unless it was requested."""
        self.put("flat/0.jpg")
        self.put("flat/1.jpg")
        said = self.packimg("convert", "-q", "flat", "-o", "out.pimg")
        self.assertIn("  classes   0: NO SAMPLE HAS A LABEL\n", said)
        self.assertIn("  note      no image has a class: classes come from folders, ", said)
        self.assertEqual(self.convert("flat", "-o", "out.pimg", "--force", "--class-from", "none")["notes"], [])
        self.put("flat/metadata.jsonl", '{"file_name": "0.jpg", "label": 0}\n')
        self.assertEqual(self.convert("flat", "-o", "out.pimg", "--force")["notes"],
                         ['no image has a label, and metadata.jsonl was not read: "python -m loaderd.convert" with the folder\'s name reads Hugging Face\'s metadata.jsonl'])

    def test_labels_beside_images(self):
        """Files that may hold the labels and were not read are named if there are no classes, or only the classes train and test."""
        for name in ("cars/cars_train/0.jpg", "dogs/train/0.jpg", "dogs/test/1.jpg"):
            self.put(name)
        self.put("cars/devkit/cars_train_annos.mat", "MATLAB 5.0 MAT-file")
        for source, what in (("cars", "all images are of one class"), ("cars/cars_train", "no image has a label")):
            if source != "cars":
                (self.dir / "cars/devkit/cars_train_annos.mat").rename(self.dir / "cars/cars_train/cars_train_annos.mat")
            said = " ".join(self.convert(source, "-o", "out.pimg", "--force")["notes"])
            self.assertRegex(said, f"{what}, and (devkit/)?cars_train_annos.mat was not read: it is a MATLAB file; scipy.io.loadmat\\(\\) in Python reads it")
        self.put("dogs/labels.csv", "id,breed\n0,pug\n")
        notes = self.convert("dogs", "-o", "out.pimg", "--force")["notes"]
        self.assertEqual(notes, ["test (1 image) and train (1) are classes, and labels.csv was not read: --manifest FILE takes labels from a table; --split folders makes each a dataset"])

    def test_tars_in_a_tar(self):
        """ILSVRC2012_img_train.tar: each tar inside it is a class, and its images are read in place."""
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

    def pixels(self, path):
        """Returns the labels, sizes and codecs of a dataset's samples, and the bytes of its file."""
        samples, data = self.list(path), (self.dir / path).read_bytes()
        self.packimg("verify", "-q", path)
        return [(s["label"], s["width"], s["height"], s["codec"]) for s in samples], data

    def test_idx(self):
        """MNIST's files, compressed or not, with their labels."""
        images = [bytes((i * 50 + k) % 256 for k in range(28 * 20)) for i in range(5)]
        head = struct.pack(">4I", 0x803, 5, 20, 28)
        labels = struct.pack(">2I", 0x801, 5) + bytes([7, 0, 2, 1, 7])
        (self.dir / "train-images-idx3-ubyte").write_bytes(head + b"".join(images))
        (self.dir / "train-labels-idx1-ubyte").write_bytes(labels)
        (self.dir / "t10k-images.idx3-ubyte.gz").write_bytes(gzip.compress(head + b"".join(images)))
        (self.dir / "t10k-labels.idx1-ubyte.gz").write_bytes(gzip.compress(labels))
        for name in ("train-images-idx3-ubyte", "t10k-images.idx3-ubyte.gz"):
            summary = self.convert(name, "-o", "out.pimg", "--raw", "--force")
            self.assertEqual((summary["classes"], summary["notes"]), (8, ['4 of 8 classes have no image: "3", "4", "5", "6"']))
            samples, data = self.pixels("out.pimg")
            self.assertEqual(samples, [(label, 28, 20, "raw") for label in (7, 0, 2, 1, 7)])
            for image in images:
                self.assertEqual(data.count(image), 1)
            self.assertEqual(self.convert(name, "-o", "some.pimg", "--force", "--shuffle", 1, "--limit", 2)["datasets"][0]["samples"], 2)
        self.assertEqual(self.list("out.pimg")[4]["source"], "t10k-images.idx3-ubyte.gz/000004")
        (self.dir / "lonely-images-idx3-ubyte").write_bytes(head + b"".join(images))
        self.assertIn("no label file next to it", self.convert("lonely-images-idx3-ubyte", "-o", "l.pimg")["notes"][0])
        for change, told in ((lambda data: data[:-1], "but its header states 5 images of 560"), (lambda data: data + b"x", "2817 bytes"),
                             (lambda data: data[:8] + b"\xff" * 8 + data[16:], "4294967295 x 4294967295 x 1 bytes each")):
            (self.dir / "bad-images-idx3-ubyte").write_bytes(change(head + b"".join(images)))
            self.packimg("convert", "-q", "bad-images-idx3-ubyte", "-o", "no.pimg", rc=2)
            self.assertIn(told, self.stderr)
        (self.dir / "lonely-labels-idx1-ubyte").write_bytes(labels[:-1])
        self.packimg("convert", "-q", "lonely-images-idx3-ubyte", "-o", "no.pimg", rc=2)
        self.assertIn("lonely-labels-idx1-ubyte: not a complete idx file of bytes", self.stderr)
        (self.dir / "lonely-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x801, 4) + bytes(4))
        self.packimg("convert", "-q", "lonely-images-idx3-ubyte", "-o", "no.pimg", rc=2)
        self.assertIn("lonely-labels-idx1-ubyte: 4 labels for the 5 images of lonely-images-idx3-ubyte", self.stderr)
        (self.dir / "t10k-images.idx3-ubyte.gz").write_bytes((self.dir / "t10k-images.idx3-ubyte.gz").read_bytes()[:-20])
        self.packimg("convert", "-q", "t10k-images.idx3-ubyte.gz", "-o", "no.pimg", rc=2)
        self.assertIn("t10k-images.idx3-ubyte.gz: ", self.stderr)
        self.packimg("convert", "-q", "train-labels-idx1-ubyte", "-o", "no.pimg", rc=2)
        self.assertIn("it is an idx file, as of MNIST, which packimg does not read; give the file of the images", self.stderr)

    def test_cifar(self):
        """The binary versions of CIFAR-10 and CIFAR-100, with the names of classes in a separate file."""
        planes = [bytes((i * 31 + k * k) % 256 for k in range(3072)) for i in range(3)]
        upright = [bytes(plane[c * 1024 + k] for k in range(1024) for c in range(3)) for plane in planes]
        for folder, records, names, classes in (
                ("ten", [bytes([i]) + planes[i] for i in range(3)], "batches.meta.txt", ["airplane", "automobile", "bird"]),
                ("hundred", [bytes([19 - i, i]) + planes[i] for i in range(3)], "fine_label_names.txt", ["apple", "aquarium_fish", "baby"])):
            (self.dir / folder).mkdir()
            (self.dir / folder / "1.bin").write_bytes(b"".join(records))
            self.convert(f"{folder}/1.bin", "-o", "plain.pimg", "--force")
            self.assertEqual([s["class"] for s in self.list("plain.pimg")], ["0", "1", "2"])
            (self.dir / folder / names).write_text("\n".join(classes) + "\n\n")
            summary = self.convert(f"{folder}/1.bin", "-o", "out.pimg", "--raw", "--force")
            self.assertEqual((summary["classes"], summary["fields"]), (3, int(folder == "hundred")))
            self.assertEqual([s["class"] for s in self.list("out.pimg")], classes)
            samples, data = self.pixels("out.pimg")
            self.assertEqual(samples, [(label, 32, 32, "raw") for label in range(3)])
            for image in upright:
                self.assertEqual(data.count(image), 1)
        self.assertEqual([s["fields"] for s in self.list("out.pimg")], [{"coarse_label": 19 - i} for i in range(3)])
        (self.dir / "other.bin").write_bytes(b"\xff" * 3073)
        self.packimg("convert", "-q", "other.bin", "-o", "no.pimg", rc=2)
        self.assertIn("other.bin: image 0 has label 255, so it is not of the binary version of CIFAR", self.stderr)


if __name__ == "__main__":
    unittest.main()
