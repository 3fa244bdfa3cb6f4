"""Converts a folder of class folders with FFCV's writer, and reports its time without start-up.

One JSON argument: data, out, mode ("jpg" or "raw"), short_side (0 keeps the size), workers.
"""

import peer
import cv2
import numpy
import time
from ffcv.fields import IntField, RGBImageField
from ffcv.writer import DatasetWriter
from importlib.metadata import version

config = peer.config()
paths, labels = peer.files(config["data"])
cv2.setNumThreads(1)


class Images:
    def __len__(self):
        return len(paths)

    def __getitem__(self, index):
        # OpenCV decodes and shrinks faster than Pillow; INTER_AREA is its method for shrinking.
        image = cv2.cvtColor(cv2.imread(paths[index], cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
        short = min(image.shape[:2])
        if 0 < config["short_side"] < short:
            scale = config["short_side"] / short
            size = [max(1, round(n * scale)) for n in (image.shape[1], image.shape[0])]
            image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
        return numpy.ascontiguousarray(image), labels[index]


begin = time.monotonic()
DatasetWriter(
    config["out"],
    {"image": RGBImageField(write_mode=config["mode"], jpeg_quality=90), "label": IntField()},
    num_workers=config["workers"],
).from_indexed_dataset(Images(), chunksize=50)
peer.answer(images=len(paths), seconds=time.monotonic() - begin, versions={"ffcv": version("ffcv")})
