"""A reader of schemas, values and rasters, and a decoder of indexed JPEGs in .pimg files, written only from format/SPEC.md and ITU-T T.81: small, slow, and independent of the library.

It checks little: it shows that the text suffices, not how to read untrusted files.
"""

import math
import struct

ZIGZAG = sorted(range(64), key=lambda i: (i // 8 + i % 8, i % 8 if (i // 8 + i % 8) % 2 == 0 else i // 8))


def overlaps(ranges):
    """Returns all pairs of ranges (name, number, offset, size) that overlap."""
    return [(a, b) for i, a in enumerate(ranges) for b in ranges[:i]
            if a[3] and b[3] and a[2] < b[2] + b[3] and b[2] < a[2] + a[3]]


class Pimg:
    """Samples of a single .pimg file: SPEC.md, "Header", "Section table", "Index", "Side data", "Ranges"."""

    def __init__(self, data):
        self.data = data
        assert data[:8] == b"\x89PIMG\r\n\x1a", "magic"
        version, header_size = struct.unpack_from("<II", data, 8)
        self.count, = struct.unpack_from("<Q", data, 72)
        section_count, = struct.unpack_from("<I", data, 112)
        assert (version, header_size) == (1, 1024)
        self.sections = {}
        for i in range(section_count):
            kind, flags, offset, size, _ = struct.unpack_from("<IIQQQ", data, 256 + 32 * i)
            self.sections[kind] = (offset, size)
        self.ranges = [("header", None, 0, 1024), *(("section", kind, *place) for kind, place in self.sections.items())]
        self.field_count, = struct.unpack_from("<I", data, 108)
        assert not self.section_overlaps(), "sections overlap"
        assert not self.name_overlaps(), "names of fields overlap"

    def section_overlaps(self):
        return overlaps(self.ranges)

    def name_overlaps(self):
        offset, _ = self.sections.get(4, (0, 0))
        names = [("entries", None, 0, 32 * self.field_count)]
        for i in range(self.field_count):
            _, size, begin = struct.unpack_from("<IIQ", self.data, offset + 32 * i)
            names.append(("name", i, begin, size))
        return overlaps(names)

    def columns(self):
        offset, _ = self.sections.get(5, (0, 0))
        for i in range(self.field_count):
            yield ("column", i, *struct.unpack_from("<QQ", self.data, offset + 32 * i))

    def places(self, i):
        """Returns the ranges of a sample's data and side data. Size 0 means that there is no side data."""
        data_offset, side_offset, _, _, data_size, side_size = struct.unpack_from("<QQQQII", self.data,
                                                                                  self.sections[1][0] + 64 * i)
        return (data_offset, data_size), (side_offset, side_size)

    def all_overlaps(self):
        """Returns the pairs of ranges in the file that overlap illegally, as verifying finds them."""
        places = [self.places(i) for i in range(self.count)]
        images = [self.image_places(i) for i in range(self.sections.get(9, (0, 0))[1] // 64)]
        ranges = [*self.ranges, *self.columns()]
        for names, of in ((("data", "side"), places), (("image", "image side"), images)):
            for k, name in enumerate(names):
                ranges += [(name, i, *pair[k]) for i, pair in enumerate(of)]

        def shared(a, b):
            of = {"data": places, "side": places, "image": images, "image side": images}.get(a[0])
            return a[0] == b[0] and of is not None and a[2:] == b[2:] and of[a[1]][0] == of[b[1]][0]

        return [(a, b) for a, b in overlaps(ranges) if not shared(a, b)]

    def record(self, i):
        """Returns data, side data, upright width and height, codec, channels, orientation."""
        offset, size = self.sections[1]
        assert size == 64 * self.count
        (data_offset, side_offset, _, _, data_size, side_size, width, height, label, codec, channels,
         orientation) = struct.unpack_from("<QQQQIIIIiBBB", self.data, offset + 64 * i)
        own = [("data", i, data_offset, data_size), ("side", i, side_offset, side_size)]
        assert not overlaps([*self.ranges, *own]), "a sample overlaps itself or a section"
        return (self.data[data_offset:data_offset + data_size], self.data[side_offset:side_offset + side_size],
                width, height, codec, channels, orientation)

    def source(self, i):
        offset, _ = self.sections[2]
        begin, end = struct.unpack_from("<QQ", self.data, offset + 8 * i)
        text = offset + 8 * (self.count + 1)
        return self.data[text + begin:text + end].decode()


    def label(self, i):
        return struct.unpack_from("<i", self.data, self.sections[1][0] + 64 * i + 48)[0]

    def members(self):
        """Returns the numbers of each class's samples: SPEC.md, "Members"."""
        offset, size = self.sections[10]
        classes, = struct.unpack_from("<I", self.data, 104)
        starts = struct.unpack_from(f"<{classes + 1}Q", self.data, offset)
        assert starts[0] == 0 and list(starts) == sorted(starts) and size == 8 * len(starts) + 4 * starts[-1]
        numbers = struct.unpack_from(f"<{starts[-1]}I", self.data, offset + 8 * len(starts))
        return [list(numbers[begin:end]) for begin, end in zip(starts, starts[1:])]

    def sizes(self):
        """Returns width and height of each sample: SPEC.md, "Sizes"."""
        offset, size = self.sections[11]
        assert size == 4 * self.count
        return list(struct.iter_unpack("<HH", self.data[offset:offset + size]))

    def image_places(self, number):
        """As places(), for record `number` of section images."""
        data_offset, side_offset, _, _, data_size, side_size = struct.unpack_from("<QQQQII", self.data, self.sections[9][0] + 64 * number)
        return (data_offset, data_size), (side_offset, side_size)

    def schema(self):
        """Returns the values of the schema as dictionaries, by name, in order: SPEC.md, "Schema"."""
        offset, size = self.sections[8]
        version, count, names_size, reserved = struct.unpack_from("<IIII", self.data, offset)
        assert (version, reserved, size) == (1, 0, 16 + 64 * count + names_size)
        names, schema = offset + 16 + 64 * count, {}
        for i in range(count):
            at = offset + 16 + 64 * i
            keys = ("role", "element", "dims", "store", "number", "of", "s0", "s1", "s2", "s3", "format", "flags", "name_size", "name_offset",
                    "longest", "width", "height")
            value = dict(zip(keys, struct.unpack_from("<BBBBHH4IBBHIQII", self.data, at)))
            assert not any(self.data[at + 48:at + 64])
            value["shape"] = [value.pop(f"s{k}") for k in range(4)][:value["dims"]]
            begin = names + value["name_offset"]
            schema[self.data[begin:begin + value["name_size"]].decode()] = value
        return schema

    def stored(self, field, i):
        """Returns the value of a field of sample i as stored, or None if it is missing: SPEC.md, "Fields and columns"."""
        kind, = struct.unpack_from("<I", self.data, self.sections[4][0] + 32 * field)
        offset, = struct.unpack_from("<Q", self.data, self.sections[5][0] + 32 * field)
        if offset == 0 or not self.data[offset + i // 8] >> i % 8 & 1:
            return None
        values = offset + (self.count + 63) // 64 * 8
        if kind < 3:
            return self.data[values + 8 * i:values + 8 * i + 8]
        begin, end = struct.unpack_from("<QQ", self.data, values + 8 * i)
        first = values + 8 * (self.count + 1)
        return self.data[first + begin:first + end]

    def value(self, name, i):
        """Returns a value of store 3: a number, a flat list of numbers, or bytes."""
        value = self.schema()[name]
        data, code = self.stored(value["number"], i), " BeefHhiqQd"[value["element"]]
        if data is None or value["element"] == 0:
            return data
        if value["dims"] == 0:
            return struct.unpack("<d" if code in "efd" else "<Q" if code == "Q" else "<q", data)[0]
        return list(struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data))

    def image(self, name, i):
        """Returns data, width, height, codec and channels of a further image, or None: SPEC.md, "Images"."""
        schema = self.schema()
        count = sum(value["store"] == 2 for value in schema.values())
        offset, size = self.sections[9]
        assert size == 64 * self.count * count and self.data[16] == 1
        at = offset + 64 * (i * count + schema[name]["number"])
        if not any(self.data[at:at + 64]):
            return None
        data_offset, data_size, width, height, label, codec, channels = struct.unpack_from("<Q24xI4xIIiBB", self.data, at)
        assert label == 0
        return self.data[data_offset:data_offset + data_size], width, height, codec, channels


def raster_number(data, at):
    """Reads a number of 7 bits per byte. Returns it, and the offset after it."""
    number = 0
    for k in range(3):
        number |= (data[at + k] & 127) << 7 * k
        if data[at + k] < 128:
            return number, at + k + 1
    raise ValueError("a number of more than 3 bytes")


def raster_runs(data, width, code):
    """Decodes a band of runs to a list of rows."""
    rows, at, size = [], 0, struct.calcsize(code)
    while at < len(data):
        count, at = raster_number(data, at)
        row = [] if count else list(rows[-1])
        for _ in range(count):
            length, at = raster_number(data, at)
            row += [struct.unpack_from("<" + code, data, at)[0]] * length
            at += size
        assert len(row) == width
        rows.append(row)
    return rows


def decode_raster(data, width, height):
    """Returns the rows of a stored raster without zstd: SPEC.md, "Codec 4, raster"."""
    version, element, channels, rows_log2, bands = struct.unpack_from("<BBBBI", data)
    assert version == 1 and bands == -(-height >> rows_log2)
    code, begin, rows = " B  fHhi"[element], 8 + 8 * bands, []
    for band in range(bands):
        end, method = struct.unpack_from("<IB", data, 8 + 8 * band)
        if method == 0:
            numbers = struct.unpack(f"<{(end - begin) // struct.calcsize(code)}{code}", data[begin:end])
            rows += [list(numbers[k:k + width * channels]) for k in range(0, len(numbers), width * channels)]
        else:
            assert method == 2
            rows += raster_runs(data[begin:end], width, code)
        begin = end
    assert begin == len(data) and len(rows) == height
    return rows


def side_item(side, wanted):
    """Returns the content of the first item of a kind, or None."""
    at = 0
    while at < len(side):
        kind, size = struct.unpack_from("<II", side, at)
        if kind == wanted:
            return side[at + 8:at + 8 + size]
        at += 8 + (size + 7) // 8 * 8
    return None


def parse_index(content):
    """Returns the columns at which each row has an entry, and the rows of entries (position in bits, predictor of each component)."""
    version, components, place_bits, offset_bits, *predictor_bits, count, rows = struct.unpack_from("<8BI", content)
    assert version == 2
    columns = (0, *struct.unpack_from(f"<{count - 1}H", content, 12))
    bits, at = int.from_bytes(content[12 + 2 * (count - 1):], "little"), 0

    def field(width, signed=False):
        nonlocal at
        value = bits >> at & (1 << width) - 1
        at += width
        return value - (1 << width) if signed and value >> (width - 1) else value

    def entry(begin, width):
        return begin + field(width), [field(predictor_bits[c], True) for c in range(components)]

    index = []
    for _ in range(rows):
        first = entry(0, place_bits)
        index.append([first] + [entry(first[0], offset_bits) for _ in columns[1:]])
    assert len(content) == 12 + 2 * (count - 1) + (at + 7) // 8
    return columns, index


class Component:
    def __init__(self, number, h, v, quant):
        self.number, self.h, self.v, self.quant = number, h, v, quant


class Jpeg:
    """Headers of a baseline JPEG of one scan: T.81, annex B."""

    def __init__(self, data):
        self.data = data
        self.quant, self.huffman, self.restart_interval = {}, {}, 0
        at = 2
        while True:
            assert data[at] == 0xff
            marker, size = data[at + 1], struct.unpack_from(">H", data, at + 2)[0]
            body = data[at + 4:at + 2 + size]
            at += 2 + size
            if marker == 0xdb:
                self.parse_quant(body)
            elif marker in (0xc0, 0xc1):
                self.parse_frame(body)
            elif marker == 0xc4:
                self.parse_huffman(body)
            elif marker == 0xdd:
                self.restart_interval, = struct.unpack(">H", body)
            elif marker == 0xda:
                self.parse_scan(body)
                break
        self.scan = data[at:]  # the entropy-coded data begin here
        if len(self.components) == 1:
            self.components[0].h = self.components[0].v = 1  # a scan of one component is not interleaved: an MCU is one block
        self.mcu_width = 8 * max(c.h for c in self.components)
        self.mcu_height = 8 * max(c.v for c in self.components)
        self.mcus_wide = -(-self.width // self.mcu_width)
        self.mcus_high = -(-self.height // self.mcu_height)

    def parse_quant(self, body):
        while body:
            wide, slot = body[0] >> 4, body[0] & 15
            values = struct.unpack_from(">64H" if wide else ">64B", body, 1)
            self.quant[slot] = values
            body = body[129 if wide else 65:]

    def parse_frame(self, body):
        precision, self.height, self.width, count = struct.unpack_from(">BHHB", body)
        assert precision == 8
        self.components = [Component(body[6 + 3 * i], body[7 + 3 * i] >> 4, body[7 + 3 * i] & 15, body[8 + 3 * i])
                           for i in range(count)]

    def parse_huffman(self, body):
        while body:
            slot, counts = body[0], body[1:17]
            codes, code, at = {}, 0, 17
            for length, count in enumerate(counts, 1):
                for symbol in body[at:at + count]:
                    codes[length, code] = symbol
                    code += 1
                at += count
                code <<= 1
            self.huffman[slot] = codes
            body = body[at:]

    def parse_scan(self, body):
        assert body[0] == len(self.components), "one scan with all components"
        for i, component in enumerate(self.components):
            assert body[1 + 2 * i] == component.number
            component.dc = self.huffman[body[2 + 2 * i] >> 4]
            component.ac = self.huffman[0x10 | body[2 + 2 * i] & 15]


class Bits:
    """Bits of entropy-coded data, most significant first, from a position that counts stuffed zeros."""

    def __init__(self, scan, place):
        self.scan, self.byte, self.bit = scan, place // 8, place % 8

    def place(self):
        return 8 * self.byte + self.bit

    def one(self):
        value = self.scan[self.byte] >> (7 - self.bit) & 1
        self.bit += 1
        if self.bit == 8:
            self.byte += 2 if self.scan[self.byte] == 0xff else 1  # FF is followed by a stuffed 00
            self.bit = 0
        return value

    def several(self, count):
        value = 0
        for _ in range(count):
            value = value << 1 | self.one()
        return value

    def symbol(self, codes):
        code = 0
        for length in range(1, 17):
            code = code << 1 | self.one()
            if (length, code) in codes:
                return codes[length, code]
        raise ValueError("no such code")

    def signed(self, size):
        """T.81, F.2.2.1: EXTEND"""
        value = self.several(size)
        return value if size == 0 or value >> (size - 1) else value - (1 << size) + 1


def decode_block(bits, component, predictor):
    """Returns 64 coefficients in natural order. The first one is the new predictor."""
    block = [0] * 64
    block[0] = predictor + bits.signed(bits.symbol(component.dc))
    k = 1
    while k < 64:
        run, size = divmod(bits.symbol(component.ac), 16)
        if size == 0 and run != 15:
            break
        k += run
        if size:
            block[ZIGZAG[k]] = bits.signed(size)
        k += 1
    return block


def decode_mcus(jpeg, row, start, columns):
    """
    Decodes the MCUs of a range of columns in a row, starting at an index entry. Returns their blocks {(component, block row,
    block column): coefficients}, and the position and predictors after them.
    """
    place, predictors = start
    bits, predictors, blocks = Bits(jpeg.scan, place), list(predictors), {}
    for column in columns:
        for c, component in enumerate(jpeg.components):
            for y in range(component.v):
                for x in range(component.h):
                    block = decode_block(bits, component, predictors[c])
                    predictors[c] = block[0]
                    blocks[c, row * component.v + y, column * component.h + x] = block
    return blocks, (bits.place(), predictors)


def decode_region(jpeg, index, x, y, width, height):
    """Returns the blocks of all MCUs from the index entry before the region to its right edge. Reads only the region's rows of the scan."""
    columns, rows = index
    entry = max(e for e, column in enumerate(columns) if column <= x // jpeg.mcu_width)
    blocks = {}
    for row in range(y // jpeg.mcu_height, -(-(y + height) // jpeg.mcu_height)):
        blocks.update(decode_mcus(jpeg, row, rows[row][entry],
                                  range(columns[entry], -(-(x + width) // jpeg.mcu_width)))[0])
    return blocks


def block_pixels(block, quant):
    """Returns 8 rows of 8 samples, 0 to 255, by the definition of the inverse transform: T.81, A.3.3."""
    values = [0] * 64
    for k in range(64):
        values[ZIGZAG[k]] = block[ZIGZAG[k]] * quant[k]
    cosine = [[math.cos((2 * x + 1) * u * math.pi / 16) * (math.sqrt(0.125) if u == 0 else 0.5) for u in range(8)]
              for x in range(8)]
    rows = [[sum(values[8 * v + u] * cosine[x][u] for u in range(8)) for x in range(8)] for v in range(8)]
    return [[min(255, max(0, round(sum(rows[v][x] * cosine[y][v] for v in range(8)) + 128))) for x in range(8)]
            for y in range(8)]
