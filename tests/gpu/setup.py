"""The environment of parts: programs, data, sizes, and the device."""

import json
import os
import pathlib
import sys
from dataclasses import dataclass, field

import budget
from loaders import Failure


TREE = pathlib.Path(__file__).resolve().parent.parent.parent


class Skipped(Exception):
    """Raised, with the reason, if a part does not apply to this machine."""


# Sizes for a GPU, and smaller ones that a fake GPU completes in seconds. networks: name with recipe keys, side, batch; models: those
# measured with --models; width: factor on their channels; cifar_runs: epochs, width.
SIZES = {
    "full": {
        "width": 1,
        "networks": [("resnet50", 224, 256), ("resnet50", 128, 256), ("resnet18", 224, 256), ("resnet50", 176, 256)],
        "models": [("vit_small_patch16", 224, 256), ("convnext_tiny", 224, 128), ("resnet50 model.blur=all model.squeeze_excite=yes", 224, 256), ("vit_base_patch16", 224, 128)],
        "smoke": ("resnet18", 64, 32), "layers": ("resnet50", 224, 256), "steps": 30,
        "losses": [("resnet18", 64, 32), ("resnet50", 64, 32)], "losses_steps": 20, "replay": ("resnet50", 64, 32),
        "shapes": 1200, "rounds": 3, "warmup": 0.3, "seconds": 1.5,
        "fed": ("resnet18", 224, 256), "fed_steps": 300, "image_copies": 32, "threads": [1, 2, 4, 8, 16],
        "cifar": ("speednet", 32, 1024), "cifar_runs": [(10, 1), (40, 1.5)],
    },
    "small": {
        "width": 0.125,
        "networks": [("resnet18", 32, 4)],
        "models": [("resnet18 model.blur=all", 32, 4)],
        "smoke": ("resnet18", 32, 4), "layers": ("resnet18", 32, 4), "steps": 2,
        "losses": [("resnet18", 32, 16), ("resnet50", 32, 16)], "losses_steps": 6, "replay": ("resnet18", 32, 4),
        "shapes": 240, "rounds": 2, "warmup": 0.0, "seconds": 0.3,
        "fed": ("resnet18", 64, 16), "fed_steps": 20, "image_copies": 2, "threads": [1, 2],
        "cifar": ("speednet", 32, 16), "cifar_runs": [(0.02, 0.125), (0.04, 0.25)],
    },
}  # fmt: skip


# Families of our kernels. Each has a program that checks and times its kernels.
KERNELS = ("norm", "layer_norm", "scale_add", "attention", "pooling", "input", "loss", "elementwise", "orthogonalize", "tokens", "update")
# Programs that link the emulated GPU.
EMULATED = {
    "bench/device_bench": "tests/gpu/emulation/device_bench_emulated", "trainer/trainer": "tests/gpu/emulation/trainer_emulated",
    **{f"tests/kernels/cuda/test_cuda_kernels_{family}": f"tests/kernels/cuda/test_emulated_kernels_{family}" for family in KERNELS},
    **{f"tests/unit/trainer/test_device_{name}": f"tests/unit/trainer/test_emulated_{name}" for name in ("ops", "net", "update")},
}  # fmt: skip


@dataclass
class Setup:
    build: pathlib.Path
    work: pathlib.Path  # folder for temporary files
    environment: dict  # environment of our programs, with the paths of CUDA's libraries
    machine: dict
    data: pathlib.Path | None = None  # cifar10-train.tar, cifar10-test.tar, imagenet.pimg
    fake_gpu: str | None = None  # cpu or cuda-emulated: small sizes; measurements are meaningless
    log: pathlib.Path | None = None  # log of the output of failed programs
    models: bool = False  # --models: measure the other networks
    python: str = sys.executable  # Python interpreter that may have PyTorch
    torch: str | None = None  # PyTorch's version; None if PyTorch is not used
    background: dict = field(default_factory=dict)  # PyTorch programs that compile, by (network, precision, mode)
    tuning: object = None  # background tuning (ahead.py), or None

    @property
    def device(self):
        """The trainer's name of the device."""
        return "cpu" if self.fake_gpu == "cpu" else "cuda"

    def size(self, name):
        return SIZES["small" if self.fake_gpu else "full"][name]

    def networks(self):
        return self.size("models" if self.models else "networks")

    def precisions(self):
        """Precisions to test; on the CPU only fp32, because it may lack 16-bit instructions."""
        return ["fp32"] if self.device == "cpu" else ["fp16", "bf16", "fp32"]

    def program(self, path):
        program = self.build / (EMULATED.get(path, path) if self.fake_gpu == "cuda-emulated" else path)
        if not os.access(program, os.X_OK):
            raise Failure(f"{program} is not there: was the build made with everything that tests/gpu/README.md asks for?")
        return program

    def datum(self, name):
        if not self.data or not (self.data / name).exists():
            raise Skipped(f"{name} was not carried (--data)")
        return self.data / name

    def run(self, command, limit, environment=None):
        return budget.run(command, limit, self.work, environment or self.environment, self.log)

    def output(self, command, limit, environment=None):
        """Returns the output of a command. Raises Failure if the command fails."""
        done = self.run(command, limit, environment)
        if done.status:
            name, words = pathlib.Path(command[0]).name, done.last_output()
            raise Failure(words if words.startswith(f"{name}: ") else f"{name}: {words}")
        return done.output

    def bench(self, limit, network, *options, environment=None):
        """Runs device_bench. Returns its JSON."""
        return json.loads(self.output(self.bench_command(network, "--json", "--train-only", *options), limit, environment).splitlines()[-1])

    def untuned(self):
        """Returns an environment without tuned plans: programs use those of cuDNN's heuristics."""
        return dict(self.environment, XDG_CACHE_HOME=str(self.work / "untuned"))

    def ceilings(self):
        """Returns the GPU's roofline from trainer/devices, {"bytes_per_second": .., "flops_per_second": {precision: ..}, "source": ..}; None if it is not there."""
        for path in sorted((TREE / "trainer/devices").glob("*.json")):
            device = json.loads(path.read_text())
            if device["deviceName"] == self.machine.get("gpu"):
                return device["roofline"]
        return None

    def bench_command(self, network, *options):
        net, side, batch = network
        ceilings = self.ceilings()
        if ceilings and "-p" in options:
            flops = ceilings["flops_per_second"]["tf32" if "--tf32" in options else options[options.index("-p") + 1]]
            options += (f"--roofline={ceilings['bytes_per_second']!r},{flops!r}",)
        return [self.program("bench/device_bench"), "--device", self.device, "-s", side, "-b", batch, *options, *net.split(), f"model.width={self.size('width')}"]

    def once(self, name, make):
        """Returns a file in the work folder, which the first call creates."""
        path = self.work / name
        if not path.exists():
            part = self.work / f"part-{name}"
            make(part)
            part.rename(path)
        return path

    def shapes(self, limit):
        """Returns a small packed dataset of synthetic images: ten classes, 64 x 64."""

        def make(path):
            folder = self.work / "shapes"
            self.output([self.program("tools/shapes/shapes"), folder, "--count", self.size("shapes")], limit)
            self.output([self.program("tools/packimg/packimg"), "convert", folder / "train", "-o", path, "--quiet"], limit)

        return self.once("shapes.pimg", make)
