"""Reads an epoch of MDS shards, which are copied from a folder first: streaming_epoch.py FOLDER CACHE. Prints the seconds."""

import json
import sys
import time

import streaming
import torch
from crop import BATCH, WORKERS, crop
from streaming.base.util import clean_stale_shared_memory


class Images(streaming.StreamingDataset):
    def __getitem__(self, index):
        return crop(super().__getitem__(index)["image"])


if __name__ == "__main__":
    clean_stale_shared_memory()
    dataset = Images(remote=sys.argv[1], local=sys.argv[2], shuffle=True, batch_size=BATCH)
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, num_workers=WORKERS, prefetch_factor=2)
    begun = time.monotonic()
    count = sum(len(batch) for batch in loader)
    print(json.dumps([time.monotonic() - begun]))
