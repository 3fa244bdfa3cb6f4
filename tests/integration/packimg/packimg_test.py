"""Base class of packimg's tests: a folder of images, a work folder, and packimg. Uses only the standard library."""

import filecmp
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

PACKIMG = os.environ["PACKIMG"]
IMAGES = os.environ["PACKIMG_IMAGES"]  # program that draws the images
FORGE = os.environ["PACKIMG_FORGE"]  # program that changes a byte of a sample or of its side data, and corrects the checksums
# A new process starts with the peak memory of its parent, so start packimg from a small process.
MEASURE = """
import os, sys
_, status, usage = os.wait4(os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:]), 0)
print(status, usage.ru_maxrss, end="")
"""
PARTS = os.environ.get("PACKIMG_PARTS", "png webp").split()


class PackimgTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory(prefix="packimg-test-")
        cls.images = pathlib.Path(cls.shared.name)
        subprocess.run([IMAGES, str(cls.images)], check=True)
        cls.tree = cls.images / "tree"

    @classmethod
    def tearDownClass(cls):
        cls.shared.cleanup()

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="packimg-test-")
        self.dir = pathlib.Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def packimg(self, *args, rc=0, **options):
        """Runs packimg and checks its exit status. Returns its standard output."""
        done = subprocess.run([PACKIMG, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              cwd=self.dir, **options)
        self.stderr = done.stderr.decode()
        if done.returncode != rc:
            self.fail(f"packimg {' '.join(map(str, args))}: exit status {done.returncode}, not {rc}:\n"
                      f"{done.stdout.decode()}{self.stderr}")
        return done.stdout.decode()

    def peak(self, *args, rc=0):
        """Runs packimg and checks its exit status. Returns its peak memory in MiB."""
        # Freed memory that a sanitizer quarantines does not count as packimg's.
        options = {**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=1:" + os.environ.get("ASAN_OPTIONS", "")}
        done = subprocess.run([sys.executable, "-ISc", MEASURE, PACKIMG, *map(str, args)], cwd=self.dir, env=options,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
        *said, last = done.stdout.decode().split("\n")
        self.said = "\n".join(said)
        status, peak = map(int, last.split())
        self.assertEqual(os.waitstatus_to_exitcode(status), rc, self.said)
        return peak >> 10

    def convert(self, *args, rc=0, **options):
        return json.loads(self.packimg("convert", "-q", "--json", *args, rc=rc, **options))

    def list(self, path):
        return [json.loads(line) for line in self.packimg("list", "--json", path).splitlines()]

    def same_images(self, extracted, source):
        """Asserts that both folders have the same files with the same bytes."""
        names = sorted(p.relative_to(source) for p in source.rglob("*") if p.is_file())
        found = sorted(p.relative_to(extracted) for p in extracted.rglob("*") if p.is_file())
        self.assertEqual(names, found)
        for name in names:
            self.assertTrue(filecmp.cmp(source / name, extracted / name, shallow=False), name)

    def converted(self, *args):
        self.count = getattr(self, "count", 0) + 1
        path = self.dir / f"out{self.count}.pimg"
        self.convert(*args, "-o", path)
        return path

    def facts_of(self, path):
        info = json.loads(self.packimg("info", "--json", path))
        listed = [{key: s[key] for key in s if key != "side_bytes"} for s in self.list(path)]
        return info["uuid"], info["metadata"], info.get("mean"), info["classes"], listed

    def forge(self, name, sample, part, at, value):
        """Changes a byte of a sample's data or side data, and corrects the checksums."""
        subprocess.run([FORGE, str(self.dir / name), str(sample), part, str(at), str(value)], check=True)

    def shard(self, name, samples):
        with tarfile.open(self.dir / name, "w") as tar:
            for key, members in samples:
                for extension, data in members.items():
                    entry = tarfile.TarInfo(f"{key}.{extension}")
                    entry.size = len(data)
                    tar.addfile(entry, io.BytesIO(data))

    def damage(self, path, sample):
        """Flips a byte of the sample's stored data, which must occur once in the file."""
        self.packimg("extract", "-q", path, "-o", "extracted", "-i", sample)
        data, stored = (self.dir / path).read_bytes(), next((self.dir / "extracted").rglob("*.jpg")).read_bytes()
        self.assertEqual(data.count(stored), 1)
        at = data.index(stored) + len(stored) // 2
        (self.dir / path).write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1:])
        shutil.rmtree(self.dir / "extracted")
