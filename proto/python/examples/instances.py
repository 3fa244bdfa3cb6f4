"""Instance masks with boxes: Penn-Fudan's pedestrians train torchvision's Mask R-CNN on a small backbone.

    python instances.py [PennFudanPed]        (PNGImages/NAME.png and PedMasks/NAME_mask.png, in which each object has a number of its own)
"""

import numpy as np
import torch
from PIL import Image
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor

import common
import small_rcnn
import sources
from loaderd import Feed, Writer

PIPELINE = "random_resized_crop(128, scale=0.5:1) hflip color_jitter(0.2, 0.2) sanitize_boxes"
VALUES = ["mask", "boxes", "instance"]
SCHEMA = """
    image: image u8[h,w,3]
    mask: mask(image) u8[h,w]
    boxes: boxes(image) f32[*,4] xyxy
    instance: value(boxes) i32[*]
"""


def pack(source, packed):
    with Writer(packed, SCHEMA) as writer:
        for image in sorted((source / "PNGImages").glob("*.png")):
            mask = np.array(Image.open(source / "PedMasks" / f"{image.stem}_mask.png"))
            numbers = np.unique(mask[mask > 0])
            boxes = [box_of(mask == number) for number in numbers]
            writer.add({"image": image, "mask": mask, "boxes": boxes, "instance": numbers, "key": image.stem})


def box_of(inside):
    """The smallest box (left, top, right, bottom) around the pixels."""
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    return columns[0], rows[0], columns[-1] + 1, rows[-1] + 1


def targets(batch):
    """A dictionary for each image, as torchvision's models take them, with a mask for each box."""
    found = []
    for mask, boxes, numbers in zip(torch.from_numpy(batch["mask"]), batch["boxes"].list(), batch["instance"].list()):
        masks = mask[None] == numbers[:, None, None]
        found.append({"boxes": boxes, "labels": torch.ones(len(masks), dtype=torch.int64), "masks": masks.to(torch.uint8)})
    return found


def make_model():
    return MaskRCNN(
        mask_roi_pool=small_rcnn.pool(14), mask_head=MaskRCNNHeads(small_rcnn.CHANNELS, (64, 64), 1),
        mask_predictor=MaskRCNNPredictor(64, 64, 2), **small_rcnn.arguments(classes=2),
    )  # fmt: skip


def train(packed, steps):
    torch.manual_seed(0)
    with Feed(packed, pipeline=PIPELINE, batch_size=4, shuffle=True, values=VALUES) as feed:
        yield from small_rcnn.fit(make_model(), feed, steps, targets)


if __name__ == "__main__":
    common.main(__doc__, pack, train, sources.penn_fudan)
