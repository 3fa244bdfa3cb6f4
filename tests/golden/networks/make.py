#!/usr/bin/env python3
"""Makes the reference data that test_golden compares the trainer with.

    python3 -m venv venv && venv/bin/pip install torch torchvision timm && venv/bin/python make.py

PyTorch computes everything in double precision. Weights and images are not stored: this script and the test make them with the same
counter-based generator (trainer/model/random.h). Only digests are stored: logits, losses, running statistics, and the norm and a few
entries of each gradient. Files:

    NETWORK.json      one forward and backward pass of torchvision's or timm's network with 10 classes on 4 images of 64 x 64 (67 x 67
                      to test odd sides, 32 x 32 for small patches); only every fifth parameter of networks with many
    trajectory.json   12 steps of SGD (Nesterov, weight decay, warm-up and cosine, label smoothing, EMA) on a ResNet-8
    airbench.json     the first 5 steps of a run of 10, one per epoch, as in airbench94 (Keller Jordan, "94% on CIFAR-10 in 3.29
                      Seconds on a Single GPU", 2024). The constants are the published ones, except a tenth of the rate and a quarter
                      of the width, which leaves fewer maxima that rounding could decide
"""
import functools
import math
import os
import sys

import numpy as np
import timm
import torch
import torchvision

MASK = 0xFFFFFFFFFFFFFFFF
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import packed  # noqa: E402

MEAN = [120.0, 115.0, 100.0]
STD = [60.0, 58.0, 57.0]


def key_of(seed, name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 & MASK
    x = (h + seed * 0x9E3779B97F4A7C15) & MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def philox(key, count):
    """Returns words 0 and 1 of the blocks 0 to count - 1 of Philox4x32-10."""
    m = np.uint64(0xFFFFFFFF)
    index = np.arange(count, dtype=np.uint64)
    c0, c1 = index & m, index >> np.uint64(32)
    c2 = np.zeros(count, np.uint64)
    c3 = np.zeros(count, np.uint64)
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        a = np.uint64(0xD2511F53) * c0
        b = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = ((b >> np.uint64(32)) ^ c1 ^ np.uint64(k0), b & m,
                          (a >> np.uint64(32)) ^ c3 ^ np.uint64(k1), a & m)
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1


def uniform(seed, name, count):
    high, low = philox(key_of(seed, name), count)
    bits = (high << np.uint64(32) | low) >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-52 - 1


def fill(model, seed):
    """Sets the weights that the test uses. The generator numbers a convolution's elements in the order [K][R][S][C]."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            u = uniform(seed, name.replace(".layer.", "."), p.numel())
            if p.dim() == 4:
                k, c, r, s = p.shape
                u = u.reshape(k, r, s, c).transpose(0, 3, 1, 2) * math.sqrt(6 / (c * r * s))
            elif p.dim() == 2:
                u = u.reshape(p.shape) * math.sqrt(3 / p.shape[1])
            elif name.endswith("weight"):
                u = 1 + 0.25 * u
            else:
                u = 0.25 * u
            u = u.astype(np.float32).astype(np.float64)
            p.copy_(torch.from_numpy(np.ascontiguousarray(u).reshape(p.shape)))


def images(seed, name, count, side):
    high, _ = philox(key_of(seed, name), count * side * side * 3)
    pixels = (high >> np.uint64(24)).astype(np.float64).reshape(count, side, side, 3)
    # Average neighbours, because images are smoother than noise.
    pixels = np.floor((pixels + np.roll(pixels, 1, 1) + np.roll(pixels, 1, 2) + np.roll(pixels, (1, 1), (1, 2))) / 4)
    x = (pixels - MEAN) / STD
    return torch.from_numpy(np.ascontiguousarray(x.transpose(0, 3, 1, 2)))


def labels(seed, name, count):
    high, _ = philox(key_of(seed, name), count)
    return torch.from_numpy((high % np.uint64(10)).astype(np.int64))


def host_order(t):
    return (t.permute(0, 2, 3, 1) if t.dim() == 4 else t).reshape(-1)


def digest(t):
    flat = host_order(t.detach())
    n = flat.numel()
    at = [0, n // 3, n // 2, n - 1]
    return {"norm": flat.norm().item(), "entries": [flat[i].item() for i in at]}


def stride_first(model):
    """Moves a bottleneck's stride to its first convolution, as in the published ResNet (torchvision has it in the second)."""
    for block in model.modules():
        if isinstance(block, torchvision.models.resnet.Bottleneck) and block.conv2.stride != (1, 1):
            block.conv1.stride, block.conv2.stride = block.conv2.stride, (1, 1)
    return model


class Blur(torch.nn.Module):
    """Blurs with [1 2 1] / 4 in both directions, before a convolution and after a max pool, like Composer's BlurPool with blur_first."""

    def __init__(self, layer, channels):
        super().__init__()
        self.layer, self.channels = layer, channels

    def blurred(self, x, stride):
        line = torch.tensor([0.25, 0.5, 0.25], dtype=x.dtype)
        weight = torch.outer(line, line).expand(self.channels, 1, 3, 3)
        return torch.nn.functional.conv2d(x, weight, stride=stride, padding=1, groups=self.channels)

    def forward(self, x):
        if isinstance(self.layer, torch.nn.MaxPool2d):
            return self.blurred(torch.nn.functional.max_pool2d(x, 3, 1, 1), 2)
        return self.layer(self.blurred(x, 1))


def blurring(model):
    """Inserts blurs. fill() ignores their part of the names, so weights have the values of the network without blurs."""
    for name, module in list(model.named_modules()):
        conv = isinstance(module, torch.nn.Conv2d) and module.stride != (1, 1) and module.in_channels >= 16
        if conv or isinstance(module, torch.nn.MaxPool2d):
            owner, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(owner), leaf, Blur(module, module.in_channels if conv else 64))
    return model


def vit(**settings):
    return timm.create_model("vit_tiny_patch16_224", num_classes=10, **settings)


NETWORKS = {  # as in test_golden.c
    "convnext_tiny": lambda: timm.create_model("convnext_tiny", num_classes=10),
    "seresnet50": lambda: timm.create_model("seresnet50", num_classes=10),
    "resnet18": lambda: torchvision.models.resnet18(num_classes=10),
    "resnet18_blur": lambda: blurring(torchvision.models.resnet18(num_classes=10)),
    "resnet50_v1": lambda: stride_first(torchvision.models.resnet50(num_classes=10)),
    "resnet50d": lambda: timm.create_model("resnet50d", num_classes=10),
    "resnext50_32x4d": lambda: torchvision.models.resnext50_32x4d(num_classes=10),
    "vit_tiny": lambda: vit(img_size=64),
    "vit_tiny_average": lambda: vit(img_size=32, patch_size=4, class_token=False, global_pool="avg"),
    "vit_tiny_scaled": lambda: vit(img_size=64, init_values=1e-5),
    "vit_tiny_resized": lambda: vit(img_size=64, dynamic_img_size=True),
    "wide_resnet50_2": lambda: torchvision.models.wide_resnet50_2(num_classes=10),
}


SIDES = {"resnet50d": 67, "vit_tiny_average": 32, "vit_tiny_resized": 96}  # others 64


def pass_of(name):
    model = NETWORKS[name]().double()
    fill(model, 1)
    x, y = images(1, "images", 4, SIDES.get(name, 64)), labels(1, "labels", 4)
    every = 1 if name == "resnet18" else 5
    x.requires_grad_(True)
    model.train()
    logits = model(x)
    loss = torch.nn.functional.cross_entropy(logits, y, label_smoothing=0.1)
    loss.backward()
    out = {
        "loss": loss.item(),
        "logits": logits.detach().reshape(-1).tolist(),
        "input_gradient": digest(x.grad),
        "parameters": len(list(model.parameters())),
        "gradients": {name.replace(".layer.", "."): digest(p.grad) for name, p in list(model.named_parameters())[::every]},
        "buffers": {name: digest(b) for name, b in list(model.named_buffers())[::every] if "running" in name},
    }
    model.eval()
    with torch.no_grad():
        logits = model(x)
        out["eval_logits"] = logits.reshape(-1).tolist()
        out["eval_loss"] = torch.nn.functional.cross_entropy(logits, y).item()
    return out


class Block(torch.nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(outputs)
        self.conv2 = torch.nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = torch.nn.Sequential(
                torch.nn.Conv2d(inputs, outputs, 1, stride, bias=False), torch.nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (self.downsample(x) if self.downsample else x)).relu()


class ResNet8(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(16)
        self.layer1 = torch.nn.Sequential(Block(16, 16, 1))
        self.layer2 = torch.nn.Sequential(Block(16, 32, 2))
        self.layer3 = torch.nn.Sequential(Block(32, 64, 2))
        self.fc = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.bn1(self.conv1(x)).relu())))
        return self.fc(x.mean((2, 3)))


def trajectory():
    steps, warmup, lr, final, decay = 12, 4, 0.2, 0.1, 0.9
    model = ResNet8().double()
    fill(model, 2)
    plain = [p for p in model.parameters() if p.dim() == 1]
    decayed = [p for p in model.parameters() if p.dim() > 1]
    sgd = torch.optim.SGD([{"params": decayed, "weight_decay": 5e-3}, {"params": plain}],
                          lr=lr, momentum=0.9, nesterov=True)
    ema, losses, rates = None, [], []
    for step in range(steps):
        if step < warmup:
            factor = step / warmup
        else:
            factor = final + (1 - final) * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2
        for group in sgd.param_groups:
            group["lr"] = lr * factor
        rates.append(lr * factor)
        x = images(2, f"images {step}", 8, 16)
        y = labels(2, f"labels {step}", 8)
        loss = torch.nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        losses.append(loss.item())
        state = {k: v.detach().clone() for k, v in model.state_dict().items() if v.is_floating_point()}
        ema = state if ema is None else {k: decay * ema[k] + (1 - decay) * state[k] for k in state}
    return {"losses": losses, "lr": rates, "values": {k: digest(v) for k, v in state.items()},
            "ema": {k: digest(v) for k, v in ema.items()}}


class Group(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(inputs, outputs, 3, padding="same", bias=False)
        self.bn1 = torch.nn.BatchNorm2d(outputs, eps=1e-12, momentum=0.4)
        self.conv2 = torch.nn.Conv2d(outputs, outputs, 3, padding="same", bias=False)
        self.bn2 = torch.nn.BatchNorm2d(outputs, eps=1e-12, momentum=0.4)

    def forward(self, x):
        gelu, pool = torch.nn.functional.gelu, torch.nn.functional.max_pool2d
        return gelu(self.bn2(self.conv2(gelu(self.bn1(pool(self.conv1(x), 2))))))


class Airbench(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.whiten = torch.nn.Conv2d(3, 24, 2)
        self.group1, self.group2, self.group3 = Group(24, 16), Group(16, 64), Group(64, 64)
        self.fc = torch.nn.Linear(64, 10, bias=False)

    def forward(self, x):
        x = self.group3(self.group2(self.group1(torch.nn.functional.gelu(self.whiten(x)))))
        return self.fc(x.amax((2, 3))) / 9


def airbench():
    steps, run, momentum = 5, 10, 0.85
    model = Airbench().double()
    fill(model, 3)
    norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for p in [model.whiten.weight] + [m.weight for m in norms]:
        p.requires_grad = False
    biases = [m.bias for m in norms]
    others = [p for p in model.parameters() if p.requires_grad and not any(p is b for b in biases)]
    # airbench94 sums the loss over 1024 images; rate and decay for that sum
    kilostep = 1024 * (1 + 1 / (1 - momentum))
    lr, decay = 11.5 / 10 / kilostep, 0.0153 / 10 * 1024 / kilostep
    sgd = torch.optim.SGD([{"params": biases, "lr": 64 * lr, "weight_decay": decay / (64 * lr)},
                           {"params": others, "lr": lr, "weight_decay": decay / lr}], momentum=momentum, nesterov=True)
    peak = 0.23 * run
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        sgd, lambda i: 0.2 + 0.8 * i / peak if i < peak else 1 - 0.93 * (i - peak) / (run - peak))
    losses, rates, slow = [], [], None
    for step in range(1, steps + 1):
        model.whiten.bias.requires_grad = step <= 3
        x, y = images(3, f"images {step - 1}", 8, 24), labels(3, f"labels {step - 1}", 8)
        loss = torch.nn.functional.cross_entropy(model(x), y, label_smoothing=0.2)
        rates.append(1024 * sgd.param_groups[1]["lr"])  # the rate for the mean loss
        sgd.zero_grad(set_to_none=True)
        (1024 * loss).backward()
        sgd.step()
        scheduler.step()
        losses.append(loss.item())
        state = {k: v for k, v in model.state_dict().items() if v.is_floating_point()}
        if slow is None:  # the published average starts before the first step, a difference of 1e-6 after 480 steps
            slow = {k: v.clone() for k, v in state.items()}
        elif step % 5 == 0:
            for k, v in state.items():
                v.copy_(slow[k].lerp_(v, 1 - 0.95**5 * (step / run) ** 3))
    return {"losses": losses, "lr": rates, "values": {k: digest(v) for k, v in state.items()}}


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.12g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return value


def write(path, made):
    packed.write(path, {"torch": torch.__version__, **rounded(made)})


if __name__ == "__main__":
    made = {name: functools.partial(pass_of, name) for name in NETWORKS}
    for name, make in (made | {"trajectory": trajectory, "airbench": airbench}).items():
        write(os.path.join(HERE, name + ".json"), make())
