#!/usr/bin/env python3
"""Makes the reference data of layer freezing, by Composer's own freeze_layers.

    python3 -m venv venv && venv/bin/pip install mosaicml torchvision timm && venv/bin/python make.py

In freezing.json are cases, each with start, level, steps, steps to an epoch and layers, and how many layers are frozen in each of the steps; and a course of
20 steps of SGD on the ResNet-8 of tests/golden/networks/make.py, in double precision, four to an epoch: losses, rates, frozen layers, and values at the end.
Composer takes layers in the order in which modules were made; here a block's shortcut comes first, as in the trainer.
"""
import os
import sys

import composer
import torch
from composer.algorithms.layer_freezing import freeze_layers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../networks"))
import make as networks  # noqa: E402

CASES = [
    {"start": 0.5, "level": 1.0, "steps": 60, "epoch": 6, "layers": 20},
    {"start": 0.0, "level": 1.0, "steps": 35, "epoch": 4, "layers": 53},
    {"start": 0.3, "level": 0.5, "steps": 27, "epoch": 1, "layers": 10},
    {"start": 0.9, "level": 0.2, "steps": 30, "epoch": 3, "layers": 161},
    {"start": 0.25, "level": 0.75, "steps": 16, "epoch": 16, "layers": 7},
]
RATE = 0.01
COURSE = {"start": 0.2, "level": 1.0, "steps": 20, "epoch": 4}


def depths(start, level, steps, epoch, layers):
    model = torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(layers)))
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    return [freeze_layers(model, sgd, step // epoch * epoch / steps, start, level)[0] for step in range(steps)]


def course(start, level, steps, epoch):
    model = networks.ResNet8().double()
    for block in model.modules():
        if isinstance(block, networks.Block) and block.downsample:
            block._modules = {"downsample": block.downsample, **{name: module for name, module in block._modules.items() if name != "downsample"}}
    networks.fill(model, 2)
    groups = [{"params": [p for p in model.parameters() if (p.dim() > 1) == decays], "weight_decay": 5e-3 * decays} for decays in (True, False)]
    sgd = torch.optim.SGD(groups, lr=RATE, momentum=0.9, nesterov=True)
    losses, frozen = [], []
    for step in range(steps):
        frozen.append(freeze_layers(model, sgd, step / steps, start, level)[0] if step % epoch == 0 else frozen[-1])
        x, y = networks.images(2, f"images {step}", 8, 16), networks.labels(2, f"labels {step}", 8)
        loss = torch.nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        losses.append(loss.item())
    values = {name: networks.digest(value) for name, value in model.state_dict().items() if value.is_floating_point()}
    return {"losses": losses, "lr": [RATE] * steps, "depths": frozen, "values": values}


made = {"composer": composer.__version__, "cases": [case | {"depths": depths(**case)} for case in CASES], "course": COURSE | course(**COURSE)}
networks.write(os.path.join(HERE, "freezing.json"), made)
