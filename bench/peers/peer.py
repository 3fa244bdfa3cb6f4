"""Shared by the peer programs: the protocol of measurements.

A peer program takes one JSON argument (its keys are in run, feed_row()), makes an endless iterator of batches and passes it
to serve(). The driver writes "measure WARMUP SECONDS" lines to standard input; serve() answers each with one line of JSON.
A batch is an array of images, or, in rows with structured samples, a dictionary of arrays by name: image, mask, boxes, class, depth; in the row
mix-512, image and part, the number of the dataset, in the row buckets-512 image; in rows with views, a list of arrays, one for each copy. Key
"views" of the argument has (copies, side, smallest and largest area) of each view, key "simclr" whether SimCLR's colour and blur follow each crop.
"""

import itertools
import json
import math
import os
import sys
import time

EPOCH_REPEAT = 50
STRUCTURED = ("mask512", "mask2048", "boxes", "depth16")  # forms of preparesamples.py
ORDERED = ("mix", "buckets")  # forms of orders.py
SHARES = (3, 1)  # of the datasets of mix
BUCKETS = ((384, 640), (448, 576), (512, 512), (576, 448), (640, 384))  # width and height
CHECKED_BATCHES = 8  # of a row of ORDERED


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


def parts(folder):
    """Returns the paths of all images of form mix, and the number of the dataset of each."""
    found = [files(part)[0] for part in listed(folder)]
    return [path for paths in found for path in paths], [number for number, paths in enumerate(found) for _ in paths]


def bucket_of(width, height):
    """Returns the number of the bucket of the nearest aspect ratio."""
    return min(range(len(BUCKETS)), key=lambda i: abs(math.log(BUCKETS[i][0] / BUCKETS[i][1] * height / width)))


def bucket_files(folder):
    """Returns the paths of all images of form buckets, and the number of the bucket of each."""
    paths = files(folder)[0]
    return paths, [bucket_of(*jpeg_size(path)) for path in paths]


def jpeg_size(path):
    """Returns width and height of a JPEG file without EXIF data, which has a frame of SOF0 to SOF2 before its scans."""
    with open(path, "rb") as file:
        data = file.read()
    at = 2
    while data[at + 1] not in (0xC0, 0xC1, 0xC2):
        at += 2 + int.from_bytes(data[at + 2 : at + 4], "big")
    return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")


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


def first_of(batches):
    """Returns copies of the first batches: a loader may reuse the memory of a batch."""
    import check

    return [{name: check.arrays(value).copy() for name, value in batch.items()} for batch in itertools.islice(batches, CHECKED_BATCHES)]


def checked(make):
    """Returns make(folder of the data), an iterator of batches, after it has checked batches of make(folder of the check pictures), if the row has
    these; those of the row mix-512, which has none, themselves."""
    given = config()
    if "check" in given:
        import check

        if given["form"] == "buckets":
            check.judge_buckets(first_of(make(given["check"])), given["batch"])
        else:
            check.judge(next(make(given["check"])), given["batch"], given["side"])
    batches = make(given["data"])
    if given.get("form") == "mix":
        import check

        check.judge_mix(first_of(batches), given["batch"], given["side"])
    return batches


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
    """Returns the CPU time so far of this program's session: of its worker processes, too, which it has not waited for, and of its daemon."""
    ticks = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == os.getsid(0):
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
