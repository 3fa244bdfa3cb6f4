"""Reads an epoch of tar shards by HTTP: webdataset_epoch.py URL... Prints the seconds."""

import json
import sys
import time

import webdataset
from crop import BATCH, WORKERS, crop
from torch.utils.data import default_collate

data = webdataset.WebDataset([f"pipe:curl -s -L -f {url}" for url in sys.argv[1:]], shardshuffle=100).shuffle(1000).map(lambda sample: crop(sample["jpg"]))
loader = webdataset.WebLoader(data.batched(BATCH, default_collate), batch_size=None, num_workers=WORKERS, prefetch_factor=2)
begun = time.monotonic()
count = sum(len(batch) for batch in loader)
print(json.dumps([time.monotonic() - begun]))
