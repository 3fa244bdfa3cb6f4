"""What tests of package loaderd share: the fake daemon of tests/unit/proto, named in $LOADERD, and what it delivers."""

import os

import loaderd

# where they are installed
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

PATIENCE = 30  # s, for what takes no time but on a busy machine
PIXELS = 4 * 6 * 3
BATCHES = 10


def pixel(epoch, sample):
    return (epoch * 31 + sample * 7) & 255


def open_feed(script="plain", **options):
    """A feed of batches of 8; the fake daemon's last batch is shorter by one unless it is dropped."""
    options.setdefault("batch_size", 8)
    if "last" not in options:
        options.setdefault("drop_last", True)
    return loaderd.Feed(script, daemon="private", **options)


def expected_bytes(batch, size=8):
    return b"".join(
        bytes([pixel(batch.epoch, batch.index * size + i)]) * PIXELS for i in range(batch.count)
    )


def number(batch):
    """Of a batch, counted through all epochs."""
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
