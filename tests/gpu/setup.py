"""What parts are given: programs, data, sizes, and the device that they are about."""

import json
import os
import pathlib
import sys
from dataclasses import dataclass, field

import budget
from contestants import Failure


class Skipped(Exception):
    """Why a part does not apply here."""


# What a GPU is given, and what a stand-in gets through in seconds. Networks: name, side, batch.
SIZES = {
    "full": {
        "networks": [("resnet50", 224, 256), ("resnet50", 128, 256), ("resnet18", 224, 256), ("resnet50", 176, 256)],
        "smoke": ("resnet18", 64, 32), "layers": ("resnet50", 224, 256), "steps": 30,
        "losses": [("resnet18", 64, 32), ("resnet50", 64, 32)], "losses_steps": 20, "replay": ("resnet50", 64, 32),
        "shapes": 1200, "rounds": 3, "warmup": 0.5, "seconds": 2.0,
        "fed": ("resnet18", 224, 256), "fed_steps": 400, "image_copies": 32, "threads": [1, 2, 4, 8, 16], "cifar_epochs": [10, 40],
    },
    "small": {
        "networks": [("resnet18", 32, 4)],
        "smoke": ("resnet18", 32, 4), "layers": ("resnet18", 32, 4), "steps": 3,
        "losses": [("resnet18", 32, 8)], "losses_steps": 4, "replay": ("resnet18", 32, 4),
        "shapes": 120, "rounds": 2, "warmup": 0.0, "seconds": 0.3,
        "fed": ("resnet18", 64, 16), "fed_steps": 3, "image_copies": 2, "threads": [1, 2], "cifar_epochs": [0.05],
    },
}  # fmt: skip


@dataclass
class Setup:
    build: pathlib.Path
    work: pathlib.Path  # for what is made on the way
    device: str  # as the trainer calls it: cuda, or what stands in for it
    environment: dict  # of our programs: they find CUDA's libraries
    machine: dict
    data: pathlib.Path | None = None  # cifar10-train.tar, cifar10-test.tar, imagenet.pimg
    small: bool = False
    python: str = sys.executable  # that may have PyTorch
    background: dict = field(default_factory=dict)  # programs that were started ahead, by name

    def size(self, name):
        return SIZES["small" if self.small else "full"][name]

    def precisions(self):
        """Whatever stands in may not have fp16."""
        return ["fp32"] if self.device == "cpu" else ["fp16", "bf16", "fp32"]

    def program(self, path):
        program = self.build / path
        if not os.access(program, os.X_OK):
            raise Failure(f"{program} is not there: was the build made with everything that tests/gpu/README.md asks for?")
        return program

    def datum(self, name):
        if not self.data or not (self.data / name).exists():
            raise Skipped(f"{name} was not carried (--data)")
        return self.data / name

    def run(self, command, limit, environment=None):
        return budget.run(command, limit, self.work, environment or self.environment)

    def output(self, command, limit, environment=None):
        """Of a command that has to succeed."""
        done = self.run(command, limit, environment)
        if done.status:
            raise Failure(f"{pathlib.Path(command[0]).name}: {done.last_words()}")
        return done.output

    def bench(self, limit, network, *options):
        """One measurement of device_bench, as its JSON."""
        net, side, batch = network
        command = [self.program("bench/device_bench"), "--device", self.device, "--json", "--train-only", "-s", side, "-b", batch, *options, net]
        return json.loads(self.output(command, limit).splitlines()[-1])

    def bench_server(self, network, *options):
        """The same as a command that bench/peers can measure in turn with others."""
        net, side, batch = network
        return [self.program("bench/device_bench"), "--device", self.device, "--serve", "-s", side, "-b", batch, *options, net]

    def once(self, name, make):
        """A file in the work folder, made when first asked for."""
        path = self.work / name
        if not path.exists():
            part = self.work / f"part-{name}"
            make(part)
            part.rename(path)
        return path

    def shapes(self, limit):
        """A small packed dataset of drawn images: ten classes, 64 x 64."""

        def make(path):
            folder = self.work / "shapes"
            self.output([self.program("tools/shapes/shapes"), folder, "--count", self.size("shapes")], limit)
            self.output([self.program("tools/packimg/packimg"), "convert", folder / "train", "-o", path, "--quiet"], limit)

        return self.once("shapes.pimg", make)
