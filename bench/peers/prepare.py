"""Makes the images that every loader reads, with Pillow: folders of class folders.

prepare.py ORIGINALS OUT COPIES makes, unless they are there:
    OUT/original   the files as they are, in colour or grey, COPIES hard links of each
    OUT/short256   short side 256 (never enlarged), JPEG quality 90, 4:2:0
    OUT/raw        the pixels of short256: height and width as little-endian uint32, then R, G, B
"""

import os
import sys
from multiprocessing import Pool

import numpy
from PIL import Image

originals, out, copies = sys.argv[1], sys.argv[2], int(sys.argv[3])


def jobs():
    for name in sorted(os.listdir(originals)):
        folder = os.path.join(originals, name)
        for file in sorted(os.listdir(folder)):
            if file.lower().endswith((".jpg", ".jpeg")):
                yield name, os.path.join(folder, file), os.path.splitext(file)[0]


def link(path, name, stem, kind, suffix):
    for copy in range(1, copies):
        os.link(path, os.path.join(out, kind, name, f"{stem}-{copy}{suffix}"))


def make(job):
    name, path, stem = job
    with Image.open(path) as source:
        image = source.convert("RGB")
    scale = min(1, 256 / min(image.size))
    if scale < 1:
        image = image.resize([max(1, round(n * scale)) for n in image.size], Image.Resampling.BOX)
    for kind in ("original", "short256", "raw"):
        os.makedirs(os.path.join(out, kind, name), exist_ok=True)
    target = os.path.join(out, "original", name, stem + "-0.jpg")
    with open(path, "rb") as source, open(target, "wb") as copy:
        copy.write(source.read())
    link(target, name, stem, "original", ".jpg")
    target = os.path.join(out, "short256", name, stem + "-0.jpg")
    image.save(target, quality=90, subsampling="4:2:0")
    link(target, name, stem, "short256", ".jpg")
    target = os.path.join(out, "raw", name, stem + "-0.rgb")
    with Image.open(os.path.join(out, "short256", name, stem + "-0.jpg")) as source:
        pixels = numpy.asarray(source.convert("RGB"))
    with open(target, "wb") as file:
        file.write(numpy.array(pixels.shape[:2], "<u4").tobytes() + pixels.tobytes())
    link(target, name, stem, "raw", ".rgb")


if __name__ == "__main__":
    with Pool() as pool:
        pool.map(make, jobs(), chunksize=8)
