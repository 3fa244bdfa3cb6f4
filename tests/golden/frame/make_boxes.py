#!/usr/bin/env python3
"""Makes boxes.bin.zst: the results of torchvision's RandomIoUCrop, clamp_bounding_boxes and sanitize_bounding_boxes.

    python3 -m venv venv && venv/bin/pip install torch torchvision numpy
    venv/bin/python make_boxes.py boxes.bin [DRAWS [SEED]] && zstd -19 --rm boxes.bin

torchvision's transforms draw from the sample's random stream (format/base/random.h), which replaces torch.rand() and torch.randint().
Two differences from torchvision are deliberate: a sample without boxes, and one without a suitable window after 100 options, stay unchanged.
torchvision would search for a window without end in both cases.
The file is little-endian: "BOXGOLD1", u32 cases; then per case
- the input: u32 width, u32 height, u64 seed, u64 sample, u32 format of the boxes (0 xyxy, 1 xywh, 2 cxcywh), u32 size of the pipeline's text,
  the text, u32 boxes, the boxes (f32 x 4);
- the result: u32 width, u32 height, and for each box a byte (1 if it is kept) and the box (f32 x 4).

The committed file was made with torchvision 0.29.2 and torch 2.15.0 on x86-64.
"""

import random
import struct
import sys
from unittest import mock

import torch
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

FORMATS = [tv_tensors.BoundingBoxFormat.XYXY, tv_tensors.BoundingBoxFormat.XYWH, tv_tensors.BoundingBoxFormat.CXCYWH]
ROUNDS_MAX = 100  # IOU_CROP_ROUNDS_MAX
AUGMENT = 2  # RANDOM_AUGMENT


def philox(key, counter):
    """Returns a block of Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011)."""
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (second >> 32) ^ b ^ k0, second & 0xFFFFFFFF, (first >> 32) ^ d ^ k1, first & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return a, b, c, d


class Stream:
    """The random numbers of a sample in epoch 0. rand() and randint() replace PyTorch's."""

    def __init__(self, seed, sample):
        self.key = philox((seed & 0xFFFFFFFF, seed >> 32), (0, 0, AUGMENT, 0))[:2]
        self.sample = sample
        self.numbers = []
        self.blocks = self.options = 0

    def u32(self):
        if not self.numbers:
            self.numbers = list(philox(self.key, (self.blocks, 0, self.sample & 0xFFFFFFFF, self.sample >> 32)))
            self.blocks += 1
        return self.numbers.pop(0)

    def rand(self, count):
        return torch.tensor([(self.u32() >> 8) * 2.0**-24 for _ in range(count)], dtype=torch.float32)

    def randint(self, low, high, size):
        """Rejection sampling of Lemire, "Fast Random Integer Generation in an Interval" (2019)."""
        assert low == 0 and size == (1,)
        self.options += 1
        if self.options > ROUNDS_MAX:
            raise Endless
        product = self.u32() * high
        while (product & 0xFFFFFFFF) < (2**32 - high) % high:
            product = self.u32() * high
        return torch.tensor([product >> 32])


class Endless(Exception):
    pass


def random_step(draw):
    """Returns the text of a step, and a function that applies it: (image, boxes) -> (image, boxes, mask of the boxes to keep)."""

    def both(transform):
        return lambda image, boxes: (*transform(image, boxes), torch.ones(len(boxes), dtype=torch.bool))

    kind = draw.randrange(7)
    side = draw.randint(20, 120), draw.randint(20, 120)
    if kind == 0:
        return f"resize({side[0]}x{side[1]})", both(v2.Resize([side[1], side[0]]))
    if kind == 1:
        return "hflip", both(v2.RandomHorizontalFlip())
    if kind == 2:
        return "vflip(p=0.3)", both(v2.RandomVerticalFlip(0.3))
    if kind == 3:
        return f"pad({side[0]}x{side[1]})", both(v2.Pad([side[0], side[1]]))
    if kind in (4, 5):
        size, area = draw.choice([(1, 1), (4, 1), (2.5, 40), (1, 300), (17, 17)])

        def sanitize(image, boxes):
            boxes, valid = F.sanitize_bounding_boxes(boxes, min_size=size, min_area=area)
            return image, boxes, valid

        return f"sanitize_boxes(min_size={size}, min_area={area})", sanitize
    return "clamp_boxes", both(v2.ClampBoundingBoxes())


def random_crop(draw, stream):
    low, high = sorted(draw.choice([(0.3, 1), (0.1, 0.5), (0.7, 0.9), (draw.random() / 2 + 0.05, 1)]))
    least, most = draw.choice([(0.5, 2), (0.5, 2), (0.9, 1.1), (2, 4)])
    options = draw.choice([None, None, [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0], [0.5], [0.3, 0.7, 1.0], [0.0], [round(draw.random(), 3), 5]])
    trials = draw.choice([40, 40, 3, 1])
    crop = v2.RandomIoUCrop(low, high, least, most, options, trials)
    listed = f", sampler_options={':'.join(map(str, options))}" if options else ""

    def run(image, boxes):
        all_stay = torch.ones(len(boxes), dtype=torch.bool)
        if len(boxes) == 0:
            return image, boxes, all_stay
        stream.options = 0
        try:
            return *crop(image, boxes), all_stay
        except Endless:
            return image, boxes, all_stay

    return f"random_iou_crop({low}, {high}, {least}, {most}{listed}, trials={trials})", run


def random_boxes(draw, width, height):
    """Returns boxes inside the picture, across its edges, and without an area. Coordinates are multiples of a quarter of a pixel."""
    boxes = []
    for _ in range(draw.choice([1, 2, 5, 9])):
        x, y = draw.uniform(-15, width), draw.uniform(-15, height)
        boxes.append([x, y, draw.uniform(x, width + 15), draw.uniform(y, height + 15)])
        if draw.random() < 0.5:
            boxes[-1] = [min(max(number, 0), most) for number, most in zip(boxes[-1], (width, height, width, height))]
        if draw.random() < 0.1:
            boxes[-1][2] = boxes[-1][0]
    return torch.tensor([[round(number * 4) / 4 for number in box] for box in boxes], dtype=torch.float32)


def floats(tensor):
    return tensor.to(torch.float32).contiguous().numpy().astype("<f4").tobytes()


def run_case(draw, sample):
    width, height, seed = draw.randint(20, 200), draw.randint(20, 200), draw.randrange(2**64)
    stream = Stream(seed, sample)
    steps = [random_step(draw) for _ in range(draw.randint(0, 3))]
    if draw.random() < 0.8:
        steps.insert(draw.randint(0, len(steps)), random_crop(draw, stream))
    # Other formats than xyxy round differently in the last bits, so sanitize could find a box at the edge to be outside.
    form = 0 if any("sanitize" in text for text, _ in steps) else draw.randrange(3)
    given = F.convert_bounding_box_format(random_boxes(draw, width, height), FORMATS[0], FORMATS[form])
    image = tv_tensors.Image(torch.zeros(1, height, width, dtype=torch.uint8))
    boxes = tv_tensors.BoundingBoxes(given.clone(), format=FORMATS[form], canvas_size=(height, width))
    numbers = torch.arange(len(given))
    with mock.patch("torch.rand", stream.rand), mock.patch("torch.randint", stream.randint):
        for _, step in steps:
            image, boxes, stays = step(image, boxes)
            numbers = numbers[stays]
    text = " ".join(text for text, _ in steps).encode()
    out = torch.zeros_like(given)
    out[numbers] = boxes.as_subclass(torch.Tensor)
    kept = bytes(number in numbers for number in range(len(given)))
    head = struct.pack("<2I2Q2I", width, height, seed, sample, form, len(text)) + text + struct.pack("<I", len(given)) + floats(given)
    return head + struct.pack("<2I", image.shape[2], image.shape[1]) + kept + floats(out)


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 250
    draw = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    with open(sys.argv[1], "wb") as out:
        out.write(b"BOXGOLD1" + struct.pack("<I", count))
        for sample in range(count):
            out.write(run_case(draw, sample))
    print(count, "cases")


if __name__ == "__main__":
    main()
