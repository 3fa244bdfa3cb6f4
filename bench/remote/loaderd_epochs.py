"""Reads two epochs: loaderd_epochs.py DATASET samples|blocks. Prints the seconds of each, the first from before the feed is opened."""

import json
import sys
import time

import loaderd

begun = time.monotonic()
seconds = []
with loaderd.Feed(sys.argv[1], pipeline="random_resized_crop(224) hflip", batch_size=64, shuffle=True, order=sys.argv[2], daemon="private", threads=2) as feed:
    for _ in range(2):
        count = sum(len(batch.images) for batch in feed)
        seconds.append(time.monotonic() - begun)
        begun = time.monotonic()
print(json.dumps(seconds))
