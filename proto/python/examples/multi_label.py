"""Several labels for each image: a table with a column of 0 and 1 for each label trains torchvision's MobileNet.

    python multi_label.py [TABLE.csv]        (columns path, red, green, blue)
"""

import subprocess

import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from torchvision.models import mobilenet_v3_small

import common
import sources
from loaderd import Feed

PIPELINE = "random_resized_crop(64, scale=0.5:1) hflip vflip"
VALUES = ["red", "green", "blue"]


def pack(source, packed):
    subprocess.run(["packimg", "convert", source, "-o", packed], check=True)


def targets(batch):
    """[count, labels], 0 or 1."""
    return torch.stack([torch.from_numpy(batch[name]) for name in VALUES], 1).float()


def train(packed, steps):
    torch.manual_seed(0)
    model = mobilenet_v3_small(weights=None, num_classes=len(VALUES))
    with Feed(packed, pipeline=PIPELINE, batch_size=16, shuffle=True, values=VALUES) as feed:
        yield from common.fit(model, feed, steps, lambda batch: binary_cross_entropy_with_logits(model(common.images_of(batch)), targets(batch)))


if __name__ == "__main__":
    common.main(__doc__, pack, train, sources.multi_label)
