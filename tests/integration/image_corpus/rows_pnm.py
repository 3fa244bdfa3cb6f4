"""PBM, PGM, PPM: plain and raw, all maximum values, comments."""

import numpy

from image_corpus import Row
from make import pixels

CLIPPED = "Pillow clips grey of more than 8 bits at 255; here it is scaled"

TIES = "Pillow rounds halves to even numbers, here they are rounded up"


def plain_rows(image):
    return b"\n".join(b" ".join(b"%d" % value for value in row.ravel()) for row in image) + b"\n"


def scaled(image, maximum):
    made = (image.astype(int) * 255 + maximum // 2) // maximum
    return (numpy.dstack([made] * 3) if made.ndim == 2 else made).astype(numpy.uint8)


def rows():
    rgb, grey = pixels(), pixels(channels=1)
    bits = (grey > 100).astype(numpy.uint8)
    yield Row("raw.ppm", b"P6\n45 31\n255\n" + rgb.tobytes())
    yield Row("raw.pgm", b"P5\n45 31\n255\n" + grey.tobytes())
    yield Row("raw.pbm", b"P4\n45 31\n" + numpy.packbits(bits, axis=1).tobytes())
    yield Row("plain.ppm", b"P3\n45 31\n255\n" + plain_rows(rgb))
    yield Row("plain.pgm", b"P2\n45 31\n255\n" + plain_rows(grey))
    yield Row("plain.pbm", b"P1\n45 31\n" + plain_rows(bits))
    yield Row("plain-dense.pbm", b"P1\n45 31\n" + plain_rows(bits).replace(b" ", b""))
    for maximum in 1, 7, 100, 254, 1023, 65535:
        values = (rgb.astype(int) * maximum // 255).astype(">u2" if maximum > 255 else numpy.uint8)
        ties = TIES if maximum == 100 else ""
        yield Row(f"raw-{maximum}.ppm", b"P6 45 31 %d\n" % maximum + values.tobytes(), ties, truth=scaled(values, maximum))
        yield Row(f"plain-{maximum}.ppm", b"P3 45 31 %d\n" % maximum + plain_rows(values), ties, truth=scaled(values, maximum))
        values = values[:, :, 0]
        clipped = CLIPPED if maximum > 255 else ties
        yield Row(f"raw-{maximum}.pgm", b"P5 45 31 %d\n" % maximum + values.tobytes(), clipped, truth=scaled(values, maximum))
        yield Row(f"plain-{maximum}.pgm", b"P2 45 31 %d\n" % maximum + plain_rows(values), clipped, truth=scaled(values, maximum))
    yield Row("comments.ppm", b"P6\n# made by hand\n45 # wide\n31\n# high\n255\n" + rgb.tobytes())
    yield Row("comments-plain.pgm", b"P2\n45 31\n255\n# now the pixels\n" + plain_rows(grey))
    yield Row("behind.ppm", b"P6\n45 31\n255\n" + rgb.tobytes() + b"P6\n1 1\n255\nabc")
    yield Row("cut.ppm", b"P6\n45 31\n255\n" + rgb.tobytes()[:-9], refused="its pixels end")
    yield Row("cut-plain.ppm", b"P3\n45 31\n255\n" + plain_rows(rgb)[:-30], "Pillow repeats the last number", refused="its pixels end")
    yield Row("beyond-plain.pgm", b"P2\n45 31\n255\n" + plain_rows(grey).replace(b" ", b" 300 ", 1), refused="not numbers")
    yield Row("words.pgm", b"P2\n45 31\n255\n" + b"many " * 2000, refused="not numbers")
    yield Row("no-size.ppm", b"P6\n# nothing\n", refused="its size is missing")
    yield Row("zero.ppm", b"P6\n0 31\n255\n", refused="size of 0x31")
    yield Row("maximum.ppm", b"P6\n45 31\n65536\n" + rgb.tobytes() * 2, refused="^not supported: PNM of values up to 65536")
    yield Row("maximum-0.ppm", b"P6\n45 31\n0\n" + rgb.tobytes(), refused="maximum value")
    yield Row("pam.pnm", b"P7\nWIDTH 45\nHEIGHT 31\nDEPTH 3\nMAXVAL 255\nTUPLTYPE RGB\nENDHDR\n" + rgb.tobytes(), refused="^PAM image; what is read is")
    yield Row("floats.ppm", b"PF\n45 31\n-1.0\n" + rgb.astype("<f4").tobytes(), refused="^PFM image; what is read is")
