#!/usr/bin/env python3
"""Makes the reference data that test_device_resample and test_mix compare with.

    python3 -m venv venv && venv/bin/pip install torch torchvision timm && venv/bin/python make.py

resample.txt has a line per case: the operation, its arguments, and the resulting pixels [n][h][w][3]. The test makes the same input bytes with
the same counter-based generator.
- resize: old and new size; resized by torchvision, on floats.
- mix: by timm's Mixup; for each sample its partner, the sample's share of each pixel outside the box, the box (top, bottom, left, right), and
  the sample's share of the label.
boxes.txt has timm's CutMix boxes: height, width, share, centre, box, corrected share.
"""
import os

import numpy as np
import timm
import timm.data.mixup as mixing
import torch
import torchvision
from torchvision.transforms.v2 import functional

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLES = 4


def uniform(seed, count):
    """splitmix64 of a counter, as in tests/unit/trainer/device/test_device_reference.c."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.arange(count, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95)
        z += np.uint64(0x632BE59BD9B4E019)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def images(height, width):
    """Returns [n][c][h][w], from bytes generated in the order [n][h][w][c]."""
    values = (uniform(9, SAMPLES * height * width * 3) * 256).astype(np.uint8).astype(np.float32)
    return torch.from_numpy(values.reshape(SAMPLES, height, width, 3)).permute(0, 3, 1, 2).contiguous()


def numbers(tensor):
    return " ".join(f"{value:.6g}" for value in tensor.permute(0, 2, 3, 1).reshape(-1).tolist())


def resize(file, from_h, from_w, to_h, to_w):
    result = functional.resize(images(from_h, from_w), [to_h, to_w], antialias=True)
    file.write(f"resize {from_h} {from_w} {to_h} {to_w} {numbers(result)}\n")


def mix(file, seed, height, width, **options):
    """Runs Mixup. Wraps its functions to record what they draw."""
    boxes, drawn = [], {}

    class RecordingMixup(mixing.Mixup):
        def _params_per_elem(self, count):
            drawn["shares"], drawn["cut"] = super()._params_per_elem(count)
            drawn["shares"] = drawn["shares"].copy()
            return drawn["shares"].copy(), drawn["cut"]

        def _params_per_batch(self):
            share, cut = super()._params_per_batch()
            drawn["shares"], drawn["cut"] = [share], [cut]
            return share, cut

    def box_of(*arguments, **more):
        boxes.append(ORIGINAL(*arguments, **more))
        return boxes[-1]

    np.random.seed(seed)
    mixing.cutmix_bbox_and_lam = box_of
    mixed, target = RecordingMixup(label_smoothing=0, num_classes=SAMPLES, **options)(images(height, width), torch.arange(SAMPLES))
    shares, cut = list(drawn["shares"]), list(drawn["cut"])
    of = {"batch": lambda i: 0, "pair": lambda i: min(i, SAMPLES - 1 - i), "elem": lambda i: i}[options["mode"]]
    order = iter(boxes)
    found = [next(order) if c and s != 1 else ((0, 0, 0, 0), s) for s, c in zip(shares, cut)]
    words = []
    for i in range(SAMPLES):
        (top, bottom, left, right), share = found[of(i)]
        own = 1 if cut[of(i)] else shares[of(i)]
        assert abs(float(target[i, i]) - share) < 1e-6
        words += [SAMPLES - 1 - i, f"{own:.9g}", top, bottom, left, right, f"{share:.9g}"]
    file.write(f"mix {height} {width} {' '.join(str(word) for word in words)} {numbers(mixed)}\n")


ORIGINAL = mixing.cutmix_bbox_and_lam
VERSIONS = f"# torch {torch.__version__}, torchvision {torchvision.__version__}, timm {timm.__version__}\n"
with open(os.path.join(HERE, "resample.txt"), "w") as out:
    out.write(VERSIONS)
    for sizes in [(13, 17, 8, 8), (7, 8, 11, 13), (32, 24, 8, 7), (9, 9, 9, 6), (10, 16, 5, 8)]:
        resize(out, *sizes)
    for case in range(2):
        for mode in ("batch", "pair", "elem"):
            mix(out, 3 + case, 8, 9, mixup_alpha=0.8, cutmix_alpha=1.0, mode=mode)
    mix(out, 5, 8, 9, mixup_alpha=0.0, cutmix_alpha=1.0, mode="elem")
    mix(out, 6, 8, 9, mixup_alpha=1.0, cutmix_alpha=0.0, mode="elem")
with open(os.path.join(HERE, "boxes.txt"), "w") as out:
    out.write(VERSIONS)
    for i, (u, v, w) in enumerate(uniform(21, 40 * 3).reshape(40, 3)):
        height, width = [(32, 32), (224, 192), (7, 9)][i % 3]
        # cutmix_bbox_and_lam() draws the row first
        centre = [int(v * height), int(w * width)]
        asked = iter(centre)
        np.random.randint = lambda low, high, size=None: next(asked)
        (top, bottom, left, right), share = ORIGINAL((3, height, width), u)
        out.write(f"{height} {width} {u:.17g} {centre[0]} {centre[1]} {top} {bottom} {left} {right} {share:.17g}\n")
