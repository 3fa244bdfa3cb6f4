"""Shared by the peer programs: the protocol of measurements.

A peer program takes one JSON argument (its keys are in run, feed_row()), makes an endless iterator of batches and passes it
to serve(). The driver writes "measure WARMUP SECONDS" lines to standard input; serve() answers each with one line of JSON.
"""

import json
import sys
import time

EPOCH_REPEAT = 50


def config():
    return json.loads(sys.argv[1])


def files(folder):
    """Returns paths and class numbers of folder/CLASS/NAME. Classes are numbered in the order of their names."""
    import os

    paths, labels = [], []
    for number, name in enumerate(sorted(os.listdir(folder))):
        for file in sorted(os.listdir(os.path.join(folder, name))):
            paths.append(os.path.join(folder, name, file))
            labels.append(number)
    return paths, labels


def keep_memory():
    """Makes the allocator keep freed memory, for PyTorch on CPUs: it frees each activation, and glibc returns large ones to the kernel, which then has to
    clear their pages in every step (a third of airbench94's time on two cores; PyTorch's tuning guide recommends another allocator for that reason)."""
    import ctypes

    trim_threshold, mmap_max = -1, -4  # M_TRIM_THRESHOLD, M_MMAP_MAX of malloc.h
    libc = ctypes.CDLL(None)
    libc.mallopt(mmap_max, 0)
    libc.mallopt(trim_threshold, -1)


def answer(**values):
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def measure(batches, warmup, seconds):
    """Returns images/s over whole batches: from the first batch after the warm-up to the first one after the window."""
    begin = time.monotonic()
    while True:
        next(batches)
        start = time.monotonic()
        if start - begin >= warmup:
            break
    images = 0
    while True:
        images += len(next(batches))
        elapsed = time.monotonic() - start
        if elapsed >= seconds:
            return images / elapsed


def serve(batches, settings, **versions):
    """Serves measurements. batches: iterator of image batches. settings: a sentence that describes the peer's configuration."""
    answer(ready=True, settings=settings, versions=versions)
    for line in sys.stdin:
        _, warmup, seconds = line.split()
        answer(images_per_s=measure(batches, float(warmup), float(seconds)))
