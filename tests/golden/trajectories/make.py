#!/usr/bin/env python3
"""Makes the reference data for test_trajectories: trainings with Composer's methods.

    python3 -m venv venv && venv/bin/pip install mosaicml torchvision timm && venv/bin/python make.py

A trajectory in trajectories.json has a recipe's settings, and the results of 20 steps of SGD with them on the ResNet-8 of
tests/golden/networks/make.py, in double precision: losses, rates, the number of frozen layers, and the final values. Composer freezes layers in
the order in which modules were created, so shortcuts_first() moves a block's shortcut to the front, as in the trainer. The file also has
schedules of layer freezing: start, level, steps, steps per epoch, layers, and the number of frozen layers in each step.
"""
import os
import sys

import composer
import torch
from composer.algorithms.ghost_batchnorm import apply_ghost_batchnorm
from composer.algorithms.layer_freezing import freeze_layers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../networks"))
import make as networks  # noqa: E402

SCHEDULES = [
    {"start": 0.5, "level": 1.0, "steps": 60, "epoch": 6, "layers": 20},
    {"start": 0.0, "level": 1.0, "steps": 35, "epoch": 4, "layers": 53},
    {"start": 0.3, "level": 0.5, "steps": 27, "epoch": 1, "layers": 10},
    {"start": 0.9, "level": 0.2, "steps": 30, "epoch": 3, "layers": 161},
    {"start": 0.25, "level": 0.75, "steps": 16, "epoch": 16, "layers": 7},
]
STEPS, EPOCH, RATE, DECAY = 20, 4, 0.01, 5e-3  # EPOCH as in test_trajectories.c


def depths(start, level, steps, epoch, layers):
    model = torch.nn.Sequential(*(torch.nn.Linear(1, 1) for _ in range(layers)))
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    return [freeze_layers(model, sgd, step // epoch * epoch / steps, start, level)[0] for step in range(steps)]


def shortcuts_first(model):
    for block in model.modules():
        if isinstance(block, networks.Block) and block.downsample:
            block._modules = {"downsample": block.downsample, **{name: module for name, module in block._modules.items() if name != "downsample"}}
    return model


def trajectory(settings, change=None, freeze=None):
    """change(model) is called before the first step. freeze: (start, level) of layer freezing."""
    model = shortcuts_first(networks.ResNet8().double())
    networks.fill(model, 2)
    if change:
        change(model)
    groups = [{"params": [p for p in model.parameters() if (p.dim() > 1) == decays], "weight_decay": DECAY * decays} for decays in (True, False)]
    sgd = torch.optim.SGD(groups, lr=RATE, momentum=0.9, nesterov=True)
    losses, frozen = [], []
    for step in range(STEPS):
        frozen.append(freeze_layers(model, sgd, step // EPOCH * EPOCH / STEPS, *freeze)[0] if freeze else 0)
        x, y = networks.images(2, f"images {step}", 8, 16), networks.labels(2, f"labels {step}", 8)
        loss = torch.nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        losses.append(loss.item())
    state = {name.replace(".batchnorm.", "."): value for name, value in model.state_dict().items() if value.is_floating_point()}
    settings = f"{settings} schedule.name=constant optim.lr={RATE} optim.weight_decay={DECAY}"
    return {"settings": settings, "losses": losses, "lr": [RATE] * STEPS, "depths": frozen, "values": {name: networks.digest(value) for name, value in state.items()}}


made = {
    "composer": composer.__version__,
    "schedules": [schedule | {"depths": depths(**schedule)} for schedule in SCHEDULES],
    "trajectories": {
        "layer freezing": trajectory("train.freeze_level=1 train.freeze_start=0.2", freeze=(0.2, 1.0)),
        "ghost batch norm": trajectory("model.ghost_batch=3", change=lambda model: apply_ghost_batchnorm(model, ghost_batch_size=3)),
    },
}
networks.write(os.path.join(HERE, "trajectories.json"), made)
