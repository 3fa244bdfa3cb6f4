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


MODES = [F.InterpolationMode.NEAREST, F.InterpolationMode.BILINEAR]


def place_cases():
	"""rotate: degrees, mode, fill (-1: none). affine: degrees, x, y, scale, shears, mode, fill, about the corner?"""
	for factor in (0.0, 0.3, 1.0, 1.9, 2.7):
		yield f"sharpness {factor}", lambda t, factor=factor: F.adjust_sharpness(t, factor)
	for size, sigma in ((3, 0.8), (5, 0.1), (5, 1.1), (9, 2.0), (23, 0.5), (23, 2.0), ((3, 7), 1.3)):
		size = (size, size) if isinstance(size, int) else size
		yield f"blur {size[0]} {size[1]} {sigma}", lambda t, size=size, sigma=sigma: F.gaussian_blur(t, size, [sigma, sigma])
	for number, degrees in enumerate((0, 90, 180, 270, 13, -30, 135, 3.3, -77.7)):
		for mode in (0, 1):
			fill = (-1, 0, 99)[(number + mode) % 3]
			yield f"rotate {degrees} {mode} {fill}", lambda t, d=degrees, mode=mode, fill=fill: F.rotate(
				t, d, MODES[mode], fill=None if fill < 0 else [float(fill)] * 3)
	for number, (degrees, x, y, scale, shear_x, shear_y) in enumerate((
		(0, 5, 0, 1, 0, 0), (0, 0, -7, 1, 0, 0), (0, 0, 0, 1, 8.5, 0), (0, 0, 0, 1, 0, -16.7), (17, 3, -4, 1.3, 5, -7),
		(-100, -1, 2, 0.6, -11, 20))):
		for mode in (0, 1):
			for corner in (0, 1):
				fill = (-1, 0, 200)[(number + mode + corner) % 3]
				yield f"affine {degrees} {x} {y} {scale} {shear_x} {shear_y} {mode} {fill} {corner}", lambda t, a=(
					degrees, [x, y], scale, [shear_x, shear_y]), mode=mode, fill=fill, corner=corner: F.affine(
					t, *a, MODES[mode], fill=None if fill < 0 else [float(fill)] * 3, center=[0, 0] if corner else None)
	yield "erase 1 0 2 3 7", lambda t: F.erase(t, 0, 1, 3, 2, torch.tensor(7.0))


def main():
	noise = numpy.random.default_rng(1)
	images = [make_image(kind, *size, noise) for kind, size in enumerate(SIZES)]
	cases = []
	for index, image in enumerate(images):
		tensor = torch.from_numpy(image).permute(2, 0, 1).contiguous()
		for number, (text, call) in enumerate([*point_cases(), *place_cases()]):
			if index == 0 or (number + index) % 3 == 0 and (index != 4 or not text.startswith("blur")):
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
