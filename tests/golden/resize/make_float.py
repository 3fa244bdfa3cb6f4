#!/usr/bin/env python3
"""Makes float.bin.zst: torchvision's antialiased resizes of float tensors, which filter(bilinear) and filter(bicubic) compute.

    python3 -m venv venv && venv/bin/pip install torch torchvision numpy
    venv/bin/python make_float.py float.bin && zstd -19 --rm float.bin

The file is little-endian: "FLTGOLD1", u32 cases; per case u32 channels, width, height before, width, height after, and filter (1 bilinear,
2 bicubic); then the result as f32, interleaved. Value i of the interleaved input is i * 2654435761 mod 2^32, shifted right by 16 bits. The
committed file was made with torchvision 0.29.2 and torch 2.15.0 on x86-64. torchvision resizes uint16 in f32, too, and truncates the result;
the test rounds this file's numbers instead.
"""
import struct
import sys

import numpy
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

SIZES = [(1, 37, 53, 20, 31), (1, 61, 22, 97, 40), (3, 40, 33, 17, 50), (13, 19, 23, 11, 7), (32, 9, 8, 5, 11), (1, 300, 3, 7, 5), (2, 50, 40, 50, 13)]


def main():
	with open(sys.argv[1], "wb") as out:
		out.write(b"FLTGOLD1" + struct.pack("<I", 2 * len(SIZES)))
		for channels, width, height, new_width, new_height in SIZES:
			numbers = numpy.arange(channels * width * height, dtype=numpy.uint64) * 2654435761 % 2**32 >> 16
			picture = torch.from_numpy(numbers.astype(numpy.float32).reshape(height, width, channels)).permute(2, 0, 1)
			for index, how in enumerate([v2.InterpolationMode.BILINEAR, v2.InterpolationMode.BICUBIC], 1):
				resized = F.resize(picture, [new_height, new_width], interpolation=how, antialias=True)
				out.write(struct.pack("<6I", channels, width, height, new_width, new_height, index))
				out.write(resized.permute(1, 2, 0).contiguous().numpy().astype("<f4").tobytes())


if __name__ == "__main__":
	main()
