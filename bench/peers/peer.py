"""Shared by the peer programs: the protocol of measurements.

A peer program takes one JSON argument (its keys are in run, feed_row()), makes an endless iterator of batches and passes it
to serve(). The driver writes "measure WARMUP SECONDS" lines to standard input; serve() answers each with one line of JSON.
A batch is an array of images, or, in rows with structured samples, a dictionary of arrays by name: image, mask, boxes, class, depth; in rows
with views, a list of arrays, one for each copy. Key "views" of the argument has (copies, side, smallest and largest area) of each view, key
"simclr" whether SimCLR's colour and blur follow each crop.
"""

import json
import os
import sys
import time

EPOCH_REPEAT = 50
STRUCTURED = ("mask512", "mask2048", "boxes", "depth16")  # forms of preparesamples.py


def config():
    return json.loads(sys.argv[1])


def files(folder):
    """Returns paths and class numbers of folder/CLASS/NAME. Classes are numbered in the order of their names."""
    paths, labels = [], []
    for number, name in enumerate(sorted(os.listdir(folder))):
        for file in sorted(os.listdir(os.path.join(folder, name))):
            paths.append(os.path.join(folder, name, file))
            labels.append(number)
    return paths, labels


def is_structured(config):
    return "views" not in config and config["form"] in STRUCTURED


def images(config):
    """Returns the paths of all images of a row with views."""
    return listed(os.path.join(config["data"], "images")) if config["form"] in STRUCTURED else files(config["data"])[0]


def copies(config):
    """Returns (side, (smallest area, largest area)) of each copy of all views."""
    return [(side, (low, high)) for count, side, low, high in config["views"] for _ in range(count)]


def listed(folder):
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))]


def samples(folder, form):
    """Returns the columns of a form that preparesamples.py makes: paths of images, masks and depths; boxes (xyxy) and class numbers as lists."""
    if form == "boxes":
        return coco_samples(folder)
    second = "depth" if form == "depth16" else "mask"
    folders = {"mask": "masks", "depth": "depth"}
    return {"image": listed(os.path.join(folder, "images")), second: listed(os.path.join(folder, folders[second]))}


def coco_samples(folder):
    with open(coco_file(folder)) as file:
        coco = json.load(file)
    columns = {"image": [os.path.join(folder, "train", image["file_name"]) for image in coco["images"]]}
    columns["boxes"], columns["class"] = [[] for _ in coco["images"]], [[] for _ in coco["images"]]
    for annotation in coco["annotations"]:
        left, top, width, height = annotation["bbox"]
        number = annotation["image_id"] - 1
        columns["boxes"][number].append((left, top, left + width, top + height))
        columns["class"][number].append(annotation["category_id"] - 1)
    return columns


def coco_file(folder):
    return os.path.join(folder, "annotations/instances_train.json")


def checked(make):
    """Returns make(folder of the data), an iterator of batches, after it has checked a batch of make(folder of the check pictures), if the row has these."""
    given = config()
    if "check" in given:
        import check

        check.judge(next(make(given["check"])), given["batch"], given["side"])
    return make(given["data"])


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


def count(batch):
    return len(batch["image"] if isinstance(batch, dict) else batch[0] if isinstance(batch, list) else batch)


def cpu_seconds():
    """Returns the CPU time so far of this program's process group: of its worker processes, too, which it has not waited for."""
    ticks = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == os.getpgrp():
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(batches, warmup, seconds):
    """Returns images/s and images per second of CPU time over whole batches: from the first batch after the warm-up to the first one after the window."""
    begin = time.monotonic()
    while True:
        next(batches)
        start = time.monotonic()
        if start - begin >= warmup:
            break
    images, cpu = 0, cpu_seconds()
    while True:
        images += count(next(batches))
        elapsed = time.monotonic() - start
        if elapsed >= seconds:
            used = cpu_seconds() - cpu
            return {"images_per_s": images / elapsed, **({"images_per_cpu_s": images / used} if used else {})}


def serve(batches, settings, **versions):
    """Serves measurements. batches: iterator of batches. settings: a sentence that describes the peer's configuration."""
    answer(ready=True, settings=settings, versions=versions)
    for line in sys.stdin:
        _, warmup, seconds = line.split()
        answer(**measure(batches, float(warmup), float(seconds)))
