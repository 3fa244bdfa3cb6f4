"""Diffusion on images of several shapes: each batch has the shape of one bucket, and the network knows what its crop left out (SDXL, Podell et al. 2023).

    python diffusion_buckets.py [FOLDER]        (images; --checkpoint FILE continues from that file, and writes it after the last step)
"""

import math
import subprocess

import torch
from torch import nn
from torch.nn import functional as F

import common
import sources
from loaderd import Feed, bucket_sizes

BUCKETS = bucket_sizes(32 * 32, step=8)  # SDXL has buckets of about 1024 x 1024, in steps of 64
PIPELINE = "bucket_resize(crop=random)"  # no flip: __crop_top_left__ counts from the left of the picture as it is delivered
CONDITIONS = ["__original_size__", "__crop_top_left__"]
TIMES = 1000


def embed(numbers, width=32):
    """Sines and cosines of numbers [count, k] at width / 2 frequencies, as in "Attention Is All You Need": [count, k * width]."""
    frequencies = torch.exp(-math.log(10000) * torch.arange(width // 2) / (width // 2))
    angles = numbers[..., None].float() * frequencies
    return torch.cat([angles.sin(), angles.cos()], -1).flatten(1)


class Block(nn.Module):
    """A residual block, shifted by the embedding of time and conditions."""

    def __init__(self, inputs, outputs, embedding):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1))
        self.shift = nn.Linear(embedding, outputs)
        self.second = nn.Sequential(nn.GroupNorm(8, outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1))
        self.skip = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x, embedding):
        return self.skip(x) + self.second(self.first(x) + self.shift(embedding)[..., None, None])


class UNet(nn.Module):
    """Predicts the noise in images of any size of which 4 divides the sides."""

    def __init__(self, width=32, embedding=128):
        super().__init__()
        self.embedding = nn.Sequential(nn.Linear(7 * 32, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.down = nn.ModuleList(Block(inputs, outputs, embedding) for inputs, outputs in ((width, width), (width, 2 * width)))
        self.middle = Block(2 * width, 2 * width, embedding)
        self.up = nn.ModuleList(Block(inputs, outputs, embedding) for inputs, outputs in ((4 * width, width), (2 * width, width)))
        self.last = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 3, 3, padding=1))
        nn.init.zeros_(self.last[-1].weight)

    def forward(self, images, times, conditions):
        embedding = self.embedding(embed(torch.cat([times[:, None], conditions], 1)))
        x, kept = self.first(images), []
        for block in self.down:
            x = block(x, embedding)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.middle(x, embedding)
        for block in self.up:
            x = block(torch.cat([F.interpolate(x, scale_factor=2), kept.pop()], 1), embedding)
        return self.last(x)


class Diffusion(nn.Module):
    """Denoising diffusion with a cosine schedule (Nichol and Dhariwal 2021)."""

    def __init__(self):
        super().__init__()
        self.network = UNet()
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def loss(self, images, conditions):
        """Mean squared error of the predicted noise. It draws times and noise from the number of the step, so that a continued run draws the same."""
        draw = torch.Generator().manual_seed(int(self.step))
        self.step += 1
        times = torch.randint(TIMES, (len(images),), generator=draw)
        noise = torch.randn(images.shape, generator=draw)
        angle = (times[:, None, None, None] + 0.5) / TIMES * math.pi / 2
        return F.mse_loss(self.network(images * angle.cos() + noise * angle.sin(), times, conditions), noise)


def pack(source, packed):
    subprocess.run(["packimg", "convert", source, "--class-from", "none", "-o", packed], check=True)


def conditions(batch):
    """SDXL's micro-conditioning [count, 6]: height and width of the stored image, top and left of the crop, height and width of the bucket."""
    original, corner = (batch.tensor(name) for name in CONDITIONS)
    size = torch.tensor(batch.images.shape[1:3]).expand(len(original), 2)
    return torch.cat([original, corner, size], 1)


def train(packed, steps, checkpoint=None):
    """Yields the loss of each step. Continues from the checkpoint if that file exists, and writes it after the last step."""
    torch.manual_seed(0)
    model = Diffusion()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    with Feed(packed, buckets=BUCKETS, pipeline=PIPELINE, values=["image", *CONDITIONS], batch_size=4, shuffle=True) as feed:
        parts = {"model": model, "optimizer": optimizer, "feed": feed}
        if checkpoint and checkpoint.exists():
            for name, state in torch.load(checkpoint).items():
                parts[name].load_state_dict(state)
        for _ in range(steps):
            batch = next(feed)
            loss = model.loss(common.images_of(batch) * 2 - 1, conditions(batch))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.item()
        if checkpoint:
            torch.save({name: part.state_dict() for name, part in parts.items()}, checkpoint)


if __name__ == "__main__":
    common.main(__doc__, pack, train, sources.images_in_several_sizes, resumes=True)
