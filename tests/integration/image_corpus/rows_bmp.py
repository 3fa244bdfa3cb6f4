"""BMP: every depth, palette, mask and run-length encoding."""

import struct

import numpy
from PIL import Image

from image_corpus import Row
from make import pixels, pillow_file

WIDTH, HEIGHT = 45, 31


def bmp(bits, rows, *, compression=0, palette=(), masks=b"", header=40, height=HEIGHT, width=WIDTH, colours=None):
    """Returns a file with packed rows, bottom-up."""
    if header == 12:
        head = struct.pack("<IHHHH", 12, width, height, 1, bits)
        table = b"".join(bytes((b, g, r)) for r, g, b in palette)
    else:
        head = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, compression, len(rows), 2835, 2835, len(palette) if colours is None else colours, 0)
        inside = masks[:max(0, header - 40)]
        head += inside.ljust(header - 40, b"\0")
        masks = masks[len(inside):]
        table = b"".join(bytes((b, g, r, 0)) for r, g, b in palette)
    offset = 14 + len(head) + len(masks) + len(table)
    return b"BM" + struct.pack("<IHHI", offset + len(rows), 0, 0, offset) + head + masks + table + rows


def pack_rows(rows):
    """Returns rows of bytes, padded to four, bottom-up."""
    return b"".join(row.tobytes() + bytes(-row.nbytes % 4) for row in rows[::-1])


def indexed(bits, image):
    """Returns rows of palette indices."""
    each = 8 // bits
    wide = numpy.pad(image, ((0, 0), (0, -image.shape[1] % each)))
    return sum((wide[:, i::each].astype(int) << (8 - bits * (i + 1)) for i in range(each)), 0).astype(numpy.uint8)


PALETTE = [(255 - 3 * i % 256, i * 7 % 256, i * 13 % 256) for i in range(256)]


def apply_palette(image, count):
    return numpy.array(PALETTE[:count], numpy.uint8)[image]


def masked_bmp(bits, masks):
    """Returns a file with random values under these masks, and its pixels."""
    kind = {16: numpy.uint16, 24: numpy.uint32, 32: numpy.uint32}[bits]
    values = numpy.random.RandomState(bits).randint(0, 1 << bits, (HEIGHT, WIDTH), dtype=numpy.uint64)
    truth = numpy.stack([(values & mask) * 255 // mask for mask in masks], -1).astype(numpy.uint8)
    rows = values.astype(kind)
    if bits == 24:
        rows = rows.view(numpy.uint8).reshape(HEIGHT, WIDTH, 4)[:, :, :3].reshape(HEIGHT, -1)
    return rows, truth


def run_length(bits, image):
    """Runs, absolute mode, a delta, line ends. Absolute runs have even lengths: Pillow loses the last pixel of an odd one in RLE4."""
    out = b""
    for row in image[::-1]:
        x = 0
        while x < len(row):
            end = x
            while end < len(row) and row[end] == row[x]:
                end += 1
            if end - x > 2 or len(row) - x < 4:
                out += bytes((end - x, row[x] * (17 if bits == 4 else 1)))
                x = end
            else:
                part = row[x:x + 4]
                data = bytes(part) if bits == 8 else bytes((part[0] << 4 | part[1], part[2] << 4 | part[3]))
                out += bytes((0, 4)) + data
                x += 4
        out += b"\0\0"
    return out + b"\0\1"


def headerless_bmps(bgr):
    """Bitmaps without a file header."""
    image = numpy.random.RandomState(5).randint(0, 100, (HEIGHT, WIDTH)).astype(numpy.uint8)
    values, truth = masked_bmp(16, (0xF800, 0x7E0, 0x1F))
    masks = struct.pack("<IIII", 0xF800, 0x7E0, 0x1F, 0)
    for header in 40, 108, 124:
        yield Row(f"alone-24-header-{header}.dib", bmp(24, pack_rows(bgr), header=header)[14:])
        yield Row(f"alone-palette-header-{header}.dib", bmp(8, pack_rows(image), palette=PALETTE[:100], header=header)[14:])
        yield Row(f"alone-masks-header-{header}.dib", bmp(16, pack_rows(values), compression=3, masks=masks[:12 if header == 40 else 16], header=header)[14:], truth=truth)
    yield Row("alone-cut.dib", bmp(24, pack_rows(bgr))[14:-200], refused="ends within its pixels")
    yield Row("alone-two-planes.dib", bmp(24, pack_rows(bgr))[14:26] + b"\2" + bmp(24, pack_rows(bgr))[27:], "Pillow looks at the header's size alone", refused="^not an image")


def rows():
    rgb = pixels(WIDTH, HEIGHT)
    bgr = numpy.ascontiguousarray(rgb[:, :, ::-1]).reshape(HEIGHT, -1)
    yield Row("pillow-24.bmp", pillow_file(rgb, "BMP"))
    yield Row("pillow-32.bmp", pillow_file(Image.fromarray(rgb).convert("RGBA"), "BMP"))
    yield Row("pillow-grey.bmp", pillow_file(pixels(WIDTH, HEIGHT, 1), "BMP"))
    yield Row("pillow-bits.bmp", pillow_file(Image.fromarray(pixels(WIDTH, HEIGHT, 1) > 100), "BMP"))
    yield Row("pillow-palette.bmp", pillow_file(Image.fromarray(rgb).quantize(100), "BMP"))
    for header in 12, 40, 64, 108, 124:
        yield Row(f"24-header-{header}.bmp", bmp(24, pack_rows(bgr), header=header))
    yield Row("24-down.bmp", bmp(24, pack_rows(bgr)[::1], height=-HEIGHT))
    for bits in 1, 4, 8:
        image = numpy.random.RandomState(bits).randint(0, 1 << bits, (HEIGHT, WIDTH)).astype(numpy.uint8)
        for header in 12, 40, 108:
            yield Row(f"palette-{bits}-header-{header}.bmp", bmp(bits, pack_rows(indexed(bits, image)), palette=PALETTE[:1 << bits], header=header))
        few = max(2, (1 << bits) - 3)
        yield Row(f"palette-{bits}-few.bmp", bmp(bits, pack_rows(indexed(bits, image % few)), palette=PALETTE[:few]))
    image = numpy.random.RandomState(3).randint(0, 200, (HEIGHT, WIDTH)).astype(numpy.uint8)
    yield Row("palette-beyond.bmp", bmp(8, pack_rows(image), palette=PALETTE[:100]), "Pillow makes up a colour for what is not in the table", refused="not in its table")
    for name, bits, masks in (("565", 16, (0xF800, 0x7E0, 0x1F)), ("555", 16, (0x7C00, 0x3E0, 0x1F)), ("8888", 32, (0xFF0000, 0xFF00, 0xFF)),
                              ("8888-left", 32, (0xFF000000, 0xFF0000, 0xFF00)), ("888", 24, (0xFF0000, 0xFF00, 0xFF))):
        values, truth = masked_bmp(bits, masks)
        if bits == 24:
            continue
        yield Row(f"masks-{name}.bmp", bmp(bits, pack_rows(values), compression=3, masks=struct.pack("<III", *masks)), truth=truth)
        yield Row(f"masks-{name}-header-108.bmp", bmp(bits, pack_rows(values), compression=3, header=108, masks=struct.pack("<IIII", *masks, 0)), truth=truth)
    for name, bits, masks in ("444", 16, (0xF00, 0xF0, 0xF)), ("101010", 32, (0x3FF00000, 0xFFC00, 0x3FF)), ("bgr565", 16, (0x1F, 0x7E0, 0xF800)):
        values, truth = masked_bmp(bits, masks)
        yield Row(f"masks-{name}.bmp", bmp(bits, pack_rows(values), compression=3, masks=struct.pack("<III", *masks)),
                  "Pillow knows a few masks only", truth=truth)
    values, truth = masked_bmp(16, (0x7C00, 0x3E0, 0x1F))
    yield Row("16.bmp", bmp(16, pack_rows(values)), truth=truth)
    for bits, compression in (8, 1), (4, 2):
        image = (numpy.random.RandomState(9).randint(0, 14, (HEIGHT, WIDTH)) // 6 * 5).astype(numpy.uint8)
        data = run_length(bits, image)
        table = PALETTE[:1 << bits]
        yield Row(f"runs-{bits}.bmp", bmp(bits, data, compression=compression, palette=table), truth=apply_palette(image, 1 << bits))
        yield Row(f"runs-{bits}-cut.bmp", bmp(bits, data[:len(data) // 2], compression=compression, palette=table), refused="ends within its pixels")
        yield Row(f"runs-{bits}-few-lines.bmp", bmp(bits, bytes((WIDTH, 0x11)) + b"\0\0\0\1", compression=compression, palette=table),
                  "lines that the file leaves out have the first colour; Pillow wants all",
                  truth=apply_palette(numpy.pad(numpy.full((1, WIDTH), 17 if bits == 8 else 1), ((HEIGHT - 1, 0), (0, 0))), 1 << bits))
        left = numpy.zeros((HEIGHT, WIDTH), int)
        left[HEIGHT - 2, 3:5] = 1
        yield Row(f"runs-{bits}-jump.bmp", bmp(bits, b"\0\2\3\1" + (b"\2\1" if bits == 8 else b"\2\x11") + b"\0\1", compression=compression, palette=table),
                  "what a jump passes over has the first colour; Pillow wants all lines", truth=apply_palette(left, 1 << bits))
        one = b"\1\x11"
        every = (bytes((WIDTH, 0x11)) + b"\0\0") * HEIGHT
        full = numpy.full((HEIGHT, WIDTH), 17 if bits == 8 else 1)
        lenient, ends = "Pillow cuts runs off at the end of their row", "Pillow stops where it has pixels enough"

        def runs(data):
            return bmp(bits, data, compression=compression, palette=table)

        yield Row(f"runs-{bits}-no-end.bmp", runs(every), truth=apply_palette(full, 1 << bits))
        yield Row(f"runs-{bits}-no-end-of-line.bmp", runs(every[:-2]), truth=apply_palette(full, 1 << bits))
        yield Row(f"runs-{bits}-no-end-of-row.bmp", runs(every[:-4] + bytes((WIDTH - 1, 0x11))), refused="ends within its pixels")
        yield Row(f"runs-{bits}-over-row.bmp", runs(bytes((WIDTH + 1, 0x11)) + b"\0\0" + every[4:] + b"\0\1"), lenient, refused="over the end of their row")
        yield Row(f"runs-{bits}-over-row-absolute.bmp", runs(bytes((WIDTH - 2, 0x11)) + b"\0\4" + bytes(2 if bits == 4 else 4) + b"\0\0" + every[4:] + b"\0\1"),
                  lenient, refused="over the end of their row")
        yield Row(f"runs-{bits}-over-picture.bmp", runs(every + one + b"\0\1"), ends, refused="over the end of their row or of the picture")
        yield Row(f"runs-{bits}-jump-out.bmp", runs(b"\0\2" + bytes((WIDTH + 1, 0)) + b"\0\0" + every[4:] + b"\0\1"), refused="jump leads out")
        yield Row(f"runs-{bits}-jump-down.bmp", runs(every[:-4] + b"\0\2\0\1" + b"\0\1"), ends, refused="jump leads out")
    whole = bmp(24, pack_rows(bgr))
    yield Row("array.bmp", b"BA" + struct.pack("<IIHH", 40, 0, 0, 0) + whole, refused="^not supported: BMP that is an array")
    yield from headerless_bmps(bgr)
    yield Row("cut-pixels.bmp", whole[:-200], refused="ends within its pixels")
    yield Row("cut-header.bmp", whole[:40], refused="ends within its headers")
    yield Row("jpeg-inside.bmp", bmp(0, b"", compression=4), refused="^not supported: BMP")
    yield Row("two-bits.bmp", bmp(2, pack_rows(bgr), palette=PALETTE[:4]), refused="^not supported: BMP")
