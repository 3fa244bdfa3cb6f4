"""CIFAR-10 in PyTorch by the airbench94 recipe.

Keller Jordan, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU", 2024 (arXiv:2404.00498): network, initialisation, schedule and all
hyperparameters are the published ones. A "measure" line trains once from scratch. The answer is the accuracy on the test images, with test-time
augmentation, and the seconds for whitening, training and that evaluation, with all data already on the device, as in the paper. Start-up trains for a
few steps, so that compiling and autotuning do not count, and seeds the random generator again afterwards.

train, test: tar files of CLASS/NAME.jpg, or folders of that. On a CPU, precision may be "bf16" (autocast in forward passes), and
threads is the number of threads.
"""

import contextlib
import io
import json
import math
import pathlib
import sys
import tarfile
import time

import peer
import torch
import torch.nn.functional as F
import torchspeednet
from PIL import Image
from torch import nn
import numpy

EPOCHS, BATCH, EVAL_BATCH = 9.9, 1024, 2000
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 11.5, 0.85, 0.0153  # per 1024 examples; decay is not multiplied by the learning rate
BIAS_RATE = 64  # factor of the learning rate, not of the decay, of the norms' biases
LABEL_SMOOTHING = 0.2
WHITEN_BIAS_EPOCHS = 3  # epochs after which the first layer's bias is frozen
RATE_START, RATE_END, RATE_PEAK = 0.2, 0.07, 0.23  # START, END: factors of the learning rate; PEAK: fraction of the steps
LOOKAHEAD_STEPS, LOOKAHEAD_DECAY = 5, 0.95**5
TRANSLATE = 2  # maximum random shift in pixels, over reflected borders
WHITEN_IMAGES, WHITEN_EPSILON = 5000, 5e-4
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)

config = peer.config()
device = torch.device(config.get("device", "cuda"))
element = torch.float16 if device.type == "cuda" else torch.float32
autocast = device.type == "cpu" and config.get("precision") == "bf16"
channels_last = {"memory_format": torch.channels_last}


# ---- data ----


def files(path):
    """Yields (class name, file name, bytes) of every JPEG file."""
    if path.is_dir():
        for file in path.rglob("*.jpg"):
            yield file.parent.name, file.name, file.read_bytes()
        return
    with tarfile.open(path) as tar:
        for member in tar:
            if member.name.endswith(".jpg"):
                path = pathlib.PurePath(member.name)
                yield path.parent.name, path.name, tar.extractfile(member).read()


def load(path):
    """Returns normalised images [n][3][32][32] and labels [n] on the device. Classes are numbered in the order of their names."""
    found = sorted(files(pathlib.Path(path)), key=lambda entry: entry[:2])
    classes = {name: number for number, name in enumerate(sorted({name for name, _, _ in found}))}
    pixels = numpy.stack([numpy.asarray(Image.open(io.BytesIO(data)).convert("RGB")) for _, _, data in found])
    images = torch.from_numpy(pixels).to(device).permute(0, 3, 1, 2).float() / 255
    mean, deviation = (torch.tensor(values, device=device).view(3, 1, 1) for values in (MEAN, DEVIATION))
    images = ((images - mean) / deviation).to(element).contiguous(**channels_last)
    return images, torch.tensor([classes[name] for name, _, _ in found], device=device)


def flip_some(images):
    chosen = (torch.rand(len(images), device=images.device) < 0.5).view(-1, 1, 1, 1)
    return torch.where(chosen, images.flip(-1), images)


def crop(padded, side):
    """Crops a window of side x side from each image at a random position."""
    margin = padded.shape[-1] - side + 1
    positions = torch.randint(margin, (2, len(padded)), device=padded.device)
    result = torch.empty(len(padded), 3, side, side, device=padded.device, dtype=padded.dtype).contiguous(**channels_last)
    for y in range(margin):
        for x in range(margin):
            chosen = (positions[0] == y) & (positions[1] == x)
            result[chosen] = padded[chosen, :, y : y + side, x : x + side]
    return result


class Augmented:
    """Each iteration yields an epoch of augmented batches. The first epoch flips a random half of the images, each later one those that the previous one did not."""

    def __init__(self, images, labels):
        self.side, self.labels, self.epoch = images.shape[-1], labels, 0
        self.padded = F.pad(flip_some(images), (TRANSLATE,) * 4, "reflect")

    def __len__(self):
        return len(self.labels) // BATCH

    def __iter__(self):
        images = crop(self.padded, self.side)
        if self.epoch % 2:
            images = images.flip(-1)
        self.epoch += 1
        order = torch.randperm(len(images), device=images.device)
        for i in range(len(self)):
            chosen = order[i * BATCH : (i + 1) * BATCH]
            yield images[chosen].contiguous(**channels_last), self.labels[chosen]


# ---- network ----


def whiten(layer, images):
    """Sets the filters to the eigenvectors of the patches' covariance, divided by the square roots of the eigenvalues, and to their negatives."""
    patches = images.unfold(2, 2, 1).unfold(3, 2, 1).permute(0, 2, 3, 1, 4, 5).reshape(-1, 12).float()
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = (vectors / torch.sqrt(values + WHITEN_EPSILON)).T.flip(0).reshape(12, 3, 2, 2)
    layer.weight.data.copy_(torch.cat((filters, -filters)))


# ---- training ----


def forward(compiled, inputs):
    with torch.autocast(device.type, torch.bfloat16) if autocast else contextlib.nullcontext():
        return compiled(inputs).float() if autocast else compiled(inputs)


class Lookahead:
    """Lookahead (Zhang et al. 2019): slow weights, to which the network is reset every few steps."""

    def __init__(self, network):
        self.network = network
        self.slow = {name: value.clone() for name, value in network.state_dict().items()}

    @torch.no_grad()
    def update(self, decay):
        for name, value in self.network.state_dict().items():
            if value.is_floating_point():
                self.slow[name].lerp_(value, 1 - decay)
                value.copy_(self.slow[name])


def rate(step, steps):
    """Returns the learning rate's factor: linear from RATE_START to 1 at RATE_PEAK of the steps, then to RATE_END."""
    peak = RATE_PEAK * steps
    return RATE_START + (1 - RATE_START) * step / peak if step < peak else 1 + (RATE_END - 1) * (step - peak) / (steps - peak)


def make_optimizer(network):
    # The published rate is for the mean loss of 1024 examples and for momentum weights that sum to 1. SGD here gets the sum of the losses.
    kilostep = 1024 * (1 + 1 / (1 - MOMENTUM))
    lr, decay = LEARNING_RATE / kilostep, WEIGHT_DECAY * BATCH / kilostep
    biases = [layer.bias for layer in network if isinstance(layer, nn.BatchNorm2d)]
    known = {id(bias) for bias in biases}
    others = [parameter for parameter in network.parameters() if parameter.requires_grad and id(parameter) not in known]
    groups = [
        {"params": biases, "lr": lr * BIAS_RATE, "weight_decay": decay / (lr * BIAS_RATE)},
        {"params": others, "lr": lr, "weight_decay": decay / lr},
    ]
    return torch.optim.SGD(groups, momentum=MOMENTUM, nesterov=True)


def train(network, compiled, images, labels, epochs):
    data = Augmented(images, labels)
    steps = max(1, math.ceil(len(data) * epochs))
    optimizer = make_optimizer(network)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps))
    whiten(network[0], images[:WHITEN_IMAGES])
    lookahead = Lookahead(network)
    step = 0
    while step < steps:
        network.train()
        network[0].bias.requires_grad = step < WHITEN_BIAS_EPOCHS * len(data)
        for inputs, targets in data:
            loss = F.cross_entropy(forward(compiled, inputs), targets, label_smoothing=LABEL_SMOOTHING, reduction="none").sum()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            if step % LOOKAHEAD_STEPS == 0:
                lookahead.update(LOOKAHEAD_DECAY * (step / steps) ** 3)
            if step == steps:
                break
    lookahead.update(1.0)
    return step


@torch.no_grad()
def accuracy(compiled, network, images, labels):
    """Returns the accuracy with test-time augmentation: averages each image, its mirror image, and both shifted by a pixel in two directions."""
    network.eval()

    def flip_average(x):
        return 0.5 * forward(compiled, x).clone() + 0.5 * forward(compiled, x.flip(-1)).clone()

    right = 0
    for first in range(0, len(images), EVAL_BATCH):
        x = images[first : first + EVAL_BATCH].contiguous(**channels_last)
        side = x.shape[-1]
        padded = F.pad(x, (1,) * 4, "reflect")
        moved = [padded[:, :, shift : shift + side, shift : shift + side].contiguous(**channels_last) for shift in (0, 2)]
        logits = 0.5 * flip_average(x) + 0.25 * (flip_average(moved[0]) + flip_average(moved[1]))
        right += (logits.argmax(1) == labels[first : first + EVAL_BATCH]).sum().item()
    return right / len(images)


def wait():
    if device.type == "cuda":
        torch.cuda.synchronize()


def run(network, compiled, data, epochs):
    """Trains and evaluates once. Returns accuracy, seconds and steps."""
    with torch.no_grad():
        fresh = torchspeednet.make_network(device, element).state_dict()
        for name, value in network.state_dict().items():
            value.copy_(fresh[name])
    wait()
    begin = time.monotonic()
    steps = train(network, compiled, *data[0], epochs)
    found = accuracy(compiled, network, *data[1])
    wait()
    return found, time.monotonic() - begin, steps


def main():
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(config.get("seed", 1))
    if "threads" in config:
        torch.set_num_threads(config["threads"])
    if device.type == "cpu":
        peer.keep_memory()
    data = [load(config[name]) for name in ("train", "test")]
    network = torchspeednet.make_network(device, element)
    compiled = network if config["mode"] == "eager" else torch.compile(network, mode=config["mode"])
    begin, epochs = time.monotonic(), config.get("epochs", EPOCHS)
    # all training images, because their number determines the steps; one batch for evaluation
    warmup = data[0], [part[:EVAL_BATCH] for part in data[1]]
    run(network, compiled, warmup, min(epochs, 0.1 if config["mode"] == "eager" else WHITEN_BIAS_EPOCHS + 0.1))
    torch.manual_seed(config.get("seed", 1))
    peer.answer(
        ready=True,
        settings=f"airbench94, {epochs:g} epochs, {'bf16 autocast' if autocast else str(element).removeprefix('torch.')}, "
        + ("eager" if config["mode"] == "eager" else f"torch.compile(mode={config['mode']!r})")
        + f"; warmed up for {time.monotonic() - begin:.0f} s",
        versions={"torch": torch.__version__},
    )
    for _ in sys.stdin:
        found, seconds, steps = run(network, compiled, data, epochs)
        peer.answer(accuracy=found, seconds=seconds, steps=steps, images_per_s=steps * BATCH / seconds)


main()
