#!/usr/bin/env python3
"""Makes the reference data for test_select: how often Composer's selective backprop keeps a sample, and in which steps it selects.

    python3 -m venv venv && venv/bin/pip install mosaicml && venv/bin/python make.py

Lines of select.txt that begin with "kept" have the number of samples, the share to keep, the number of draws, and for each rank, from the
lowest loss, the number of draws that kept it. Lines with "due" have start, end, interrupt, steps, batches per epoch, and for each step 1 if it
selects.
"""
import os

import composer
import numpy as np
import torch
from composer.algorithms.selective_backprop import select_using_loss
from composer.algorithms.selective_backprop.selective_backprop import should_selective_backprop

HERE = os.path.dirname(os.path.abspath(__file__))
DRAWS = 40000
KEPT = [(8, 0.5), (12, 0.25), (10, 0.8), (5, 0.5), (6, 1.0)]
DUE = [(0.5, 0.9, 2, 40, 7), (0.0, 1.0, 0, 10, 5), (0.25, 0.6, 3, 33, 11), (0.3, 0.7, 1, 20, 10)]


def kept(samples, share):
    """Sample i has loss i; the samples are shuffled."""
    order = torch.randperm(samples).double()
    counts = np.zeros(samples, dtype=int)
    for _ in range(DRAWS):
        chosen, _ = select_using_loss(order, order, lambda x: x, lambda x, target, reduction: x, share)
        counts[chosen.long().numpy()] += 1
    return counts


with open(f"{HERE}/select.txt", "w") as file:
    np.random.seed(5)
    torch.manual_seed(5)
    print(f"# composer {composer.__version__}, torch {torch.__version__}, numpy {np.__version__}", file=file)
    for samples, share in KEPT:
        print("kept", samples, share, DRAWS, *kept(samples, share), file=file)
    for start, end, interrupt, steps, batches in DUE:
        due = [int(should_selective_backprop(step / steps, step % batches, start, end, interrupt)) for step in range(steps)]
        print("due", start, end, interrupt, steps, batches, *due, file=file)
