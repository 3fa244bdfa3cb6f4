#!/usr/bin/env python3
"""Makes the reference data that test_schedule_golden compares schedules with.

    python3 -m venv venv && venv/bin/pip install torch timm && venv/bin/python make.py

A case of schedules.json has a recipe's settings, and the learning rate of each step by the equivalent scheduler of PyTorch or timm;
also the momentum if it cycles. If the scheduler depends on evaluations, "metric" has their results.
"""
import math
import os
import sys
import warnings

import timm
import torch
from timm.scheduler.cosine_lr import CosineLRScheduler
from torch.optim import lr_scheduler

warnings.filterwarnings("ignore", message="Detected call of")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
import packed  # noqa: E402


def optimizer(lr, momentum=0.9, kind="sgd"):
    p = torch.nn.Parameter(torch.zeros(1))
    if kind == "adam":
        return torch.optim.Adam([p], lr=lr, betas=(momentum, 0.999))
    return torch.optim.SGD([p], lr=lr, momentum=momentum)


def follow(settings, optim, scheduler, steps, per_epoch=1, metric=None, momentum=False):
    """Returns a case. The scheduler steps once after every `per_epoch` steps."""
    rates, momenta = [], []
    for step in range(steps):
        group = optim.param_groups[0]
        rates.append(float(group["lr"]))
        momenta.append(float(group["betas"][0] if "betas" in group else group["momentum"]))
        if (step + 1) % per_epoch == 0:
            scheduler.step(*([] if metric is None else [metric[step]]))
    case = {"settings": settings, "steps_per_epoch": per_epoch, "lr": rates}
    if momentum:
        case["momentum"] = momenta
    if metric is not None:
        case["metric"] = metric
    return case


def one_cycle(anneal, kind, base):
    """PyTorch reaches the final value in the last of its 40 steps, the trainer at the end of the run: so the recipe has 39 steps."""
    optim = optimizer(0.5, 0.95, kind)
    scheduler = lr_scheduler.OneCycleLR(optim, max_lr=0.5, total_steps=40, pct_start=0.3, anneal_strategy={"cosine": "cos"}.get(anneal, anneal),
                                        cycle_momentum=base > 0, base_momentum=base, max_momentum=0.95,
                                        div_factor=20, final_div_factor=1e3)
    settings = (f"schedule.name=one_cycle schedule.anneal={anneal} train.epochs=39 optim.lr=0.5 schedule.peak={(0.3 * 40 - 1) / 39!r} "
                f"schedule.start=0.05 schedule.final=5e-5 schedule.base_momentum={base} ")
    settings += "optim.name=adamw optim.beta1=0.95" if kind == "adam" else "optim.momentum=0.95"
    return follow(settings, optim, scheduler, 40, momentum=True)


def cyclic(mode, base):
    optim = optimizer(0.1)
    scheduler = lr_scheduler.CyclicLR(optim, base_lr=0.1, max_lr=0.5, step_size_up=5, mode=mode, gamma=0.97,
                                      cycle_momentum=base > 0, base_momentum=base, max_momentum=0.9)
    return follow(f"schedule.name={mode} train.epochs=50 optim.lr=0.5 schedule.start=0.2 schedule.period=10 schedule.gamma=0.97 "
                  f"schedule.base_momentum={base} optim.momentum=0.9", optim, scheduler, 45, momentum=True)


def restarts():
    optim = optimizer(0.5)
    scheduler = lr_scheduler.CosineAnnealingWarmRestarts(optim, T_0=3, T_mult=2, eta_min=0.05)
    return follow("schedule.name=cosine train.epochs=60 optim.lr=0.5 schedule.final=0.1 schedule.period=3 schedule.cycle_mul=2",
                  optim, scheduler, 50)


class Timm:
    def __init__(self, scheduler):
        self.scheduler, self.epoch = scheduler, 0
        scheduler.step(0)

    def step(self):
        self.epoch += 1
        self.scheduler.step(self.epoch)


def decaying_restarts(mul, decay):
    optim = optimizer(0.5)
    scheduler = CosineLRScheduler(optim, t_initial=4, lr_min=0.05, cycle_mul=mul, cycle_decay=decay, cycle_limit=100)
    return follow(f"schedule.name=cosine train.epochs=60 optim.lr=0.5 schedule.final=0.1 schedule.period=4 schedule.cycle_mul={mul} "
                  f"schedule.cycle_decay={decay}", optim, Timm(scheduler), 50)


def trapezoid():
    optim = optimizer(0.5)
    scheduler = lr_scheduler.SequentialLR(optim, [
        lr_scheduler.LinearLR(optim, start_factor=0.1, end_factor=1, total_iters=5),
        lr_scheduler.ConstantLR(optim, factor=1, total_iters=1),
        lr_scheduler.LinearLR(optim, start_factor=1, end_factor=0.02, total_iters=10),
    ], milestones=[5, 20])
    return follow("schedule.name=trapezoid train.epochs=30 optim.lr=0.5 schedule.warmup=5 schedule.warmup_from=0.1 schedule.decay=10 "
                  "schedule.final=0.02", optim, scheduler, 30)


def plateau(mode):
    # The metric falls, then stays level; two steps are better, one of them by less than the threshold.
    metric = [round(1 / (1 + min(i, 12)) + 0.004 * math.sin(5 * i), 9) for i in range(60)]
    metric[20], metric[33] = min(metric) * 0.9995, min(metric) * 0.98
    if mode == "max":
        metric = [round(1 - value, 9) for value in metric]
    optim = optimizer(0.5)
    scheduler = lr_scheduler.ReduceLROnPlateau(optim, mode=mode, factor=0.3, patience=3, threshold=1e-3, cooldown=2, min_lr=0.002)
    return follow("schedule.name=plateau train.epochs=60 optim.lr=0.5 schedule.gamma=0.3 schedule.patience=3 schedule.threshold=1e-3 "
                  f"schedule.cooldown=2 schedule.final=0.004 schedule.metric={'loss' if mode == 'min' else 'top1'}",
                  optim, scheduler, 60, metric=metric)


def by_epoch():
    optim = optimizer(0.5)
    scheduler = lr_scheduler.CosineAnnealingLR(optim, T_max=10)
    return follow("schedule.name=cosine train.epochs=10 optim.lr=0.5 schedule.by_epoch=true", optim, scheduler, 40, per_epoch=4)


cases = [one_cycle("cosine", "sgd", 0.85), one_cycle("linear", "sgd", 0.85), one_cycle("cosine", "adam", 0.8),
         one_cycle("cosine", "sgd", 0), cyclic("triangular", 0.8), cyclic("triangular2", 0.8), cyclic("exp_range", 0.8),
         cyclic("triangular2", 0), restarts(), decaying_restarts(1, 0.85), decaying_restarts(1.5, 0.7), trapezoid(),
         plateau("min"), plateau("max"), by_epoch()]
packed.write(os.path.join(HERE, "schedules.json"), {"torch": torch.__version__, "timm": timm.__version__, "cases": cases})
