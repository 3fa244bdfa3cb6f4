"""Background work during tests: tunes plans of our networks and compiles PyTorch's. Both are stopped during measurements."""

import json
import os
import pathlib
import threading
import time

from loaders import Failure, Program

PEERS = pathlib.Path(__file__).resolve().parent.parent.parent / "bench/peers"
START_LIMIT = 60  # seconds in which a program without compilation must start
# PyTorch: index of the networks and modes to compile, most important first. Both modes use CUDA graphs; the first mode compiles much
# faster.
COMPILED = [(0, "reduce-overhead"), (0, "max-autotune"), (2, "max-autotune")]
MEMORY_SHARE = 0.7  # fraction of the GPU's memory for programs that compile while tests run
MEMORY_MAX = 1.3  # factor on the expected memory: limits the workspaces that PyTorch keeps after trying them
BYTES_PER_PIXEL = {"resnet50": 1700, "resnet18": 700, "vit_small_patch16": 1500, "vit_base_patch16": 3000, "convnext_tiny": 2500}  # memory of compiled PyTorch per image in training, with a margin


def cpus():
    return os.sched_getaffinity(0)


# ---- ours ----


class Tuning:
    """Tunes networks one after the other. Programs that start later find the plans in the shared cache, whose file allows only one writer.
    keys: (network, precision), most important first.
    """

    def __init__(self, setup, keys, limit):
        self.setup, self.limit = setup, limit
        self.waiting, self.found = list(keys), {}  # found: a note for the report per tuned network
        self.key = self.program = None  # currently tuned
        self.held = False
        self.changed = threading.Condition()
        threading.Thread(target=self.work, daemon=True).start()

    def begin(self):
        with self.changed:
            self.key = self.waiting.pop(0) if self.waiting else None
            return self.key

    def tune(self, network, precision):
        """Tunes the network. Returns a note for the report."""
        begin = time.monotonic()
        try:
            command = self.setup.bench_command(network, "--json", "--train-only", "--autotune", "-n", 1, "-p", precision)
            with self.changed:
                self.program = Program(command, cpus(), environment=self.setup.environment)
                if self.held:
                    self.program.pause()
            self.program.read(self.limit.left())
            return f"tuned in {time.monotonic() - begin:.0f} s"
        except Failure as failure:
            return f"not tuned to the end, {time.monotonic() - begin:.0f} s: {failure}"

    def work(self):
        while self.begin():
            words = self.tune(*self.key)
            with self.changed:
                if self.program:
                    self.program.close()
                self.found.setdefault(self.key, words)
                self.key = self.program = None
                self.changed.notify_all()

    def wait(self, key, seconds):
        """Waits at most `seconds` until the network is tuned, then gives up. Returns a note about its plans."""
        with self.changed:
            self.changed.wait_for(lambda: key in self.found, max(0, seconds))
            if key in self.waiting:
                self.waiting.remove(key)
            if key == self.key and self.program:
                self.found[key] = "tuned in part: the rest are the heuristics' plans"
                self.program.kill()
            return self.found.setdefault(key, "not tuned: the heuristics' plans")

    def hold(self, held):
        with self.changed:
            self.held = held
            if self.program:
                (self.program.pause if held else self.program.resume)()

    def close(self):
        with self.changed:
            self.waiting.clear()
            if self.program:
                self.program.kill()
            self.changed.wait_for(lambda: not self.program, 10)


# ---- PyTorch ----


def torch_command(setup, program, **config):
    config["device"] = "cpu" if setup.fake_gpu else "cuda"
    return [setup.python, "-W", "ignore", PEERS / program, json.dumps(config)]


def resnet_program(setup, network, precision, mode, **more):
    net, side, batch = network
    environment = dict(os.environ, TORCHINDUCTOR_CACHE_DIR=str(setup.work / "inductor"))
    command = torch_command(setup, "torchnetwork.py", net=net, side=side, batch=batch, precision=precision, mode=mode, **more)
    return Program(command, cpus(), START_LIMIT, environment)


def start_compiling(setup):
    room = MEMORY_SHARE * setup.machine["memory GiB"] * 2**30
    for place, mode in COMPILED:
        network = setup.networks()[place]
        net, side, batch = network
        need = batch * side * side * BYTES_PER_PIXEL[net.split()[0]]
        if need <= room:
            room -= need
            setup.background[network, "fp16", mode] = resnet_program(setup, network, "fp16", mode, memory=MEMORY_MAX * need)


# ---- both ----


def networks_of(setup):
    """Returns (network, precision) of all measured networks, most important first."""
    keys = [(network, setup.precisions()[0]) for network in setup.networks()]
    if "bf16" in setup.precisions():
        keys.insert(1, (setup.networks()[0], "bf16"))
    return keys


def start(setup, limit):
    if setup.device == "cuda":
        keys = networks_of(setup)
        # Small networks, which finish soon.
        keys.insert(2, (setup.size("cifar"), setup.precisions()[0]))
        setup.tuning = Tuning(setup, keys, limit)
    if setup.torch and not setup.fake_gpu:
        start_compiling(setup)


def hold(setup, held):
    """Stops (held) or continues the background work."""
    if setup.tuning:
        setup.tuning.hold(held)
    for program in setup.background.values():
        (program.pause if held else program.resume)()


def close(setup):
    if setup.tuning:
        setup.tuning.close()
    for program in setup.background.values():
        program.close()
    setup.background.clear()
