"""Detection: COCO's boxes train torchvision's Faster R-CNN on a small backbone.

    python detection.py [annotations/instances_train2017.json]
"""

import subprocess
import sys

import torch
from torchvision.models.detection import FasterRCNN
from torchvision.ops import box_convert

import common
import small_rcnn
import sources
from loaderd import Feed

PIPELINE = "random_resized_crop(128, scale=0.5:1) hflip color_jitter(0.2, 0.2) sanitize_boxes"
VALUES = ["boxes", "class", "iscrowd"]


def pack(source, packed):
    subprocess.run([sys.executable, "-m", "loaderd.convert", source, packed], check=True)


def targets(batch):
    """A dictionary for each image, as torchvision's models take them; class 0 is the background. Leaves out crowds."""
    found = []
    for boxes, classes, crowd in zip(batch["boxes"].list(), batch["class"].list(), batch["iscrowd"].list()):
        single = crowd == 0
        found.append({"boxes": box_convert(boxes[single], "xywh", "xyxy"), "labels": classes[single].long() + 1})
    return found


def train(packed, steps, classes=91):
    torch.manual_seed(0)
    with Feed(packed, pipeline=PIPELINE, batch_size=4, shuffle=True, values=VALUES) as feed:
        yield from small_rcnn.fit(FasterRCNN(**small_rcnn.arguments(classes)), feed, steps, targets)


if __name__ == "__main__":
    common.main(__doc__, pack, train, lambda folder: sources.coco(folder, "instances"))
