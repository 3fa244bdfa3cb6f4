"""Keypoints: COCO's people train torchvision's Keypoint R-CNN on a small backbone.

    python keypoints.py [annotations/person_keypoints_train2017.json]
"""

import subprocess
import sys

import torch
from torchvision.models.detection import KeypointRCNN
from torchvision.models.detection.keypoint_rcnn import KeypointRCNNHeads, KeypointRCNNPredictor
from torchvision.ops import box_convert

import common
import small_rcnn
import sources
from loaderd import Feed

PIPELINE = "random_resized_crop(128, scale=0.5:1) color_jitter(0.2, 0.2) sanitize_boxes"  # hflip would swap left and right
VALUES = ["boxes", "keypoints"]


def pack(source, packed):
    subprocess.run([sys.executable, "-m", "loaderd.convert", source, packed], check=True)


def targets(batch):
    """A dictionary for each image. Points that the crop left outside are marked as unlabelled, as COCO does with v = 0."""
    found = []
    for boxes, points in zip(batch["boxes"].list(), batch["keypoints"].list()):
        inside = ((points[..., :2] >= 0) & (points[..., :2] < torch.tensor([batch.width, batch.height]))).all(-1)
        points = points * inside[..., None]
        kept = (points[..., 2] > 0).any(1)
        boxes = box_convert(boxes[kept], "xywh", "xyxy")
        found.append({"boxes": boxes, "labels": torch.ones(len(boxes), dtype=torch.int64), "keypoints": points[kept]})
    return found


def make_model(points):
    return KeypointRCNN(
        keypoint_roi_pool=small_rcnn.pool(14), keypoint_head=KeypointRCNNHeads(small_rcnn.CHANNELS, (64, 64)),
        keypoint_predictor=KeypointRCNNPredictor(64, points), **small_rcnn.arguments(classes=2),
    )  # fmt: skip


def train(packed, steps):
    torch.manual_seed(0)
    with Feed(packed, pipeline=PIPELINE, batch_size=4, shuffle=True, values=VALUES) as feed:
        points = next(feed)["keypoints"].values.shape[1]
        yield from small_rcnn.fit(make_model(points), feed, steps, targets)


if __name__ == "__main__":
    common.main(__doc__, pack, train, lambda folder: sources.coco(folder, "person_keypoints"))
