"""What tests of datasets in stores share: a dataset, a store of the test's own, a cache and feeds with loaderd ($LOADERD) and loaderd-fetch ($LOADERD_FETCH)."""

import contextlib
import hashlib
import os
import pathlib
import signal
import sys
import tempfile
import time
import unittest
from unittest import mock

import loaderd

try:
    import numpy
except ImportError:
    print("NumPy is not installed")
    sys.exit(77)
sys.path.append(str(pathlib.Path(__file__).parent.parent / "store"))
from object_store import Store

SAMPLES = 200
SMALL_CACHE = "6M"  # of 15 MB
ADDRESS = "s3://data/sets/a.pimg"


def processes(name):
    """The processes with that name, of this test and of others."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "comm").read_text().strip() == name[:15]:
                found.append(int(entry.name))
        except OSError:
            pass
    return found


class StoreCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="stores-test-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.path = cls.folder / "local.pimg"
        random_bytes = numpy.random.default_rng(1)
        with loaderd.Writer(cls.path, "image: image u8[h,w,3]\nlabel: class i32", classes=["a", "b"]) as writer:
            for i in range(SAMPLES):
                image = random_bytes.integers(0, 256, (150 + i % 9, 160, 3), "u1")
                writer.add({"image": image, "label": i % 2})
        cls.expected = cls.hash_of(cls.open(cls.path))

    def setUp(self):
        self.store = Store()
        self.addCleanup(self.store.close)
        self.store.put("data", "sets/a.pimg", self.path.read_bytes())
        place = tempfile.TemporaryDirectory(prefix="stores-test-")
        self.addCleanup(place.cleanup)
        self.dir = pathlib.Path(place.name)
        self.cache = self.dir / "cache"
        runtime = self.dir / "run"
        runtime.mkdir(mode=0o700)
        variables = self.store.environment(XDG_RUNTIME_DIR=str(runtime), LOADERD_CACHE=str(self.cache))
        patch = mock.patch.dict(os.environ, variables)
        patch.start()
        self.addCleanup(patch.stop)
        self.addCleanup(self.end_fetchers)

    def fetchers(self):
        """Fetchers of this test: their socket is in its folder."""
        found = []
        for pid in processes("loaderd-fetch"):
            with contextlib.suppress(OSError):
                if os.fsencode(self.dir) in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def end_fetchers(self):
        for pid in self.fetchers():
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 30
        while self.fetchers() and time.monotonic() < deadline:
            time.sleep(0.02)

    @staticmethod
    def open(dataset, **options):
        given = {"batch_size": 16, "pipeline": "random_resized_crop(32) hflip", "shuffle": True, "seed": 7, "daemon": "private",
                 "threads": 2, **options}
        return loaderd.Feed(dataset if isinstance(dataset, list) else str(dataset), **given)

    @staticmethod
    def hash_of(feed, each=lambda: None, epochs=2):
        found = hashlib.sha256()
        with feed:
            for _ in range(epochs):
                for batch in feed:
                    found.update(numpy.asarray(batch.images).tobytes())
                    found.update(numpy.asarray(batch.samples).tobytes())
                    each()
        return found.hexdigest()
