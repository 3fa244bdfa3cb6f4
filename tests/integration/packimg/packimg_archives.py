"""Images in tar and ZIP archives: from pipes, damaged, and larger than they look."""

import gzip
import io
import json
import os
import pathlib
import random
import shutil
import subprocess
import tarfile
import unittest
import zipfile
import zlib

from packimg_test import PACKIMG, PARTS, PackimgTest


class PackimgArchives(PackimgTest):
    def facts(self, path):
        return [(s["source"].split("/")[-1], s["class"], s["width"], s["height"]) for s in self.list(path)]

    def test_archives(self):
        wanted = self.facts(self.converted(self.tree))
        shuffled = self.facts(self.converted(self.tree, "--shuffle", 9))
        self.assertNotEqual(wanted, shuffled)
        self.assertEqual(sorted(wanted), sorted(shuffled))
        files = sorted(p for p in self.tree.rglob("*") if p.is_file())
        for suffix, mode in ((".tar", "w"), (".tar.gz", "w:gz"), (".tar.xz", "w:xz")):
            with tarfile.open(self.dir / ("a" + suffix), mode) as tar:
                for p in files:
                    tar.add(p, "data/" + str(p.relative_to(self.tree)))
        for suffix, method in ((".zip", zipfile.ZIP_STORED), ("-deflated.zip", zipfile.ZIP_DEFLATED)):
            with zipfile.ZipFile(self.dir / ("a" + suffix), "w", method) as archive:
                for p in files:
                    archive.write(p, "data/" + str(p.relative_to(self.tree)))
        archives = [p for p in self.dir.iterdir() if p.name.startswith("a")]
        if shutil.which("zstd"):
            subprocess.run(["zstd", "-q", "a.tar"], cwd=self.dir, check=True)
            archives.append(self.dir / "a.tar.zst")
        for archive in archives:
            plain, random_order = self.converted(archive), self.converted(archive, "--shuffle", 9, "-j", 3)
            self.assertEqual(self.facts(plain), wanted, archive.name)
            self.assertEqual(self.facts(random_order), shuffled, archive.name)
            self.packimg("verify", "-q", random_order)
            shutil.rmtree(self.dir / "back", ignore_errors=True)
            self.packimg("extract", "-q", random_order, "-o", "back")
            self.same_images(self.dir / "back", self.tree)
        for name in ("a.tar", "a.tar.gz"):
            with open(self.dir / name, "rb") as file:
                self.convert("-", "-o", "stdin.pimg", "--force", stdin=file)
            self.assertEqual(self.facts("stdin.pimg"), wanted)

    def bytes_written(self, *args, pipe=None):
        """Runs packimg, with this file as a pipe on standard input if given. Returns the number of bytes that it wrote to any file."""
        feeder = subprocess.Popen(["cat", pipe], cwd=self.dir, stdout=subprocess.PIPE) if pipe else None
        process = subprocess.Popen([PACKIMG, *map(str, args)], cwd=self.dir, stdout=subprocess.DEVNULL,
                                   stdin=feeder.stdout if feeder else subprocess.DEVNULL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        counters = dict(line.split(": ") for line in pathlib.Path(f"/proc/{process.pid}/io").read_text().splitlines())
        self.assertEqual(process.wait(), 0)
        if feeder:
            feeder.stdout.close()
            self.assertEqual(feeder.wait(), 0)
        return int(counters["wchar"])

    def test_archives_in_place_and_from_pipes(self):
        """Images are read from archive files in place, if compressed only in the archive's order. Images from a pipe are copied first if
        the order changes.
        """
        files = sorted(p for p in self.tree.rglob("*") if p.is_file())
        for name, mode in (("a.tar", "w"), ("a.tar.gz", "w:gz")):
            with tarfile.open(self.dir / name, mode) as tar:
                for p in files:
                    tar.add(p, "data/" + str(p.relative_to(self.tree)))
        with zipfile.ZipFile(self.dir / "a.zip", "w", zipfile.ZIP_STORED) as archive:
            for p in files:
                archive.write(p, "data/" + str(p.relative_to(self.tree)))
        stored = sum(p.stat().st_size for p in files)
        for options in ((), ("--shuffle", 9)):
            wanted = self.converted(self.tree, *options)
            alone = wanted.stat().st_size
            for name in ("a.tar", "a.zip") if options else ("a.tar", "a.zip", "a.tar.gz"):
                with self.subTest(name=name, options=options):
                    written = self.bytes_written("convert", "-q", name, "-o", "in-place.pimg", "--force", *options)
                    self.assertEqual(self.facts("in-place.pimg"), self.facts(wanted))
                    self.assertLess(written, alone + stored // 2)
            for name in ("a.tar", "a.tar.gz"):
                with self.subTest(pipe=name, options=options):
                    written = self.bytes_written("convert", "-q", "-", "-o", "pipe.pimg", "--force", *options, pipe=name)
                    self.assertEqual(self.facts("pipe.pimg"), self.facts(wanted))
                    self.packimg("verify", "-q", "pipe.pimg")
                    if options:  # a copy exists, so bytes_written() counts it
                        self.assertGreater(written, alone + stored // 2)

    def test_damaged_archives(self):
        with tarfile.open(self.dir / "a.tar.gz", "w:gz") as tar:
            tar.add(self.tree, "tree")
        with tarfile.open(self.dir / "a.tar", "w") as tar:
            tar.add(self.tree, "tree")
        for name in ("a.tar", "a.tar.gz"):
            data = (self.dir / name).read_bytes()
            (self.dir / name).write_bytes(data[:len(data) // 2 + 77])
            for options in ([], ["--shuffle", "1"]):
                self.packimg("convert", "-q", name, "-o", "out.pimg", *options, rc=2)
                self.assertIn(name, self.stderr)
        (self.dir / "junk.tar").write_bytes(random.Random(1).randbytes(5000))
        self.packimg("convert", "-q", "junk.tar", "-o", "out.pimg", rc=2)
        self.assertEqual([p.name for p in self.dir.glob("*.pimg")], [])

    def test_archives_that_expand(self):
        """Members that unpack to too much are skipped and named, before they take the memory."""
        image = next((self.tree / "ant").iterdir()).read_bytes()

        def write_zeros(file, mebibytes):
            for _ in range(mebibytes):
                file.write(bytes(1 << 20))

        with zipfile.ZipFile(self.dir / "one.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            with archive.open("a/bomb.jpg", "w") as member:
                member.write(image)
                write_zeros(member, 600)
            archive.writestr("a/good.jpg", image)
        for options in ([], ["--shuffle", "1"]):
            self.assertLess(self.peak("convert", "one.zip", "-o", "one.pimg", "--force", *options, rc=1), 450)
            self.assertIn("a/bomb.jpg: unpacks to more than the limit (256.0 MiB, --max-file)", self.said)
            self.assertEqual([s["source"] for s in self.list("one.pimg")], ["a/good.jpg"])
        self.packimg("convert", "-q", "one.zip", "-o", "no.pimg", "--on-error", "fail", rc=2)
        self.assertIn("a/bomb.jpg: unpacks to more", self.stderr)

        # Each member is small enough, but all of them together are not.
        with zipfile.ZipFile(self.dir / "many.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for i in range(6):
                with archive.open(f"a/{i}.jpg", "w") as member:
                    member.write(image)
                    write_zeros(member, 100)
        self.peak("convert", "many.zip", "-o", "many.pimg", rc=1)
        self.assertRegex(self.said, r"a/\d.jpg( and \d more)?: the archive unpacks to more than 100 times its size, which --max-expansion allows")
        kept = [s["source"] for s in self.list("many.pimg")]
        self.assertEqual(kept, [f"a/{i}.jpg" for i in range(len(kept))])
        self.assertIn(len(kept), range(2, 5))
        # However many members there are, only a few are in memory at a time.
        self.assertLess(self.peak("convert", "many.zip", "-o", "six.pimg", "--max-expansion", 1000, "-j", 2, "--max-side", 16), 700)
        self.assertEqual(len(self.list("six.pimg")), 6)

        # A member that is not used counts too. Images before it are kept.
        with tarfile.open(self.dir / "skipped.tar.gz", "w:gz") as archive:
            for name, content in (("a/good.jpg", io.BytesIO(image)), ("a/zeros", open("/dev/zero", "rb")),
                                  ("a/late.jpg", io.BytesIO(image))):
                member = tarfile.TarInfo(name)
                member.size = 500 << 20 if name == "a/zeros" else len(image)
                with content:
                    archive.addfile(member, content)
        self.assertEqual(self.convert("skipped.tar.gz", "-o", "skipped.pimg", rc=1)["samples"], 1)
        self.packimg("convert", "-q", "skipped.tar.gz", "-o", "no.pimg", "--on-error", "fail", rc=2)
        self.assertIn("skipped.tar.gz: the archive unpacks to more", self.stderr)
        self.assertEqual(self.convert("skipped.tar.gz", "-o", "all.pimg", "--max-expansion", 10000)["samples"], 2)

        # A header that promises more bytes than follow does not make packimg allocate them.
        member = tarfile.TarInfo("a/lie.jpg")
        member.size = 250 << 20
        (self.dir / "lie.tar").write_bytes(member.tobuf() + image)
        self.assertLess(self.peak("convert", "-q", "lie.tar", "-o", "no.pimg", "--shuffle", "1", rc=2), 200)

    def tar_of(self, name, members):
        """Writes a compressed tar of (name, content). Names may have any length; a number as content stands for that many zeros."""
        with gzip.open(self.dir / name, "wb", 1) as file:
            for path, content in members:
                member = tarfile.TarInfo(path)
                member.size = content if isinstance(content, int) else len(content)
                file.write(member.tobuf(tarfile.GNU_FORMAT))
                file.write(bytes(member.size) if isinstance(content, int) else content)
                file.write(bytes(-member.size % 512))
            file.write(bytes(1024))

    def test_memory_for_large_shards(self):
        """However many fields and names the members of a shard have, memory stays within the limit."""
        image = next((self.tree / "ant").iterdir()).read_bytes()
        # fields, none of which is too long
        self.tar_of("fields.tar.gz", [("good.jpg", image), ("good.cls", b"1"), ("a.jpg", image)] +
                    [(f"a.f{i}", 1 << 20) for i in range(120)])
        shard = ["--format", "webdataset", "-j", 2, "--force", "-o", "out.pimg"]
        self.assertLess(self.peak("convert", "fields.tar.gz", *shard, rc=1), 160)
        self.assertIn("a.jpg: f63: with this field of 1.0 MiB the sample's fields take 64.0 MiB, more than the limit of "
                      "64.0 MiB (fields.tar.gz); leave members out, or make several samples of it", self.said)
        self.assertEqual([s["source"] for s in self.list("out.pimg")], ["good.jpg"])
        self.packimg("convert", "-q", "fields.tar.gz", *shard, "--on-error", "fail", rc=2)
        self.assertIn("a.jpg: f63: with this field", self.stderr)
        # names of members without a key, between the members of a sample
        self.tar_of("names.tar.gz", ((name, content) for part in (
            [("good.jpg", image)], ((f"{i}" + "n" * 1000000, 0) for i in range(80)), [("good.cls", b"1")]) for name, content in part))
        self.assertLess(self.peak("convert", "names.tar.gz", *shard), 60)
        self.assertEqual([s["label"] for s in self.list("out.pimg")], [1])
        self.assertIn("80 without an ending", self.said)

    def test_memory_for_sparse_headers(self):
        """In the map of a sparse file, a few header bytes can become many bytes of memory."""
        image = next((self.tree / "ant").iterdir()).read_bytes()

        def header(name, size=0, kind=tarfile.REGTYPE):
            member = tarfile.TarInfo(name)
            member.size, member.type = size, kind
            return member.tobuf(tarfile.USTAR_FORMAT)

        # GNU's old format: blocks of 21 entries, each of which announces another block.
        sparse = bytearray(header("a.jpg", kind=tarfile.GNUTYPE_SPARSE))
        sparse[257:265] = b"ustar  \0"
        sparse[386:410], sparse[482], sparse[483:495] = b"00000000000\0" * 2, 1, b"00000000000\0"
        sparse[148:156] = b"%06o\0 " % (sum(sparse) - sum(sparse[148:156]) + 8 * 32)
        blocks = (b"00000005000\0" + b"00000000000\0") * 21 + b"\1" + bytes(7)
        (self.dir / "old.tar").write_bytes(sparse + blocks * 100000 + bytes(1024))
        # PAX 1.0: the map is text lines before the data.
        records = b"22 GNU.sparse.major=1\n" + b"22 GNU.sparse.minor=0\n" + b"25 GNU.sparse.realsize=0\n" + b"25 GNU.sparse.name=a.jpg\n"
        lines = b"4000000\n" + b"0\n0\n" * 4000000
        lines += bytes(-len(lines) % 512)
        with gzip.open(self.dir / "pax.tar.gz", "wb", 1) as file:
            file.write(header("x", len(records), tarfile.XHDTYPE) + records.ljust(512, b"\0") + header("s", len(lines)) + lines)
            file.write(header("b.jpg", len(image)) + image + bytes(-len(image) % 512 + 1024))
        for name in "old.tar", "pax.tar.gz":
            self.assertLess(self.peak("convert", name, "-o", "out.pimg", rc=2), 120)
            self.assertIn(f"{name}: damaged or unsupported archive: a member's header is larger than 4.0 MiB, as maps of "
                          "sparse files can be; pack it without them (tar without --sparse)", self.said)

    def test_many_skipped(self):
        """A long name is reported by its beginning, and each skipped file is reported."""
        image = next((self.tree / "ant").iterdir()).read_bytes()
        self.tar_of("skipped.tar.gz", ((f"{i}" + "n" * 200000 + ".jpg", b"") if i else ("good.jpg", image) for i in range(200)))
        self.assertLess(self.peak("convert", "-q", "--json", "skipped.tar.gz", "-o", "out.pimg", rc=1), 60)
        skipped = json.loads(self.said)["skipped"]
        self.assertEqual([s["name"] for s in skipped], [f"{i}" + "n" * (65535 - len(str(i))) for i in range(1, 200)])
        self.assertEqual({s["reason"] for s in skipped}, {"a name of more than 65535 bytes"})

    def test_deep_folders(self):
        """A name of many nested folders: the path of each folder contains the names of all folders around it."""
        image = next((self.tree / "ant").iterdir()).read_bytes()
        self.tar_of("deep.tar.gz", [(f"{i}/" + "a/" * 30000 + "x.jpg", image) for i in "01"] + [("b/a/n.txt", 1), ("1/a/n.txt", 1)])
        self.assertLess(self.peak("convert", "deep.tar.gz", "-o", "out.pimg"), 60)
        self.assertIn('1 folder that would be a class holds no image and is left out: "b" (1 file in b/a/)', self.said)

    def test_large_images(self):
        """The size of an image is checked before memory for its pixels is allocated."""
        folder = self.dir / "tree" / "a"
        folder.mkdir(parents=True)
        shutil.copy(next((self.tree / "ant").iterdir()), folder / "good.jpg")
        if "png" in PARTS:
            png = bytearray(next((self.images / "kinds").rglob("*.png")).read_bytes())
            png[16:24] = (65535).to_bytes(4, "big") * 2
            png[29:33] = zlib.crc32(png[12:29]).to_bytes(4, "big")
            (folder / "huge.png").write_bytes(png)
        jpeg = bytearray((folder / "good.jpg").read_bytes())
        at = jpeg.index(b"\xff\xc0")
        jpeg[at + 5:at + 9] = (65500).to_bytes(2, "big") * 2
        (folder / "huge.jpg").write_bytes(jpeg)
        self.assertLess(self.peak("convert", "tree", "-o", "out.pimg", "--raw", rc=1), 200)
        self.assertIn("huge.jpg: 65500x65500 pixels are more", self.said)
        if "png" in PARTS:
            self.assertIn("huge.png: 65535x65535 pixels are more", self.said)
        self.packimg("convert", "-q", self.tree, "-o", "small.pimg", "--max-pixels", 100, rc=2)
        self.assertIn("pixels are more than --max-pixels allows (100)", self.stderr)
        self.packimg("convert", "-q", self.tree, "-o", "small.pimg", "--max-file", 100, rc=2)
        self.assertIn("larger than the limit for image files (100 B, --max-file)", self.stderr)

    def flat_jpeg(self, width, height):
        """Returns a grey JPEG of one colour. Each block has two bits: the codes for DC and AC are both 0."""
        def segment(marker, content):
            return bytes((0xFF, marker)) + (len(content) + 2).to_bytes(2, "big") + content

        code = bytes([1] + [0] * 15 + [0])  # a single code of one bit, for the value 0
        blocks = ((width + 7) // 8) * ((height + 7) // 8)
        return (b"\xff\xd8" + segment(0xDB, bytes([0] + [16] * 64)) +
                segment(0xC0, b"\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big") + b"\x01\x01\x11\0") +
                segment(0xC4, b"\0" + code) + segment(0xC4, b"\x10" + code) + segment(0xDA, b"\x01\x01\0\0\x3f\0") +
                bytes(blocks // 4) + bytes([0xFF >> blocks % 4 * 2]) + b"\xff\xd9")

    def test_very_large(self):
        """An image of more than 2^28 pixels is not refused for its size, only for the memory that it takes."""
        folder = self.dir / "large"
        folder.mkdir()
        (folder / "a.jpg").write_bytes(self.flat_jpeg(65496, 4104))
        self.packimg("convert", folder, "-o", "out.pimg", rc=2)
        self.assertIn("65496x4104 pixels are more than --max-pixels allows (134217728)", self.stderr)
        allowed = ["--max-pixels", 2**32 - 131071, "--statistics", 0]
        self.assertLess(self.peak("convert", folder, "-o", "out.pimg", *allowed), 300)
        self.assertEqual([(s["width"], s["height"]) for s in self.list("out.pimg")], [(65496, 4104)])
        self.assertLess(self.peak("convert", folder, "-o", "small.pimg", *allowed, "--max-side", 1000), 300)
        self.assertEqual([(s["width"], s["height"]) for s in self.list("small.pimg")], [(1000, 63)])
        (folder / "a.jpg").unlink()
        (folder / "b.ppm").write_bytes(b"P6 65535 65535 255\n")
        (folder / "c.jpg").write_bytes(self.flat_jpeg(65496, 40000))
        self.packimg("convert", folder, "-o", "none.pimg", *allowed, "--raw", "--on-error", "fail", rc=2)
        self.assertIn("65535x65535 pixels of PNM take 12.0 GiB to decode; the limit is 3.0 GiB", self.stderr)
        (folder / "b.ppm").unlink()
        self.packimg("convert", folder, "-o", "none.pimg", *allowed, "--raw", rc=2)
        self.assertRegex(self.stderr, "c.jpg: .*(memory|limit)")

    def test_links_in_archives(self):
        """Symbolic links, and hard links, which a tar stores as links, are reported when they are skipped."""
        shutil.copytree(self.tree / "ant", self.dir / "in" / "ant")
        os.link(self.dir / "in" / "ant" / "00.jpg", self.dir / "in" / "ant" / "hard.jpg")
        (self.dir / "in" / "ant" / "soft.jpg").symlink_to("01.jpg")
        self.assertEqual(self.convert("in", "-o", "folder.pimg")["samples"], 14)
        for name, mode in (("in.tar", "w"), ("in.tar.gz", "w:gz")):
            with tarfile.open(self.dir / name, mode) as tar:
                tar.add(self.dir / "in", "in")
            for options in ([], ["--shuffle", "1"]):
                summary = self.convert(name, "-o", "out.pimg", "--force", *options, rc=1)
                self.assertEqual(summary["samples"], 12)
                self.assertEqual(len(summary["skipped"]), 2)
                self.assertIn("links in archives are not followed; tar --dereference", summary["skipped"][0]["reason"])
        with tarfile.open(self.dir / "in.tar", "a") as tar:
            for name in ("in/cat", "in/notes.txt"):
                entry = tarfile.TarInfo(name)
                entry.type, entry.linkname = tarfile.SYMTYPE, "elsewhere"
                tar.addfile(entry)
        self.assertEqual([s["name"] for s in self.convert("in.tar", "-o", "out.pimg", "--force", rc=1)["skipped"]][2:], ["in/cat"])
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        self.shard("s.tar", [("a", {"jpg": image, "cls": b"1"})])
        with tarfile.open(self.dir / "s.tar", "a") as tar:
            for key, kind in (("b", tarfile.SYMTYPE), ("c", tarfile.LNKTYPE)):
                for extension in ("jpg", "cls"):
                    entry = tarfile.TarInfo(f"{key}.{extension}")
                    entry.type, entry.linkname = kind, f"a.{extension}"
                    tar.addfile(entry)
        self.assertEqual([s["name"] for s in self.convert("s.tar", "-o", "s.pimg", rc=1)["skipped"]], ["b", "c"])

    def test_special_members(self):
        """Members with an image's name that are not regular files are reported, whatever their type."""
        image = next(self.tree.rglob("*.jpg")).read_bytes()
        kinds = {"chr": (tarfile.CHRTYPE, 0o020644, "a character device"), "blk": (tarfile.BLKTYPE, 0o060644, "a block device"),
                 "fifo": (tarfile.FIFOTYPE, 0o010644, "a FIFO"), "link": (tarfile.SYMTYPE, 0o120777, "links in archives"),
                 "hard": (tarfile.LNKTYPE, None, "links in archives"), "sock": (None, 0o140644, "a socket")}
        with tarfile.open(self.dir / "s.tar", "w") as tar, zipfile.ZipFile(self.dir / "s.zip", "w") as archive:
            for name, (kind, mode, _) in kinds.items():
                for ending in (".jpg", ".dat"):
                    entry = tarfile.TarInfo(f"a/{name}{ending}")
                    entry.type, entry.linkname = kind, "a/good.jpg"
                    if kind:
                        tar.addfile(entry)
                    info = zipfile.ZipInfo(f"a/{name}{ending}")
                    info.create_system, info.external_attr = 3, (mode or 0) << 16
                    if mode:
                        archive.writestr(info, "a/good.jpg" if name == "link" else "")
            folder = tarfile.TarInfo("a/folder.jpg")
            folder.type = tarfile.DIRTYPE
            tar.addfile(folder)
            archive.writestr("a/folder.jpg/", "")
            entry = tarfile.TarInfo("a/good.jpg")
            entry.size = len(image)
            tar.addfile(entry, io.BytesIO(image))
            archive.writestr("a/good.jpg", image)
        subprocess.run(["gzip", "-k", self.dir / "s.tar"], check=True)
        for path, of in ("s.tar", 0), ("s.tar.gz", 0), ("s.zip", 1):
            wanted = {f"a/{name}.jpg": said for name, (*made, said) in kinds.items() if made[of]}
            if of:  # libarchive reports it as a regular file
                wanted["a/fifo.jpg"] = "empty file"
            for options in [], ["--shuffle", "1"]:
                summary = self.convert(path, "-o", "out.pimg", "--force", *options, rc=1)
                self.assertEqual(summary["samples"], 1)
                skipped = {s["name"]: s["reason"] for s in summary["skipped"]}
                self.assertEqual(sorted(skipped), sorted(wanted), path)
                for name, said in wanted.items():
                    self.assertTrue(skipped[name].startswith(said), skipped[name])
                self.assertEqual([(k["kind"], k["files"]) for k in summary["ignored_kinds"]], [(".dat", len(wanted))])


if __name__ == "__main__":
    unittest.main()
