#!/usr/bin/env python3
"""Makes examples.json: torchvision's masks, boxes and points for the examples in proto/python/examples.

    python3 -m venv venv && venv/bin/pip install torch torchvision numpy pillow
    venv/bin/python make_examples.py build/tests/golden/frame_steps examples.json

frame_steps draws the geometric steps of each example's pipeline for the first samples of its generated source, and this script runs
torchvision's transforms.v2.functional with them. Masks are stored as the SHA-256 of their little-endian elements. The committed file was
made with torchvision 0.29.2, torch 2.15.0 and pillow 13.0.0 on x86-64.
"""

import hashlib
import json
import pathlib
import re
import sys

import numpy
import torch
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as F

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "proto/python/examples"))
import make as frame  # noqa: E402
import sources  # noqa: E402

SAMPLES, SEED = 8, 7
CANVAS = (sources.HEIGHT, sources.WIDTH)


def pipeline(example):
    """Returns the example's PIPELINE without its last step. Parses the file, because importing it would need loaderd."""
    text = re.search(r'^PIPELINE = "(.*)"', (ROOT / f"proto/python/examples/{example}.py").read_text(), re.MULTILINE).group(1)
    return text.replace(" sanitize_boxes", "")


def boxes_of(shapes):
    return tv_tensors.BoundingBoxes(torch.tensor([shape["box"] for shape in shapes], dtype=torch.float32), format="XYXY", canvas_size=CANVAS)


def mask_of(image):
    return tv_tensors.Mask(torch.from_numpy(numpy.array(image).astype(numpy.int32)))


def points_of(shapes):
    return tv_tensors.KeyPoints(torch.tensor([sources.points(shape) for shape in shapes], dtype=torch.float32), canvas_size=CANVAS)


def digest(tensor, element):
    return hashlib.sha256(tensor.contiguous().numpy().astype(element).tobytes()).hexdigest()


def segmentation(shapes, move):
    return digest(move(mask_of(sources.class_mask(shapes))), "<u1")


def depth(shapes, move):
    return digest(move(mask_of(sources.depth_mask(shapes))), "<u2")


def detection(shapes, move):
    boxes = move(boxes_of(shapes))
    kept = F.sanitize_bounding_boxes(boxes)[1]
    labels = torch.tensor([shape["class"] for shape in shapes])[kept] + 1
    return {"boxes": boxes[kept].tolist(), "labels": labels.tolist()}


def instances(shapes, move):
    mask, boxes = move(mask_of(sources.number_mask(shapes))), move(boxes_of(shapes))
    kept = F.sanitize_bounding_boxes(boxes)[1]
    numbers = [number + 1 for number, keep in enumerate(kept) if keep]
    return {"boxes": boxes[kept].tolist(), "masks": [digest(mask == number, "<u1") for number in numbers]}


def keypoints(shapes, move):
    boxes, points = move(boxes_of(shapes)), move(points_of(shapes))
    height, width = points.canvas_size
    inside = ((points >= 0) & (points < torch.tensor([width, height]))).all(-1)
    kept = F.sanitize_bounding_boxes(boxes)[1] & inside.any(1)
    visible = torch.cat([points, torch.full((*points.shape[:2], 1), 2.0)], -1) * inside[..., None]
    return {"boxes": boxes[kept].tolist(), "keypoints": visible[kept].tolist()}


def main():
    found = {"samples": SAMPLES, "seed": SEED}
    for example in (segmentation, depth, detection, instances, keypoints):
        name = example.__name__
        steps = frame.drawn_steps(sys.argv[1], [(sources.WIDTH, sources.HEIGHT, SEED, sample, pipeline(name)) for sample in range(SAMPLES)])
        found[name] = [example(sources.scene(sample)[1], lambda value, of=of: frame.run(value, of, [])) for sample, (_, of) in enumerate(steps)]
    with open(sys.argv[2], "w") as out:
        out.write("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in found.items()) + "\n}\n")


if __name__ == "__main__":
    main()
