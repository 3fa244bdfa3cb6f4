#!/usr/bin/env python3
"""tools/pth2safetensors on files like those of training programs, and on hostile ones. Skips without PyTorch."""
import argparse
import collections
import contextlib
import importlib.machinery
import io
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

try:
    import torch
except ImportError:
    sys.exit(77)
if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 6):
    sys.exit(77)  # refused

TOOL = sys.argv.pop(1)
sys.dont_write_bytecode = True
tool = importlib.machinery.SourceFileLoader("tool", TOOL).load_module()


class MaliciousPickle:
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

    def run_tool(self, *arguments, expect=0):
        """Runs the tool in this process, since PyTorch starts slowly, and returns its output; its error if it fails."""
        said, failed = io.StringIO(), ""
        sys.argv[1:] = arguments
        try:
            with contextlib.redirect_stdout(said):
                tool.main()
        except SystemExit as error:
            failed = error.code
        self.assertEqual(bool(failed), expect != 0, failed)
        return failed or said.getvalue()

    def convert(self, value, *options, expect=0):
        torch.save(value, self.path("a.pth"))
        return self.run_tool(self.path("a.pth"), self.path("a.safetensors"), *options, expect=expect)

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
        error = self.convert({"state_dict": self.weights, "hook": MaliciousPickle(self.path("ran"))}, expect=1)
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

    def test_empty(self):
        with open(self.path("a.pth"), "wb"):
            pass
        self.assertIn("EOFError", self.run_tool(self.path("a.pth"), expect=1))

    def test_dictionary_of_itself(self):
        value = {"epoch": 3}
        value["model"] = value
        error = self.convert(value, expect=1)
        self.assertIn("it holds no tensors by name", error)

    def test_dictionaries_of_themselves_in_every_way(self):
        value = {"epoch": 3}
        value.update({key: value for key in tool.KEYS})
        started = time.monotonic()
        self.assertIn("it holds no tensors by name", self.convert(value, expect=1))
        value["weights"] = {"a": torch.ones(2)}
        self.assertEqual(tool.find(value, tool.KEYS)[1], "weights")
        self.assertLess(time.monotonic() - started, 30)

    def test_names_of_nothing_but_prefixes(self):
        name = "module." * 300000
        started = time.monotonic()
        self.assertEqual(list(tool.stripped({name: 1})), [name[len("module.") * tool.WRAPPERS_MAX:]])
        self.assertEqual(list(tool.stripped({"module.model.module.a": 1, "module.model.b": 2})), ["module.a", "b"])
        self.assertEqual(tool.stripped({}), {})
        self.assertLess(time.monotonic() - started, 30)

    def test_names_that_files_cannot_have(self):
        for name in ("__metadata__", "a\0b", "a\ud800"):
            self.assertIn("safetensors files cannot have this name", self.convert({name: torch.ones(2)}, expect=1))

    def test_output_is_safe_for_terminals(self):
        self.assertIn(r"tensor a\x1b[2J is sparse", self.convert({"a\x1b[2J": torch.ones(2).to_sparse()}, expect=1))
        self.convert({"a\x1b[2J": torch.ones(2)})
        self.assertIn(r"a\x1b[2J", self.run_tool(self.path("a.pth")))

    def test_values_that_are_not_stored(self):
        for value in (torch.ones(1).expand(1 << 20, 1 << 20), torch.ones(1).expand(1 << 20)):
            self.assertIn("they repeat what is stored once", self.convert({"w": value}, expect=1))
        self.assertIn("without values", self.convert({"w": torch.ones(4, device="meta")}, expect=1))

    def test_compressed(self):
        torch.save({"w": torch.zeros(1 << 20)}, self.path("b.pth"))
        with zipfile.ZipFile(self.path("b.pth")) as plain, zipfile.ZipFile(self.path("a.pth"), "w", zipfile.ZIP_DEFLATED) as packed:
            for name in plain.namelist():
                packed.writestr(name, plain.read(name))
        self.assertIn("is compressed", self.run_tool(self.path("a.pth"), expect=1))

    def test_nothing_is_written_through_a_link(self):
        with open(self.path("precious"), "w", encoding="utf-8") as file:
            file.write("precious")
        os.symlink(self.path("precious"), self.path("a.safetensors.part"))
        os.symlink(self.path("precious"), self.path("a.safetensors"))
        self.convert(self.weights)
        self.expect(self.weights)
        self.assertFalse(os.path.islink(self.path("a.safetensors")))
        with open(self.path("precious"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "precious")

    def test_half_a_file_does_not_stay(self):
        torch.save({"w": torch.zeros(1 << 18)}, self.path("a.pth"))
        run = subprocess.run([sys.executable, TOOL, self.path("a.pth"), self.path("a.safetensors")], text=True, stderr=subprocess.PIPE,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16)))
        self.assertEqual(run.returncode, 1)
        self.assertIn("File too large", run.stderr)
        self.assertEqual(os.listdir(self.folder.name), ["a.pth"])

    def test_arguments_of_training_programs(self):
        if not hasattr(torch.serialization, "add_safe_globals"):
            self.skipTest("this PyTorch knows no safe classes")
        self.convert({"state_dict": self.weights, "args": argparse.Namespace(lr=0.1)})
        self.expect(self.weights)


unittest.main()
