"""TIFF: compressions, sample layouts, colour spaces, byte orders."""

import io
import struct
import zlib

import numpy
from PIL import Image

from image_corpus import Row, read_with_pillow
from make import cjpeg, needs, pixels, run_on_files, pillow_file, xmp

needs("libtiff-tools", "tiffcp")
COMPRESSIONS = ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "zstd", "lzma", "webp"]


def tiff(width, height, bits, planes, tags, order="<"):
    """Returns an uncompressed file with a strip and tags, (number, type, values)."""
    codes = {3: "H", 4: "I"}
    strip = b"".join(planes)
    table = {256: (4, [width]), 257: (4, [height]), 258: (3, bits), 259: (3, [1]), 277: (3, [len(bits)]), 278: (4, [height]),
             279: (4, [len(plane) for plane in planes]), **tags}
    at = 8
    offsets = []
    for plane in planes:
        offsets.append(at)
        at += len(plane)
    table[273] = (4, offsets)
    at += at & 1
    beyond, entries = b"", b""
    base = at + 2 + 12 * len(table) + 4
    for number in sorted(table):
        kind, values = table[number]
        data = struct.pack(order + codes[kind] * len(values), *values)
        if len(data) > 4:
            entries += struct.pack(order + "HHII", number, kind, len(values), base + len(beyond))
            beyond += data + bytes(len(data) & 1)
        else:
            entries += struct.pack(order + "HHI", number, kind, len(values)) + data.ljust(4, b"\0")
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", at)
    return (head + strip).ljust(at, b"\0") + struct.pack(order + "H", len(table)) + entries + bytes(4) + beyond


def tiffcp(data, *options):
    return run_on_files(["tiffcp", *options, "IN0", "OUT"], data)


def pack_rows(bits, samples):
    """Packs rows of samples with that many bits, most significant first; pads each row to whole bytes."""
    rows = samples.reshape(len(samples), -1)
    each = rows[:, :, None] >> numpy.arange(bits - 1, -1, -1) & 1
    return numpy.packbits(each.reshape(len(rows), -1).astype(numpy.uint8), axis=1).tobytes()


def odd_bits(rgb, grey):
    """Samples of other sizes than a byte: more bits lose those below the high 8, fewer are scaled to 0..255."""
    size, width = (45, 31), "Pillow reads few numbers of bits"
    clips = "Pillow clips 12-bit grey at 255, and reads it in one order of bytes; here it loses its low bits"
    fine = grey.astype(int) * 16 + 7
    three = numpy.dstack([grey] * 3)
    for order in "<>":
        yield Row(f"grey-12-{'II' if order == '<' else 'MM'}.tif", tiff(*size, [12], [pack_rows(12, fine)], {262: (3, [1])}, order), clips, truth=three, part="tiff")
    strips = tiff(*size, [12], [pack_rows(12, fine[:20]), pack_rows(12, fine[20:])], {262: (3, [1]), 278: (4, [20])})
    yield Row("grey-12-strips.tif", strips, clips, truth=three, part="tiff")
    yield Row("grey-12-tiles.tif", tiffcp(strips, "-t", "-w", "16", "-l", "16", "-c", "zip"), clips, truth=three, part="tiff")
    yield Row("grey-12-white-is-zero.tif", tiff(*size, [12], [pack_rows(12, fine)], {262: (3, [0])}), width, truth=255 - three, part="tiff")
    yield Row("grey-12-alpha.tif", tiff(*size, [12] * 2, [pack_rows(12, numpy.dstack([fine, fine[::-1]]))], {262: (3, [1]), 338: (3, [2])}), width,
              truth=three, part="tiff")
    for bits in 3, 5, 6, 7, 9, 10, 11, 13, 14, 15:
        samples = grey.astype(int) << bits >> 8
        truth = samples * 255 // ((1 << bits) - 1) if bits < 8 else grey
        yield Row(f"grey-{bits}.tif", tiff(*size, [bits], [pack_rows(bits, samples)], {262: (3, [1])}), width, truth=numpy.dstack([truth] * 3).astype(numpy.uint8),
                  part="tiff")
    for bits in 1, 4, 10, 12:
        samples = rgb.astype(int) << bits >> 8
        truth = (samples * 255 // ((1 << bits) - 1) if bits < 8 else rgb).astype(numpy.uint8)
        yield Row(f"rgb-{bits}.tif", tiff(*size, [bits] * 3, [pack_rows(bits, samples)], {262: (3, [2])}), width, truth=truth, part="tiff")
        planes = [pack_rows(bits, samples[:, :, c]) for c in range(3)]
        yield Row(f"rgb-{bits}-separate.tif", tiff(*size, [bits] * 3, planes, {262: (3, [2]), 284: (3, [2])}), width, truth=truth, part="tiff")


def old_lzw(data):
    """LZW as before TIFF 5.0: codes begin at a byte's least significant bit. Each code is one byte value, and the
    table is cleared before codes grow.
    """
    codes = []
    for at in range(0, len(data), 200):
        codes += [256, *data[at:at + 200]]
    return numpy.packbits(numpy.array([*codes, 257])[:, None] >> numpy.arange(9) & 1, bitorder="little").tobytes()


def old_jpeg(jpeg, subsampling):
    """Compression 6: the strip is a whole JPEG, to which tags also refer."""
    return tiff(45, 31, [8] * 3, [jpeg], {259: (3, [6]), 262: (3, [6]), 512: (3, [1]), 513: (4, [8]), 514: (4, [len(jpeg)]), 530: (3, subsampling)})


def legacy_files(rgb):
    """Files for which libtiff only warns."""
    size = 45, 31
    yield Row("old-lzw.tif", tiff(*size, [8] * 3, [old_lzw(rgb.tobytes())], {259: (3, [5]), 262: (3, [2])}), part="tiff")
    for sample in "1x1", "2x2":
        jpeg = cjpeg("-quality", "90", "-sample", sample, image=rgb)
        yield Row(f"old-jpeg-{sample}.tif", old_jpeg(jpeg, [int(side) for side in sample.split("x")]), part="tiff")
    indices = Image.fromarray(rgb).quantize(100)
    table = numpy.resize(numpy.array(indices.getpalette()[:300]), (256, 3))
    yield Row("palette-8.tif", tiff(*size, [8], [numpy.asarray(indices).tobytes()], {262: (3, [3]), 320: (3, table.T.ravel().tolist())}),
              "where no entry has more than 8 bits, these are the colour; Pillow takes the high byte, black", truth=numpy.asarray(indices.convert("RGB")), part="tiff")
    no_table = tiff(*size, [8], [numpy.asarray(indices).tobytes()], {262: (3, [3]), 320: (3, [0, 1, 2, 3])})
    yield Row("palette-short.tif", no_table, "Pillow makes colours of what there is", refused="damaged", part="tiff")
    packed_over = b"".join(bytes([127]) + row[:128].tobytes() + bytes([15]) + row[128:].tobytes() + b"\0" for row in rgb.reshape(31, -1))
    yield Row("tag-without-values.tif", tiff(*size, [8] * 3, [rgb.tobytes()], {262: (3, [2]), 34022: (3, [])}), part="tiff")
    yield Row("packbits-over.tif", tiff(*size, [8] * 3, [packed_over], {259: (3, [32773]), 262: (3, [2])}), part="tiff")


def undamaged_files(rgb, grey):
    """Complete files without any sign of damage."""
    size = 45, 31
    jpeg = cjpeg("-quality", "90", image=grey)
    frame = jpeg.index(b"\xff\xc0")
    twelve, lossless = jpeg[:frame + 4] + b"\x0c" + jpeg[frame + 5:], jpeg[:frame + 1] + b"\xc3" + jpeg[frame + 2:]
    deep = [samples.astype("<u2").tobytes() for samples in (grey, rgb)]
    for name, bits, strip, tags in (
            ("jpeg-2000", [8], grey.tobytes(), {259: (3, [34712]), 262: (3, [1])}),
            ("unknown-compression", [8], grey.tobytes(), {259: (3, [12345]), 262: (3, [1])}),
            ("jpeg-12", [12], twelve, {259: (3, [7]), 262: (3, [1])}),
            ("jpeg-lossless", [8], lossless, {259: (3, [7]), 262: (3, [1])}),
            ("bits-565", [5, 6, 5], grey.tobytes() * 2, {262: (3, [2])}),
            ("palette-16", [16], deep[0], {262: (3, [3]), 320: (3, [0] * (3 << 16))}),
            ("ycbcr-16", [16] * 3, deep[1], {262: (3, [6]), 530: (3, [1, 1])}),
            ("icclab", [8] * 3, rgb.tobytes(), {262: (3, [9])}),
            ("colour-filters", [8], grey.tobytes(), {262: (3, [32803])}),
            ("grey-24", [24], grey.tobytes() * 3, {262: (3, [1])}),
            ("predictor-9", [8], zlib.compress(grey.tobytes()), {259: (3, [8]), 262: (3, [1]), 317: (3, [9])})):
        data = tiff(*size, bits, [strip], tags)
        yield Row(f"{name}.tif", data, "" if isinstance(read_with_pillow(data), str) else "Pillow does not look at that tag", refused="^not supported: TIFF", part="tiff")
    tile = zlib.compress(bytes(8192 * 8192))
    yield Row("tile-large.tif", tiff(*size, [8], [tile], {259: (3, [8]), 262: (3, [1]), 322: (4, [8192]), 323: (4, [8192]), 324: (4, [8]), 325: (4, [len(tile)])}),
              "a tile of 64 MB for 45x31 pixels", refused="smaller ones", part="tiff")


def lab():
    """CIELAB: a* and b* are signed."""
    size = 45, 31
    random = numpy.random.RandomState(5).randint(0, 256, (31, 45, 3)).astype(numpy.uint8)
    soft = pixels(seed=2) ^ numpy.array([0, 128, 128], numpy.uint8)
    white = numpy.zeros_like(random) + numpy.array([255, 0, 0], numpy.uint8)
    for name, colours in ("white", white), ("soft", soft), ("random", random):
        data = tiff(*size, [8] * 3, [colours.tobytes()], {262: (3, [8])})
        there = read_with_pillow(data)
        reason = "" if name == "white" else "some colours are rounded in another way"
        yield Row(f"lab-{name}.tif", data, reason, within=1, part="tiff")
        planes = [colours[:, :, c].tobytes() for c in range(3)]
        yield Row(f"lab-{name}-separate.tif", tiff(*size, [8] * 3, planes, {262: (3, [8]), 284: (3, [2])}),
                  "Pillow mixes up planes", truth=there, within=1, part="tiff")
        deep = (colours.astype(int) * 256 + 200).astype(">u2")
        yield Row(f"lab-{name}-16.tif", tiff(*size, [16] * 3, [deep.tobytes()], {262: (3, [8])}, ">"), "Pillow reads 8 bits", truth=there, within=1, part="tiff")


def cmyk():
    size = 45, 31
    inks = pixels(channels=4)
    plain = pillow_file(Image.fromarray(inks, "CMYK"), "TIFF")
    random = numpy.random.RandomState(6).randint(0, 256, (31, 45, 4)).astype(numpy.uint8)
    flat = numpy.zeros_like(random) + numpy.array([40, 90, 200, 30], numpy.uint8)
    yield Row("cmyk.tif", plain, part="tiff")
    yield Row("cmyk-random.tif", pillow_file(Image.fromarray(random, "CMYK"), "TIFF", compression="tiff_lzw"), part="tiff")
    yield Row("cmyk-flat.tif", pillow_file(Image.fromarray(flat, "CMYK"), "TIFF"), truth=numpy.zeros_like(flat[:, :, :3]) + numpy.array([190, 146, 49], numpy.uint8), part="tiff")
    yield Row("cmyk-tiles-separate.tif", tiffcp(plain, "-t", "-w", "16", "-l", "16", "-p", "separate"), part="tiff")
    yield Row("cmyk-alpha.tif", tiff(*size, [8] * 5, [numpy.dstack([inks, inks[::-1, :, :1]]).tobytes()], {262: (3, [5]), 338: (3, [0])}), part="tiff")
    deep = (inks.astype(int) * 256 + 200).astype("<u2")
    yield Row("cmyk-16.tif", tiff(*size, [16] * 4, [deep.tobytes()], {262: (3, [5])}), part="tiff")
    yield Row("cmyk-inks.tif", tiff(*size, [8] * 4, [inks.tobytes()], {262: (3, [5]), 332: (3, [2])}), "Pillow takes any four inks for CMYK", refused="^not supported: TIFF",
              part="tiff")


def rows():
    rgb, grey = pixels(), pixels(channels=1)
    size = 45, 31
    for compression in COMPRESSIONS:
        yield Row(f"rgb-{compression}.tif", pillow_file(rgb, "TIFF", compression=compression), part="tiff")
    yield Row("jpeg.tif", pillow_file(rgb, "TIFF", compression="jpeg", quality=90), part="tiff")
    yield Row("jpeg-grey.tif", pillow_file(grey, "TIFF", compression="jpeg", quality=90), part="tiff")
    for compression in "group3", "group4", "raw":
        yield Row(f"bits-{compression}.tif", pillow_file(Image.fromarray(grey > 100), "TIFF", compression=compression), part="tiff")
    yield Row("grey.tif", pillow_file(grey, "TIFF"), part="tiff")
    yield Row("palette.tif", pillow_file(Image.fromarray(rgb).quantize(100), "TIFF"), part="tiff")
    yield Row("alpha.tif", pillow_file(numpy.dstack([rgb, grey[::-1]]), "TIFF"), part="tiff")
    yield Row("grey-alpha.tif", pillow_file(Image.merge("LA", [Image.fromarray(grey), Image.fromarray(grey[::-1])]), "TIFF"), part="tiff")
    yield from cmyk()
    ycbcr = Image.fromarray(rgb).convert("YCbCr")
    yield Row("ycbcr.tif", tiff(*size, [8] * 3, [numpy.asarray(ycbcr).tobytes()], {262: (3, [6]), 530: (3, [1, 1])}),
              "Pillow takes uncompressed YCbCr for cut; libtiff rounds the conversion in another way", truth=numpy.asarray(ycbcr.convert("RGB")), within=2, part="tiff")
    plain = pillow_file(rgb, "TIFF")
    yield Row("tiles.tif", tiffcp(plain, "-t", "-w", "16", "-l", "16", "-c", "lzw"), part="tiff")
    yield Row("tiles-separate.tif", tiffcp(plain, "-t", "-w", "16", "-l", "16", "-p", "separate"), part="tiff")
    yield Row("strips-separate.tif", tiffcp(plain, "-r", "5", "-p", "separate"), part="tiff")
    yield Row("strips.tif", tiffcp(plain, "-r", "3", "-c", "zip:2"), part="tiff")
    yield Row("big-endian.tif", tiffcp(plain, "-B"), part="tiff")
    yield Row("big.tif", tiffcp(plain, "-8"), part="tiff")
    yield Row("two-pages.tif", pillow_file(rgb, "TIFF", save_all=True, append_images=[Image.fromarray(grey)]), part="tiff")
    for order in "<>":
        name = "II" if order == "<" else "MM"
        deep = (rgb.astype(int) * 256 + 200).astype(order + "u2")
        yield Row(f"deep-{name}.tif", tiff(*size, [16] * 3, [deep.tobytes()], {262: (3, [2])}, order), part="tiff")
        deep = (grey.astype(int) * 256 + 200).astype(order + "u2")
        yield Row(f"deep-grey-{name}.tif", tiff(*size, [16], [deep.tobytes()], {262: (3, [1])}, order),
                  "Pillow clips 16-bit grey at 255; here it loses its low byte", truth=numpy.dstack([grey] * 3), part="tiff")
    deep = numpy.dstack([rgb, grey]).astype(int) * 256 + 200
    yield Row("deep-alpha.tif", tiff(*size, [16] * 4, [deep.astype("<u2").tobytes()], {262: (3, [2]), 338: (3, [2])}), part="tiff")
    half = numpy.dstack([rgb // 2, numpy.full_like(grey, 128)])
    yield Row("premultiplied.tif", tiff(*size, [8] * 4, [half.tobytes()], {262: (3, [2]), 338: (3, [1])}), part="tiff")
    half[3:9, 5:20, 3] = 0
    yield Row("premultiplied-hidden.tif", tiff(*size, [8] * 4, [half.tobytes()], {262: (3, [2]), 338: (3, [1])}), part="tiff")
    yield Row("unspecified.tif", tiff(*size, [8] * 4, [half.tobytes()], {262: (3, [2]), 338: (3, [0])}), part="tiff")
    yield Row("white-is-zero.tif", tiff(*size, [8], [grey.tobytes()], {262: (3, [0])}), part="tiff")
    for bits in 1, 2, 4:
        each = 8 // bits
        wide = numpy.pad(grey >> (8 - bits), ((0, 0), (0, -45 % each)))
        packed = sum(wide[:, i::each].astype(int) << (8 - bits * (i + 1)) for i in range(each)).astype(numpy.uint8)
        yield Row(f"grey-{bits}.tif", tiff(*size, [bits], [packed.tobytes()], {262: (3, [1])}), part="tiff")
    yield from odd_bits(rgb, grey)
    yield from legacy_files(rgb)
    yield from lab()
    yield from undamaged_files(rgb, grey)
    for turn in range(1, 9):
        yield Row(f"orientation-{turn}.tif", pillow_file(rgb, "TIFF", tiffinfo={274: turn}), part="tiff")
    yield Row("orientation-strips-6.tif", tiffcp(pillow_file(rgb, "TIFF", tiffinfo={274: 6}), "-t", "-w", "16", "-l", "16"), part="tiff")
    yield Row("orientation-xmp.tif", pillow_file(rgb, "TIFF", tiffinfo={700: xmp(6)}), "Pillow 9.4 looks for XMP in PNG alone, later ones in all kinds",
              truth=numpy.rot90(rgb, -1), part="tiff")
    yield Row("orientation-and-xmp.tif", pillow_file(rgb, "TIFF", tiffinfo={274: 3, 700: xmp(6)}), part="tiff")
    numbers = grey.astype("<f4") / 255
    yield Row("float.tif", tiff(*size, [32], [numbers.tobytes()], {262: (3, [1]), 339: (3, [3])}),
              "numbers of no known range are no image here; Pillow clips them at 0 and 255", refused="sample format 3", part="tiff")
    yield Row("float-16.tif", tiff(*size, [16], [numbers.astype("<f2").tobytes()], {262: (3, [1]), 339: (3, [3])}), refused="sample format 3", part="tiff")
    yield Row("signed.tif", tiff(*size, [8], [grey.tobytes()], {262: (3, [1]), 339: (3, [2])}), refused="sample format 2", part="tiff")
    yield Row("cut.tif", plain[:len(plain) // 2], refused="damaged", part="tiff")
    for compression in "tiff_lzw", "jpeg":
        whole = pillow_file(rgb, "TIFF", compression=compression)
        strip = Image.open(io.BytesIO(whole)).tag_v2[273][0]
        length = Image.open(io.BytesIO(whole)).tag_v2[279][0]
        middle = strip + length // 2
        broken = whole[:middle] + bytes(length // 4) + whole[middle + length // 4:]
        yield Row(f"broken-{compression}.tif", broken, "Pillow takes what libtiff makes of damaged pixels" if compression == "jpeg" else "",
                  refused="damaged", part="tiff")
