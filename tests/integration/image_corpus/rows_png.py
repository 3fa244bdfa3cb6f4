"""PNG: colour types, depths and ancillary chunks."""

import numpy
from PIL import Image

from image_corpus import Row, read_with_pillow
from make import exif, pixels, png_chunk, png_insert, pillow_file


def rows():
    rgb, grey = pixels(), pixels(channels=1)
    yield Row("rgb.png", pillow_file(rgb, "PNG"), part="png")
    yield Row("grey.png", pillow_file(grey, "PNG"), part="png")
    yield Row("alpha.png", pillow_file(numpy.dstack([rgb, grey]), "PNG"), part="png")
    yield Row("grey-alpha.png", pillow_file(Image.merge("LA", [Image.fromarray(grey), Image.fromarray(grey[::-1])]), "PNG"), part="png")
    for colours in 2, 4, 16, 256:
        yield Row(f"palette-{colours}.png", pillow_file(Image.fromarray(rgb).quantize(colours), "PNG"), part="png")
    yield Row("bits.png", pillow_file(Image.fromarray(grey > 100), "PNG"), part="png")
    yield Row("grey-16.png", pillow_file(Image.fromarray(grey.astype(numpy.uint16) * 256 + 200), "PNG"), "Pillow clips 16-bit grey at 255; here it loses its low byte",
              truth=numpy.dstack([grey] * 3), part="png")
    plain = pillow_file(rgb, "PNG")
    late = png_insert(plain, png_chunk(b"eXIf", exif(6)), before=b"IEND")
    yield Row("no-end.png", plain[:-12], "Pillow does not ask for the end; what turns the image may be missing", refused="end is missing", part="png")
    yield Row("behind-end.png", plain + b"whatever", part="png")
    yield Row("cut-late.png", late[:-20], refused="end is missing", part="png")
    early = png_insert(plain, png_chunk(b"eXIf", exif(6)))
    yield Row("broken-early.png", early.replace(exif(6), exif(3)), refused="damaged", part="png")
    yield Row("broken-late.png", late.replace(exif(6), exif(3)), "what turns the image is damaged: Pillow leaves it as it lies", refused="damaged", part="png")
    for name, field, value in ("depth", 8, 3), ("colour", 9, 1), ("compression", 10, 1), ("filter", 11, 64), ("interlace", 12, 2):
        header = plain[16:16 + field] + bytes([value]) + plain[17 + field:29]
        data = plain[:8] + png_chunk(b"IHDR", header) + plain[33:]
        there = isinstance(read_with_pillow(data), str)
        yield Row(f"unknown-{name}.png", data, "" if there else "Pillow does not look at that field", refused="^not supported: PNG", part="png")
    yield Row("critical-chunk.png", png_insert(plain, png_chunk(b"NEWS", b"what changes the pixels")), "Pillow passes over chunks that it does not know",
              refused="^not supported: PNG", part="png")
    comment = png_chunk(b"tEXt", b"Comment\0" + b"x" * 10)
    yield Row("comments.png", png_insert(plain, comment * 900), part="png")
    yield Row("comments-many.png", png_insert(plain, comment * 2000), "libspng reads 1000 chunks", refused="save it without metadata", part="png")
    yield Row("cut.png", pillow_file(rgb, "PNG")[:1500], refused="damaged", part="png")
