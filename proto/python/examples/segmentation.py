"""Segmentation: ADE20K's masks of classes train torchvision's LR-ASPP.

    python segmentation.py [ADEChallengeData2016]
"""

import subprocess
import sys

import torch
from torch.nn.functional import cross_entropy
from torchvision.models.segmentation import lraspp_mobilenet_v3_large

import common
import sources
from loaderd import Feed

PIPELINE = "random_resized_crop(64, scale=0.5:1) hflip color_jitter(0.2, 0.2)"
VALUES = ["mask"]


def pack(source, packed):
    subprocess.run([sys.executable, "-m", "loaderd.convert", source, packed, "--split", "training"], check=True)


def targets(batch):
    """The class of each pixel, 0 where there is none."""
    return torch.from_numpy(batch["mask"]).long()


def train(packed, steps, classes=151):
    torch.manual_seed(0)
    model = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=classes)
    with Feed(packed, pipeline=PIPELINE, batch_size=8, shuffle=True, values=VALUES) as feed:
        yield from common.fit(model, feed, steps, lambda batch: cross_entropy(model(common.images_of(batch))["out"], targets(batch), ignore_index=0))


if __name__ == "__main__":
    common.main(__doc__, pack, train, sources.ade20k)
