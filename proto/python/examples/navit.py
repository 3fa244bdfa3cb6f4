"""Masked image modelling (SimMIM, Xie et al. 2022) with a transformer on images of any shape, packed without padding (NaViT, Dehghani et al. 2023).

    python navit.py [FOLDER]        (images; --checkpoint FILE continues from that file, and writes it after the last step)
"""

import subprocess

import torch
from torch import nn
from torch.nn import functional as F

import common
import sources
from loaderd import Feed

PATCH, MAX_TOKENS, BATCH_TOKENS = 8, 96, 384  # NaViT trains with patches of 16 and 256 tokens of an image, on many more tokens
PIPELINE = f"patch_resize({PATCH}, max_tokens={MAX_TOKENS}) hflip normalize(imagenet) to(f32)"
VALUES = ["image", "__grid__"]


def attend(query, key, value, offsets):
    """Attention [tokens, heads, width] of each image's tokens to those of the same image, which begin at its entry of offsets.

    On a GPU flash_attn_varlen_func(query, key, value, offsets, offsets, longest, longest) of the package flash-attn does the same, with offsets
    as int32. So do nested tensors: batch.torch().images, from PyTorch 2.5.
    """
    image = torch.repeat_interleave(torch.arange(len(offsets) - 1), offsets.diff())
    score = torch.einsum("ihd,jhd->hij", query, key) / query.shape[-1] ** 0.5
    share = score.masked_fill(image[:, None] != image[None, :], float("-inf")).softmax(-1)
    return torch.einsum("hij,jhd->ihd", share, value)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, offsets):
        query, key, value = self.inputs(self.first(x)).unflatten(1, (3, self.heads, -1)).unbind(1)
        x = x + self.output(attend(query, key, value, offsets).flatten(1))
        return x + self.network(self.second(x))


class NaViT(nn.Module):
    """Predicts the pixels of masked patches, of all images of a batch in one sequence of tokens."""

    def __init__(self, width=64, heads=4, depth=3):
        super().__init__()
        elements = PATCH * PATCH * 3
        self.embedding, self.hidden = nn.Linear(elements, width), nn.Parameter(torch.zeros(width))
        self.row, self.column = nn.Embedding(MAX_TOKENS, width), nn.Embedding(MAX_TOKENS, width)  # factorized positions
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.last = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, elements))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, patches, masked, places, offsets):
        x = torch.where(masked[:, None], self.hidden, self.embedding(patches)) + self.row(places[:, 0]) + self.column(places[:, 1])
        for block in self.blocks:
            x = block(x, offsets)
        return self.last(x)

    def loss(self, patches, places, offsets):
        """Mean squared error of the masked half. It draws the mask from the number of the step, so that a continued run draws the same."""
        masked = torch.rand(len(patches), generator=torch.Generator().manual_seed(int(self.step))) < 0.5
        self.step += 1
        return F.mse_loss(self(patches, masked, places, offsets)[masked], patches[masked])


def pack(source, packed):
    subprocess.run(["packimg", "convert", source, "--class-from", "none", "-o", packed], check=True)


def tokens_of(batch):
    """All patches of a batch [tokens, elements], the row and column of each [tokens, 2], and where those of each image begin and end [count + 1]."""
    images = batch.images
    places = [torch.cartesian_prod(torch.arange(rows), torch.arange(columns)) for rows, columns in batch["__grid__"].tolist()]
    return torch.tensor(images.values), torch.cat(places), torch.from_numpy(images.offsets)


def open_feed(packed):
    return Feed(packed, pipeline=PIPELINE, values=VALUES, batch_size=16, batch_tokens=BATCH_TOKENS, shuffle=True)


def train(packed, steps, checkpoint=None):
    """Yields the loss of each step. Continues from the checkpoint if that file exists, and writes it after the last step."""
    torch.manual_seed(0)
    model = NaViT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    with open_feed(packed) as feed:
        parts = {"model": model, "optimizer": optimizer, "feed": feed}
        if checkpoint and checkpoint.exists():
            for name, state in torch.load(checkpoint).items():
                parts[name].load_state_dict(state)
        for _ in range(steps):
            loss = model.loss(*tokens_of(next(feed)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.item()
        if checkpoint:
            torch.save({name: part.state_dict() for name, part in parts.items()}, checkpoint)


if __name__ == "__main__":
    common.main(__doc__, pack, train, sources.images_in_several_sizes, resumes=True)
