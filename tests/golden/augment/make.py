#!/usr/bin/env python3
"""Makes golden.bin.zst: what torchvision's transforms.v2.functional make of small uint8 tensors.

    python3 -m venv venv && venv/bin/pip install torch torchvision numpy && venv/bin/python make.py golden.bin && zstd -19 --rm golden.bin

The file is little-endian: "AUGGOLD1", u32 images, u32 cases; per image u32 width, u32 height and RGB bytes; per case u32 image,
u32 size of a text, the text, and the RGB bytes that came out. The text is a name and numbers, separated by spaces; what they
mean stands in the calls below. torchvision 0.29.2 with torch 2.15.0 on x86-64 made the committed file.
"""
import struct
import sys

import numpy
import torch
from torchvision.transforms.v2 import functional as F

SIZES = [(64, 48), (64, 48), (33, 25), (64, 48), (5, 3), (32, 32)]


def make_image(kind, width, height, noise):
	"""0: a picture of gradients, edges and a little noise; 1: noise; 2: the same picture, pale; 3: nearly grey; 4, 5: as 0."""
	x = numpy.arange(width)[None, :, None] / max(width, 1)
	y = numpy.arange(height)[:, None, None] / max(height, 1)
	channel = numpy.arange(3)[None, None, :]
	if kind == 1:
		return noise.integers(0, 256, (height, width, 3), dtype=numpy.uint8)
	waves = 128 + 90 * numpy.sin(5 * x + 2 * channel) * numpy.cos(4 * y - channel) + 60 * (x + y > 1) - 50 * (x > 0.8)
	if kind == 2:
		waves = 110 + waves / 5
	if kind == 3:
		waves = waves[:, :, :1] + numpy.array([[[0, 1, 0]]])
	return numpy.clip(waves + noise.normal(0, 4 if kind != 3 else 0.4, (height, width, 3)), 0, 255).astype(numpy.uint8)


def point_cases():
	for factor in (0.0, 0.1, 0.6, 1.0, 1.1, 1.73, 3.0):
		yield f"brightness {factor}", lambda t, factor=factor: F.adjust_brightness(t, factor)
		yield f"contrast {factor}", lambda t, factor=factor: F.adjust_contrast(t, factor)
		yield f"saturation {factor}", lambda t, factor=factor: F.adjust_saturation(t, factor)
	for turns in (-0.5, -0.31, -0.1, 0, 0.05, 0.2, 0.5):
		yield f"hue {turns}", lambda t, turns=turns: F.adjust_hue(t, turns)
	yield "grayscale", lambda t: F.rgb_to_grayscale(t, num_output_channels=3)
	yield "invert", F.invert
	for threshold in (0, 99.5, 128, 255):
		yield f"solarize {threshold}", lambda t, threshold=threshold: F.solarize(t, threshold)
	for bits in (0, 1, 4, 7, 8):
		yield f"posterize {bits}", lambda t, bits=bits: F.posterize(t, bits)
	yield "autocontrast", F.autocontrast
	yield "equalize", F.equalize


def main():
	noise = numpy.random.default_rng(1)
	images = [make_image(kind, *size, noise) for kind, size in enumerate(SIZES)]
	cases = []
	for index, image in enumerate(images):
		tensor = torch.from_numpy(image).permute(2, 0, 1).contiguous()
		for number, (text, call) in enumerate(point_cases()):
			if index < 2 or (number + index) % 3 == 0:
				cases.append((index, text, call(tensor)))
	with open(sys.argv[1], "wb") as out:
		out.write(b"AUGGOLD1" + struct.pack("<2I", len(images), len(cases)))
		for image in images:
			out.write(struct.pack("<2I", image.shape[1], image.shape[0]) + image.tobytes())
		for index, text, result in cases:
			assert result.dtype == torch.uint8 and result.shape[0] == 3
			out.write(struct.pack("<2I", index, len(text)) + text.encode() + result.permute(1, 2, 0).contiguous().numpy().tobytes())
	print(len(cases), "cases")


if __name__ == "__main__":
	main()
