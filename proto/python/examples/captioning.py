"""Captions: COCO's train a MobileNet with a GRU, which writes text byte by byte.

    python captioning.py [annotations/captions_train2017.json]
"""

import random
import subprocess
import sys

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from torchvision.models import mobilenet_v3_small

import common
import sources
from loaderd import Feed

PIPELINE = "random_resized_crop(64, scale=0.5:1) hflip color_jitter(0.2, 0.2)"
VALUES = ["captions"]


class Captioner(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.encoder = mobilenet_v3_small(weights=None, num_classes=width)
        self.embedding, self.decoder, self.head = nn.Embedding(256, width), nn.GRU(width, width, batch_first=True), nn.Linear(width, 256)

    def forward(self, images, texts):
        return self.head(self.decoder(self.embedding(texts), self.encoder(images)[None])[0])


def pack(source, packed):
    subprocess.run([sys.executable, "-m", "loaderd.convert", source, packed], check=True)


def targets(batch, choose=random.choice):
    """One caption of each image, as bytes with a zero before and after."""
    return pad_sequence([torch.tensor([0, *choose(captions).encode(), 0]) for captions in batch["captions"]], batch_first=True)


def train(packed, steps):
    torch.manual_seed(0)
    model = Captioner()

    def loss_of(batch):
        texts = targets(batch)
        return cross_entropy(model(common.images_of(batch), texts[:, :-1]).flatten(0, 1), texts[:, 1:].flatten())

    with Feed(packed, pipeline=PIPELINE, batch_size=16, shuffle=True, values=VALUES) as feed:
        yield from common.fit(model, feed, steps, loss_of, rate=3e-3)


if __name__ == "__main__":
    common.main(__doc__, pack, train, lambda folder: sources.coco(folder, "captions"))
