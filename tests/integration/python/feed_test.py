"""Helpers for tests of the package loaderd with the fake daemon of tests/unit/proto ($LOADERD), and the contents that it delivers."""

import os

import loaderd

# optional packages
try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None
try:
    import jax
except ImportError:
    jax = None

PATIENCE = 30  # s; limit for operations that take no time unless the machine is busy
PIXELS = 4 * 6 * 3
BATCHES = 10


def pixel(epoch, sample):
    return (epoch * 31 + sample * 7) & 255


def open_feed(script="plain", **options):
    """Opens a feed of batches of 8. The fake daemon's last batch of an epoch has 7 samples unless drop_last is set."""
    options.setdefault("batch_size", 8)
    if "last" not in options:
        options.setdefault("drop_last", True)
    return loaderd.Feed(script, daemon="private", **options)


def expected_bytes(batch, size=8):
    return b"".join(
        bytes([pixel(batch.epoch, batch.index * size + i)]) * PIXELS for i in range(batch.count)
    )


def number(batch):
    """Returns the number of a batch, counted across epochs."""
    return batch.epoch * BATCHES + batch.index


def stopping_at_the_last(feed):
    taken = []
    for i, batch in enumerate(feed):
        taken.append(number(batch))
        if i == len(feed) - 1:
            break
    return taken


def open_descriptors():
    return len(os.listdir("/proc/self/fd"))
