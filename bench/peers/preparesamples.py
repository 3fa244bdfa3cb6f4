"""Makes the files of the rows with structured samples, with Pillow, the same for every loader.

preparesamples.py ORIGINALS OUT COPIES makes, of the JPEG files in class folders of ORIGINALS, with COPIES hard links of each file:
    OUT/mask512    images/ JPEG, quality 90, 4:2:0, short side 512 (smaller ones are enlarged), masks/ PNG, numbers of classes, as of ADE20K
    OUT/mask2048   the same of 2048 x 1024, eight originals in each, as of Cityscapes
    OUT/boxes      train/ the images of mask512, annotations/instances_train.json, as of COCO
    OUT/depth16    images/ those of mask512, depth/ PNG of 16 bits, millimetres, as of depth cameras
    OUT/check/...  the same of the pictures of check.py

Masks, boxes and depths are drawn at random and unrelated to the photographs: regions with straight and curved borders, a number of boxes that is distributed as COCO's,
planes with the noise of a depth camera. Originals with a short side below 256 are left out.
"""

import json
import math
import os
import random
import sys
from multiprocessing import Pool

import check
import numpy
from PIL import Image, ImageDraw

SHORT, STREET = 512, (2048, 1024)
SOURCE_MIN = 256  # of the short side of an original
TILE = 512  # eight make a picture of STREET
CLASSES = 80  # of boxes, as COCO
BOXES_MEAN, BOXES_MAX = 7.3, 60  # of an image; COCO's train2017 has 860,001 in 117,266 images
REGIONS = {"mask512": (3, 6, 8, 20), "mask2048": (4, 8, 25, 55)}  # areas across the picture, objects: least and most
SUFFIX = {"images": "jpg", "train": "jpg", "masks": "png", "depth": "png"}


def save(image, out, number, copies, **how):
    """Saves an image as number-0 and its hard links."""
    folder, kind = os.path.split(out)
    first = os.path.join(out, f"{number:06}-0.{SUFFIX[kind]}")
    image.save(first, **how)
    for copy in range(1, copies):
        os.link(first, os.path.join(out, f"{number:06}-{copy}.{SUFFIX[kind]}"))
    return first


def link(first, out, number, copies):
    for copy in range(copies):
        os.link(first, os.path.join(out, f"{number:06}-{copy}.jpg"))


def scaled(path, short):
    with Image.open(path) as source:
        image = source.convert("RGB")
    scale = short / min(image.size)
    return image.resize([max(short, round(n * scale)) for n in image.size], Image.Resampling.LANCZOS)


def street(paths):
    """Returns a picture of eight originals, the middle of each."""
    picture = Image.new("RGB", STREET)
    for i, path in enumerate(paths):
        image = scaled(path, TILE)
        left, top = ((n - TILE) // 2 for n in image.size)
        picture.paste(image.crop((left, top, left + TILE, top + TILE)), (i % 4 * TILE, i // 4 * TILE))
    return picture


def border(draw, width, height):
    """Returns points of a line across a picture, straight or in waves."""
    waves = [(draw.uniform(0, 0.06) * height, draw.uniform(1, 6), draw.uniform(0, 7)) for _ in range(draw.choice((0, 3)))]
    y, slope = draw.uniform(0.1, 0.9) * height, draw.uniform(-0.3, 0.3) * height
    return [
        (width * x / 64, y + slope * (x / 64 - 0.5) + sum(a * math.sin(f * x / 10 + p) for a, f, p in waves)) for x in range(65)
    ]


def outline(draw, width, height):
    """Returns the corners of an object: a polygon, or a closed curve in waves."""
    size = height * math.exp(draw.uniform(math.log(0.03), math.log(0.4)))
    x, y, shape = draw.uniform(0, width), draw.uniform(0, height), math.exp(draw.uniform(-0.7, 0.7))
    corners, waves = draw.choice(((4, 0), (5, 0), (48, 0.1), (48, 0.25)))
    turn, count = draw.uniform(0, 7), draw.randint(2, 6)
    angles = [turn + 2 * math.pi * i / corners for i in range(corners)]
    radii = [size * (1 + waves * math.sin(count * angle)) for angle in angles]
    return [(x + r * math.cos(a) * shape, y + r * math.sin(a) / shape) for r, a in zip(radii, angles)]


def regions(draw, form, size):
    """Returns a mask of class numbers 0 .. 150."""
    least, most, few, many = REGIONS[form]
    mask = Image.new("L", size, draw.randint(0, 150))
    pen = ImageDraw.Draw(mask)
    for _ in range(draw.randint(least, most)):
        line = border(draw, *size)
        end = draw.choice((0, size[1]))
        pen.polygon([(0, end), *line, (size[0], end)], fill=draw.randint(0, 150))
    for _ in range(draw.randint(few, many)):
        pen.polygon(outline(draw, *size), fill=draw.randint(0, 150))
    return mask


def depths(draw, mask):
    """Returns a raster of millimetres: a plane for each region, and noise that grows with the square of the distance."""
    numbers = numpy.asarray(mask)
    height, width = numbers.shape
    planes = numpy.array([[draw.uniform(800, 8000), draw.uniform(-1500, 1500), draw.uniform(-1500, 1500)] for _ in range(256)])
    base, x, y = (planes[numbers, i] for i in range(3))
    metres = (base + x * numpy.linspace(-0.5, 0.5, width) + y * numpy.linspace(-0.5, 0.5, height)[:, None]) / 1000
    noise = numpy.random.default_rng(draw.getrandbits(32)).normal(size=metres.shape)
    # The standard deviation of Kinect's noise: Khoshelham and Elberink 2012, "Accuracy and Resolution of Kinect Depth Data".
    return Image.fromarray((1000 * metres + 1.425 * metres**2 * noise).round().clip(1, 65535).astype("<u2"))


def boxes(draw, width, height):
    """Returns rows (left, top, width, height, class from 1), as many as COCO's images have on average; one image in 100 has none."""
    count = 0 if draw.random() < 0.01 else min(BOXES_MAX, 1 + int(draw.expovariate(1 / (BOXES_MEAN - 0.5))))
    rows = []
    for _ in range(count):
        w, h = (max(2, n * math.exp(draw.uniform(math.log(0.03), math.log(0.8)))) for n in (width, height))
        rows.append((draw.uniform(0, width - w), draw.uniform(0, height - h), w, h, draw.randint(1, CLASSES)))
    return rows


def make_street(job):
    out, number, copies, paths = job
    draw = random.Random(f"street {number}")
    save(street(paths), os.path.join(out, "mask2048/images"), number, copies, quality=90, subsampling="4:2:0")
    save(regions(draw, "mask2048", STREET), os.path.join(out, "mask2048/masks"), number, copies)


def make_sample(job):
    """Makes a sample of every form but mask2048, and returns number, size and boxes."""
    out, number, copies, path = job
    draw = random.Random(f"sample {number}")
    image = scaled(path, SHORT)
    mask = regions(draw, "mask512", image.size)
    put(out, number, copies, image, mask, depths(draw, mask), dict(quality=90, subsampling="4:2:0"))
    return number, image.size, boxes(draw, *image.size)


def put(out, number, copies, image, mask, depth, how):
    first = save(image, os.path.join(out, "mask512/images"), number, copies, **how)
    for folder in ("boxes/train", "depth16/images"):
        link(first, os.path.join(out, folder), number, copies)
    save(mask, os.path.join(out, "mask512/masks"), number, copies)
    save(depth, os.path.join(out, "depth16/depth"), number, copies)


def make_check(job):
    """Makes a check picture of every form, as make_sample() does."""
    out, number = job
    size = random.Random(f"check {number}").choice(((SHORT, SHORT), (SHORT + 170, SHORT), (SHORT, SHORT + 256)))
    image, mask, count, depth = check.picture(number, *size)
    put(out, number, 1, *(Image.fromarray(array) for array in (image, mask, depth)), dict(quality=98, subsampling="4:4:4"))
    image, mask, _, _ = check.picture(number, *STREET)
    save(Image.fromarray(image), os.path.join(out, "mask2048/images"), number, 1, quality=98, subsampling="4:4:4")
    save(Image.fromarray(mask), os.path.join(out, "mask2048/masks"), number, 1)
    width, height = size
    edges = [check.box_of(kind) for kind in range(count)]
    return number, size, [(a * width, b * height, (c - a) * width, (d - b) * height, kind + 1) for kind, (a, b, c, d) in enumerate(edges)]


def write_coco(out, samples, copies):
    images, annotations = [], []
    for number, (width, height), rows in samples:
        for copy in range(copies):
            images.append({"id": len(images) + 1, "file_name": f"{number:06}-{copy}.jpg", "width": width, "height": height})
            for left, top, w, h, kind in rows:
                annotations.append({
                    "id": len(annotations) + 1, "image_id": len(images), "category_id": kind, "iscrowd": 0, "area": round(w * h, 2),
                    "bbox": [round(n, 2) for n in (left, top, w, h)],
                })  # fmt: skip
    categories = [{"id": kind, "name": f"class {kind}"} for kind in range(1, CLASSES + 1)]
    os.makedirs(os.path.join(out, "boxes/annotations"))
    with open(os.path.join(out, "boxes/annotations/instances_train.json"), "w") as file:
        json.dump({"images": images, "annotations": annotations, "categories": categories}, file)


def folders(out):
    for folder in ("mask512/images", "mask512/masks", "mask2048/images", "mask2048/masks", "boxes/train", "depth16/images", "depth16/depth"):
        os.makedirs(os.path.join(out, folder))


def originals(top):
    for name in sorted(os.listdir(top)):
        for file in sorted(os.listdir(os.path.join(top, name))):
            path = os.path.join(top, name, file)
            if file.lower().endswith((".jpg", ".jpeg")) and min(Image.open(path).size) >= SOURCE_MIN:
                yield path


def main():
    source, out, copies = sys.argv[1], sys.argv[2], int(sys.argv[3])
    paths = list(originals(source))
    if len(paths) < 8:
        sys.exit(f"{source}: {len(paths)} JPEG files in class folders have a short side of {SOURCE_MIN} or more; at least 8 are needed")
    proofs = os.path.join(out, "check")
    folders(out)
    folders(proofs)
    with Pool() as pool:
        samples = pool.map(make_sample, [(out, i, copies, path) for i, path in enumerate(paths)], chunksize=8)
        write_coco(out, samples, copies)
        pool.map(make_street, [(out, i, copies, paths[8 * i : 8 * i + 8]) for i in range(len(paths) // 8)], chunksize=2)
        write_coco(proofs, pool.map(make_check, [(proofs, i) for i in range(check.SAMPLES)]), 1)


if __name__ == "__main__":
    main()
