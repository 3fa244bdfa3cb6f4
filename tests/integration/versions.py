"""Checks that everything installed reports the version in meson.build and that no other file states it. versions.py
TREE VERSION BUILD PROGRAM... ; $PYTHONPATH has the Python package if it is built.
"""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import unittest

TREE, VERSION, BUILD = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
PROGRAMS = sys.argv[4:]


def output_of(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, **options).stdout


class Versions(unittest.TestCase):
    def test_programs(self):
        for program in PROGRAMS:
            name = os.path.basename(program)
            self.assertEqual(output_of(program, "--version"), f"{name} {VERSION}\n")
            self.assertEqual(output_of(program, "-V"), f"{name} {VERSION}\n")

    def test_libraries(self):
        for name in ("feed", "packimg"):
            self.assertIn(f"\nVersion: {VERSION}\n", (BUILD / f"meson-private/{name}.pc").read_text())

    @unittest.skipUnless(importlib.util.find_spec("loaderd"), "the Python package is not built")
    def test_python(self):
        import loaderd

        self.assertEqual(loaderd.__version__, VERSION)

    def test_debian(self):
        """Packaging scripts parse meson.build, because nothing is configured when they run."""
        self.assertEqual(output_of("bash", "-c", ". tools/packaging/tree.sh && version", cwd=TREE), VERSION + "\n")
        changelog = output_of(TREE / "tools/packaging/debian_changelog", VERSION, "bookworm", "0", input=(TREE / ".github/CHANGELOG.md").read_text())
        self.assertTrue(changelog.startswith(f"loaderd ({VERSION}) bookworm;"), changelog[:80])

    def test_manual_pages(self):
        """Yields the programs that are built."""
        for page in (page for folder in (".", "proto/client", "trainer") for page in (BUILD / folder).glob("*.[1-8]")):
            if ".so." in page.name:
                continue  # a library
            self.assertRegex(page.read_text(), rf'(?m)^\.TH .*"loaderd {re.escape(VERSION)}"', page)

    def test_nowhere_else(self):
        """No build file or source states a version; those of the protocol and the format are integers."""
        for folder in ("format", "proto", "loaderd", "trainer", "tools", "bench"):
            for file in (TREE / folder).rglob("*"):
                if file.suffix in (".c", ".h", ".py", ".toml", ".build", ".in") and "results" not in file.parts:
                    self.assertNotRegex(file.read_text(), rf"(?<![\d.]){re.escape(VERSION)}(?![\d.])", file)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
