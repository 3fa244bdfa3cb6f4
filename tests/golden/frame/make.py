#!/usr/bin/env python3
"""Makes frame.bin.zst: where torchvision's transforms.v2.functional move masks, boxes and keypoints.

    python3 -m venv venv && venv/bin/pip install torch torchvision numpy
    venv/bin/python make.py build/tests/golden/frame_steps frame.bin [DRAWS] && zstd -19 --rm frame.bin

frame_steps draws the steps of each sample, and this script runs torchvision's functions with them: DRAWS samples of random pipelines
after those of the table. The file is little-endian: "FRMGOLD2", u32 cases, u32 boxes, u32 points; then per case
- the input: u32 width, u32 height, u64 seed, u64 sample, u32 size of the pipeline's text, the text, boxes as xyxy (f32 x 4), points (f32 x 2),
  rotated boxes (f32 x 5);
- the result: u32 width, u32 height, the mask (u8), boxes as xyxy, xywh and cxcywh, points, one byte for each box (1 if
  sanitize_bounding_boxes() keeps it); rotated boxes, and one byte for each (1 if all of it is inside the picture, 2 if a corner is on its
  edge); and one byte: 1 if a bilinearly resized raster of f32 follows (as u16, in steps of 1 / 64).

Pixel (x, y) of the input's mask and raster is (7 x + 13 y) mod 251. The committed file was made with torchvision 0.29.2 and torch 2.15.0 on
x86-64.

torchvision moves the rotated boxes in f64, because its f32 loses most digits in clamp_bounding_boxes(). sanitize_bounding_boxes() is not
called for them, because it measures their sides by the wrong corners.
"""
import random
import struct
import subprocess
import sys

import numpy
import torch
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

BOXES, POINTS = 8, 6
CROP, PAD, RESIZE, HFLIP, VFLIP, WARP = range(6)
FORMATS = [tv_tensors.BoundingBoxFormat.XYXY, tv_tensors.BoundingBoxFormat.XYWH, tv_tensors.BoundingBoxFormat.CXCYWH]

# A pipeline and the arguments of its warps: degrees, clockwise as in affine(); scale; shears.
TABLE = [
	("hflip(p=1)", []),
	("vflip(p=1)", []),
	("resize(40)", []),
	("resize(33x57)", []),
	("hflip(p=1) resize(33x27)", []),
	("resize(33x27) hflip(p=1)", []),
	("vflip(p=1) resize(70x81) hflip(p=1)", []),
	("center_crop(30x20)", []),
	("center_crop(80)", []),
	("pad(5x9)", []),
	("pad(3) resize(50) pad(2)", []),
	("random_crop(32)", []),
	("random_crop(32, padding=6) hflip", []),
	("random_resized_crop(48)", []),
	("random_resized_crop(48x31, scale=0.1:0.5) hflip vflip", []),
	("hflip random_resized_crop(17, scale=0.3:0.9)", []),
	("resize(48) random_crop(40) hflip", []),
	("resize(48) center_crop(40) resize(61x23) vflip", []),
	("random_zoom_out(p=1) resize(70x50)", []),
	("random_rotation(30:30)", [(-30, 1, (0, 0))]),
	("random_rotation(-75:-75) hflip", [(75, 1, (0, 0))]),
	("random_resized_crop(40) random_rotation(10:10)", [(-10, 1, (0, 0))]),
	("random_affine(20:20, scale=1.3:1.3)", [(20, 1.3, (0, 0))]),
	("random_affine(0:0, translate=0.2:0.1)", [(0, 1, (0, 0))]),
	("random_affine(-15:-15, translate=0.1:0.1, scale=0.7:0.7, shear=5:5:-8:-8)", [(-15, 0.7, (5, -8))]),
	("hflip random_affine(8:8, shear=10:10:0:0) random_crop(28) random_rotation(90:90)", [(8, 1, (10, 0)), (-90, 1, (0, 0))]),
]


def random_case(draw):
	"""Returns a pipeline of one to four steps, and the arguments of its warps as in TABLE."""
	steps, warps = [], []
	for _ in range(draw.randint(1, 4)):
		kind = draw.randrange(10)
		if kind == 0:
			steps.append(f"random_resized_crop({draw.randint(8, 64)}x{draw.randint(8, 64)}, scale={draw.choice(['0.08:1', '0.3:1', '0.1:0.3'])})")
		elif kind == 1:
			steps.append(f"resize({draw.randint(10, 80)}x{draw.randint(10, 80)})")
		elif kind == 2:
			steps.append(f"resize({draw.randint(10, 70)})")
		elif kind == 3:
			steps.append(f"center_crop({draw.randint(8, 70)}x{draw.randint(8, 70)})")
		elif kind == 4:
			steps.append(f"resize(30x40) random_crop({draw.randint(8, 30)}, padding={draw.randint(0, 6)})")
		elif kind == 5:
			steps.append(f"pad({draw.randint(1, 9)}x{draw.randint(1, 9)})")
		elif kind == 6:
			steps.append("hflip vflip")
		elif kind == 7:
			steps.append(f"random_zoom_out(side_range=1:2) resize({draw.randint(8, 64)}x{draw.randint(8, 64)})")
		elif kind == 8:
			degrees = draw.randint(-180, 180)
			steps.append(f"random_rotation({degrees}:{degrees})")
			warps.append((-degrees, 1, (0, 0)))
		else:
			degrees, scale, x, y = draw.randint(-180, 180), draw.randint(5, 20) / 10, draw.randint(-20, 20), draw.randint(-20, 20)
			steps.append(f"random_affine({degrees}:{degrees}, translate=0.1:0.2, scale={scale}:{scale}, shear={x}:{x}:{y}:{y})")
			warps.append((degrees, scale, (x, y)))
	return " ".join(steps), warps


def draw_coordinates(draw, width, height):
	"""Returns boxes of all sizes inside the picture, and points."""
	boxes = []
	for _ in range(BOXES):
		x, y = draw.uniform(0, width), draw.uniform(0, height)
		boxes.append([x, y, draw.uniform(x, width), draw.uniform(y, height)])
	boxes[0] = [0, 0, width, height]
	boxes[1] = [x, y, x + 0.5, y + 0.5]
	points = [[draw.uniform(0, width - 1), draw.uniform(0, height - 1)] for _ in range(POINTS)]
	return torch.tensor(boxes, dtype=torch.float32), torch.tensor(points, dtype=torch.float32)


def draw_rotated(draw, boxes):
	"""The boxes with a rotation: of any angle, and of those at which sines vanish."""
	rotated = F.convert_bounding_box_format(boxes.clone(), tv_tensors.BoundingBoxFormat.XYXY, tv_tensors.BoundingBoxFormat.CXCYWH)
	degrees = [draw.choice([draw.uniform(-180, 180), draw.uniform(-10, 10), draw.choice([0, 30, 90, -90, 180, 270])]) for _ in boxes]
	return torch.cat([rotated, torch.tensor(degrees, dtype=torch.float32)[:, None]], dim=1)


def inside(rotated, width, height):
	corners = F.convert_bounding_box_format(rotated, tv_tensors.BoundingBoxFormat.CXCYWHR, tv_tensors.BoundingBoxFormat.XYXYXYXY)
	most = torch.tensor([width, height] * 4)
	least = torch.minimum(corners, most - corners).amin(dim=1)
	return torch.where(least.abs() < 1e-3, 2, (least > 0).to(torch.int64)).to(torch.uint8)


def drawn_steps(program, cases):
	"""Runs frame_steps on cases (width, height, seed, sample, pipeline). Yields for each the finished sample's (width, height), and its steps."""
	lines = "".join("%d %d %d %d %s\n" % case for case in cases)
	printed = iter(subprocess.run([program], input=lines, capture_output=True, text=True, check=True).stdout.splitlines())
	for _ in cases:
		width, height, count = map(int, next(printed).split())
		words = (next(printed).split() for _ in range(count))
		yield (width, height), [[*map(int, step[:6]), *map(float, step[6:])] for step in words]


def run_step(value, step, warps):
	kind, x, y, width, height, reflect, translate_x, translate_y = step
	old_height, old_width = F.get_size(value)
	if kind == CROP:
		return F.crop(value, y, x, height, width)
	if kind == PAD:
		assert not reflect
		return F.pad(value, [x, y, width - old_width - x, height - old_height - y])
	if kind == RESIZE:
		return F.resize(value, [height, width])
	if kind in (HFLIP, VFLIP):
		return F.horizontal_flip(value) if kind == HFLIP else F.vertical_flip(value)
	degrees, scale, shear = warps.pop(0)
	return F.affine(value, degrees, [translate_x, translate_y], scale, list(shear))


def run(value, steps, warps):
	left = list(warps)
	for step in steps:
		value = run_step(value, step, left)
	assert not left
	return value


def floats(tensor):
	return tensor.to(torch.float32).contiguous().numpy().astype("<f4").tobytes()


def main():
	draw, rotations = random.Random(1), random.Random(2)
	cases = [(text, warps, 64, 48, index, index) for index, (text, warps) in enumerate(TABLE)]
	cases += [(text, warps, 61, 90, 100 + index, 5) for index, (text, warps) in enumerate(TABLE)]
	for index in range(int(sys.argv[3]) if len(sys.argv) > 3 else 0):
		cases.append((*random_case(draw), draw.randint(9, 99), draw.randint(9, 99), draw.randrange(2**32), index))
	drawn = drawn_steps(sys.argv[1], [(width, height, seed, sample, text) for text, _, width, height, seed, sample in cases])
	with open(sys.argv[2], "wb") as out:
		out.write(b"FRMGOLD2" + struct.pack("<3I", len(cases), BOXES, POINTS))
		for index, (text, warps, width, height, seed, sample) in enumerate(cases):
			(out_width, out_height), steps = next(drawn)
			boxes, points = draw_coordinates(draw, width, height)
			rotated = draw_rotated(rotations, boxes)
			x, y = numpy.meshgrid(numpy.arange(width), numpy.arange(height))
			mask = tv_tensors.Mask(torch.from_numpy(((7 * x + 13 * y) % 251).astype(numpy.uint8)))
			result = run(mask, steps, warps)
			assert tuple(result.shape) == (out_height, out_width)
			out.write(struct.pack("<2I2QI", width, height, seed, sample, len(text)) + text.encode() + floats(boxes) + floats(points) + floats(rotated))
			out.write(struct.pack("<2I", out_width, out_height) + result.contiguous().numpy().tobytes())
			for form in FORMATS:
				given = F.convert_bounding_box_format(boxes.clone(), tv_tensors.BoundingBoxFormat.XYXY, form)
				moved = run(tv_tensors.BoundingBoxes(given, format=form, canvas_size=(height, width)), steps, warps)
				assert tuple(moved.canvas_size) == (out_height, out_width)
				out.write(floats(moved.as_subclass(torch.Tensor)))
				if form == FORMATS[0]:
					kept = v2.functional.sanitize_bounding_boxes(moved)[1]
			keypoints = tv_tensors.KeyPoints(points.clone(), canvas_size=(height, width))
			out.write(floats(run(keypoints, steps, warps).as_subclass(torch.Tensor)))
			out.write(kept.to(torch.uint8).numpy().tobytes())
			turned = tv_tensors.BoundingBoxes(rotated.to(torch.float64), format="CXCYWHR", canvas_size=(height, width))
			turned = run(turned, steps, warps).as_subclass(torch.Tensor)
			out.write(floats(turned) + inside(turned, out_width, out_height).numpy().tobytes())
			has_depth = not warps and index % 6 == 0
			out.write(bytes([has_depth]))
			if has_depth:
				depth = run(tv_tensors.Image(mask.as_subclass(torch.Tensor)[None].to(torch.float32)), steps, warps)
				out.write(numpy.round(depth.contiguous().numpy() * 64).astype("<u2").tobytes())
	print(len(cases), "cases")


if __name__ == "__main__":
	main()
