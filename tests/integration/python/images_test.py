"""Helpers for tests of the writer and of the converter: image files, temporary folders, packimg, and optional libraries."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

# optional packages
try:
    import numpy
except ImportError:
    numpy = None
try:
    from PIL import Image as pillow
except ImportError:
    pillow = None


def packimg(*arguments):
    """Runs packimg ($PACKIMG); returns its output."""
    return subprocess.run([os.environ["PACKIMG"], *map(str, arguments)], check=True, stdout=subprocess.PIPE).stdout.decode()


def listed(path):
    """Returns the samples of a dataset."""
    return [json.loads(line) for line in packimg("list", "--json", path).splitlines()]


class ImagesTest(unittest.TestCase):
    """Draws images ($PACKIMG_IMAGES) once: `files` are the JPEGs below `tree`. Each test has an empty folder `dir`."""

    @classmethod
    def setUpClass(cls):
        shared = tempfile.TemporaryDirectory(prefix="images-test-")
        cls.addClassCleanup(shared.cleanup)
        subprocess.run([os.environ["PACKIMG_IMAGES"], shared.name], check=True)
        cls.tree = pathlib.Path(shared.name) / "tree"
        cls.files = sorted(cls.tree.rglob("*.jpg"))

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="images-test-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
