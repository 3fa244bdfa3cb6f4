"""The part ranks: trainings that several GPUs compute together, against one GPU that computes them alone."""

import pathlib
import sys

from checks import LOSS_TOLERANCES, is_result, judge_losses, train
from budget import BudgetSpent
from loaders import Failure

LAUNCH = (sys.executable, str(pathlib.Path(__file__).with_name("launch.py")))

# Name, network, further keys. Batch norms take their statistics over the whole batch, so that the losses of all worlds are equal to rounding.
TRAININGS = [
    ("data parallel", "resnet18", ["model.bn_sync=yes"]),
    ("data parallel, AdamW", "vit_tiny_patch16", ["model.patch=8", "model.image_size={side}", "optim.name=adamw", "optim.clip_norm=1"]),
    ("divided optimizer state, AdamW", "vit_tiny_patch16", ["model.patch=8", "model.image_size={side}", "optim.name=adamw", "optim.clip_norm=1", "train.shard=optimizer"]),
    ("divided gradients", "resnet18", ["model.bn_sync=yes", "train.shard=gradients"]),
    ("divided weights, AdamW", "vit_tiny_patch16", ["model.patch=8", "model.image_size={side}", "optim.name=adamw", "optim.clip_norm=1", "train.shard=parameters"]),
    ("divided weights, recomputed", "resnet18", ["model.bn_sync=yes", "train.shard=parameters", "train.recompute=2"]),
    ("pairs of tensor ranks, AdamW", "vit_small_patch16", ["model.patch=8", "model.image_size={side}", "optim.name=adamw", "train.tensor={pair}"]),
]


def worlds(setup):
    """Returns the numbers of ranks: of one that is launched like several, and of as many as there are GPUs for."""
    gpus = 2 if setup.fake_gpu else setup.machine.get("GPUs", 1)
    return [1] + [world for world in (2, 4, 8) if world <= gpus]


def differ(one, found):
    """Returns the first step whose loss has other bits; None if none has."""
    return next((step for step, line in one.items() if step not in found or found[step]["loss_hex"] != line["loss_hex"]), None)


def judge(world, one, found, steps, precision):
    """Verdict, seconds and detail of a test."""
    if world == 1:
        step = differ(one, found)
        return ("failed", 0, f"step {step}'s loss has other bits than without a launcher") if step else ("passed", 0, "")
    sent = {line.get("sent_sums") for line in found.values()}
    if len(sent) != 1 or None in sent:
        return "failed", 0, f"log.jsonl counts {sent} bytes that ranks have sent in a step: were they launched as one run?"
    return judge_losses(one, found, steps, LOSS_TOLERANCES[precision])


def more(keys, side, world):
    return [key.format(side=side, pair=min(2, world)) for key in keys]


def ranks(setup, part, limit):
    setup.shapes(limit)
    steps, (_, side, batch) = setup.size("losses_steps"), setup.size("losses")[0]
    several = len(worlds(setup)) > 1
    precisions = list(dict.fromkeys([setup.precisions()[0], "fp32"])) if several else setup.precisions()[:1]
    for number, (name, net, keys) in enumerate(TRAININGS):
        for precision in precisions:
            settings = [f"train.device={setup.device}", f"train.precision={precision}", "train.deterministic=yes", "train.threads=1"]
            stem = f"ranks-{number}-{precision}"
            one = train(setup, limit, stem, (net, side, batch), steps, *settings, *more(keys, side, 1))
            for world in worlds(setup):
                try:
                    found = train(setup, limit, f"{stem}-{world}", (net, side, batch), steps, *settings, *more(keys, side, world), launcher=(*LAUNCH, world))
                except (Failure, BudgetSpent) as problem:
                    found = problem
                title = f"{name}, {net}, {precision}, {world} rank{'s' * (world > 1)}"
                if is_result(part, title, found):
                    part.test(title, *judge(world, one, found, steps, precision))
    if not several:
        part.note("one GPU: runs of several ranks were not tested")
