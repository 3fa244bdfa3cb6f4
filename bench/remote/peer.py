"""What the programs of the peers share: the crop, and their two commands.

    NAME_peer.py write LIST FOLDER     packs the images of a list (CSV with paths) as the peer's documentation says
    NAME_peer.py read PLACE CACHE      reads an epoch of what is at PLACE, an address or a folder, with an empty CACHE; prints its seconds and samples, and
                                       the seconds to the first batch
"""

import csv
import itertools
import json
import sys
import time
import urllib.request

import numpy
import torch
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import v2

BATCH = 64
WORKERS = 2
SHARD_SAMPLES = 500
SHARDS = "shards"  # a file beside the shards, with a name in each line
torch.set_num_threads(1)
transform = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()])


def images(path):
    """The files of a list."""
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            with open(row["path"], "rb") as image:
                yield image.read()


def in_shards(items):
    items = iter(items)
    while shard := list(itertools.islice(items, SHARD_SAMPLES)):
        yield shard


def shards(place):
    """The addresses of shards at an address."""
    with urllib.request.urlopen(f"{place}/{SHARDS}") as file:
        return [f"{place}/{name}" for name in file.read().decode().split()]


def crop(data):
    """decode_jpeg, a random-resized crop to 224, a flip."""
    return transform(decode_jpeg(torch.from_numpy(numpy.frombuffer(data, "u1").copy()), mode=ImageReadMode.RGB))


def crop_all(items):
    """The batch of samples that are dicts, for DataLoader's collate_fn."""
    return torch.stack([crop(item["image"]) for item in items])


def main(write, read):
    """write(LIST, FOLDER); read(PLACE, CACHE) returns an iterable of batches, which makes its first request when it begins."""
    command, *paths = sys.argv[1:]
    if command == "write":
        write(*paths)
        return
    batches = read(*paths)
    begun = time.monotonic()
    count, first = 0, None
    for batch in batches:
        first = first or time.monotonic() - begun
        count += len(batch)
    print(json.dumps({"seconds": [time.monotonic() - begun], "first": first, "samples": count}))
