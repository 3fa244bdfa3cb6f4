"""Commands that read datasets and write datasets, folders or text: split, merge, extract, list, info."""

import io
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import tarfile
import time
import unittest
import urllib.parse
import zlib

from packimg_test import PACKIMG, PackimgTest

GOLDEN = pathlib.Path(os.environ["PIMG_GOLDEN"]) / "good"


def grey_png(data):
    """Returns width, height and the big-endian elements of a grey PNG (PNG specification, 9 "Filtering")."""
    width, height, depth, colour = struct.unpack_from(">IIBB", data, 16)
    assert colour == 0
    at, packed = 8, b""
    while at < len(data):
        size, kind = struct.unpack_from(">I4s", data, at)
        packed += data[at + 8:at + 8 + size] if kind == b"IDAT" else b""
        at += 12 + size
    raw, pixel = zlib.decompress(packed), depth // 8
    row, rows = bytes(width * pixel), []
    for y in range(height):
        line = raw[y * (width * pixel + 1):][:width * pixel + 1]
        above, row = row, bytearray(line[1:])
        for i, byte in enumerate(row):
            a, b, c = (row[i - pixel], above[i], above[i - pixel]) if i >= pixel else (0, above[i], 0)
            paeth = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
            row[i] = (byte + (0, a, b, (a + b) // 2, paeth)[line[0]]) % 256
        rows.append(bytes(row))
    return width, height, b"".join(rows)


class PackimgDatasets(PackimgTest):
    def test_split_while_converting(self):
        summary = self.convert(self.tree, "--split", "train=0.75,val=0.25", "-o", "d.pimg", "--shuffle", 1)
        self.assertEqual([d["samples"] for d in summary["datasets"]], [27, 9])
        train, val = self.list("d-train.pimg"), self.list("d-val.pimg")
        self.assertEqual(len({s["source"] for s in train + val}), 36)
        self.assertEqual([sum(s["label"] == c for s in val) for c in range(3)], [3, 3, 3])
        self.convert(self.tree, "--split", "train=0.75,val=0.25", "-o", "e.pimg", "--shuffle", 1, "-j", 1)
        self.assertEqual((self.dir / "d-val.pimg").read_bytes(), (self.dir / "e-val.pimg").read_bytes())
        self.convert(self.tree, "--split", "a=0.5", "-o", "half.pimg")
        self.assertEqual(len(self.list("half-a.pimg")), 18)

    def test_limit(self):
        self.assertEqual(len(self.list(self.converted(self.tree, "--limit", 5))), 5)
        first = self.list(self.converted(self.tree, "--shuffle", 4, "--limit", 5))
        whole = self.list(self.converted(self.tree, "--shuffle", 4))
        self.assertEqual([s["source"] for s in first], [s["source"] for s in whole[:5]])

    def test_split_and_merge(self):
        self.convert(self.tree, "-o", "all.pimg")
        self.packimg("split", "-q", "all.pimg", "--into", "train=0.75,val=0.25", "--seed", 2)
        train, val = self.list("all-train.pimg"), self.list("all-val.pimg")
        self.assertEqual((len(train), len(val)), (27, 9))
        self.packimg("merge", "-q", "all-train.pimg", "all-val.pimg", "-o", "again.pimg")
        self.packimg("verify", "-q", "again.pimg")
        strip = lambda samples: sorted((s["source"], s["class"], s["bytes"]) for s in samples)
        self.assertEqual(strip(self.list("again.pimg")), strip(self.list("all.pimg")))
        self.packimg("split", "-q", "all.pimg", "--by-class", "-o", "by.pimg")
        self.assertEqual({s["class"] for s in self.list("by-bee.pimg")}, {"bee"})
        self.packimg("merge", "-q", "by-{cat,ant,bee}.pimg", "-o", "shuffled.pimg", "--shuffle", 5)
        self.assertEqual(strip(self.list("shuffled.pimg")), strip(self.list("all.pimg")))
        info, other = (json.loads(self.packimg("info", "--json", p)) for p in ("all.pimg", "again.pimg"))
        for key in ("mean", "std"):
            for a, b in zip(info[key], other[key]):
                self.assertLess(abs(a - b), 0.01)

    def many_classes(self, count):
        """Writes many.pimg: two samples of each class; the second samples of all classes follow the first ones. Returns the names of the
        classes in order. One image of the last class is like no other.
        """
        images = sorted(self.tree.rglob("*.jpg"))
        classes = [f"c{i * 7 % count:03}" for i in range(count)]
        jpeg = images[0].read_bytes()
        (self.dir / "other.jpg").write_bytes(jpeg[:2] + b"\xff\xfe\0\x07other" + jpeg[2:])
        rows = [(images[(i * 5 + turn) % len(images)], name) for turn in range(2) for i, name in enumerate(classes)]
        (self.dir / "many.csv").write_text("path,class\n" + "".join(f"{path},{name}\n" for path, name in rows))
        with open(self.dir / "many.csv", "a") as file:
            file.write(f"other.jpg,{max(classes)}\n")
        self.convert("many.csv", "-o", "many.pimg")
        for name in ("many.csv", "other.jpg"):
            (self.dir / name).unlink()
        return sorted(classes)

    def test_split_into_many(self):
        """Splits into more parts than are written at a time: each part has the samples of its class, in order."""
        classes = self.many_classes(71)
        listed = self.list("many.pimg")
        for options in ([], ["--shard-size", "64K"]):
            # leftover of a killed split, which the next one removes
            (self.dir / ".by-c070.pimg.partial.0123456789abcdef.0").touch()
            self.packimg("split", "-q", "many.pimg", "--by-class", "-o", "by.pimg", *options)
            self.assertEqual(len(os.listdir(self.dir)), len(classes) + 1)
            for name in classes[::10]:
                wanted = [(s["source"], s["label"], s["bytes"]) for s in listed if s["class"] == name]
                self.assertEqual([(s["source"], s["label"], s["bytes"]) for s in self.list(f"by-{name}.pimg")], wanted)
            for path in self.dir.glob("by-*"):
                path.unlink()

    def test_split_replaces(self):
        """split replaces datasets of one file and of several shards, by either."""
        classes = self.many_classes(5)
        whole = ["--shard-size", "64K"]
        for before, after in (([], whole), (whole, []), ([], []), (whole, whole)):
            self.packimg("split", "-q", "many.pimg", "--by-class", "-o", "by.pimg", "--force", *before)
            self.packimg("split", "-q", "many.pimg", "--by-class", "-o", "by.pimg", "--force", *after)
            self.assertEqual(len(os.listdir(self.dir)), len(classes) + 1)
            for name in classes:
                self.packimg("verify", "-q", f"by-{name}.pimg")

    def test_split_writes_all_or_nothing(self):
        classes = self.many_classes(71)
        # a sample of a class in the last group of parts
        self.damage("many.pimg", 142)
        for options in ([], ["--shard-size", "64K"]):
            self.packimg("split", "-q", "many.pimg", "--by-class", "-o", "by.pimg", *options, rc=2)
            self.assertEqual(os.listdir(self.dir), ["many.pimg"])
        self.packimg("split", "-q", "many.pimg", "--by-class", "--on-error", "skip", "-o", "by.pimg", rc=1)
        self.assertEqual(len(os.listdir(self.dir)), 72)
        # each file that can exist of a part
        for path in self.dir.glob("by-*"):
            path.unlink()
        for name in ("by-c070.pimg", "by-c070-00000-of-00002.pimg", ".by-c070.pimg.replaced"):
            (self.dir / name).touch()
            self.packimg("split", "-q", "many.pimg", "--by-class", "-o", "by.pimg", rc=2)
            self.assertIn(f"{name} exists; --force replaces it", self.stderr)
            (self.dir / name).unlink()

    def test_split_interrupted(self):
        """An interrupt is noticed between parts too (most classes have no sample). With --force, the parts replaced until then stay."""
        (self.dir / "classes.txt").write_text("".join(f"{name}\n" for name in ["ant", "bee", "cat", *range(3000)]))
        self.convert(self.tree, "--classes", "classes.txt", "-o", "all.pimg")
        for number, options in ((signal.SIGINT, []), (signal.SIGTERM, ["--shard-size", "64K"]), (signal.SIGTERM, ["--force"])):
            process = subprocess.Popen([PACKIMG, "split", "-q", "all.pimg", "--by-class", "-o", "by.pimg", *options],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=self.dir)
            while not list(self.dir.glob("by-*")) and process.poll() is None:
                time.sleep(0.005)
            process.send_signal(number)
            _, stderr = process.communicate()
            self.assertEqual(process.returncode, -number, stderr.decode())
            left = sorted(os.listdir(self.dir))
            if "--force" not in options:
                self.assertEqual(left, ["all.pimg", "classes.txt"])
                self.assertIn(b"interrupted, nothing was written", stderr)
                continue
            self.assertIn(b"interrupted, datasets that are complete stay", stderr)
            self.assertLess(len(left), 2000)
            for name in set(left) - {"all.pimg", "classes.txt"}:
                self.assertTrue(name.startswith("by-"), name)
            self.packimg("verify", "-q", next(name for name in left if name.startswith("by-")))

    def test_other_shards(self):
        """A dataset has one UUID, however it is divided into shards and indexed, and whatever version computed it."""
        uuids = []
        for name, options in (("one", []), ("set", ["--shard-size", "64K"]), ("plain", ["--no-index", "--shard-size", "100K"])):
            self.convert(self.tree, *options, "-o", f"{name}.pimg")
            uuids.append(self.facts_of(f"{name}.pimg"))
        self.assertGreater(len(list(self.dir.glob("set-*"))), 1)
        self.assertEqual([facts[0] for facts in uuids], [uuids[0][0]] * 3)
        self.packimg("merge", "-q", "set.pimg", "-o", "again.pimg")
        again = self.facts_of("again.pimg")
        self.assertEqual((again[0], again[2:]), (uuids[0][0], uuids[0][2:]))
        self.packimg("merge", "-q", "--shuffle", "3", "set.pimg", "-o", "mixed.pimg")
        self.assertNotEqual(self.facts_of("mixed.pimg")[0], uuids[0][0])
        # with a UUID computed by an earlier version
        shutil.copy(os.path.join(os.environ["PIMG_GOLDEN"], "good", "full.pimg"), self.dir / "old.pimg")
        self.packimg("merge", "-q", "old.pimg", "-o", "old-set.pimg", "--shard-size", "64K")
        self.assertEqual(self.facts_of("old-set.pimg")[0], self.facts_of("old.pimg")[0])

    def test_merge_unites(self):
        for name, text in (("one", "path,class,n,x\nant/00.jpg,cat,1,a\nant/01.jpg,ant,2,b\n"),
                           ("two", "path,class,n,y\nbee/00.jpg,bee,0.5,9\nbee/01.jpg,cat,1,8\n")):
            (self.dir / f"{name}.csv").write_text(text)
            self.convert(f"{name}.csv", "--root", self.tree, "-o", f"{name}.pimg")
        self.packimg("merge", "-q", "one.pimg", "two.pimg", "-o", "both.pimg")
        listed = self.list("both.pimg")
        self.assertEqual([(s["class"], s["label"]) for s in listed],
                         [("cat", 1), ("ant", 0), ("bee", 2), ("cat", 1)])
        self.assertEqual([s["fields"] for s in listed], [{"n": 1.0, "x": "a"}, {"n": 2.0, "x": "b"},
                                                         {"n": 0.5, "y": 9}, {"n": 1.0, "y": 8}])
        (self.dir / "three.csv").write_text("path,class,n\nbee/00.jpg,bee,word\n")
        self.convert("three.csv", "--root", self.tree, "-o", "three.pimg")
        self.packimg("merge", "-q", "one.pimg", "three.pimg", "-o", "no.pimg", rc=2)
        self.assertIn('"n"', self.stderr)

    def test_schema_stays(self):
        for name in ("typed", "images"):
            shutil.copy(GOLDEN / f"{name}.pimg", self.dir)
            self.packimg("merge", "-q", f"{name}.pimg", f"{name}.pimg", "-o", "twice.pimg", "--force")
            self.packimg("verify", "-q", "twice.pimg")
            one, twice = (json.loads(self.packimg("info", "--json", p)) for p in (f"{name}.pimg", "twice.pimg"))
            self.assertEqual([v["value"] for v in twice["schema"]], [v["value"] for v in one["schema"]])
            self.assertEqual([2 * v.get("samples", 0) for v in one["schema"]], [v.get("samples", 0) for v in twice["schema"]])
            self.assertEqual([s.get("fields") for s in self.list("twice.pimg")], 2 * [s.get("fields") for s in self.list(f"{name}.pimg")])
            self.packimg("split", "-q", "twice.pimg", "--into", "a=0.5,b=0.5", "-o", "half.pimg", "--force")
            self.packimg("verify", "-q", "half-a.pimg")
        self.packimg("merge", "-q", "typed.pimg", "images.pimg", "-o", "no.pimg", rc=2)
        self.assertIn("images.pimg has another schema than typed.pimg", self.stderr)

    def test_later_versions_are_refused(self):
        """No command reads, indexes, copies or changes a file of a later version."""
        for path in sorted((GOLDEN.parent / "bad").glob("newer_*.pimg")):
            shutil.copy(path, self.dir / "f.pimg")
            for command in (["info"], ["list"], ["verify"], ["index"], ["index", "--rebuild"], ["extract", "-o", "out"], ["view"],
                            ["merge", "f.pimg", "-o", "out.pimg"], ["split", "--into", "a=0.5,b=0.5", "-o", "out.pimg"]):  # fmt: skip
                with self.subTest(file=path.name, command=command):
                    self.packimg(*command, "f.pimg", rc=2)
                    self.assertIn("use a newer loaderd", self.stderr)
                    self.assertEqual((self.dir / "f.pimg").read_bytes(), path.read_bytes())
                    self.assertEqual([p.name for p in self.dir.iterdir()], ["f.pimg"])

    def test_schema_is_shown(self):
        shutil.copy(GOLDEN / "images.pimg", self.dir)
        lines = self.packimg("info", "images.pimg").splitlines()
        self.assertIn("value       mask: mask(image) u8[h,w], up to 15 x 16, 360 B in 3 samples", lines)
        self.assertIn("value       depth: raster u16[h,w] sparse, up to 9 x 5, 94 B in 2 samples", lines)
        data = bytearray((self.dir / "images.pimg").read_bytes())
        depth = data.index(b"\x01\x05\x01\x02\x02\0\0\0")  # head of the first raster
        data[depth + 1] = 6  # changes the type to i16 and leaves the checksum
        (self.dir / "images.pimg").write_bytes(data)
        self.assertIn("sample 0 (): value 'depth': its bytes do not match their checksum", self.packimg("verify", "-q", "images.pimg", rc=1))

    def test_typed_values_are_shown(self):
        shutil.copy(GOLDEN / "typed.pimg", self.dir)
        fields = [s["fields"] for s in self.list("typed.pimg")]
        self.assertEqual([f["boxes"] for f in fields], [[], [[0, 1, 2, 3]], [[0, 1, 2, 3], [4, 5, 6, 7]]])
        self.assertEqual([f["class"] for f in fields], [[], [2], [2, -1]])
        self.assertEqual([f["target"] for f in fields], [[0, 1]] * 3)
        self.assertEqual([(f["area"], f["small"], f.get("caption")) for f in fields], [(0, 253, None), (0.25, 254, "one"), (0.5, 255, "два")])
        self.assertIn("\tboxes=[[0,1,2,3]]\tpoints=[[0,1],[2,3]]\tclass=[2]\ttarget=[0,1]\t", self.packimg("list", "typed.pimg", "-i", 1))
        self.packimg("extract", "-q", "--manifest", "typed.pimg", "-o", "out")
        self.assertIn(',"[[0,1,2,3],[4,5,6,7]]","[[0,1]]","[2,-1]","[0,1]",0.5,255,два', (self.dir / "out" / "manifest.csv").read_text())

    def test_extract_further_images(self):
        shutil.copy(GOLDEN / "images.pimg", self.dir)
        self.packimg("extract", "-q", "--manifest", "images.pimg", "-o", "out")
        self.assertEqual((self.dir / "out" / "manifest.csv").read_text().splitlines(),
                         ["path,label,class,mask,depth",
                          "00000000.png,,,00000000.mask.png,00000000.depth.png",
                          "00000001.png,,,00000001.mask.png,00000001.depth.png",
                          "00000002.png,,,00000002.mask.png,"])
        for i, size in enumerate(((14, 8), (15, 8), (8, 16))):
            elements = struct.pack("<128H", *(k // 20 + i * 300 for k in range(128)))  # values as in tests/golden/make_golden.c
            self.assertEqual(grey_png((self.dir / f"out/{i:08}.mask.png").read_bytes()), (*size, elements[:size[0] * size[1]]))
            if i < 2:
                depth = struct.pack(">45H", *struct.unpack_from("<45H", elements))
                self.assertEqual(grey_png((self.dir / f"out/{i:08}.depth.png").read_bytes()), (9, 5, depth))

    def test_extract_chosen(self):
        self.convert(self.tree, "-o", "out.pimg")
        self.packimg("extract", "-q", "out.pimg", "-o", "some", "-i", "0-2,35")
        self.assertEqual(sorted(p.name for p in (self.dir / "some").rglob("*.jpg")),
                         ["00.jpg", "01.jpg", "02.jpg", "11.jpg"])
        self.packimg("extract", "-q", "out.pimg", "-o", "bees", "-c", "bee")
        self.assertEqual(len(list((self.dir / "bees").rglob("*.jpg"))), 12)
        self.packimg("extract", "-q", "out.pimg", "-o", "some", "-i", "0", rc=2)
        self.assertIn("--force", self.stderr)
        self.packimg("extract", "-q", "out.pimg", "-o", "some", "-i", "0", "--force")
        self.packimg("extract", "-q", "out.pimg", "-o", "x", "-i", "99", rc=2)
        self.packimg("extract", "-q", "out.pimg", "-o", "x", "-c", "wolf", rc=2)
        # Two samples of the same name become two files.
        self.convert(self.tree / "ant", self.tree / "bee", "-o", "flat.pimg")
        self.packimg("extract", "-q", "flat.pimg", "-o", "flat")
        self.assertEqual(len(list((self.dir / "flat").iterdir())), 24)

    def test_hostile_names(self):
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        with tarfile.open(self.dir / "evil.tar", "w") as tar:
            for name in ("../../escape.jpg", "/abs/olute.jpg", "a/../../b.jpg", "x..jpg/x.jpg"):
                entry = tarfile.TarInfo(name)
                entry.size = len(image)
                tar.addfile(entry, io.BytesIO(image))
        self.convert("evil.tar", "-o", "out.pimg")
        (self.dir / "in").mkdir()
        self.packimg("extract", "-q", "out.pimg", "-o", "in/side")
        found = [p for p in self.dir.rglob("*.jpg") if p.is_file()]
        self.assertEqual(len(found), 4)
        self.assertTrue(all((self.dir / "in/side") in p.parents for p in found))

    def archive(self, path, names):
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        with tarfile.open(self.dir / path, "w", format=tarfile.PAX_FORMAT, errors="surrogateescape") as tar:
            for name in names:
                entry = tarfile.TarInfo(os.fsdecode(name))
                entry.size = len(image)
                tar.addfile(entry, io.BytesIO(image))

    def extracted(self, path, *options, rc=0):
        shutil.rmtree(self.dir / "back", ignore_errors=True)
        said = self.packimg("extract", "-q", path, "-o", "back", *options, rc=rc)
        root = os.fsencode(self.dir / "back")
        return said, sorted(os.path.relpath(os.path.join(folder, name), root)
                            for folder, _, files in os.walk(root) for name in files)

    def test_extracted_names(self):
        """Names of extracted files have nothing that a terminal interprets or a script trips over; unquoting restores the original names."""
        names = [b"c\x1b[31m\n/esc\x1b]0;x\x07.jpg", b"c\x1b[31m\n/two\nlines\r.jpg", "d\u202e/bidi\u202egpj.jpg".encode(),
                 b"d\xff/c1\x9b\xc2\x9b.jpg", b"e/100%.jpg", b"e/%41.jpg", b"e/%\x1b.jpg", b"e/%4\x1b.jpg", b"e/%1B.jpg",
                 b"e/back\\slash.jpg", b"e/-rf.jpg", "e/Käfer \u732b \U0001f408.jpg".encode(), b"e/tab\t.jpg", b"e/del\x7f.jpg",
                 b"e/\xed\xa0\x80.jpg"]
        self.archive("odd.tar", names)
        self.convert("odd.tar", "-o", "odd.pimg", "--class-from", "none")
        _, found = self.extracted("odd.pimg")
        for name in found:
            self.assertNotRegex(os.fsdecode(name), "[\x00-\x1f\x7f-\x9f\u202e\udc80-\udcff]")
        self.assertEqual(sorted(map(urllib.parse.unquote_to_bytes, found)), sorted(os.path.basename(n) for n in names))
        for plain in ("100%.jpg", "back\\slash.jpg", "-rf.jpg", "Käfer \u732b \U0001f408.jpg"):
            self.assertIn(plain.encode(), found)
        self.assertIn(b"%2541.jpg", found)
        self.assertEqual(self.extracted("odd.pimg", "--raw-names")[1], sorted(os.path.basename(n) for n in names))
        self.assertIn(b"manifest.csv", self.extracted("odd.pimg", "--manifest")[1])
        self.assertEqual(self.convert("back/manifest.csv", "-o", "again.pimg")["samples"], len(names))
        # The same for folders of classes, and for the parts that split names after classes.
        names = [n for n in names if b"\xff" not in n]
        self.archive("odd.tar", names)
        self.convert("odd.tar", "-o", "odd.pimg", "--force")
        self.assertEqual(sorted(map(urllib.parse.unquote_to_bytes, self.extracted("odd.pimg")[1])), sorted(names))
        self.packimg("split", "-q", "odd.pimg", "--by-class", "-o", "by.pimg")
        self.assertEqual(sorted(p.name for p in self.dir.glob("by-*")), ["by-c%1B[31m%0A.pimg", "by-d%E2%80%AE.pimg", "by-e.pimg"])

    def test_extracted_extensions(self):
        """The suffix of an image format is replaced; any other suffix is part of the name."""
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        names = ("photo.2019", "v1.2", "a.tiff", "b.webp", "c.JPEG", "d.v2.heic", "plain", "e.gif.html")
        for name in names:
            (self.dir / name).write_bytes(image)
        (self.dir / "t.csv").write_text("path\n" + "".join(f"{name}\n" for name in names))
        for options, wanted in (
            ([], "photo.2019.jpg v1.2.jpg a.jpg b.jpg c.JPEG d.v2.jpg plain.jpg e.gif.html.jpg"),
            (["--raw"], "photo.2019.png v1.2.png a.png b.png c.png d.v2.png plain.png e.gif.html.png"),
        ):
            self.convert("t.csv", "-o", "t.pimg", "--force", *options)
            self.assertEqual(self.extracted("t.pimg")[1], sorted(map(str.encode, wanted.split())))

    def test_extracted_twice(self):
        """Every sample gets a separate file: names are made unique, and a name that is too long is replaced."""
        long = "n" * 300
        self.archive("twice.tar", [b"p/a.jpg", b"p/a-2.jpg", b"q/a.jpg", b"p/00000004.jpg", f"p/{long}.jpg".encode(),
                                   f"p/{'m' * 251}.jpg".encode(), f"q/{'m' * 251}.jpg".encode(), b"p/" + b"\x1b" * 90 + b".jpg"])
        self.convert("twice.tar", "-o", "twice.pimg", "--class-from", "none")
        said, found = self.extracted("twice.pimg")
        self.assertEqual(found, sorted([b"a.jpg", b"a-2.jpg", b"a-2-2.jpg", b"00000004.jpg", b"00000004-4.jpg",
                                        b"m" * 251 + b".jpg", b"00000006.jpg", b"00000007.jpg"]))
        self.assertIn("2 files are named by the sample's number: the name is longer than 255 bytes", said)
        self.archive("classes.tar", [f"{long}/a.jpg".encode(), b"o/a.jpg", f"{long}/b.jpg".encode()])
        self.convert("classes.tar", "-o", "classes.pimg")
        self.assertEqual(self.extracted("classes.pimg")[1], [b"0/a.jpg", b"0/b.jpg", b"o/a.jpg"])

    def test_output_is_safe_for_terminals(self):
        """Names, metadata and messages about them reach a terminal without control sequences."""
        evil = "\x1b[31mcat\u009b\u202e\nx"
        shown = "\\x1b[31mcat\\u009b\\u202e\\x0ax"
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        with tarfile.open(self.dir / f"{evil}.tar", "w", format=tarfile.PAX_FORMAT) as tar:
            for name, content in ((f"{evil}/{evil}.jpg", image), (f"{evil}/bad-{evil}.jpg", b"no image"),
                                  (f"{evil}/two.jpg", image)):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        (self.dir / "evil.csv").write_text(f'path,class,{"f" + evil.split(chr(10))[0]}\n"{evil}/a.jpg","{evil}","{evil}"\n')
        (self.dir / evil).mkdir()
        (self.dir / evil / "a.jpg").write_bytes(image)

        def check(text):
            for character in "\x1b\x9b\u202e":
                self.assertNotIn(character, text)
            return text

        def said(*args, rc=0):
            out = self.packimg(*args, rc=rc)
            return check(out) + check(self.stderr)

        self.assertIn(f"    {shown}/bad-{shown}.jpg: not an image", said("convert", f"{evil}.tar", "-o", "evil.pimg", rc=1))
        said("convert", "evil.csv", "-o", f"{evil}.pimg")
        said("convert", f"{evil}.tar", "-o", "no.pimg", "--on-error", "fail", rc=2)
        said("convert", f"{evil}.tar", "-o", "no.pimg", "--json", rc=1)
        for path in ("evil.pimg", f"{evil}.pimg"):
            self.assertIn(f"  {shown}  ", said("info", path))
            self.assertIn(f"packimg.sources={'evil.csv' if path[0] == chr(27) else shown.replace('x0a', 'n') + '.tar'}", said("info", path))
            self.assertIn(f"\t{shown}\t", said("list", path))
            for command in (["info", "--json"], ["list", "--json"], ["verify"], ["verify", "--json"],
                            ["advise", "--seconds", "0.01"], ["split", "--by-class", "--force"],
                            ["merge", "-o", "both.pimg", "--force"]):
                said(command[0], path, *command[1:])
            said("extract", path, "-o", evil + "-out")
            quoted = urllib.parse.quote(evil, safe="[")
            self.assertIn(f"{quoted}.jpg: File exists; --force" if path == "evil.pimg" else "a.jpg: File exists",
                          said("extract", path, "-o", evil + "-out", rc=2))
        self.assertEqual(self.list("evil.pimg")[0]["class"], evil)
        # Messages about damage contain names too.
        data = bytearray((self.dir / "evil.pimg").read_bytes())
        data[data.index(image) + len(image) // 2] ^= 1
        (self.dir / "evil.pimg").write_bytes(data)
        self.assertIn(f"({shown}/", said("verify", "evil.pimg", rc=1))
        said("verify", f"{evil}-none.pimg", rc=2)

    def test_extract_among_links(self):
        """extract follows no link that is already in the folder: nothing outside it changes. --force replaces what is in the way."""
        self.convert(self.tree, "-o", "out.pimg")
        outside = self.dir / "outside"
        outside.mkdir()
        (outside / "kept").write_text("kept")
        (outside / "linked").write_text("kept")

        def lay(folder):
            folder.mkdir()
            (folder / "ant").symlink_to(outside)  # a class folder
            (folder / "bee").mkdir()
            (folder / "bee" / "00.jpg").symlink_to(outside / "kept")
            (folder / "bee" / "01.jpg").symlink_to(outside / "new")
            os.mkfifo(folder / "bee" / "02.jpg")
            os.link(outside / "linked", folder / "bee" / "03.jpg")
            (folder / "cat").write_text("a file")

        def unharmed():
            self.assertEqual({p.name: p.read_text() for p in outside.iterdir()}, {"kept": "kept", "linked": "kept"})

        for options, bees in ([], 8), (["--force"], 12):
            folder = self.dir / f"back{bees}"
            lay(folder)
            self.packimg("extract", "-q", "out.pimg", "-o", folder, *options, rc=1, timeout=60)
            unharmed()
            self.assertIn("ant is a symbolic link or a file; extract writes only to real folders", self.stderr)
            self.assertIn("cat is a symbolic link or a file", self.stderr)
            found = [p for p in (folder / "bee").iterdir() if p.is_file() and not p.is_symlink() and p.stat().st_nlink == 1]
            self.assertEqual(len(found), bees)
        self.assertEqual(self.stderr.count("packimg:"), 24)
        # The same for the manifest.
        folder = self.dir / "listed"
        folder.mkdir()
        (folder / "manifest.csv").symlink_to(outside / "kept")
        self.packimg("extract", "-q", "-m", "out.pimg", "-o", folder, rc=2)
        self.assertIn("manifest.csv: File exists; --force replaces it", self.stderr)
        self.packimg("extract", "-q", "-m", "-f", "out.pimg", "-o", folder)
        self.assertFalse((folder / "manifest.csv").is_symlink())
        unharmed()

    def test_list_and_info(self):
        self.convert(self.tree, "-o", "out.pimg")
        lines = self.packimg("list", "out.pimg").splitlines()
        self.assertEqual(len(lines), 36)
        self.assertEqual(lines[0].split("\t")[:2] + lines[0].split("\t")[-1:], ["0", "ant", "ant/00.jpg"])
        self.assertEqual(len(self.packimg("list", "out.pimg", "-c", "cat", "-i", "20-30").splitlines()), 7)
        info = json.loads(self.packimg("info", "--json", "out.pimg"))
        self.assertEqual(info["samples"], 36)
        self.assertEqual([c["samples"] for c in info["classes"]], [12, 12, 12])
        self.assertEqual(info["bytes"], (self.dir / "out.pimg").stat().st_size)
        self.assertIn("36 samples", self.packimg("info", "out.pimg"))

    def test_where(self):
        shutil.copy(GOLDEN / "typed.pimg", self.dir)
        for where, wanted in (("area >= 0.25 and area < 1", [1, 2]), ("area > 0 and class(label) = 'zwei'", [1, 2]), ("small = 253 or caption like 'o*'", [0, 1]),
                              ("not caption = 'one'", [2]), ("has(caption)", [1, 2]), ("count(boxes) = 1", [1]),
                              ("sample in (0, 2) and small > 253", [2]), ("width(image) > 0 and label < 0", [])):
            with self.subTest(where=where):
                self.assertEqual([json.loads(line)["index"] for line in self.packimg("list", "--json", "typed.pimg", "--where", where).splitlines()], wanted)
                self.assertEqual(json.loads(self.packimg("list", "--json", "--count", "typed.pimg", "-w", where)), {"samples": len(wanted), "of": 3})
        self.assertEqual(self.packimg("list", "-n", "typed.pimg", "-i", "1-", "-w", "area < 0.5"), "1 of 3 samples\n")
        self.assertEqual(self.packimg("list", "-n", "typed.pimg"), "3 of 3 samples\n")
        self.packimg("list", "typed.pimg", "--where", "arae > 0", rc=2)
        self.assertIn('packimg: --where, at byte 0: the dataset has no value "arae"; did you mean area?', self.stderr)
        self.convert(self.tree, "-o", "out.pimg")
        self.packimg("extract", "-q", "out.pimg", "-o", "back", "--where", 'class != "ant" and key like "*/0?.jpg"')
        self.assertEqual(sorted({str(p.parent.name) for p in (self.dir / "back").rglob("*.jpg")}), ["bee", "cat"])
        self.packimg("view", "-o", "out.html", "out.pimg", "--where", "class = 'cat' and sample >= 30")
        self.assertIn("out.html: 6 of 6 samples", self.packimg("view", "-fo", "out.html", "out.pimg", "-w", "class = 'cat' and sample >= 30"))
        self.packimg("view", "-fo", "out.html", "out.pimg", "-w", "sample < 0", rc=2)
        self.assertIn("no sample matches all options that choose samples", self.stderr)

    def test_where_meets_damage(self):
        self.convert(self.tree, "-o", "out.pimg")
        data = bytearray((self.dir / "out.pimg").read_bytes())
        index = next(offset for kind, _, offset, _, _ in struct.iter_unpack("<IIQQQ", data[256:256 + 7 * 32]) if kind == 1)
        for sample in (5, 7):
            struct.pack_into("<I", data, index + 64 * sample + 40, 0)  # the width
        (self.dir / "out.pimg").write_bytes(data)
        self.assertEqual(self.packimg("list", "-n", "out.pimg", "--where", "width > 0", rc=1), "34 of 36 samples\n")
        self.assertIn("packimg: 2 samples are left out, the first is sample 5: the record, or a value that --where names, is damaged", self.stderr)
        self.assertEqual(self.packimg("list", "-n", "out.pimg", "-i", "0-6", "-w", "height > 0", rc=1), "6 of 36 samples\n")
        self.assertIn("packimg: 1 sample is left out, the first is sample 5", self.stderr)
        self.assertEqual(self.packimg("list", "-n", "out.pimg", "--where", "sample < 7"), "7 of 36 samples\n")
        self.packimg("extract", "-q", "out.pimg", "-o", "back", "-w", "width > 0", rc=1)
        self.assertEqual(len(list((self.dir / "back").rglob("*.jpg"))), 34)
        self.packimg("view", "-o", "out.html", "out.pimg", "-n", "2", "-w", "width > 0", rc=1)

    def test_values_that_are_no_text(self):
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        self.shard("s.tar", [("a", {"jpg": image, "npy": b"\x93NUMPY\x00\xff\n", "txt": "é\n\t".encode()})])
        self.convert("s.tar", "-o", "out.pimg")
        self.assertTrue(self.packimg("list", "out.pimg").endswith("\tnpy=(9 bytes)\ttxt=é\\x0a\\x09\n"))
        self.assertEqual(self.list("out.pimg")[0]["fields"],
                         {"npy": {"hex": b"\x93NUMPY\x00\xff\n".hex()}, "txt": "é\n\t"})

    def test_names_that_are_not_utf8(self):
        """In JSON, names that are not UTF-8 differ from texts that look like them; for people, both are printed the same."""
        names = [b"d/a\xff.jpg", b"d/a\\xff.jpg", "d/\u00ff\x7f.jpg".encode()]
        self.archive("odd.tar", names)
        self.convert("odd.tar", "-o", "out.pimg", "--class-from", "none")
        wanted = [{"hex": names[0].hex()}, "d/a\\xff.jpg", "d/\u00ff\x7f.jpg"]
        self.assertEqual([s["source"] for s in self.list("out.pimg")], wanted)
        self.assertNotIn("\x7f", self.packimg("list", "--json", "out.pimg"))
        lines = self.packimg("list", "out.pimg").splitlines()
        self.assertEqual([line.split("\t")[5] for line in lines], ["d/a\\xff.jpg"] * 2 + ["d/\u00ff\\x7f.jpg"])
        data = bytearray((self.dir / "out.pimg").read_bytes())
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        data[data.index(image) + len(image) // 2] ^= 1
        (self.dir / "out.pimg").write_bytes(data)
        bad = json.loads(self.packimg("verify", "-q", "--json", "out.pimg", rc=1))["bad_samples"]
        self.assertEqual([(s["index"], s["source"]) for s in bad], [(0, wanted[0])])

    def test_metadata_of_several_lines(self):
        for name in ("a\\n", "two\nlines"):
            shutil.copytree(self.tree, self.dir / name)
        self.convert("a\\n", "two\nlines", "-o", "out.pimg")
        self.assertEqual(json.loads(self.packimg("info", "--json", "out.pimg"))["metadata"]["packimg.sources"],
                         "a\\n\ntwo\nlines")

    def test_one_sample(self):
        said = self.packimg("convert", "-q", self.tree, "-o", "one.pimg", "--limit", 1, "-j", 1)
        self.assertIn("one.pimg: 1 sample, ", said)
        self.assertIn(", 1 job\n", said)
        self.assertIn("one.pimg: 1 sample, ", self.packimg("info", "one.pimg"))
        self.assertIn("one.pimg: 1 sample, ", self.packimg("verify", "-q", "one.pimg"))


if __name__ == "__main__":
    unittest.main()
