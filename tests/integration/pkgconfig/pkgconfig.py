#!/usr/bin/env python3
"""Installs libfeed and libpackimg and builds and runs projects with CMake and Meson that find them by pkg-config, linked dynamically and statically.

    tests/integration/pkgconfig/pkgconfig.py BUILD LIBFEED VERSION    (LIBFEED: the shared library in the build folder BUILD; VERSION: expected version in the .pc files)
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROJECT = pathlib.Path(__file__).resolve().parent / "project"
BUILD, LIBFEED, VERSION = sys.argv[1:]


def run(*command, **environment):
    # messages in English; no compiler flags from the caller's environment
    kept = {name: value for name, value in os.environ.items() if name not in ("CFLAGS", "LDFLAGS", "DESTDIR", "MAKEFLAGS")}
    done = subprocess.run(command, env={**kept, "LC_ALL": "C.UTF-8", **environment}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}")
    return done.stdout


class Pkgconfig(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        # install only development files; the shared library has the tag of programs, which may not be built
        run("meson", "install", "-C", BUILD, "--no-rebuild", "--tags", "devel", "--destdir", cls.folder / "root")
        (cls.described,) = (cls.folder / "root").rglob("pkgconfig")
        cls.libraries = cls.described.parent
        shutil.copy(LIBFEED, cls.libraries)
        # adjust the paths to the staging directory
        for file in cls.described.glob("*.pc"):
            file.write_text(re.sub(r"^prefix=", f"prefix={cls.folder}/root", file.read_text(), flags=re.M))

    def run_with_pkgconfig(self, *command):
        return run(*command, PKG_CONFIG_PATH=str(self.described))

    def runs(self, folder):
        names = set()
        for program in ("consumer", "consumer_static"):
            self.assertIn("/nonexistent/loaderd.sock", run(folder / program, LD_LIBRARY_PATH=str(self.libraries)))
            names.add("libfeed.so.1" in run("objdump", "-p", folder / program))
        self.assertEqual(names, {False, True}, "one has the shared library, the other has not")

    def test_described(self):
        self.assertEqual(sorted(file.name for file in self.described.iterdir()), ["feed.pc", "packimg.pc"])
        for name in ("feed", "packimg"):
            self.assertEqual(self.run_with_pkgconfig("pkg-config", "--modversion", name), VERSION + "\n")
            self.assertEqual(self.run_with_pkgconfig("pkg-config", "--validate", name), "")
        # linking the shared library requires nothing else; libpackimg is static
        self.assertEqual(self.run_with_pkgconfig("pkg-config", "--libs-only-l", "feed").split(), ["-lfeed"])
        self.assertEqual(self.run_with_pkgconfig("pkg-config", "--print-requires-private", "feed").split(), ["libprotobuf-c"])
        self.assertEqual(sorted(self.run_with_pkgconfig("pkg-config", "--print-requires", "packimg").split()), ["libjpeg", "libxxhash", "libzstd"])

    def test_headers(self):
        """Each header compiles alone, in C and in C++, and includes nothing of this tree."""
        include = pathlib.Path(self.run_with_pkgconfig("pkg-config", "--variable=includedir", "packimg").strip())
        headers = sorted(str(file.relative_to(include)) for file in include.rglob("*.h"))
        self.assertEqual(headers, ["loaderd/feed.h", "packimg.h", "packimg/schema.h"])
        for compiler, language in (("cc", "c"), ("c++", "c++")):
            for header in headers if shutil.which(compiler) else ():
                run(compiler, "-x", language, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I", include, "-include", header, "/dev/null")

    def test_meson(self):
        self.run_with_pkgconfig("meson", "setup", self.folder / "meson", PROJECT)
        self.run_with_pkgconfig("ninja", "-C", self.folder / "meson")
        self.runs(self.folder / "meson")

    def test_cmake(self):
        if not shutil.which("cmake"):
            self.skipTest("cmake is not installed")
        self.run_with_pkgconfig("cmake", "-G", "Ninja", "-S", PROJECT, "-B", self.folder / "cmake")
        self.run_with_pkgconfig("cmake", "--build", self.folder / "cmake")
        self.runs(self.folder / "cmake")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
