"""Reads an epoch: latency_epoch.py DATASET samples|blocks LOADERCTL. Prints seconds until the first batch and from it to the last one, images in these, images/s after the first quarter, and what the fetcher says of itself."""

import json
import os
import re
import subprocess
import sys
import time

import loaderd

begun = time.monotonic()
with loaderd.Feed(sys.argv[1], pipeline="random_resized_crop(224) hflip", batch_size=64, shuffle=True, order=sys.argv[2], daemon="private", threads=2) as feed:
    batches = iter(feed)
    next(batches)
    first = time.monotonic()
    images, settled, settled_images = 0, first, 0
    for batch in batches:
        images += len(batch.images)
        if settled == first and images >= feed.samples / 4:
            settled, settled_images = time.monotonic(), images
    ended = time.monotonic()
    status = json.loads(subprocess.run([sys.argv[3], "remote", "--json"], stdout=subprocess.PIPE, check=True).stdout)
with open(f"/proc/{status['pid']}/status") as file:
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1]) * 1024
counts = {name: status["datasets"][0][name] for name in ("requests", "retries", "hedges", "latency_ms")}
with open(f"/proc/{status['pid']}/stat") as file:
    ticks = sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
print(json.dumps({"first_s": first - begun, "rest_s": ended - first, "images": images, "settled_rate": (images - settled_images) / (ended - settled), "fetcher_bytes": peak, "fetcher_us": ticks * 1e6 / os.sysconf("SC_CLK_TCK") / images, **counts}))
