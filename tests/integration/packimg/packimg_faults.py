"""Faults: bad images, unusual names, damage, wrong commands, interrupts."""

import io
import json
import os
import shutil
import signal
import struct
import subprocess
import tarfile
import time
import unittest

from packimg_test import PACKIMG, PackimgTest


class PackimgFaults(PackimgTest):
    def nothing_left(self):
        self.assertEqual([p.name for p in self.dir.iterdir()], [])

    def test_options_of_other_programs(self):
        self.packimg("convert", "x", "-o", "x.pimg", "--resize=256", rc=2)
        self.assertIn("unknown option --resize; use --short-side=N for a shorter", self.stderr)
        self.packimg("convert", "x", "-o", "x.pimg", "--quality", "90", rc=2)
        self.assertIn("use --jpeg=quality=Q", self.stderr)

    def test_bad_images(self):
        summary = self.convert(self.images / "bad", "-o", "out.pimg", rc=1)
        self.assertEqual(summary["samples"], 1)
        skipped = {s["name"]: s["reason"] for s in summary["skipped"]}
        self.assertEqual(sorted(skipped), ["x/empty.jpg", "x/gif.jpg", "x/header.png", "x/scan.jpg", "x/text.jpg",
                                           "x/truncated.jpg", "x/twelve.jpg"])
        self.assertIn("12 bits", skipped["x/twelve.jpg"])
        self.assertIn("truncated", skipped["x/truncated.jpg"])
        self.assertIn("GIF", skipped["x/gif.jpg"])
        self.assertNotIn("sample", skipped["x/scan.jpg"])  # a source image is not a sample
        for options in (["--raw"], ["--no-index"], ["--progressive", "transcode"]):
            self.assertEqual(self.convert(self.images / "bad", "-o", "out.pimg", "--force", *options, rc=1)
                             ["samples"], 1)
        os.unlink(self.dir / "out.pimg")
        self.packimg("convert", "-q", self.images / "bad", "-o", "out.pimg", "--on-error", "fail", rc=2)
        self.assertIn("x/empty.jpg", self.stderr)
        self.nothing_left()

    def test_odd_folders(self):
        """Folders whose name cannot be a class, or that cannot be entered, are skipped and named; the rest is converted."""
        images = sorted((self.tree / "ant").iterdir())[:4]
        for name in (b"cat", b"d\xffg", b"x" * 100):
            folder = os.path.join(self.dir, "in", os.fsdecode(name))
            os.makedirs(folder)
            for image in images:
                shutil.copy(image, folder)
        inside = self.dir / "in"
        (inside / "cat" / "up").symlink_to("..")
        (inside / "dog").symlink_to("dog")
        (inside / "gone").symlink_to("/nowhere/at/all")
        (inside / "notes.txt").symlink_to("/nowhere/at/all")
        (inside / "cat" / "lost.jpg").symlink_to("lost.jpg")
        deep = inside / "deep" / "/".join(["d"] * 64)
        deep.mkdir(parents=True)
        shutil.copy(images[0], deep.parent.parent / "in.jpg")
        shutil.copy(images[0], deep / "beyond.jpg")
        summary = self.convert("in", "-o", "out.pimg", rc=1)
        names = [s["name"] if isinstance(s["name"], str) else bytes.fromhex(s["name"]["hex"]) for s in summary["skipped"]]
        skipped = dict(zip(map(os.fsencode, names), (s["reason"] for s in summary["skipped"])))
        self.assertEqual(summary["samples"], 9)
        self.assertEqual(summary["ignored"], 1)
        beyond = b"deep/" + b"d/" * 63
        self.assertEqual(sorted(skipped), sorted([
            *(b"d\xffg/" + os.fsencode(image.name) for image in images), b"cat/lost.jpg", b"cat/up/", b"dog/", b"gone/", beyond]))
        self.assertIn("links back to a folder above", skipped[b"cat/up/"])
        self.assertIn("Too many levels of symbolic links", skipped[b"dog/"])
        self.assertIn("No such file", skipped[b"gone/"])
        self.assertIn("nested more than 64 deep", skipped[beyond])
        self.assertIn("UTF-8 of at most 4096 bytes; rename it", skipped[b"d\xffg/" + os.fsencode(images[0].name)])
        self.assertEqual({s["class"] for s in self.list("out.pimg")}, {"cat", "deep", "x" * 100})
        text = self.packimg("convert", "-q", "in", "-o", "out.pimg", "--force", rc=1)
        self.assertIn(f"  skipped   9\n", text)
        self.assertIn(f"d\\xffg/{images[0].name} and 3 more: its class ", text)
        self.packimg("convert", "-q", "in", "-o", "no.pimg", "--include", os.fsdecode(b"d\xffg"), rc=2)
        self.assertRegex(self.stderr, r"no image could be converted; the first, cat/up/: ")
        self.packimg("convert", "-q", "in", "-o", "no.pimg", "--on-error", "fail", rc=2)
        self.assertIn("cat/up/: cannot be entered: it links back", self.stderr)
        if os.geteuid():  # root can enter any folder
            (inside / "deep").chmod(0)
            self.assertIn("deep/", [s["name"] for s in self.convert("in", "-o", "more.pimg", rc=1)["skipped"]])
            (inside / "deep").chmod(0o700)

    def test_odd_fields(self):
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        many = {f"f{i}": b"1" for i in range(247)}
        with tarfile.open(self.dir / "s.tar", "w", errors="surrogateescape") as tar:
            for key, members in (("a", {"jpg": image, "x": b"1"}), ("b", {"jpg": image, "x": b"1", "": b"2"}),
                                 ("c", {"jpg": image, "n\udcff": b"1"}), ("d", {"jpg": image, "x": b"1", "x ": b"1", **many}),
                                 ("e", {"jpg": image, **{f"g{i}": b"1" for i in range(8)}}),
                                 ("f", {"jpg": image, "x": b"1", "json": b'{"x": {"y": 2}, "box": [1]}'}),
                                 ("g", {"jpg": image, "box": b"\xff\x00"}), ("h", {"jpg": image, "x": b"1"})):
                for extension, data in members.items():
                    entry = tarfile.TarInfo(f"{key}.{extension}")
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))
            entry = tarfile.TarInfo("g.box")
            entry.size = 1
            tar.addfile(entry, io.BytesIO(b"1"))
        self.packimg("convert", "-q", "s.tar", "-o", "out.pimg", "--format", "webdataset", rc=1)
        listed = {s["source"]: s.get("fields", {}) for s in self.list("out.pimg")}
        self.assertEqual(listed["f.jpg"]["x"], "1")  # the value x of the JSON is only in the field json
        self.assertEqual(listed["f.jpg"]["json"]["x"], {"y": 2})
        self.assertEqual(listed["f.jpg"]["box"], "[1]")
        self.assertEqual(listed["g.jpg"]["box"], {"hex": "ff00"})
        self.assertEqual(sorted(listed), ["a.jpg", "d.jpg", "f.jpg", "g.jpg", "h.jpg"])
        for header, reason in (("path,a,a", "columns 2 and 3 are both called"), ("path,\udcff,b", "not UTF-8")):
            (self.dir / "t.csv").write_bytes(f"{header}\nant/00.jpg,1,2\n".encode(errors="surrogateescape"))
            self.packimg("convert", "-q", "t.csv", "-o", "no.pimg", rc=2)
            self.assertIn("t.csv: line 1: ", self.stderr)
            self.assertIn(reason, self.stderr)

    def test_incomplete(self):
        """Missing or extra data has the same outcome with and without an index, and for transcoded and re-encoded images."""
        two = self.images / "kinds" / "two"
        progressive, restarts, cmyk = ((two / name).read_bytes() for name in
                                       ("progressive.jpg", "restart-within.jpg", "cmyk.jpg"))
        second = progressive.index(b"\xff\xda", progressive.index(b"\xff\xda") + 2)
        tables = progressive.rfind(b"\xff\xc4", 0, second)
        odd = {"junk.jpg": progressive[:-2] + b"junk" + progressive[-2:], "endless.jpg": restarts[:-2],
               "header.jpg": cmyk.replace(b"\xff\xdb", b"junk\xff\xdb", 1)}
        bad = {"scan.jpg": progressive[:tables] + b"\xff\xd9", "half.jpg": restarts[:-len(restarts) // 6] + b"\xff\xd9",
               "cmyk.jpg": cmyk[:-6]}
        (self.dir / "odd").mkdir()
        for name, data in {**odd, **bad}.items():
            (self.dir / "odd" / name).write_bytes(data)
        for number, options in enumerate(([], ["--no-index"], ["--progressive", "transcode"], ["--raw"],
                                          ["--jpeg", "quality=90"])):
            summary = self.convert("odd", "-o", f"{number}.pimg", *options, rc=1)
            self.assertEqual(sorted(s["name"] for s in summary["skipped"]), sorted(bad), options)
            self.assertEqual(summary["samples"], 3)
            self.packimg("verify", "-q", f"{number}.pimg")
        self.forge("1.pimg", 0, "data", 1, 0)  # the file no longer begins with a marker
        self.assertRegex(self.packimg("verify", "-q", "1.pimg", rc=1), r"sample 0 \(\S+\): (?!sample)")

    def test_wrong_commands(self):
        for args in (["convert"], ["convert", self.tree], ["convert", self.tree, "-o", "x.pimg", "--jpeg", "q=5"],
                     ["convert", self.tree, "-o", "wrong.bin"], ["convert", "nowhere", "-o", "x.pimg"],
                     ["convert", self.tree, "-o", "nowhere/x.pimg"], ["convert", self.tree, "-o", "x.pimg",
                      "--split", "a=0.7,b=0.7"], ["nonsense"], [], ["info"], ["info", "nowhere.pimg"],
                     ["verify", "nowhere.pimg"], ["split", "nowhere.pimg"],
                     ["convert", self.tree, "-o", "x.pimg", "--raw", "--jpeg", "quality=80"],
                     ["convert", self.dir, "-o", "x.pimg"]):
            self.packimg(*args, rc=2)
            self.assertNotEqual(self.stderr, "")
        self.nothing_left()
        self.assertIn("convert", self.packimg("--help"))
        self.assertIn("--short-side", self.packimg("convert", "--help"))

    def test_overwriting(self):
        self.convert(self.tree, "-o", "out.pimg", "--shard-size", "64K", "--raw")
        shards = sorted(p.name for p in self.dir.iterdir())
        self.assertGreater(len(shards), 2)
        self.assertEqual(len(self.list("out.pimg")), 36)
        self.packimg("verify", "-q", "out.pimg")
        self.packimg("convert", "-q", self.tree, "-o", "out.pimg", rc=2)
        self.assertIn("--force", self.stderr)
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), shards)
        self.convert(self.tree, "-o", "out.pimg", "--force")
        self.assertEqual([p.name for p in self.dir.iterdir()], ["out.pimg"])
        # Killed before any file had its final name: the dataset is complete nevertheless.
        (self.dir / "out.pimg").rename(self.dir / ".out.pimg.partial.0123456789abcdef.0")
        (self.dir / ".out.pimg.replaced").write_text(".out.pimg.partial.0123456789abcdef.0\n")
        self.packimg("verify", "-q", "out.pimg")
        self.packimg("convert", "-q", self.tree, "-o", "out.pimg", rc=2)
        self.assertIn(".out.pimg.replaced exists; --force", self.stderr)
        self.convert(self.tree, "-o", "out.pimg", "--force", "--shard-size", "64K", "--raw")
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), shards)
        self.convert(self.tree, "-o", "out.pimg", "--force")
        before = (self.dir / "out.pimg").read_bytes()
        self.packimg("convert", "-q", self.images / "nowhere", "-o", "out.pimg", "--force", rc=2)
        self.assertEqual((self.dir / "out.pimg").read_bytes(), before)

    def test_damage_is_found(self):
        self.convert(self.tree, "-o", "out.pimg")
        self.damage("out.pimg", 5)
        self.damage("out.pimg", 30)
        report = json.loads(self.packimg("verify", "-q", "--json", "out.pimg", rc=1))
        self.assertEqual([s["index"] for s in report["bad_samples"]], [5, 30])
        self.assertEqual(report["bad_samples"][0]["source"], "ant/05.jpg")
        self.assertIn("sample 30 (cat/06.jpg)", self.packimg("verify", "-q", "out.pimg", rc=1))
        self.packimg("extract", "-q", "out.pimg", "-o", "back", rc=1)
        self.assertEqual(len(list((self.dir / "back").rglob("*.jpg"))), 34)
        self.packimg("merge", "-q", "out.pimg", "-o", "no.pimg", rc=2)
        self.assertFalse((self.dir / "no.pimg").exists())
        self.packimg("merge", "-q", "out.pimg", "-o", "rest.pimg", "--on-error", "skip", rc=1)
        self.packimg("verify", "-q", "rest.pimg")
        self.assertEqual(len(self.list("rest.pimg")), 34)
        data = (self.dir / "out.pimg").read_bytes()
        for size in (0, 10, 4096, len(data) // 2, len(data) - 1):
            (self.dir / "cut.pimg").write_bytes(data[:size])
            self.packimg("verify", "-q", "cut.pimg", rc=2)
            self.packimg("info", "cut.pimg", rc=2)

    def test_damaged_records(self):
        """info counts invalid index records, and verify names them; the other samples stay readable."""
        self.convert(self.tree, "-o", "out.pimg")
        self.assertNotIn("DAMAGED", self.packimg("info", "out.pimg"))
        self.assertEqual(json.loads(self.packimg("info", "--json", "out.pimg"))["damaged_records"], 0)
        data = bytearray((self.dir / "out.pimg").read_bytes())
        records = next(offset for kind, _, offset, _, _ in struct.iter_unpack("<IIQQQ", data[256:256 + 7 * 32]) if kind == 1)
        for sample in (3, 20):
            data[records + 64 * sample + 54] = 9  # an invalid orientation
        (self.dir / "out.pimg").write_bytes(data)
        self.assertIn("\nDAMAGED     2 index records; packimg verify names them\n", self.packimg("info", "out.pimg"))
        self.assertEqual(json.loads(self.packimg("info", "--json", "out.pimg"))["damaged_records"], 2)
        report = json.loads(self.packimg("verify", "-q", "--json", "out.pimg", rc=1))
        self.assertEqual([s["index"] for s in report["bad_samples"]], [3, 20])

    def test_damaged_classes(self):
        """Every command that opens the dataset reports a damaged class table, with file and class."""
        self.convert(self.tree, "-o", "out.pimg")
        whole = (self.dir / "out.pimg").read_bytes()
        table, size = next((offset, size) for kind, _, offset, size, _ in struct.iter_unpack("<IIQQQ", whole[256:256 + 7 * 32])
                           if kind == 3)
        self.assertEqual(whole[table:table + size], struct.pack("<4Q", 0, 4, 8, 12) + b"ant\0bee\0cat\0")
        for at, damage, said in ((8, struct.pack("<Q", 1 << 40), "name of class 0 does not fit the class section"),
                                 (16, struct.pack("<Q", 3), "name of class 1 does not fit the class section"),
                                 (0, struct.pack("<Q", 1), "name of class 0 does not fit the class section"),
                                 (24, struct.pack("<Q", 11), "name of class 2 is not terminated UTF-8"),
                                 (32 + 7, b"x", "name of class 1 is not terminated UTF-8"),
                                 (32 + 4, b"\0", "name of class 1 is not terminated UTF-8"),
                                 (32 + 8, b"\xff", "name of class 2 is not terminated UTF-8")):
            (self.dir / "bad.pimg").write_bytes(whole[:table + at] + damage + whole[table + at + len(damage):])
            for args in (["verify", "-q", "bad.pimg"], ["info", "bad.pimg"], ["info", "--json", "bad.pimg"], ["list", "bad.pimg"],
                         ["list", "--json", "bad.pimg"], ["list", "--class", "cat", "bad.pimg"], ["index", "-q", "bad.pimg"],
                         ["extract", "-q", "bad.pimg", "-o", "back"], ["extract", "-q", "bad.pimg", "-o", "back", "--class", "cat"],
                         ["merge", "-q", "bad.pimg", "-o", "no.pimg"], ["split", "-q", "bad.pimg", "--by-class"],
                         ["advise", "bad.pimg"]):
                self.packimg(*args, rc=2)
                self.assertIn(f"bad.pimg: {said}", self.stderr)
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ["bad.pimg", "out.pimg"])

    def test_damaged_names_and_values(self):
        """A damaged source name or value is reported, and neither dropped silently nor copied in part."""
        self.shard("s.tar", [(f"{i:02}", {"jpg": image.read_bytes(), "txt": b"text %d" % i, "cls": b"0"})
                             for i, image in enumerate(sorted((self.tree / "ant").iterdir())[:6])])
        self.convert("s.tar", "-o", "out.pimg")
        data = bytearray((self.dir / "out.pimg").read_bytes())
        sections = {kind: offset for kind, _, offset, _, _ in struct.iter_unpack("<IIQQQ", data[256:256 + 7 * 32])}
        column = struct.unpack_from("<Q", data, sections[5])[0]
        struct.pack_into("<Q", data, sections[2] + 8 * 4, 1 << 40)  # damages the source names of samples 3 and 4
        struct.pack_into("<Q", data, column + 8 + 8 * 1, 1 << 40)  # damages the values of samples 0 and 1
        (self.dir / "out.pimg").write_bytes(data)
        damaged = [0, 1, 3, 4]
        self.assertEqual([s["index"] for s in self.list("out.pimg") if s.get("damaged")], damaged)
        lines = self.packimg("list", "out.pimg").splitlines()
        self.assertEqual([i for i, line in enumerate(lines) if "DAMAGED" in line], damaged)
        self.packimg("extract", "-q", "-m", "out.pimg", "-o", "back", rc=1)
        for said in ("sample 0: its value of field txt is damaged", "sample 3: its source name is damaged"):
            self.assertIn(said, self.stderr)
        self.assertEqual(sorted(p.name for p in (self.dir / "back").rglob("*.jpg")),
                         ["00.jpg", "00000003.jpg", "00000004.jpg", "01.jpg", "02.jpg", "05.jpg"])
        self.packimg("merge", "-q", "out.pimg", "-o", "no.pimg", rc=2)
        self.assertIn("sample 0: field 0 is damaged", self.stderr)
        said = self.packimg("merge", "-q", "out.pimg", "-o", "rest.pimg", "--on-error", "skip", rc=1)
        self.assertIn("rest.pimg: 2 samples, ", said)
        self.assertEqual([(s["source"], s["fields"]) for s in self.list("rest.pimg")],
                         [("02.jpg", {"txt": "text 2"}), ("05.jpg", {"txt": "text 5"})])

    def start(self, *args):
        many = [str(self.tree)] * 150
        return subprocess.Popen([PACKIMG, "convert", "-q", *many, "-o", "out.pimg", *args], cwd=self.dir,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def test_killed(self):
        """Whenever convert is killed, the dataset is complete or does not open."""
        killed = 0
        for i in range(8):
            process = self.start("--jpeg", "quality=90", *(["--shard-size", "1M"] if i % 2 else []))
            time.sleep(0.02 * (i + 1) ** 1.5)
            process.kill()
            process.communicate()
            visible = [p for p in self.dir.iterdir() if not p.name.startswith(".")]
            if visible:
                self.packimg("verify", "-q", "out.pimg")
                self.assertEqual(len(self.list("out.pimg")), 36 * 150)
                for p in visible:
                    p.unlink()
            else:
                killed += 1
                self.packimg("info", "out.pimg", rc=2)
                self.packimg("info", ".", rc=2)
        self.assertGreater(killed, 0)
        # The next successful run removes the leftovers of killed ones.
        self.convert(self.tree, "-o", "out.pimg")
        self.assertEqual([p.name for p in self.dir.iterdir()], ["out.pimg"])

    def test_interrupted(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            process = self.start("--jpeg", "quality=90")
            for _ in range(400):
                if any(self.dir.iterdir()):
                    break
                time.sleep(0.005)
            process.send_signal(number)
            _, stderr = process.communicate()
            self.assertEqual(process.returncode, -number, stderr.decode())
            self.nothing_left()

    def test_unknown_instruction_set(self):
        self.packimg("info", "out.pimg", rc=2, env={**os.environ, "LOADERD_ISA": "avx3"})
        self.assertIn('packimg: LOADERD_ISA = "avx3" in the environment: expected c, avx2, avx512bw or avx512', self.stderr)


if __name__ == "__main__":
    unittest.main()
