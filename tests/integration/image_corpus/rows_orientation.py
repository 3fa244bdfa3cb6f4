"""Orientation: EXIF of every type, XMP, and raw profiles, in every format."""

import struct
import zlib

import numpy

from image_corpus import Row
from make import TYPES, cjpeg, exif, insert, needs, pixels, png_chunk, png_insert, raw_profile, run_on_files, pillow_file, segment, xmp

needs("webp", "webpmux")
PILLOW_XMP = "Pillow 9.4 looks for XMP in PNG alone, later ones in all kinds"


def jpeg_with_exif(*blocks):
    """Returns a JPEG with these EXIF blocks."""
    return insert(cjpeg(), *[segment(0xE1, b"Exif\0\0" + block) for block in blocks])


def rotated(orientation):
    """Returns a JPEG that both programs rotate this way."""
    return jpeg_with_exif(exif(orientation))


def jpegs():
    for order in "<>":
        for kind in TYPES:
            value = {"ASCII": b"6\0", "UNDEFINED": b"\6", "RATIONAL": ((12, 2),), "SRATIONAL": ((6, 1),)}.get(kind, 6)
            yield f"{kind}-{'II' if order == '<' else 'MM'}", jpeg_with_exif(exif(value, kind, order=order))
    yield "RATIONAL-half", jpeg_with_exif(exif(((13, 2),), "RATIONAL"))
    yield "RATIONAL-zero", jpeg_with_exif(exif(((6, 0),), "RATIONAL"))
    yield "SRATIONAL-minus", jpeg_with_exif(exif(((-6, 1),), "SRATIONAL"))
    yield "FLOAT-half", jpeg_with_exif(exif(6.5, "FLOAT"))
    yield "DOUBLE-nan", jpeg_with_exif(exif(float("nan"), "DOUBLE"))
    yield "SLONG-minus", jpeg_with_exif(exif(-6, "SLONG"))
    yield "LONG-large", jpeg_with_exif(exif(65536 + 6, "LONG"))
    yield "two-values", jpeg_with_exif(exif((6, 3)))
    yield "three-values", jpeg_with_exif(exif((6, 3, 1)))
    yield "no-value", jpeg_with_exif(exif(6, count=0))
    yield "values-beyond", jpeg_with_exif(exif(6, count=1000))
    yield "type-99", jpeg_with_exif(exif(6).replace(struct.pack("<HH", 0x0112, 3), struct.pack("<HH", 0x0112, 99)))
    yield "two-tags", jpeg_with_exif(exif(6, tags=[(0x0112, 3)]))
    yield "other-tags", jpeg_with_exif(exif(6, tags=[(0x0100, 3), (0x0101, 2)]))
    yield "two-blocks", jpeg_with_exif(exif(6), exif(3))
    yield "second-block", jpeg_with_exif(exif(9), exif(3))
    yield "empty-block", jpeg_with_exif(b"II*\0\x08\0\0\0" + bytes(6), exif(3))
    yield "xmp-before", insert(jpeg_with_exif(exif(6)), segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + xmp(3)))


def pngs():
    plain = pillow_file(pixels(), "PNG")
    packet = b"XML:com.adobe.xmp" + bytes(5)
    for turn in range(1, 9):
        yield f"eXIf-{turn}", png_insert(plain, png_chunk(b"eXIf", exif(turn)))
    yield "eXIf-late", png_insert(plain, png_chunk(b"eXIf", exif(6)), before=b"IEND")
    yield "xmp", png_insert(plain, png_chunk(b"iTXt", packet + xmp(6)))
    yield "xmp-element", png_insert(plain, png_chunk(b"iTXt", packet + xmp(8, attribute=False)))
    yield "xmp-late", png_insert(plain, png_chunk(b"iTXt", packet + xmp(6)), before=b"IEND")
    yield "xmp-deflated", png_insert(plain, png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + zlib.compress(xmp(6))))
    yield "xmp-9", png_insert(plain, png_chunk(b"iTXt", packet + xmp(9)))
    yield "xmp-and-exif", png_insert(plain, png_chunk(b"iTXt", packet + xmp(6)), png_chunk(b"eXIf", exif(1)))
    yield "xmp-and-odd-exif", png_insert(plain, png_chunk(b"iTXt", packet + xmp(6)), png_chunk(b"eXIf", exif(9)))
    for name in b"exif", b"APP1":
        key, text = b"Raw profile type " + name, raw_profile(b"Exif\0\0" + exif(6), name)
        yield f"raw-{name.decode()}", png_insert(plain, png_chunk(b"tEXt", key + b"\0" + text))
        yield f"raw-{name.decode()}-late", png_insert(plain, png_chunk(b"tEXt", key + b"\0" + text), before=b"IEND")
        yield f"raw-{name.decode()}-deflated", png_insert(plain, png_chunk(b"zTXt", key + b"\0\0" + zlib.compress(text)))
    yield "raw-bare", png_insert(plain, png_chunk(b"tEXt", b"Raw profile type exif\0" + raw_profile(exif(6))))
    yield "raw-and-eXIf", png_insert(plain, png_chunk(b"tEXt", b"Raw profile type exif\0" + raw_profile(exif(6))), png_chunk(b"eXIf", exif(3)))
    yield "late-comment", png_insert(plain, png_chunk(b"tEXt", b"date:create\0" + b"2024-01-01"), before=b"IEND")


def rows():
    for name, data in jpegs():
        yield Row(f"orientation-{name}.jpg", data)
    for name, data in pngs():
        yield Row(f"orientation-{name}.png", data, part="png")
    adobe = b"http://ns.adobe.com/xap/1.0/\0"
    yield Row("orientation-xmp.jpg", insert(cjpeg(), segment(0xE1, adobe + xmp(6))), PILLOW_XMP, truth=rotated(6))
    yield Row("orientation-xmp-element.jpg", insert(cjpeg(), segment(0xE1, adobe + xmp(3, attribute=False))), PILLOW_XMP, truth=rotated(3))
    yield Row("orientation-xmp-0.jpg", insert(cjpeg(), segment(0xE1, adobe + xmp(0))))
    plain = pillow_file(pixels(), "PNG")
    yield Row("orientation-eXIf-prefix.png", png_insert(plain, png_chunk(b"eXIf", b"Exif\0\0" + exif(6))),
              "a block that begins as in a JPEG is none in a PNG; Pillow fails to turn the image", truth=pixels(), part="png")
    yield Row("orientation-raw-broken.png", png_insert(plain, png_chunk(b"tEXt", b"Raw profile type exif\0" + raw_profile(exif(6)).replace(b"49", b"zz"))),
              "a profile that is none: Pillow fails to turn the image", truth=pixels(), part="png")
    plain = pillow_file(pixels(), "WEBP", lossless=True)
    for name, block in ("exif", exif(6)), ("exif-prefix", b"Exif\0\0" + exif(6)):
        yield Row(f"orientation-{name}.webp", run_on_files(["webpmux", "-set", "exif", "IN0", "IN1", "-o", "OUT"], block, plain), part="webp")
    yield Row("orientation-xmp.webp", run_on_files(["webpmux", "-set", "xmp", "IN0", "IN1", "-o", "OUT"], xmp(6), plain), PILLOW_XMP,
              truth=numpy.rot90(pixels(), -1), part="webp")
