"""Times other libraries on the work of our kernels, and prints lines like those of tests/kernels with --bench. Run by bench/kernels.

Arguments: "resize" or "effects", and "pillow", "opencv" or "torchvision". One thread, CPU time, minimum over many repetitions.
"""

import math
import sys
import time

import numpy

SIDE, TURNS, CROPS = 224, 30, 64
random = numpy.random.default_rng(3)


def min_ns(work):
    best = math.inf
    for _ in range(TURNS):
        begin = time.process_time_ns()
        work()
        best = min(best, time.process_time_ns() - begin)
    return best


def print_time(name, library, ns, unit):
    print(f"{name:<34} {library:<13} {ns:9.3f} ns a {unit}")


def pillow():
    from PIL import Image, ImageEnhance, ImageOps

    filters = Image.Resampling
    matrix = (0.9, 0.3, 1, -0.3, 0.9, 2)
    size = (SIDE, SIDE)
    return Image.fromarray, {
        "table": lambda image: ImageOps.solarize(image, 128),
        "histogram": lambda image: image.histogram(),
        "grayscale": lambda image: image.convert("L").convert("RGB"),
        "saturation": lambda image: ImageEnhance.Color(image).enhance(1.4),
        "nearest": lambda image: image.transform(size, Image.Transform.AFFINE, matrix, filters.NEAREST),
        "bilinear": lambda image: image.transform(size, Image.Transform.AFFINE, matrix, filters.BILINEAR),
        "sharpen": lambda image: ImageEnhance.Sharpness(image).enhance(1.9),
    }, lambda image, box, to: image.resize(to, filters.BILINEAR, box=box)


def opencv():
    import cv2

    cv2.setNumThreads(1)
    matrix = numpy.array([[0.9, 0.3, 1], [-0.3, 0.9, 2]])
    table = numpy.arange(256, dtype=numpy.uint8)[::-1].copy()
    size = (SIDE, SIDE)

    def resize(image, box, to):
        left, top, right, bottom = box
        return cv2.resize(image[top:bottom, left:right], to, interpolation=cv2.INTER_AREA)

    def warp(image, how):
        return cv2.warpAffine(image, matrix, size, flags=how | cv2.WARP_INVERSE_MAP)

    return lambda image: image, {
        "table": lambda image: cv2.LUT(image, table),
        "histogram": lambda image: [cv2.calcHist([image], [c], None, [256], [0, 256]) for c in range(3)],
        "grayscale": lambda image: cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB),
        "nearest": lambda image: warp(image, cv2.INTER_NEAREST),
        "bilinear": lambda image: warp(image, cv2.INTER_LINEAR),
        "blur": lambda image: cv2.GaussianBlur(image, (23, 23), 2),
    }, resize


def torchvision():
    import torch
    from torchvision.transforms.v2 import InterpolationMode
    from torchvision.transforms.v2 import functional as F

    torch.set_num_threads(1)

    def rotate(image, how):
        return F.affine(image, 18, [1, 2], 1.05, [0, 0], how)

    def resize(image, box, to):
        left, top, right, bottom = box
        return F.resize(image[:, top:bottom, left:right], to[::-1], antialias=True)

    def tensor(image):
        # the memory layout of decode_jpeg's results
        return torch.from_numpy(image).permute(2, 0, 1).contiguous()

    return tensor, {
        "table": lambda image: F.solarize(image, 128),
        "grayscale": lambda image: F.rgb_to_grayscale(image, 3),
        "saturation": lambda image: F.adjust_saturation(image, 1.4),
        "hue": lambda image: F.adjust_hue(image, 0.1),
        "nearest": lambda image: rotate(image, InterpolationMode.NEAREST),
        "bilinear": lambda image: rotate(image, InterpolationMode.BILINEAR),
        "sharpen": lambda image: F.adjust_sharpness(image, 1.9),
        "blur": lambda image: F.gaussian_blur(image, [23, 23], [2, 2]),
    }, resize


def crops(width, height):
    """Draws crops as torchvision's RandomResizedCrop does."""
    boxes = []
    while len(boxes) < CROPS:
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(-1, 1) * math.log(4 / 3))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if w <= width and h <= height:
            x, y = random.integers(0, width - w + 1), random.integers(0, height - h + 1)
            boxes.append((int(x), int(y), int(x) + w, int(y) + h))
    return boxes


def print_resizes(library, prepare, resize):
    for width, height, side in ((341, 256, 224), (468, 401, 224), (341, 256, 128), (500, 375, 64)):
        image = prepare(noise(width, height))
        boxes = crops(width, height)
        pixels = sum((right - left) * (bottom - top) for left, top, right, bottom in boxes)
        ns = min_ns(lambda: [resize(image, box, (side, side)) for box in boxes])
        print_time(f"crops of {width}x{height} to {side}", library, ns / pixels, "source pixel")
    for width, height, to in ((500, 375, (341, 256)), (4000, 3000, (341, 256)), (32, 32, (32, 24))):
        image = prepare(noise(width, height))
        ns = min_ns(lambda: resize(image, (0, 0, width, height), to))
        print_time(f"{width}x{height} to {to[0]}x{to[1]}", library, ns / (width * height), "source pixel")


def noise(width, height):
    return random.integers(0, 256, (height, width, 3), dtype=numpy.uint8)


def main():
    what, library = sys.argv[1:]
    prepare, effects, resize = {"pillow": pillow, "opencv": opencv, "torchvision": torchvision}[library]()
    if what == "resize":
        print_resizes(library, prepare, resize)
    else:
        image = prepare(noise(SIDE, SIDE))
        for name, effect in effects.items():
            print_time(name, library, min_ns(lambda: effect(image)) / SIDE**2, "pixel")


main()
