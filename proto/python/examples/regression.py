"""Regression: a table with a column for each target trains torchvision's MobileNet.

    python regression.py [TABLE.csv]        (columns path, covered, shapes)
"""

import subprocess

import torch
from torch.nn.functional import mse_loss
from torchvision.models import mobilenet_v3_small

import common
import sources
from loaderd import Feed

PIPELINE = "resize(64x48) hflip vflip color_jitter(0.2, 0.2)"  # no crops, which would change the targets
VALUES = ["covered", "shapes"]


def pack(source, packed):
    subprocess.run(["packimg", "convert", source, "-o", packed], check=True)


def targets(batch):
    """[count, targets]"""
    return torch.stack([torch.from_numpy(batch[name]) for name in VALUES], 1).float()


def train(packed, steps):
    torch.manual_seed(0)
    model = mobilenet_v3_small(weights=None, num_classes=len(VALUES))
    with Feed(packed, pipeline=PIPELINE, batch_size=16, shuffle=True, values=VALUES) as feed:
        yield from common.fit(model, feed, steps, lambda batch: mse_loss(model(common.images_of(batch)), targets(batch)))


if __name__ == "__main__":
    common.main(__doc__, pack, train, sources.regression)
