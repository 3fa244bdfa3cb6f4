"""JPEG of four components: CMYK and YCCK, with Adobe's marker and without."""

from PIL import Image

from image_corpus import Row
from make import jpegtran, pixels, pillow_file, without_segments

ADOBE = 0xEE


def rows():
    cmyk = pillow_file(Image.fromarray(pixels(channels=4), "CMYK"), "JPEG", quality=90)
    yield Row("cmyk.jpg", cmyk)
    yield Row("cmyk-no-marker.jpg", without_segments(cmyk, ADOBE))
    yield Row("cmyk-progressive.jpg", jpegtran(cmyk, "-progressive"))
    yield Row("cmyk-progressive-no-marker.jpg", without_segments(jpegtran(cmyk, "-progressive"), ADOBE))
    yield Row("cmyk-arithmetic.jpg", jpegtran(cmyk, "-arithmetic"))
    # the same bytes declared as YCCK: interpreted as Y, Cb, Cr and K
    at = cmyk.index(b"Adobe") + 11
    yield Row("ycck.jpg", cmyk[:at] + b"\2" + cmyk[at + 1:])
