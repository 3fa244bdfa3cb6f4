"""WebP: lossy and lossless, with and without alpha."""

import numpy
from PIL import Image

from image_corpus import Row
from make import needs, pixels, run_on_files, pillow_file

needs("webp", "img2webp", "webpmux")


def rows():
    rgb = pixels()
    alpha = numpy.dstack([rgb, pixels(channels=1)])
    alpha[5:20, 5:20, 3] = 0
    yield Row("lossy.webp", pillow_file(rgb, "WEBP", quality=80), part="webp")
    yield Row("lossless.webp", pillow_file(rgb, "WEBP", lossless=True), part="webp")
    yield Row("lossy-alpha.webp", pillow_file(alpha, "WEBP", quality=80), part="webp")
    yield Row("lossless-alpha.webp", pillow_file(alpha, "WEBP", lossless=True, exact=True), part="webp")
    frames = [Image.fromarray(pixels(seed=seed)) for seed in (2, 3)]
    yield Row("animated.webp", pillow_file(rgb, "WEBP", save_all=True, append_images=frames, duration=50, lossless=True), part="webp")
    small = [pillow_file(image, "WEBP", lossless=True) for image in (rgb, pixels(90, 70))]
    # the first frame is smaller than the canvas
    yield Row("animated-inside.webp", run_on_files(["webpmux", "-frame", "IN0", "+50+10+20+0+b", "-frame", "IN1", "+50+0+0+0+b", "-bgcolor", "255,9,8,7", "-o", "OUT"],
                                                   *small), part="webp")
    for name, quality in ("lossless", "-lossless"), ("lossy", "-lossy"):
        yield Row(f"animated-{name}-alpha.webp", run_on_files(["img2webp", quality, "IN0", "IN1", "-o", "OUT"], pillow_file(alpha, "PNG"), pillow_file(rgb, "PNG")), part="webp")
    lossy = pillow_file(rgb, "WEBP", quality=80)
    yield Row("vp9.webp", lossy[:12] + b"VP9 " + lossy[16:], refused="^not supported: WebP", part="webp")
    yield Row("cut.webp", lossy[:len(lossy) // 2], refused="damaged", part="webp")
