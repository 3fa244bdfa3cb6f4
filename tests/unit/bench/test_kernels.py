"""bench/kernels parses the output of the programs in tests/kernels and formats tables."""

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("kernels", os.path.join(os.environ["BENCH"], "kernels"))
kernels = importlib.util.module_from_spec(importlib.util.spec_from_loader("kernels", loader))
loader.exec_module(kernels)


def bench_output(program, *arguments):
    return subprocess.run([os.environ[program], "--bench", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


class Kernels(unittest.TestCase):
    def test_programs(self):
        """Every printed line has a kernel, the implementation, and a time."""
        found = kernels.parse(bench_output("SIMD_JPEG", "libjpeg-turbo"))
        self.assertEqual(
            list(found),
            [("idct to 1x1", "block"), ("idct to 2x2", "block"), ("idct to 4x4", "block"), ("idct", "block"),
             ("rgb", "sample of input"), ("rgb_hv of two", "sample of input"), ("grey", "sample of input")],
        )  # fmt: skip
        self.assertTrue(all(list(whose) == ["libjpeg-turbo"] for whose in found.values()))
        self.assertEqual(kernels.parse(bench_output("SIMD_RESIZE", "c", "32x32")).keys(), {("32x32 to 32x24", "source pixel")})
        found = kernels.parse(bench_output("SIMD_EFFECTS"))
        self.assertIn(("bilinear", "pixel"), found)
        self.assertTrue(all("c" in whose and min(whose.values()) > 0 for whose in found.values()))

    def test_refusal(self):
        with self.assertRaisesRegex(kernels.Failure, "no figure in 'idct  avx512'"):
            kernels.parse("idct  c  1.5 ns a block\nidct  avx512\n")

    def test_table(self):
        text = "idct  c  400.0 ns a block\nidct  avx2  {} ns a block\nidct  libjpeg-turbo  30.00 ns a block\nadd  c  0.5 ns a pixel\n"
        rounds = [kernels.parse(text.format(ns)) for ns in (9.5, 10.0, 55.0)]
        self.assertEqual(
            kernels.table(rounds, ("libjpeg-turbo", "pillow")),
            ["| ns a | unit | c | avx2 | libjpeg-turbo | pillow | C takes | others take |",
             "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
             "| idct | block | 400 | 10.00 | 30.00 |  | 40.0 x | 3.0 x |",
             "| add | pixel | 0.500 |  |  |  | 1.0 x |  |"],
        )  # fmt: skip


if __name__ == "__main__":
    unittest.main()
