"""What the peer programs share: being measured.

A peer program gets one JSON argument (the keys are in run, feed_row()), makes an endless iterator of batches and hands it
to serve(). The driver writes "measure WARMUP SECONDS" lines to standard input; each is answered with one line of JSON.
"""

import json
import sys
import time

EPOCH_REPEAT = 50


def config():
    return json.loads(sys.argv[1])


def files(folder):
    """Paths and class numbers of folder/CLASS/NAME, classes in order of name."""
    import os

    paths, labels = [], []
    for number, name in enumerate(sorted(os.listdir(folder))):
        for file in sorted(os.listdir(os.path.join(folder, name))):
            paths.append(os.path.join(folder, name, file))
            labels.append(number)
    return paths, labels


def keep_memory():
    """Lets the allocator keep what is freed, for PyTorch on CPUs: it frees each activation, and glibc gives the large ones back to the kernel, which has to
    clear their pages anew in every step (a third of airbench94's time on two cores; PyTorch's tuning guide advises another allocator against that)."""
    import ctypes

    trim_threshold, mmap_max = -1, -4  # M_TRIM_THRESHOLD, M_MMAP_MAX of malloc.h
    libc = ctypes.CDLL(None)
    libc.mallopt(mmap_max, 0)
    libc.mallopt(trim_threshold, -1)


def answer(**facts):
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def measure(batches, warmup, seconds):
    """images/s over whole batches: from the first that comes after the warm-up to the first after the window."""
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
    """batches: an iterator of image batches. settings: a sentence that says how the peer was set up."""
    answer(ready=True, settings=settings, versions=versions)
    for line in sys.stdin:
        _, warmup, seconds = line.split()
        answer(images_per_s=measure(batches, float(warmup), float(seconds)))
