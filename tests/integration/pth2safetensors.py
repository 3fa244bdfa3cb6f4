#!/usr/bin/env python3
"""tools/pth2safetensors on files as training programs write them, and on one that would run a command. Skips without PyTorch."""
import argparse
import collections
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
except ImportError:
    sys.exit(77)

TOOL = sys.argv.pop(1)


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


class Conversion(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        torch.manual_seed(1)
        self.weights = collections.OrderedDict(
            [("conv1.weight", torch.randn(4, 3, 3, 3).to(memory_format=torch.channels_last)), ("bn1.weight", torch.randn(4)),
             ("bn1.num_batches_tracked", torch.tensor(7)), ("fc.weight", torch.randn(5, 4).half()),
             ("fc.bias", torch.randn(5).bfloat16()), ("scale", torch.randn(2, dtype=torch.float64))])

    def tearDown(self):
        self.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def convert(self, value, *options, expect=0):
        torch.save(value, self.path("a.pth"))
        run = subprocess.run([sys.executable, TOOL, self.path("a.pth"), self.path("a.safetensors"), *options], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual(run.returncode, expect, run.stderr)
        return run.stderr if expect else run.stdout

    def read(self):
        types = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}
        with open(self.path("a.safetensors"), "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            data = file.read()
        self.assertEqual(header.pop("__metadata__"), {"format": "pt"})
        return {name: torch.frombuffer(bytearray(data[slice(*entry["data_offsets"])]), dtype=types[entry["dtype"]]).reshape(entry["shape"])
                for name, entry in header.items()}

    def expect(self, weights):
        found = self.read()
        self.assertEqual(list(found), list(weights))
        for name, value in weights.items():
            value = value.float() if value.dtype == torch.float64 else value
            self.assertEqual(found[name].dtype, value.dtype)
            self.assertTrue(torch.equal(found[name], value), name)

    def test_plain(self):
        self.assertIn("6 tensors, 140 numbers", self.convert(self.weights))
        self.expect(self.weights)

    def test_below_keys_and_prefixes(self):
        wrapped = {"module." + k: v for k, v in self.weights.items()}
        for value in ({"state_dict": wrapped, "epoch": 3, "optimizer": {"state": {0: {"momentum": torch.ones(2)}}}},
                      {"model": wrapped}, {"checkpoint": 1, "model": {"state_dict": self.weights}}):
            self.convert(value)
            self.expect(self.weights)

    def test_average(self):
        average = {k: v + 1 for k, v in self.weights.items()}
        both = {"state_dict": self.weights, "state_dict_ema": average}
        self.convert(both)
        self.expect(self.weights)
        self.convert(both, "--ema")
        self.expect(average)
        self.convert({"a": {"b": average}}, "--key", "a.b")
        self.expect(average)
        self.assertIn("--ema: none of", self.convert({"state_dict": self.weights}, "--ema", expect=1))

    def test_refused(self):
        self.assertIn("no key a.c", self.convert({"a": {"b": self.weights}}, "--key", "a.c", expect=1))
        self.assertIn("it holds no tensors by name, but epoch", self.convert({"epoch": 3}, expect=1))
        self.assertFalse(os.path.exists(self.path("a.safetensors")))

    def test_commands_do_not_run(self):
        error = self.convert({"state_dict": self.weights, "hook": Evil(self.path("ran"))}, expect=1)
        self.assertIn("is not a file of tensors and plain values", error)
        self.assertFalse(os.path.exists(self.path("ran")))

    def test_damaged(self):
        torch.save(self.weights, self.path("a.pth"))
        size = os.path.getsize(self.path("a.pth"))
        os.truncate(self.path("a.pth"), size // 2)
        run = subprocess.run([sys.executable, TOOL, self.path("a.pth"), self.path("b.safetensors")], text=True, stderr=subprocess.PIPE)
        self.assertEqual(run.returncode, 1)
        self.assertNotIn("Traceback", run.stderr)
        self.assertFalse(os.path.exists(self.path("b.safetensors")))

    def test_arguments_of_training_programs(self):
        if not hasattr(torch.serialization, "add_safe_globals"):
            self.skipTest("this PyTorch knows no safe classes")
        self.convert({"state_dict": self.weights, "args": argparse.Namespace(lr=0.1)})
        self.expect(self.weights)


unittest.main()
