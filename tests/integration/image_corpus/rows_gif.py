"""GIF: the first frame, its position, and the blocks around it."""

import io
import struct

import numpy
from PIL import Image

from image_corpus import Row
from make import pixels, pillow_file


def quantized(count=64, seed=1):
    return Image.fromarray(pixels(seed=seed)).quantize(count)


def offset_frame(gif, left, top, width, height, transparent=None):
    """Returns the GIF with its frame at another position of a larger canvas."""
    at = gif.index(b"\x2c", 13 + 3 * (2 << (gif[10] & 7)))
    gif = gif[:6] + struct.pack("<HH", width, height) + gif[10:at + 1] + struct.pack("<HH", left, top) + gif[at + 5:]
    if transparent is not None:
        gif = gif[:at] + b"\x21\xf9\x04\x01\0\0" + bytes([transparent]) + b"\0" + gif[at:]
    return gif


def long_codes(gif, bits):
    """Encodes each pixel as a code of its own, of bits + 1 bits; clears the table before codes grow."""
    at = gif.index(b"\x2c", 13 + 3 * (2 << (gif[10] & 7)))
    values = numpy.asarray(Image.open(io.BytesIO(gif))).ravel()
    codes = []
    for begin in range(0, len(values), 200):
        codes += [1 << bits, *values[begin:begin + 200]]
    data = numpy.packbits(numpy.array([*codes, (1 << bits) + 1])[:, None] >> numpy.arange(bits + 1) & 1, bitorder="little").tobytes()
    blocks = b"".join(bytes([len(data[i:i + 255])]) + data[i:i + 255] for i in range(0, len(data), 255))
    return gif[:at + 10] + bytes([bits]) + blocks + b"\0;"


def rows():
    still = pillow_file(quantized(), "GIF", interlace=0)
    for count in 2, 4, 5, 16, 200, 256:
        yield Row(f"colours-{count}.gif", pillow_file(quantized(count), "GIF", interlace=0), part="gif")
    yield Row("interlaced.gif", pillow_file(quantized(), "GIF", interlace=1), part="gif")
    yield Row("grey.gif", pillow_file(pixels(channels=1), "GIF"), part="gif")
    yield Row("animated.gif", pillow_file(quantized(), "GIF", save_all=True, append_images=[quantized(seed=2), quantized(seed=3)], duration=50), part="gif")
    yield Row("transparent.gif", pillow_file(quantized(), "GIF", transparency=3), part="gif")
    yield Row("comment.gif", pillow_file(quantized(), "GIF", comment=b"x" * 700), part="gif")
    yield Row("87.gif", still.replace(b"GIF89a", b"GIF87a"), part="gif")
    yield Row("small-frame.gif", offset_frame(still, 7, 9, 80, 60), part="gif")
    yield Row("small-frame-transparent.gif", offset_frame(still, 7, 9, 80, 60, 5), part="gif")
    yield Row("large-frame.gif", offset_frame(still, 7, 9, 20, 10), part="gif")
    yield Row("no-canvas.gif", offset_frame(still, 0, 0, 0, 0), part="gif")
    at = still.index(b"\x2c", 13 + 3 * (2 << (still[10] & 7)))
    table = still[13:at]
    local = still[:10] + bytes([still[10] & 0x7F]) + still[11:13] + still[at:at + 9] + bytes([0x80 | (still[10] & 7)]) + table + still[at + 10:]
    yield Row("local-table.gif", local, part="gif")
    bare = still[:10] + bytes([still[10] & 0x7F]) + still[11:13] + still[at:]
    yield Row("no-table.gif", bare, part="gif")
    few = still[:10] + bytes([still[10] & 0xF8]) + still[11:19] + still[at:]
    yield Row("few-colours.gif", few, "Pillow makes up a colour for what is not in the table", refused="not in its table", part="gif")
    yield Row("bits-8.gif", long_codes(still, 8), part="gif")
    for bits in 9, 11:
        yield Row(f"bits-{bits}.gif", long_codes(still, bits), "giflib reads up to 8 bits a pixel", refused=f"^not supported: GIF whose codes begin with {bits} bits", part="gif")
    yield Row("bits-12.gif", long_codes(still, 12), "Pillow takes codes that the format forbids", refused="^damaged GIF: its codes are longer than 12 bits", part="gif")
    yield Row("no-end.gif", still[:-1], part="gif")
    yield Row("cut.gif", still[:len(still) // 2], refused="damaged", part="gif")
    for offset in 100, 104, 110:  # offsets in the LZW data
        wrong = still[:at + 12 + offset] + b"\xff" + still[at + 13 + offset:]
        yield Row(f"no-such-code-{offset}.gif", wrong, refused="a code is undefined", part="gif")
    yield Row("cut-header.gif", still[:10], refused="damaged", part="gif")
    yield Row("no-image.gif", still[:at] + b";", refused="^not supported: GIF without an image", part="gif")
