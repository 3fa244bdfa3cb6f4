#!/usr/bin/env python3
"""Makes golden.bin and cubic.bin: Pillow's results for small images with many crops, sizes and flips.

    python3 -m venv venv && venv/bin/pip install pillow numpy && venv/bin/python make.py golden.bin cubic.bin

The file is little-endian: "RSZGOLD1", u32 images, u32 cases; per image u32 width, u32 height and RGB bytes; per case twelve
u32 (image; x, y, width, height of the crop; width, height after the resize; x, y, width, height of the window in the resized
image; flips, 1 horizontal, 2 vertical) and the RGB bytes of the window. Pillow crops, resizes and crops to the window; it
resizes with BILINEAR in golden.bin and with BICUBIC in cubic.bin, which has fewer cases.
"""
import random
import struct
import sys

import numpy
from PIL import Image

SIZES = [(40, 40), (100, 71), (53, 97), (64, 48), (33, 3), (1, 29), (90, 61)]


def make_image(kind, width, height, noise):
	"""Smooth waves with edges, noise, or noise of the values 0 and 255 only ("contrast")."""
	x = numpy.arange(width)[None, :, None] / max(width, 1)
	y = numpy.arange(height)[:, None, None] / max(height, 1)
	channel = numpy.arange(3)[None, None, :]
	if kind == "noise":
		return noise.integers(0, 256, (height, width, 3), dtype=numpy.uint8)
	if kind == "contrast":
		return (noise.integers(0, 2, (height, width, 3)) * 255).astype(numpy.uint8)
	waves = 128 + 60 * numpy.sin(9 * x + 2 * channel) * numpy.cos(7 * y - channel) + 50 * (x + y > 1)
	return numpy.clip(waves + noise.normal(0, 9, (height, width, 3)), 0, 255).astype(numpy.uint8)


def make_case(image, index, draw, how):
	width, height = image.size
	shape = draw.choice(["up", "down", "odd", "same", "window"])
	w, h = draw.randint(max(1, width // 4), width), draw.randint(max(1, height // 4), height)
	x, y = draw.randint(0, width - w), draw.randint(0, height - h)
	if shape == "up":
		grid = (draw.randint(w, min(80, 5 * w)) if w < 80 else w, draw.randint(h, min(80, 5 * h)) if h < 80 else h)
	elif shape == "down":
		grid = (draw.randint(1, w), draw.randint(1, h))
	elif shape == "odd":
		grid = (draw.randint(1, 70), draw.randint(1, 70))
	elif shape == "same":
		grid = (w, draw.randint(1, 50))
	else:
		x, y, w, h = 0, 0, width, height
		grid = (draw.randint(20, 120), draw.randint(20, 120))
	window = (0, 0, *grid)
	if shape == "window":
		cut = (draw.randint(1, min(grid[0], 60)), draw.randint(1, min(grid[1], 60)))
		window = (draw.randint(0, grid[0] - cut[0]), draw.randint(0, grid[1] - cut[1]), *cut)
	flips = draw.randint(0, 3)
	result = image.crop((x, y, x + w, y + h))
	# force the horizontal pass first, as in Pillow 9.4; Pillow 13.0 chooses the order by the sizes
	if how == Image.Resampling.BICUBIC:
		result = result.resize((grid[0], h), how)
	result = result.resize(grid, how)
	result = result.crop((window[0], window[1], window[0] + window[2], window[1] + window[3]))
	if flips & 1:
		result = result.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
	if flips & 2:
		result = result.transpose(Image.Transpose.FLIP_TOP_BOTTOM)
	return struct.pack("<12I", index, x, y, w, h, *grid, *window, flips) + result.tobytes()


def write(path, images, cases):
	with open(path, "wb") as out:
		out.write(b"RSZGOLD1" + struct.pack("<2I", len(images), len(cases)))
		for image in images:
			out.write(struct.pack("<2I", *image.size) + image.tobytes())
		for case in cases:
			out.write(case)


def main():
	noise, draw = numpy.random.default_rng(1), random.Random(1)
	images = []
	for number, size in enumerate(SIZES):
		for kind in ["waves", "noise", "contrast"][: 3 if number < 4 else 2]:
			images.append(Image.fromarray(make_image(kind, *size, noise), "RGB"))
	write(sys.argv[1], images, [make_case(image, index, draw, Image.Resampling.BILINEAR)
		for index, image in enumerate(images) for _ in range(14)])
	few = [images[i] for i in (2, 4, 7, 12, 15)]
	write(sys.argv[2], few, [make_case(image, index, draw, Image.Resampling.BICUBIC) for index, image in enumerate(few) for _ in range(14)])


if __name__ == "__main__":
	main()
