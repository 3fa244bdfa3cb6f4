#!/usr/bin/env python3
"""Makes golden.bin.zst: the results of torchvision's transforms.v2.functional on small uint8 tensors.

    python3 -m venv venv && venv/bin/pip install torch torchvision numpy && venv/bin/python make.py golden.bin && zstd -19 --rm golden.bin

The file is little-endian: "AUGGOLD1", u32 images, u32 cases; per image u32 width, u32 height and RGB bytes; per case u32 image,
u32 size of a text, the text, and the RGB bytes of the result. The text is a name and its numbers, separated by spaces; the
functions that yield it give their meaning. The committed file was made with torchvision 0.29.2 and torch 2.15.0 on x86-64.
"""
import pathlib
import struct
import sys
from unittest import mock

import numpy
import torch
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "frame"))
from make_boxes import Stream  # noqa: E402

SIZES = [(64, 48), (64, 48), (33, 25), (64, 48), (5, 3), (32, 32)]


def make_image(kind, width, height, noise):
	"""Kinds 0, 4 and 5: gradients, edges and a little noise. 1: noise. 2: like 0, but pale. 3: like 0, but nearly grey."""
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
	"""rotate: degrees, mode, fill (-1: none). affine: degrees, x, y, scale, shears, mode, fill, and 1 if the centre is the corner."""
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


OPERATIONS = ["ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Posterize", "Solarize", "AutoContrast", "Equalize", "Brightness", "Color",
	"Contrast", "Sharpness", "Identity", "Invert"]


def operate(tensor, policy, operation, number, bins, negative, interpolation="nearest", fill=None):
	"""Applies one operation like a policy's forward() after its random choices: magnitude `number` of `bins`, and the sign."""
	space = getattr(policy, "_AUGMENTATION_SPACE")
	magnitudes_of, signed = space[OPERATIONS[operation]]
	magnitudes = magnitudes_of(bins, tensor.shape[-2], tensor.shape[-1])
	magnitude = 0.0 if magnitudes is None else float(magnitudes[number])
	if signed and negative:
		magnitude *= -1
	return policy._apply_image_or_video_transform(tensor, OPERATIONS[operation], magnitude, interpolation, {torch.Tensor: fill})


def policy_cases():
	"""policy: space (0 AutoAugment and RandAugment, 1 TrivialAugmentWide, 2 AugMix), operation, magnitude, number of magnitudes, 1 if
	negative, mode, fill.
	"""
	policies = [v2.RandAugment(), v2.TrivialAugmentWide(), v2.AugMix()]
	count = 0
	for space, policy in enumerate(policies):
		for operation, name in enumerate(OPERATIONS):
			if name not in policy._AUGMENTATION_SPACE:
				continue
			for bins in (10,) if space == 2 else (10, 31):
				for number in (0, 3, bins * 2 // 3, bins - 1):
					count += 1
					negative, mode, fill = count % 2, count // 2 % 2, (-1, -1, 140)[count % 3]
					yield f"policy {space} {operation} {number} {bins} {negative} {mode} {fill}", (
						lambda t, a=(policy, operation, number, bins, negative, MODES[mode], None if fill < 0 else [float(fill)] * 3):
						operate(t, *a))


def mix_cases():
	"""mix: weight of the original, number of chains; for each chain its weight and its length, and for each of its operations the
	operation, the magnitude, and 1 if negative.
	"""
	def mix(tensor, own, chains):
		policy, draws = v2.AugMix(mixture_width=len(chains)), iter([[own, 1 - own], [chain[0] for chain in chains]])
		queue = [step for chain in chains for step in chain[1]]
		lengths = iter([len(chain[1]) for chain in chains])
		real = torch.randint, torch.rand
		at = [-1]
		# The policy draws the length of a chain, then for each step the operation, its magnitude if it has one, and its sign.
		policy._sample_dirichlet = lambda params: torch.tensor([next(draws)])
		def item(space):
			at[0] += 1
			name = OPERATIONS[queue[at[0]][0]]
			return name, space[name]
		policy._get_random_item = item
		torch.randint = lambda *a, **k: torch.tensor([next(lengths)]) if k.get("low") == 1 else torch.tensor(queue[at[0]][1])
		torch.rand = lambda *a: torch.tensor(0.0 if queue[at[0]][2] else 1.0)
		try:
			return policy(tensor)
		finally:
			torch.randint, torch.rand = real
	for own, chains in (
		(0.25, [(0.5, [(4, 2, 0), (8, 0, 0)]), (0.2, [(11, 1, 1)]), (0.3, [(1, 2, 0), (6, 2, 0), (10, 2, 1)])]),
		(0.9, [(1.0, [(7, 0, 0)])]),
		(0.0625, [(0.1, [(2, 2, 1)]), (0.9, [(12, 2, 0), (9, 2, 1)])])):
		numbers = [own, len(chains)]
		for weight, steps in chains:
			numbers += [weight, len(steps)] + [number for step in steps for number in step]
		yield "mix " + " ".join(str(number) for number in numbers), lambda t, own=own, chains=chains: mix(t, own, chains)


def distort(tensor, seed):
	"""random_photometric_distort, which draws from the stream of sample 0 in place of torch."""
	stream = Stream(seed, 0)
	stream.u32()  # whether the step acts, which it always does

	def order(count):
		drawn = list(range(count))
		for i in range(count - 1, 0, -1):
			other = int(stream.randint(0, i + 1, (1,)))
			drawn[i], drawn[other] = drawn[other], drawn[i]
		return torch.tensor(drawn)

	with mock.patch("torch.rand", lambda shape: stream.rand(1) if shape == 1 else stream.rand(1)[0]), mock.patch("torch.randperm", order), mock.patch.object(
		v2.ColorJitter, "_generate_value", lambda low, high: low + (high - low) * float(stream.rand(1))):
		return v2.RandomPhotometricDistort()(tensor)


def distort_cases():
	"""distort: the seed"""
	for seed in range(8):
		yield f"distort {seed}", lambda t, seed=seed: distort(t, seed)


def main():
	noise = numpy.random.default_rng(1)
	images = [make_image(kind, *size, noise) for kind, size in enumerate(SIZES)]
	cases = []
	for index, image in enumerate(images):
		tensor = torch.from_numpy(image).permute(2, 0, 1).contiguous()
		for number, (text, call) in enumerate([*point_cases(), *place_cases(), *policy_cases(), *mix_cases(), *distort_cases()]):
			once = text.startswith("policy")
			if number % 4 == index if once and index < 4 else index == 0 or text.startswith("mix") or (number + index) % (8 if once else 3) == 0 and (index != 4 or not text.startswith("blur")):
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
