"""Reads two epochs: loaderd_epochs.py DATASET samples|blocks. Prints the seconds of each, the first from before the feed is opened, and those to the first batch."""

import json
import sys
import time

import loaderd

begun = start = time.monotonic()
seconds, first, count = [], None, 0
with loaderd.Feed(sys.argv[1], pipeline="random_resized_crop(224) hflip", batch_size=64, shuffle=True, order=sys.argv[2], daemon="private", threads=2) as feed:
    for _ in range(2):
        count = 0
        for batch in feed:
            first = first or time.monotonic() - start
            count += len(batch.images)
        seconds.append(time.monotonic() - begun)
        begun = time.monotonic()
print(json.dumps({"seconds": seconds, "first": first, "samples": count}))
