#!/usr/bin/env python3
"""Makes the reference data that test_progressive compares image sizes with.

    python3 -m venv venv && venv/bin/pip install mosaicml && venv/bin/python make.py

A line of sizes.txt is a case: initial scale, delay and finetune fractions, size increment, height, width, number of steps; then for each step
the height and width to which Composer's ProgressiveResizing resizes a batch. If the width is not a multiple of the increment, Composer reaches
the full size too early or never; the steps of the finetune fraction are then recorded as 0 0. Rounding in Composer affects none of these widths.
"""
import os

import composer
import torch
from composer.algorithms.progressive_resizing import ProgressiveResizing

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = [
    (0.5, 0.5, 0.2, 4, 224, 224, 100),
    (0.5, 0.0, 0.0, 4, 32, 32, 37),
    (0.25, 0.1, 0.3, 8, 128, 192, 50),
    (0.75, 0.4, 0.6, 4, 32, 32, 20),
    (0.6, 0.25, 0.25, 1, 48, 40, 64),
    (0.5, 0.2, 0.2, 16, 160, 160, 30),
    (0.5, 0.2, 0.2, 6, 50, 45, 40),
]


class Elapsed:
    def __init__(self, value):
        self.value = value


class State:
    """The part of Composer's State that the algorithm uses."""

    def __init__(self, elapsed, height, width):
        self.elapsed = elapsed
        self.items = [torch.zeros(1, 1, height, width), torch.zeros(1)]

    def get_elapsed_duration(self):
        return Elapsed(self.elapsed)

    def batch_get_item(self, key):
        return self.items[key]

    def batch_set_item(self, key, value):
        self.items[key] = value


def sizes(scale, delay, finetune, increment, height, width, steps):
    resizing = ProgressiveResizing(initial_scale=scale, delay_fraction=delay, finetune_fraction=finetune, size_increment=increment)
    for step in range(steps):
        if width % increment and step / steps >= 1 - finetune:
            yield 0, 0
        elif step / steps >= delay and delay + finetune == 1:
            yield height, width  # Composer would divide by 0
        else:
            state = State(step / steps, height, width)
            resizing.apply(None, state)
            yield tuple(state.items[0].shape[2:])


with open(f"{HERE}/sizes.txt", "w") as file:
    print(f"# composer {composer.__version__}, torch {torch.__version__}", file=file)
    for case in CASES:
        print(*case, *(number for size in sizes(*case) for number in size), file=file)
