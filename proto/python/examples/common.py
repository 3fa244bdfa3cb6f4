"""The command line and the training loop that the examples share."""

import argparse
import pathlib
import tempfile

import torch


def main(description, pack, train, make_source, resumes=False):
    """Packs the command line's source, or a small drawn one, and trains on it.

    pack(source, packed) writes the packed file; train(packed, steps) yields the loss of each step; make_source(folder) draws a source there and
    returns the path to pack. resumes: train() takes the path of a checkpoint, or None, too.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?", type=pathlib.Path, help="data in the format above (default: a few dozen drawn shapes)")
    parser.add_argument("--steps", type=int, default=20, help="training steps (default: 20)")
    if resumes:
        parser.add_argument("--checkpoint", type=pathlib.Path, help="continue from this file if it exists, and write it after the last step")
    arguments = parser.parse_args()
    more = {"checkpoint": arguments.checkpoint} if resumes else {}
    with tempfile.TemporaryDirectory() as folder:
        packed = pathlib.Path(folder) / "train.pimg"
        pack(arguments.source or make_source(pathlib.Path(folder) / "source"), packed)
        for step, loss in enumerate(train(packed, arguments.steps, **more)):
            print(f"step {step}: loss {loss:.3f}", flush=True)


def fit(model, feed, steps, loss_of, rate=1e-3):
    """Trains the model on `steps` batches and yields the loss of each, which loss_of(batch) computes."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    for _ in range(steps):
        loss = loss_of(next(feed))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def images_of(batch):
    """A batch's images [count, 3, height, width], 0 .. 1."""
    images, _ = batch.torch()
    return images / 255
