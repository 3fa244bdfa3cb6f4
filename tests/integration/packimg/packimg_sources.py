"""Folders, WebDataset shards and manifests: classes, fields, names."""

import csv
import io
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tarfile
import unittest
import zipfile

from packimg_test import PARTS, PackimgTest


class PackimgSources(PackimgTest):
    def test_webdataset(self):
        images = sorted(self.tree.rglob("*.jpg"))[:8]
        samples = []
        for i, path in enumerate(images):
            described = {"id": i, "score": i / 4, "caption": f"nr {i}, \"quoted\"", "box": [i, 2], "none": None,
                         "ok": True}
            samples.append((f"part/{i:06d}", {"json": json.dumps(described).encode(), "jpg": path.read_bytes(),
                                              "cls": str(i % 3).encode(), "txt": b"free text\n"}))
        self.shard("s-000.tar", samples[:5])
        self.shard("s-001.tar", samples[5:] + [("part/lonely", {"cls": b"1"})])
        summary = self.convert("s-{000..001}.tar", "-o", "out.pimg", rc=1)
        self.assertEqual(len(summary["skipped"]), 1)
        self.assertIn("lonely", summary["skipped"][0]["name"])
        listed = self.list("out.pimg")
        self.assertEqual([s["label"] for s in listed], [i % 3 for i in range(8)])
        self.assertEqual(listed[3]["source"], "part/000003.jpg")
        fields = listed[3]["fields"]
        self.assertEqual(fields["id"], 3)
        self.assertEqual(fields["score"], 0.75)
        self.assertEqual(fields["caption"], 'nr 3, "quoted"')
        self.assertEqual(fields["box"], [3, 2])
        self.assertEqual(fields["ok"], 1)
        self.assertEqual(fields["txt"], "free text\n")
        self.assertEqual(fields["json"]["caption"], 'nr 3, "quoted"')
        self.assertNotIn("none", fields)
        types = {f["name"]: f["type"] for f in json.loads(self.packimg("info", "--json", "out.pimg"))["fields"]}
        self.assertEqual(types, {"json": "json", "id": "int64", "score": "float64", "caption": "text",
                                 "box": "json", "ok": "int64", "txt": "text"})
        self.packimg("convert", "-q", "s-001.tar", "-o", "fail.pimg", "--on-error", "fail", rc=2)
        self.packimg("extract", "-q", "out.pimg", "-o", "back", "-i", "0")
        self.assertEqual(next((self.dir / "back").rglob("*.jpg")).read_bytes(), images[0].read_bytes())

    def test_field_lengths(self):
        """Field types follow from the members' contents. The longest value is recorded, and reported if the daemon would refuse it."""
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        binary = bytes(range(256)) * 2
        self.shard("s.tar", [("a", {"jpg": image, "txt": "é".encode(), "npy": binary, "text": b"x", "ocr.txt": b"T" * 65536}),
                             ("b", {"jpg": image, "txt": b"four", "text": b"\xff\xfe", "dump": b"d" * 65537})])
        summary = self.convert("s.tar", "-o", "out.pimg")
        self.assertEqual(summary["too_long"], [{"field": "dump", "bytes": 65537, "sample": "b.jpg"}])
        said = self.packimg("convert", "s.tar", "-o", "again.pimg")
        self.assertRegex(said, r"field dump has values of up to 65,537 bytes \(b\.jpg\); loaderd delivers at most 65,536 of each")
        self.assertNotIn("field ocr", said)
        expected = {"txt": ("text", 4), "npy": ("bytes", 512), "text": ("bytes", 2), "ocr.txt": ("text", 65536),
                    "dump": ("bytes", 65537)}
        for path in ("out.pimg", "again.pimg"):
            listed = json.loads(self.packimg("info", "--json", path))["fields"]
            self.assertEqual({f["name"]: (f["type"], f["longest"]) for f in listed}, expected)
        said = self.packimg("info", "out.pimg")
        self.assertIn("field       txt (text, up to 4 bytes)\n", said)
        self.assertIn("field       dump (bytes, up to 65,537 bytes, more than loaderd delivers per value)\n", said)
        self.packimg("verify", "-q", "out.pimg")
        # A field that is text in one dataset and bytes in another becomes bytes in the merged one.
        self.shard("t.tar", [("c", {"jpg": image, "txt": b"\xff" * 9})])
        self.convert("t.tar", "-o", "t.pimg")
        self.packimg("merge", "-q", "out.pimg", "t.pimg", "-o", "both.pimg")
        listed = json.loads(self.packimg("info", "--json", "both.pimg"))["fields"]
        self.assertEqual({f["name"]: (f["type"], f["longest"]) for f in listed}, expected | {"txt": ("bytes", 9)})

    def test_fields_of_earlier_versions(self):
        """Lengths are unknown until the file is merged, which changes nothing else."""
        old = pathlib.Path(os.environ["PIMG_GOLDEN"]) / "good" / "no_field_stats.pimg"
        self.assertIn("field       blob (bytes, lengths not recorded)", self.packimg("info", old))
        self.packimg("merge", "-q", old, "-o", "new.pimg")
        self.assertIn("field       blob (bytes, up to 7 bytes)", self.packimg("info", "new.pimg"))
        self.assertEqual(self.list("new.pimg"), self.list(old))
        for name in ("check_field_stats_short", "check_field_stats_long", "check_field_stats_text"):
            said = self.packimg("verify", old.parents[1] / "bad" / f"{name}.pimg", rc=1)
            self.assertIn("field blob", said + self.stderr)

    def test_webdataset_names(self):
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        self.shard("names.tar", [("a", {"jpg": image, "cls": b"zebra\n"}), ("b", {"jpg": image, "cls": b"ant"})])
        self.convert("names.tar", "-o", "out.pimg")
        self.assertEqual([(s["class"], s["label"]) for s in self.list("out.pimg")], [("zebra", 1), ("ant", 0)])

    def test_manifest(self):
        rows = [["path", "class", "age", "weight", "note"],
                ["ant/00.jpg", "a", "3", "1.5", 'says "hi", twice'],
                ["cat/01.jpg", "c", "-4", "2", ""],
                ["bee/02.jpg", "a", "", "", "two\nlines"]]
        with open(self.dir / "m.csv", "w", newline="") as file:
            csv.writer(file).writerows(rows)
        self.convert("m.csv", "--root", self.tree, "-o", "csv.pimg")
        with open(self.dir / "m.tsv", "w", newline="") as file:
            csv.writer(file, delimiter="\t").writerows(rows)
        self.convert(self.tree, "--manifest", "m.tsv", "-o", "tsv.pimg")
        listed = self.list("csv.pimg")
        self.assertEqual(listed, self.list("tsv.pimg"))
        self.assertEqual([s["class"] for s in listed], ["a", "c", "a"])
        self.assertEqual(listed[0]["fields"], {"age": 3, "weight": 1.5, "note": 'says "hi", twice'})
        self.assertEqual(listed[1]["fields"], {"age": -4, "weight": 2.0})
        self.assertEqual(listed[2]["fields"], {"note": "two\nlines"})
        # Round trip: convert reads what extract writes.
        self.packimg("extract", "-q", "--manifest", "csv.pimg", "-o", "back")
        self.convert("back/manifest.csv", "-o", "again.pimg")
        again = self.list("again.pimg")
        for key in ("label", "class", "bytes", "fields"):
            self.assertEqual([s.get(key) for s in again], [s.get(key) for s in listed])
        with open(self.dir / "gone.csv", "w") as file:
            file.write("path\nant/00.jpg\nnowhere.jpg\n../../../etc\n")
        summary = self.convert("gone.csv", "--root", self.tree, "-o", "gone.pimg", rc=1)
        self.assertEqual([s["name"] for s in summary["skipped"]], ["nowhere.jpg", "../../../etc"])

    def test_targets_of_a_regression(self):
        """Labels that are not classes become a field, with a note; tables that contradict each other are refused."""
        names = sorted(str(p.relative_to(self.tree)) for p in self.tree.rglob("*.jpg"))[:12]
        for table, first in (("train.csv", 0.5), ("val.csv", 1)):
            (self.dir / table).write_text("path,target\n" +
                                          "".join(f"{name},{i + first}\n" for i, name in enumerate(names)))
        summary = self.convert("train.csv", "--root", self.tree, "-o", "out.pimg")
        self.assertEqual((summary["classes"], summary["fields"]), (0, 1))
        self.assertEqual([note for note in summary["notes"] if 'the field "target"; --labels classes' in note], summary["notes"])
        self.assertEqual([(s["label"], s["fields"]) for s in self.list("out.pimg")], [(-1, {"target": i + 0.5}) for i in range(12)])
        self.packimg("convert", "-q", "train.csv", "val.csv", "--root", self.tree, "-o", "no.pimg", rc=2)
        self.assertIn("--labels classes or --labels field", self.stderr)
        self.assertEqual(self.convert("train.csv", "val.csv", "--root", self.tree, "--labels", "field", "-o", "both.pimg")["notes"], [])
        info = json.loads(self.packimg("info", "--json", "both.pimg"))
        self.assertEqual((info["fields"], info["metadata"]["packimg.options"]),
                         ([{"name": "target", "type": "float64"}], "jpeg=verbatim labels=field"))
        text = self.packimg("convert", "-q", "train.csv", "--root", self.tree, "-o", "classes.pimg", "--labels", "classes")
        self.assertIn("  classes   12\n", text)
        self.assertIn("  note      most labels belong to a single image: 12 classes for 12 images; --labels field", text)
        # The same for shards, in which a label is a member or in the JSON.
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        for name, members in (("cls", [{"cls": b"0.5"}, {"cls": b"2.0\n"}]), ("label", [{"json": b'{"label": 0.5}'}, {"json": b'{"label": 2.0}'}])):
            self.shard(f"{name}.tar", [(str(i), {"jpg": image, **more}) for i, more in enumerate(members)])
            summary = self.convert(f"{name}.tar", "-o", f"{name}.pimg")
            self.assertEqual(summary["classes"], 0)
            self.assertIn(f'the field "{name}"', summary["notes"][0])
            self.assertEqual([s["fields"][name] for s in self.list(f"{name}.pimg")], [0.5, 2.0])
        self.shard("int.tar", [("a", {"jpg": image, "cls": b"1"}), ("b", {"jpg": image, "json": b'{"label": 2}'})])
        self.convert("int.tar", "--labels", "field", "-o", "int.pimg")
        self.assertEqual([(s["label"], s["fields"]) for s in self.list("int.pimg")], [(-1, {"cls": 1}), (-1, {"json": {"label": 2}, "label": 2})])
        self.packimg("convert", "-q", "int.tar", "cls.tar", "-o", "no.pimg", rc=2)
        self.assertIn("the label of a.jpg is a whole number or a name, and that of 0.jpg is not", self.stderr)

    def archived(self, folder):
        """Returns the folder and archives of it, which contain the folder or only its contents."""
        with tarfile.open(self.dir / "by-name.tar", "w") as tar:
            tar.add(self.dir / folder, folder)
        with tarfile.open(self.dir / "contents.tar.gz", "w:gz") as tar:
            tar.add(self.dir / folder, ".")
        with zipfile.ZipFile(self.dir / "by-name.zip", "w") as archive:
            for path in sorted((self.dir / folder).rglob("*")):
                if path.is_file():
                    archive.write(path, path.relative_to(self.dir))
        return [folder, "by-name.tar", "contents.tar.gz", "by-name.zip"]

    def test_folders_and_archives_agree(self):
        """The same tree gives the same classes, notes and counts as a folder and in any archive."""
        for part, classes in (("train", ["ant", "bee"]), ("val", ["ant", "cat"])):
            for name in classes:
                shutil.copytree(self.tree / name, self.dir / "data" / part / name)
        (self.dir / "data" / "val" / "cat" / ".hidden.jpg").write_bytes(b"x")
        (self.dir / "data" / "train" / "bee" / "labels.TXT").write_text("x")
        (self.dir / "data" / "train" / "dog").mkdir()
        for i in range(3):
            (self.dir / "data" / "train" / "dog" / f"{i}.dcm").write_text("x")
        (self.dir / "data" / ".git").mkdir()
        (self.dir / "data" / "README").write_text("x")
        split = "train (24 images) and val (24) are in one dataset, whose classes are the folders inside them; --split folders makes"
        for source in self.archived("data"):
            for options, classes, notes in (
                    ([], {"ant": 24, "bee": 12, "cat": 12}, [split, '1 folder that would be a class holds no image and is left out: "dog" (3 files in ']),
                    (["--class-from", "top"], {"data": 48} if "name" in source else {"train": 24, "val": 24}, []),
                    (["--class-from", "parent"], {"ant": 24, "bee": 12, "cat": 12}, ['holds no image and is left out: "dog"']),
                    (["--include", "train"], {"ant": 12, "bee": 12}, ["train/, so the classes are the folders in it", 'holds no image and is left out: "dog"']),
                    (["--exclude", "train", "--exclude", "*.exe"], {"ant": 12, "cat": 12}, ["val/, so the classes", "no name matches --exclude *.exe"]),
                    (["--include", "a??", "--exclude", "val/ant", "--exclude", "data/val/ant"], {"ant": 12}, None)):
                summary = self.convert(source, "-o", "out.pimg", "--force", *options)
                listed = [s["class"] for s in self.list("out.pimg")]
                self.assertEqual({name: listed.count(name) for name in sorted(set(listed))}, classes, (source, options))
                told = [note for note in summary["notes"] if "by-name" not in source or "are in data/, so" not in note]
                for wanted in notes or []:
                    self.assertTrue(any(wanted in note for note in told), (source, options, wanted, told))
                if notes is not None:
                    self.assertEqual(len(told), len(notes), told)
            summary = self.convert(source, "-o", "out.pimg", "--force")
            kinds = {kind["kind"]: kind["files"] for kind in summary["ignored_kinds"]}
            kinds.pop("hidden")  # a hidden folder counts once; in an archive, each of its files counts
            self.assertEqual(kinds, {".dcm": 3, ".txt": 1, "without an ending": 1}, source)
            # each source separately; a class has the same number in each
            for options, class_of in (([], {"ant": 0, "bee": 1, "cat": 2}), (["--class-from", "parent"], {"ant": 0, "bee": 1, "cat": 2}),
                                      (["--class-from", "none"], {None: -1})):
                summary = self.convert(source, "-o", "parts.pimg", "--force", "--split", "folders", "--shuffle", 1, *options)
                self.assertEqual(sorted((d["part"], d["samples"]) for d in summary["datasets"]), [("train", 24), ("val", 24)])
                self.assertNotIn("--split folders", str(summary["notes"]))
                parts = self.list("parts-train.pimg"), self.list("parts-val.pimg")
                self.assertEqual([{part for s in samples for part in ("train", "val") if f"{part}/" in s["source"]} for samples in parts], [{"train"}, {"val"}])
                self.assertEqual({s.get("class"): s["label"] for samples in parts for s in samples}, class_of)
        self.assertEqual(json.loads(self.packimg("info", "--json", "parts-val.pimg"))["metadata"]["packimg.split"], "val")
        for source, told in ((self.tree, "for example ant/00.jpg;"), ("data/train", "for example ant/00.jpg;"), ("m.csv", "for example data/train/ant/00.jpg;")):
            (self.dir / "m.csv").write_text("path\ndata/train/ant/00.jpg\ndata/val/ant/00.jpg\n")
            self.packimg("convert", "-q", source, "-o", "no.pimg", "--split", "folders", rc=2)
            self.assertIn(told, self.stderr)
        text = self.packimg("convert", "-q", "data", "-o", "out.pimg", "--force", "--exclude", "val")
        self.assertIn("  excluded  1 by --include and --exclude\n  ignored   6 files that are not images by name\n"
                      "    3 .dcm: train/dog/0.dcm, ...\n    1 .txt: train/bee/labels.TXT\n    1 hidden: .git/\n"
                      "    1 without an ending: README\n", text)
        self.packimg("convert", "-q", "data", "-o", "no.pimg", "--include", "*.webp", rc=2)
        self.assertIn("--include and --exclude leave out 48\n", self.stderr)
        (self.dir / "none").mkdir()
        (self.dir / "none" / "a.dcm").write_text("x")
        self.packimg("convert", "-q", "none", "-o", "no.pimg", rc=2)
        self.assertIn("among 1 file, such as a.dcm", self.stderr)

    def test_notes_on_the_result(self):
        """Notes about classes that lost all their images, and about pixels that became JPEGs."""
        shutil.copytree(self.tree, self.dir / "in")
        for name in ("dog", "eel"):
            (self.dir / "in" / name).mkdir()
            (self.dir / "in" / name / "a.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
        summary = self.convert("in", "-o", "out.pimg", rc=1)
        self.assertEqual([s["name"] for s in summary["skipped"]], ["dog/a.heic", "eel/a.heic"])
        self.assertEqual(summary["notes"], ['2 of 5 classes have no image: "dog", "eel"'])
        self.assertEqual(self.convert("in", "-o", "some.pimg", "--limit", 5)["notes"], [])
        (self.dir / "m.csv").write_text("path,label\nant/00.jpg,5\nbee/00.jpg,250000\n")
        self.assertEqual(self.convert("m.csv", "--root", self.tree, "-o", "m.pimg")["notes"],
                         ['249,999 of 250,001 classes have no image: "0", "1", "2", "3", "4" and more; '
                          "--labels field makes a field of labels that are no classes"])
        if "png" not in PARTS:
            self.skipTest("built without PNG")
        kinds = self.images / "kinds"
        count = self.convert(kinds, "-o", "k.pimg")["sources"]["PNG"]
        self.assertIn(f"{count} PNG became JPEG of quality 95, with a small loss; --non-jpeg zstd keeps their pixels",
                      self.convert(kinds, "-o", "k.pimg", "--force", "--include", "*.png")["notes"])
        for options in (["--non-jpeg", "zstd"], ["--raw"], ["--jpeg", "quality=80"]):
            self.assertNotIn("became", str(self.convert(kinds, "-o", "k.pimg", "--force", *options)["notes"]))

    def labels(self, table, *options, rc=0):
        """Converts this table; returns the summary, and the labels in the dataset."""
        (self.dir / "t.csv").write_text(table, newline="")
        summary = self.convert("t.csv", "--root", self.tree, "-o", "t.pimg", "--force", *options, rc=rc)
        return summary, [s["class"] if s["label"] >= 0 else None for s in self.list("t.pimg")]

    def test_labels_that_are_missing(self):
        """Samples without a label are counted in the summary, whatever the cell contains."""
        for cell in (",", ",NaN", ",None", ",null", ",n/a", ""):
            summary, labels = self.labels(f"path,label\nant/00.jpg,x\nant/01.jpg{cell}\nbee/00.jpg,y\n")
            self.assertEqual((labels, summary["unlabelled"], summary["classes"]), (["x", None, "y"], 1, 2), cell)
            self.assertEqual(len(summary["notes"]), len(cell) > 1, summary["notes"])
        summary, labels = self.labels("path,label\nant/00.jpg,1\nant/01.jpg,None\nbee/00.jpg,0\n")
        self.assertEqual((labels, summary["unlabelled"]), (["1", None, "0"], 1))
        self.assertIn('1 label such as "None" counts as missing; rename the class if it is one', summary["notes"][0])
        text = self.packimg("convert", "-q", "t.csv", "--root", self.tree, "-o", "t.pimg", "--force")
        self.assertIn("  no label  1 of 3 samples, the first ant/01.jpg\n", text)

    def test_labels_that_are_no_number(self):
        """An unusual spelling of NaN that does not mean a missing label is neither a class nor class 0."""
        summary, labels = self.labels("path,label\nant/00.jpg,1\nant/01.jpg,Nan\nbee/00.jpg,0\n", rc=1)
        self.assertEqual(labels, ["1", "0"])
        self.assertIn("t.csv, line 3: label Nan is not a class number in 0..", str(summary["skipped"]))

    def test_tables_of_other_programs(self):
        """Columns with other names, image names without suffix, lists of Caffe and MXNet. The error asks for whatever is ambiguous."""
        for name in ("cat", "dog"):
            shutil.copy(self.tree / "ant" / "00.jpg", self.tree / f"{name}.jpg")
            self.addCleanup((self.tree / f"{name}.jpg").unlink)
        kaggle = "id,breed\ncat,siamese\ndog,pug\n"
        options = ["--path-column", "id", "--path-suffix", ".jpg"]
        for more in ([], options):
            summary, labels = self.labels(kaggle, *more)
            self.assertEqual(labels, [None, None])
            self.assertIn("no column is called label, target or class", str(summary["notes"]))
        self.assertEqual(self.labels(kaggle, *options, "--label-column", "breed")[1], ["siamese", "pug"])
        self.assertEqual(self.labels(kaggle, *options, "--label-column", "2")[1], ["siamese", "pug"])
        self.assertEqual(self.labels("cat,siamese\ndog,pug\n", "--path-column", "1", "--path-suffix", ".jpg")[1], ["siamese", "pug"])
        for lines in ("cat.jpg 1\ndog.jpg 0\n", "0\t1.0\tcat.jpg\n1\t0.0\tdog.jpg\n", "path,label\rcat.jpg,1\rdog.jpg,0\r",
                      "path , label\ncat.jpg, 1\ndog.jpg ,0\n", '"path", "label"\n"cat.jpg", "1"\n"dog.jpg", "0"\n'):
            self.assertEqual(self.labels(lines)[1], ["1", "0"], lines)
        self.packimg("convert", "-q", "t.csv", "--root", self.tree, "-o", "no.pimg", "--label-column", "breed", rc=2)
        self.assertIn('--label-column breed: line 1 has no such column, but "path" and "label"', self.stderr)
        (self.dir / "t.csv").write_bytes("path,label\ncat.jpg,1\n".encode("utf-16"))
        self.packimg("convert", "-q", "t.csv", "--root", self.tree, "-o", "no.pimg", rc=2)
        self.assertIn("in UTF-16; save it as UTF-8", self.stderr)

    def test_names_without_folder_or_ending(self):
        """Kaggle's and Caffe's lists without options: folder, suffix and label are found if they are unambiguous, with a note."""
        image = next(self.tree.rglob("*.jpg"))
        for name in ("train/a.jpg", "train/b.jpg", "train/sub/a cat.jpg", "other/c.JPEG", "lists/x", "d.png"):
            (self.dir / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(image, self.dir / name)

        def packed(name, table, *options, rc=0):
            (self.dir / name).write_text(table)
            summary = self.convert(name, "-o", "out.pimg", "--force", *options, rc=rc)
            return summary, [(s["source"], s.get("class")) for s in self.list("out.pimg")]

        summary, samples = packed("t.csv", "id,breed\na,pug\nb,pug\na,afghan\nb,afghan\n")
        self.assertEqual(samples, [("train/a.jpg", "pug"), ("train/b.jpg", "pug"), ("train/a.jpg", "afghan"), ("train/b.jpg", "afghan")])
        self.assertEqual(summary["notes"], [
            't.csv: the column "id" names the images, which are train/*.jpg; --path-column, --root and --path-suffix say otherwise',
            't.csv: the column "breed" is taken for the label, because its values repeat and there is no other; --labels field makes it a field'])
        packed("t.csv", "id,breed\na,pug\nb,pug\n", "--labels", "field")
        self.assertEqual([(s["label"], s["fields"]) for s in self.list("out.pimg")], [(-1, {"breed": "pug"})] * 2)
        for numbers, label in (([0, 0, 1, 1], "0"), ([4, 4, 9, 9], None)):  # 4 and 9 may be measurements
            summary = packed("t.csv", "id,level\n" + "".join(f"{name},{number}\n" for name, number in zip("abab", numbers)), "--limit", 1)[0]
            self.assertEqual(summary["unlabelled"], label is None, summary)
        for table, wanted in (("image,label\nc,3\n", ("other/c.JPEG", "3")), ("/c.JPEG 3\n", ("other/c.JPEG", "3")), ("sub/a cat.jpg 2\n", ("train/sub/a cat.jpg", "2")),
                              ("train/sub/a cat.jpg 1\n", ("train/sub/a cat.jpg", "1")), ("c 5 1\n", ("other/c.JPEG", "5")), ("3,c.JPEG\n", ("other/c.JPEG", "3"))):
            self.assertEqual(packed("t.txt", table)[1], [wanted], table)
        self.assertEqual(packed("lists/t.txt", "a 1\n")[1], [("../train/a.jpg", "1")])
        (self.dir / "lists" / "t.txt").write_text("c 1\n")  # images in other/ may belong to another dataset
        self.packimg("convert", "-q", "lists/t.txt", "-o", "no.pimg", rc=2)
        self.assertIn('neither a column named "path" nor an image\'s name, but "c" and "1"', self.stderr)
        self.assertEqual(packed("t.csv", "Image Index,label,age\nd.png,x,3\n")[0]["notes"][0], 't.csv: the column "Image Index" names the images; --path-column says otherwise')
        shutil.copy(image, self.dir / "other" / "a.jpg")
        (self.dir / "t.csv").write_text("id,label\na,0\n")
        self.packimg("convert", "-q", "t.csv", "-o", "no.pimg", rc=2)
        self.assertIn('t.csv: the image of "a" may be other/a.jpg or train/a.jpg: --root DIR and --path-suffix TEXT choose', self.stderr)
        self.assertEqual(packed("trainLabels.csv", "id,label\na,0\n")[1], [("train/a.jpg", "0")])  # the table's name selects the folder
        self.assertEqual(packed("t.csv", "id,label\na,0\nb,1\n")[1], [("train/a.jpg", "0"), ("train/b.jpg", "1")])  # only train/ has b
        # names with a path are used unchanged, even if files are missing
        summary, samples = packed("t.csv", "path,label\na.jpg,0\nd.png,1\n", rc=1)
        self.assertEqual((samples, [s["name"] for s in summary["skipped"]]), ([("d.png", "1")], ["a.jpg"]))

    def lists(self, cells, *options, header="path,label", rows=(), rc=0):
        """Converts a table with these cells as labels. Returns the classes, the samples' lists of classes, and the summary."""
        names = [str(p.relative_to(self.tree)) for p in sorted(self.tree.rglob("*.jpg"))]
        lines = [f"{name},{cell}" for name, cell in zip(names, cells)] if not rows else [f"{name},{row},{cell}" for name, row, cell in zip(names, rows, cells)]
        (self.dir / "t.csv").write_text("\n".join([header, *lines, ""]))
        said = self.packimg("convert", "-q", "t.csv", "--root", self.tree, "-o", "t.pimg", "--force", "--json", *options, rc=rc)
        if rc:
            return self.stderr
        summary, info = json.loads(said), json.loads(self.packimg("info", "--json", "t.pimg"))
        name = header.split(",")[-1]
        return [c["name"] for c in info["classes"]], [s.get("fields", {}).get(name, s.get("class")) for s in self.list("t.pimg")], summary

    def test_several_labels_in_a_cell(self):
        """Cells with several labels become lists of classes if that is unambiguous or requested. The summary says which, and the option for
        the opposite.
        """
        classes, samples, summary = self.lists(["cat dog", "dog", "cat", "bee cat", "bee", ""])
        self.assertEqual((classes, samples), (["bee", "cat", "dog"], [[1, 2], [2], [1], [0, 1], [0], None]))
        self.assertEqual((summary["unlabelled"], summary["notes"]), (1, [
            't.csv: cells of "label" hold several labels each, such as "cat dog" (space), so it is a list of classes; --label-separator none makes each cell one class']))
        for cells, classes, samples in ((["0;3", "2", "NaN"], ["0", "1", "2", "3"], [[0, 3], [2], None]), (["a|b", "c"], ["a", "b", "c"], [[0, 1], [2]]),
                                        (["7 0", "1"], [str(i) for i in range(8)], [[7, 0], [1]]), (["\"['a', 'b c']\"", "[]"], ["a", "b c"], [[0, 1], []]),
                                        (['"1,2,3"', "0"], ["0", "1", "2", "3"], [[1, 2, 3], [0]]), (['"a, b"', "a", "b"], ["a", "b"], [[0, 1], [0], [1]])):
            self.assertEqual(self.lists(cells)[:2], (classes, samples), cells)
        # a cell that may be a single label is one, and a note gives the option for several
        for cells, separator in ((["hot dog", "dog"], "space"), (["red car", "blue car", "red bus", "blue bus"], "space"), (['"0,5"', '"1,0"'], "comma")):
            classes, _, summary = self.lists(cells)
            self.assertEqual(len(classes), len(cells))
            self.assertIn(f"--label-separator {separator} makes several labels of it", summary["notes"][0])
        self.assertEqual(self.lists(["golden retriever", "pug"])[2]["notes"], [])
        self.assertEqual(self.lists(["a;b", "c"], "--label-separator", "none")[:2], (["a;b", "c"], ["a;b", "c"]))
        self.assertEqual(self.lists(["a;b", "c"], "--labels", "field")[:2], ([], ["a;b", "c"]))
        self.assertEqual(self.lists(["hot dog", "dog"], "--label-separator", "space")[1], [[1, 0], [0]])
        self.assertEqual(self.lists(["x+y", "y"], "--label-separator", "+")[1], [[0, 1], [1]])
        # a column with another name than label, in a table of two columns
        self.assertEqual(self.lists(["a b", "a", "b", "b a c", "c", "a c"], header="path,tags")[0], ["a", "b", "c"])
        self.assertEqual(self.lists(["1 5", "2 9", "3 7"], header="path,point")[:2], ([], ["1 5", "2 9", "3 7"]))
        (self.dir / "classes.txt").write_text("dog\ncat\n")
        self.assertEqual(self.lists(["cat;dog", "dog"], "--classes", "classes.txt")[:2], (["dog", "cat"], [[1, 0], [0]]))
        self.assertIn('its class "bee" is not in the list of classes', self.lists(["cat;bee"], "--classes", "classes.txt", rc=2))
        self.assertIn("label 2, but the list has 2 classes", self.lists(["0;2"], "--classes", "classes.txt", rc=2))
        self.lists(["cat;dog", "dog"])
        (self.dir / "u.csv").write_text("path,label\nant/00.jpg,cat\n")
        self.packimg("convert", "-q", "t.csv", "u.csv", "--root", self.tree, "-o", "no.pimg", rc=2)
        self.assertIn("has several labels, and ant/00.jpg one: --label-separator makes lists of both", self.stderr)
        summary = self.convert("t.csv", "u.csv", "--root", self.tree, "-o", "both.pimg", "--label-separator", "semicolon")
        self.assertEqual([s["fields"]["label"] for s in self.list("both.pimg")], [[0, 1], [1], [0]])
        self.packimg("verify", "-q", "both.pimg")
        self.assertIn("  classes   2, several of a sample, fields 1\n", self.packimg("convert", "-q", "t.csv", "--root", self.tree, "-o", "t.pimg", "--force"))
        self.assertRegex(self.packimg("info", "t.pimg"), r"(?m)^classes     2, no sample has a label\n  0     \w+$")

    def test_manifests_of_several_labels_are_read_again(self):
        """extract --manifest writes lists of classes as convert reads them, whatever is in the names."""
        names = ["a, b", "back\\slash", "it's", 'quo"te', "x"]
        (self.dir / "classes.txt").write_text("".join(f"{name}\n" for name in names))
        for cells, options in ((["cat;dog", "dog", "bee;cat", "NaN", ";"], ()), (["0;3;1", "2"], ()), ([f"{name}|x" for name in names[:-1]] + ["x"], ["--label-separator", "|"]),
                               (["|".join(reversed(names))], ["--label-separator", "|", "--classes", "classes.txt"])):
            quoted = ['"' + cell.replace('"', '""') + '"' for cell in cells]
            classes, samples, _ = self.lists(quoted, *options)
            self.assertIn(samples[0], ([1, 2], [0, 3, 1], [0, 4], [4, 3, 2, 1, 0]))
            self.packimg("extract", "-q", "--manifest", "--force", "t.pimg", "-o", "back")
            self.assertEqual((self.dir / "back" / "manifest.csv").read_text().splitlines()[0], "path,label")
            summary = self.convert("back/manifest.csv", "-o", "back.pimg", "--force")
            self.assertEqual(([c["name"] for c in json.loads(self.packimg("info", "--json", "back.pimg"))["classes"]], [s.get("fields", {}).get("label") for s in self.list("back.pimg")]),
                             (classes, samples))
            self.assertIn("(brackets), so it is a list of classes", summary["notes"][0])

    def test_manifests_of_many_labels_are_read_again(self):
        names = [f"a class with a long name {i:03}" for i in range(100)]  # a cell of more than 1,024 bytes
        samples = self.lists(["|".join(names), names[7]], "--label-separator", "|")[1]
        self.packimg("extract", "-q", "--manifest", "t.pimg", "-o", "back")
        summary = self.convert("back/manifest.csv", "-o", "back.pimg")
        self.assertEqual([s["fields"]["label"] for s in self.list("back.pimg")], samples)
        self.assertIn('cells of "label" hold several labels each (brackets), so', summary["notes"][0])
        # a list that is called otherwise, and samples with labels
        self.lists(["a;b", "b"], "--label-column", "tags", "--label-separator", ";", header="path,age,tags", rows=["1", "2"])
        self.packimg("extract", "-q", "--manifest", "--force", "t.pimg", "-o", "back")
        self.assertRegex((self.dir / "back" / "manifest.csv").read_text(), r"""^path,age,tags\n\S+,1,"\['a', 'b'\]"\n""")
        self.convert("back/manifest.csv", "-o", "back.pimg", "--force", "--label-column", "tags")
        self.assertEqual([s["fields"] for s in self.list("back.pimg")], [{"age": 1, "tags": [0, 1]}, {"age": 2, "tags": [1]}])

    def members(self, name, members):
        with tarfile.open(self.dir / name, "w") as tar:
            for member, data in members:
                entry = tarfile.TarInfo(member)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))

    def test_webdataset_labels_that_are_missing(self):
        """Members that are not adjacent, missing or empty, and NaN: no label is lost silently."""
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        self.members("apart.tar", [("a.jpg", image), ("b.jpg", image), ("a.cls", b"1"), ("b.cls", b"0")])
        summary = self.convert("apart.tar", "-o", "out.pimg", rc=1)
        self.assertEqual((summary["unlabelled"], [s["name"] for s in summary["skipped"]]), (2, ["a", "b"]))
        self.assertIn('must be adjacent, as "tar --sort=name" writes them', summary["skipped"][0]["reason"])
        many = [(f"{i:03d}.jpg", image) for i in range(70)] + [(f"{i:03d}.cls", b"1") for i in range(70)]
        self.members("many.tar", many)
        summary = self.convert("many.tar", "-o", "out.pimg", "--force")
        self.assertEqual(summary["unlabelled"], 70)
        self.assertIn("70 .cls files were not read: they are labels only in WebDataset tars", summary["notes"][0])
        self.members("some.tar", [("a.jpg", image), ("a.cls", b"0"), ("b.jpg", image), ("c.jpg", image), ("c.cls", b"nan"),
                                  ("d.jpg", image), ("d.cls", b""), ("e.json", b'{"label": NaN}'), ("e.jpg", image)])
        summary = self.convert("some.tar", "-o", "out.pimg", "--force")
        self.assertEqual(([s["label"] for s in self.list("out.pimg")], summary["unlabelled"]), ([0, -1, -1, -1, -1], 4))

    def test_keys_with_dots(self):
        """Keys that end at the last dot are distinguished from several images per key; for two images in a sample, the error asks for a
        choice.
        """
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        self.members("dots.tar", [(f"v1/22.0{i}.{end}", image if end == "jpg" else str(i).encode()) for i in range(3) for end in ("cls.txt", "jpg", "txt")])
        summary = self.convert("dots.tar", "-o", "out.pimg")
        listed = self.list("out.pimg")
        self.assertEqual([(s["source"], s["label"]) for s in listed], [(f"v1/22.0{i}.jpg", i) for i in range(3)])
        self.assertIn("contain dots and end at the last one; other readers of WebDataset end them at the first", summary["notes"][0])
        pairs = [member for i in range(2) for member in ((f"{i}.left.jpg", image), (f"{i}.right.jpg", image), (f"{i}.cls", str(i).encode()))]
        self.members("two.tar", pairs)
        self.packimg("convert", "-q", "two.tar", "-o", "no.pimg", rc=2)
        self.assertIn("two images in one sample, 0.left.jpg and 0.right.jpg; --exclude leaves one out", self.stderr)
        self.convert("two.tar", "-o", "out.pimg", "--force", "--exclude", "*.right.jpg")
        self.assertEqual([(s["source"], s["label"]) for s in self.list("out.pimg")], [("0.left.jpg", 0), ("1.left.jpg", 1)])
        # the image named exactly like its key is the sample's image; others are fields
        self.members("depth.tar", [("a.depth.png", b"d"), ("a.jpg", image), ("a.cls", b"0")])
        self.convert("depth.tar", "-o", "out.pimg", "--force")
        self.assertEqual([(s["source"], s["label"], list(s["fields"])) for s in self.list("out.pimg")], [("a.jpg", 0, ["depth.png"])])

    def test_json_of_python(self):
        """Numbers that do not exist in JSON, such as NaN, are no values; the same letters in strings are kept."""
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        text = b'{"label": 1, "a": NaN, "b": -Infinity, "c": "NaN \\"Infinity", "d": [1, NaN], "e": 0.5}'
        self.shard("a.tar", [("a", {"jpg": image, "json": text}), ("b", {"jpg": image, "json": b'{"label": 0, "a": 2}'})])
        self.convert("a.tar", "-o", "out.pimg")
        sample = self.list("out.pimg")[0]
        self.assertEqual(sample["label"], 1)
        fields = dict(sample["fields"])
        self.assertEqual(fields.pop("json"), {"label": 1, "a": None, "b": None, "c": 'NaN "Infinity', "d": [1, None], "e": 0.5})
        self.assertEqual({name: value for name, value in fields.items() if name != "label"}, {"c": 'NaN "Infinity', "d": [1, None], "e": 0.5})
        self.packimg("verify", "-q", "out.pimg")

    def test_tables_beside_images(self):
        """A table that was not read is named only where it may hold the labels."""
        shutil.copytree(self.tree / "ant", self.dir / "in")
        (self.dir / "in" / "metadata.csv").write_text("file_name,label\n00.jpg,x\n")
        self.assertEqual(self.convert("in", "-o", "out.pimg")["notes"],
                         ["no image has a label, and metadata.csv was not read: --manifest FILE takes labels from a table with the columns path and label"])
        self.assertEqual(self.convert("in", "--manifest", "in/metadata.csv", "-o", "out.pimg", "--force")["notes"], [])
        self.assertEqual(self.convert("in/metadata.csv", "-o", "out.pimg", "--force")["notes"], [])

    def test_sources_that_are_not_read(self):
        """The error says what an unreadable source is and what converts it; a pipe is read only once."""
        foreign = {"x.parquet": b"PAR1" + bytes(60), "a.npy": b"\x93NUMPY\1\0" + bytes(60), "idx": b"\0\0\x08\1" + bytes(60),
                   "data_batch_1": b"\x80\4\x95" + bytes(60), "metadata.jsonl": b'{"file_name": "a.jpg"}\n',
                   "r-00000-of-00001": bytes.fromhex("0500000000000000eab2043e") + b"hello" + bytes(4),
                   "ds": struct.pack("<HHIQQ", 2, 2, 1 << 23, 9, 99) + b"\2image" + bytes(30)}
        for (name, data), what in zip(foreign.items(), ("a Parquet file", "a NumPy array", "an idx file", "a pickle", "a JSON text", "a TFRecord file", "a dataset of FFCV")):
            (self.dir / name).write_bytes(data)
            self.packimg("convert", "-q", name, "-o", "no.pimg", rc=2)
            self.assertIn(f"{name}: it is {what}", self.stderr)
            self.assertEqual("python -m loaderd.convert" in self.stderr, name != "idx")
            self.assertNotIn("damaged", self.stderr)
        self.packimg("convert", "-q", "https://host/a.tar", "-o", "no.pimg", rc=2)
        self.assertIn("a URL, and packimg reads only files; download it, or pipe", self.stderr)
        for kind in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT):
            with tarfile.open(self.dir / "odd.tar", "w", format=kind) as tar:
                for name in ("[2024]", "{a}", "PAR1", "%PDF-1"):
                    tar.add(next(self.tree.rglob("*.jpg")), f"{name}/1.jpg")
            self.assertEqual(self.convert("odd.tar", "-o", "odd.pimg", "--force")["classes"], 4)
        # the oldest tar format has no magic number
        old = bytearray((self.dir / "odd.tar").read_bytes())
        old[257:265] = bytes(8)
        old[148:156] = b"%06o\0 " % (sum(old[:148]) + 8 * 32 + sum(old[156:512]))
        (self.dir / "odd.tar").write_bytes(old)
        self.assertEqual(self.convert("odd.tar", "-o", "odd.pimg", "--force")["classes"], 4)
        (self.dir / "folder").mkdir()
        (self.dir / "folder" / "n01440764.tar").touch()
        self.packimg("convert", "-q", "folder", "-o", "no.pimg", rc=2)
        self.assertIn("such as n01440764.tar, which is an archive; give it to packimg convert as a SRC, with --class-from archive where each is a class", self.stderr)
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        self.members("a.tar", [("a/1.jpg", image), ("b/1.jpg", image)])
        os.mkfifo(self.dir / "pipe")
        with subprocess.Popen(["cp", "a.tar", "pipe"], cwd=self.dir):
            self.assertEqual(self.convert("pipe", "-o", "pipe.pimg")["classes"], 2)

    def test_empty_class_folders(self):
        """A class folder without images keeps its number; a folder with other files is no class; the summary reports both."""
        shutil.copytree(self.tree, self.dir / "in")
        (self.dir / "in" / "b" / "sub").mkdir(parents=True)
        (self.dir / "in" / "b" / ".keep").touch()
        (self.dir / "in" / "b" / "Thumbs.db").touch()
        (self.dir / "in" / "ants.txt").mkdir()
        (self.dir / "in" / "ants.txt" / "list.txt").touch()
        with tarfile.open(self.dir / "in.tar", "w") as tar:
            tar.add(self.dir / "in", "in")
        for source in ("in", "in.tar"):
            summary = self.convert(source, "-o", "out.pimg", "--force")
            self.assertEqual({s["class"]: s["label"] for s in self.list("out.pimg")}, {"ant": 0, "bee": 2, "cat": 3})
            self.assertIn('1 empty folder is a class: "b"; a class without images keeps its number, and --exclude leaves it out', summary["notes"])
            self.assertIn('no image and is left out: "ants.txt" (1 file in ', str(summary["notes"]))
            self.assertNotIn("of 4 classes", str(summary["notes"]))
            self.assertEqual(self.convert(source, "-o", "out.pimg", "--force", "--exclude", "b")["classes"], 3)

    def test_classes_that_are_numbers(self):
        """As in torchvision, "10" sorts directly after "1"; a note says so if it matters."""
        image = next(self.tree.rglob("*.jpg"))
        for prefix, count, said in (("", 10, False), ("", 11, True), ("class_", 11, True), ("0", 10, False)):
            folder = self.dir / f"{prefix}{count}"
            for i in range(count):
                (folder / f"{prefix}{i}").mkdir(parents=True)
                shutil.copy(image, folder / f"{prefix}{i}")
            notes = self.convert(folder, "-o", "out.pimg", "--force")["notes"]
            wanted = f'classes are numbered in order of their names, so "{prefix}2" is class 3, after "{prefix}10"; --classes FILE sets another order'
            self.assertEqual(notes, [wanted] if said else [])
        # numbers given by a table are used unchanged
        rows = "".join(f"{self.tree}/ant/{i:02d}.jpg,{i},{12 - i}\n" for i in range(11))
        self.assertNotIn("order of their names", str(self.labels("path,label,class\n" + rows)[0]["notes"]))

    def test_names_of_other_alphabets(self):
        """In any locale, all names in an archive are read; a name that is too long is skipped."""
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        names = ["日本/é.jpg", "plain/a.jpg", "ü/b.jpg"]
        with zipfile.ZipFile(self.dir / "a.zip", "w") as archive:
            for name in names:
                archive.writestr(name, image)
        for name, kind in (("pax.tar", tarfile.PAX_FORMAT), ("gnu.tar", tarfile.GNU_FORMAT)):
            with tarfile.open(self.dir / name, "w", format=kind, errors="surrogateescape") as tar:
                for member in (*names, "\udcff/c.jpg", "x" * 70000 + ".jpg"):
                    entry = tarfile.TarInfo(member)
                    entry.size = len(image)
                    tar.addfile(entry, io.BytesIO(image))
        for name, skipped in (("a.zip", 0), ("pax.tar", 2), ("gnu.tar", 2)):
            for locale in ("C", "C.UTF-8"):
                summary = self.convert(name, "-o", "out.pimg", "--force", rc=bool(skipped), env={**os.environ, "LC_ALL": locale})
                self.assertEqual(len(summary["skipped"]), skipped)
                self.assertEqual([s["source"] for s in self.list("out.pimg")], names)
        self.assertIn("a name of more than 65535 bytes", summary["skipped"][0]["reason"])

    def test_filtered_tables_and_shards(self):
        (self.dir / "m.csv").write_text("path\nant/00.jpg\nbee/00.jpg\ncat/00.jpg\n")
        summary = self.convert("m.csv", "--root", self.tree, "-o", "m.pimg", "--include", "ant", "--include", "c*", "--exclude", "cat/01*")
        self.assertEqual([s["source"] for s in self.list("m.pimg")], ["ant/00.jpg", "cat/00.jpg"])
        self.assertEqual((summary["excluded"], summary["notes"]), (1, ["no name matches --exclude cat/01*"]))
        self.assertEqual(json.loads(self.packimg("info", "--json", "m.pimg"))["metadata"]["packimg.filter"],
                         "include ant\ninclude c*\nexclude cat/01*")
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        self.shard("s.tar", [(f"p/{key}", {"jpg": image, "cls": b"1"}) for key in "abc"] + [("p/._a", {"jpg": b""})])
        summary = self.convert("s.tar", "-o", "s.pimg", "--exclude", "b.jpg")
        self.assertEqual((summary["excluded"], summary["ignored"]), (1, 1))
        self.assertEqual([s["source"] for s in self.list("s.pimg")], ["p/a.jpg", "p/c.jpg"])

    def test_classes_file(self):
        (self.dir / "classes.txt").write_text("cat\ndog\nbee\nant\n")
        self.convert(self.tree, "--classes", "classes.txt", "-o", "out.pimg")
        self.assertEqual({s["class"]: s["label"] for s in self.list("out.pimg")}, {"cat": 0, "bee": 2, "ant": 3})
        (self.dir / "classes.txt").write_text("cat\nbee\n")
        self.packimg("convert", "-q", self.tree, "--classes", "classes.txt", "-o", "no.pimg", rc=2)
        self.assertIn("ant", self.stderr)
        # the longest allowed name, with or without a newline at the end; then a hole, which is refused
        for text in ("cat\r\nbee\nant\n" + "n" * 4096 + "\r\n", "cat\n\nbee\nant\n" + "n" * 4096):
            (self.dir / "classes.txt").write_text(text)
            self.convert(self.tree, "--classes", "classes.txt", "-o", "long.pimg", "--force")
            info = json.loads(self.packimg("info", "--json", "long.pimg"))
            self.assertEqual([c["name"] for c in info["classes"]], ["cat", "bee", "ant", "n" * 4096])
        with open(self.dir / "classes.txt", "wb") as file:
            file.write(b"cat\nbee\nant\n")
            file.truncate(1 << 20)
        self.packimg("convert", "-q", self.tree, "--classes", "classes.txt", "-o", "no.pimg", rc=2)
        self.assertIn("classes.txt:4: not a class name: it is longer than 4096 bytes or contains a zero byte", self.stderr)

    def test_several_sources(self):
        listed = self.list(self.converted(self.tree / "ant", self.tree / "bee" / "00.jpg"))
        self.assertEqual(len(listed), 13)
        self.assertEqual({s["label"] for s in listed}, {-1})
        both = self.list(self.converted(self.tree, self.images / "kinds" / "one"))
        self.assertEqual(len(both), 40)
        self.assertEqual({s.get("class") for s in both}, {"ant", "bee", "cat", None})

    def test_memory_for_long_tables(self):
        """However long a table or a list of classes is, memory stays within the limit."""
        shutil.copy(next((self.tree / "ant").iterdir()), self.dir / "a.jpg")
        cell = "x" * 1000000
        with open(self.dir / "long.csv", "w") as file:
            file.write("path,text\n")
            for i in range(120):
                file.write(f"a.jpg,{i}{cell}\n")
        self.assertLess(self.peak("convert", "long.csv", "-j", 2, "-o", "out.pimg"), 180)
        self.assertIn("120 samples", self.said)
        self.packimg("verify", "-q", "out.pimg")
        with open(self.dir / "line.csv", "w") as file:
            file.write('path,text\na.jpg,"never closed\n')
            for _ in range(70):
                file.write(cell)
            file.write('"\n')
        self.packimg("convert", "-q", "line.csv", "-o", "none.pimg", rc=2)
        self.assertIn("line.csv: line 2: cell 2 makes the line longer than 64.0 MiB; shorten it, or close a quote",
                      self.stderr)
        with open(self.dir / "classes.txt", "w") as file:
            file.write("ant\n")
            for _ in range(80):
                file.write(cell)
        self.assertLess(self.peak("convert", self.tree, "-o", "none.pimg", "--classes", "classes.txt", rc=2), 60)
        self.assertIn("classes.txt:2: not a class name: it is longer than 4096 bytes or contains a zero byte; put one name on each line", self.said)


if __name__ == "__main__":
    unittest.main()
