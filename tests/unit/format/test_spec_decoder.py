"""SPEC.md describes the JPEG index well enough to decode regions: compares spec_decoder.py, written from it, with libjpeg's coefficients and pixels."""

import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import spec_decoder as spec  # noqa: E402


def known_coefficients(path):
    """Returns {(component, block row, block column): coefficients}, read by libjpeg."""
    data, at, component, blocks = path.read_bytes(), 0, 0, {}
    while at < len(data):
        wide, high = struct.unpack_from("<II", data, at)
        at += 8
        for y in range(high):
            for x in range(wide):
                blocks[component, y, x] = list(struct.unpack_from("<64h", data, at))
                at += 128
        component += 1
    return blocks


class RangesTest(unittest.TestCase):
    """Compares the files that are damaged according to SPEC.md, "Ranges", with the library's golden files."""

    golden = pathlib.Path(os.environ["PIMG_GOLDEN"])

    def read(self, name):
        return spec.Pimg((self.golden / name).read_bytes())

    def test_good(self):
        for path in sorted((self.golden / "good").iterdir()):
            pimg = self.read(path)
            self.assertEqual(pimg.all_overlaps(), [], path)
            for i in range(pimg.count):
                pimg.record(i)

    def test_refused_when_opened(self):
        for name in ("open_section_overlap", "open_field_name_overlap", "open_field_name_entry"):
            with self.assertRaisesRegex(AssertionError, "overlap", msg=name):
                self.read(f"bad/{name}.pimg")

    def test_refused_when_used(self):
        for name, sample in (("check_side_inside", 3), ("check_side_section", 3), ("check_data_section", 1)):
            with self.assertRaisesRegex(AssertionError, "overlap", msg=name):
                self.read(f"bad/{name}.pimg").record(sample)

    def test_found_when_verified(self):
        for name, a, b in (("check_side_inside", ("side", 3), ("data", 3)),
                           ("check_side_other_data", ("side", 3), ("data", 0)),
                           ("check_side_section", ("side", 3), ("section", 2)),
                           ("check_side_shared", ("side", 3), ("side", 0)),
                           ("check_data_overlap", ("data", 1), ("data", 0)),
                           ("check_data_begin", ("data", 1), ("data", 0)),
                           ("check_data_section", ("data", 1), ("section", 1)),
                           ("check_data_column", ("data", 1), ("column", 0)),
                           ("check_column_section", ("column", 0), ("section", 1)),
                           ("check_column_overlap", ("column", 1), ("column", 0)),
                           ("check_image_overlap", ("image", 0), ("data", 0)),
                           ("check_image_overlap_image", ("image", 1), ("image", 0)),
                           ("check_image_section", ("image", 1), ("section", 9))):
            found = [(first[:2], second[:2]) for first, second in self.read(f"bad/{name}.pimg").all_overlaps()]
            self.assertIn((a, b), found, name)


class ValuesTest(unittest.TestCase):
    """SPEC.md describes schemas, values and further images well enough to read what tests/golden/make_golden.c wrote."""

    golden = pathlib.Path(os.environ["PIMG_GOLDEN"]) / "good"

    def test_typed(self):
        pimg = spec.Pimg((self.golden / "typed.pimg").read_bytes())
        schema = pimg.schema()
        self.assertEqual(list(schema), "image boxes points class target area small caption label sample key".split())
        self.assertEqual([v["role"] for v in schema.values()], [1, 4, 5, 7, 8, 8, 8, 9, 7, 12, 11])
        self.assertEqual([v["store"] for v in schema.values()], [1, 3, 3, 3, 3, 3, 3, 3, 4, 6, 5])
        self.assertEqual((schema["boxes"]["shape"], schema["boxes"]["format"], schema["boxes"]["longest"]), ([0, 4], 1, 2))
        self.assertEqual((schema["class"]["of"], schema["boxes"]["of"], schema["image"]["of"]), (1, 0, 65535))
        self.assertEqual((schema["image"]["width"], schema["image"]["height"], schema["key"]["longest"]), (16, 8, 5))
        coordinates = [*range(11), 11.5]
        for i in range(3):
            self.assertEqual(pimg.value("boxes", i), coordinates[:4 * i])
            self.assertEqual(pimg.value("points", i), coordinates[:2 * (3 - i)])
            self.assertEqual(pimg.value("class", i), [2, -1, 0][:i])
            self.assertEqual((pimg.value("target", i), pimg.value("area", i), pimg.value("small", i)), ([0, 1], i / 4, 253 + i))
            self.assertEqual(pimg.value("caption", i), [None, b"one", "два".encode()][i])

    def test_images(self):
        pimg = spec.Pimg((self.golden / "images.pimg").read_bytes())
        for i, size in enumerate(((14, 8), (15, 8), (8, 16))):
            elements = [k // 20 + i * 300 for k in range(128)]
            data, width, height, codec, channels = pimg.image("mask", i)
            self.assertEqual(((width, height), codec, channels), (size, 2, 1))
            self.assertEqual(data, struct.pack("<128H", *elements)[:width * height])
            if i == 2:
                self.assertIsNone(pimg.image("depth", i))
                continue
            data, width, height, codec, channels = pimg.image("depth", i)
            self.assertEqual((width, height, codec, channels), (9, 5, 4, 1))
            self.assertEqual(sum(spec.decode_raster(data, width, height), []), elements[:45])

    def test_members_and_sizes(self):
        for path in sorted(self.golden.iterdir()):
            pimg = spec.Pimg(path.read_bytes())
            classes, = struct.unpack_from("<I", pimg.data, 104)
            earlier = path.name in ("no_field_stats.pimg", "no_members.pimg")
            self.assertEqual((10 in pimg.sections, 11 in pimg.sections), (classes > 0 and not earlier, not earlier), path)
            if classes and not earlier:
                self.assertEqual(pimg.members(), [[i for i in range(pimg.count) if pimg.label(i) == c] for c in range(classes)], path)
            if not earlier:
                self.assertEqual(pimg.sizes(), [pimg.record(i)[2:4] for i in range(pimg.count)], path)


class SpecDecoderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="pimg-spec-")
        folder = pathlib.Path(cls.folder.name)
        subprocess.run([os.environ["SPEC_IMAGES"], str(folder)], check=True)
        packimg = os.environ["PACKIMG"]
        subprocess.run([packimg, "convert", "-q", "jpeg", "-o", "out.pimg"], check=True, cwd=folder,
                       stdout=subprocess.DEVNULL)
        cls.images = {}
        pimg = spec.Pimg((folder / "out.pimg").read_bytes())
        for i in range(pimg.count):
            data, side, width, height, codec, channels, orientation = pimg.record(i)
            name = pimg.source(i).removesuffix(".jpg")
            jpeg = spec.Jpeg(data)
            assert (codec, channels, orientation) == (1, len(jpeg.components), 1)
            assert (width, height) == (jpeg.width, jpeg.height)
            cls.images[name] = (jpeg, spec.parse_index(spec.side_item(side, 1)),
                                known_coefficients(folder / f"{name}.coefficients"),
                                (folder / f"{name}.rgb").read_bytes())

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_all_kinds(self):
        self.assertEqual(sorted(self.images), ["420", "422", "440", "444", "grey", "grey22", "restart", "restart1"])
        for name, (jpeg, index, _, _) in self.images.items():
            columns, rows = index
            self.assertEqual(len(rows), jpeg.mcus_high, name)
            self.assertEqual({len(entries) for entries in rows}, {len(columns)}, name)
            self.assertTrue(all(a < b for a, b in zip(columns, columns[1:])) and columns[-1] < jpeg.mcus_wide, name)
        self.assertTrue(any(len(index[0]) > 1 for _, index, _, _ in self.images.values()))

    def test_index_is_what_the_scan_says(self):
        """Decodes entry by entry from the top: each part ends at the next entry."""
        for name, (jpeg, index, _, _) in self.images.items():
            follows = (0, [0] * len(jpeg.components))
            columns = index[0]
            for row, entries in enumerate(index[1]):
                if row and jpeg.restart_interval and row * jpeg.mcus_wide % jpeg.restart_interval == 0:
                    at = -(-follows[0] // 8)
                    number = (row * jpeg.mcus_wide // jpeg.restart_interval - 1) % 8
                    self.assertEqual(jpeg.scan[at:at + 2], bytes([0xff, 0xd0 + number]), name)
                    follows = (8 * (at + 2), [0] * len(jpeg.components))
                for entry, begin, end in zip(entries, columns, (*columns[1:], jpeg.mcus_wide)):
                    self.assertEqual(entry, follows, f"{name}, row {row}, column {begin}")
                    follows = spec.decode_mcus(jpeg, row, follows, range(begin, end))[1]
            # padding bits of the last byte, then the end-of-image marker
            self.assertEqual(jpeg.scan[-(-follows[0] // 8):][:2], b"\xff\xd9", name)

    def test_regions(self):
        for name, (jpeg, index, known, _) in self.images.items():
            for x, y, width, height in ((0, 0, 1, 1), (5, 17, 20, 9), (30, 33, 3, 8),
                                        (jpeg.width - 1, jpeg.height - 1, 1, 1), (0, 20, jpeg.width, 13)):
                blocks = spec.decode_region(jpeg, index, x, y, width, height)
                found = 0
                for (c, row, column), block in blocks.items():
                    # blocks outside the image only pad the last MCUs
                    if (c, row, column) in known:
                        self.assertEqual(block, known[c, row, column], f"{name}, block {row} {column} of {c}")
                        found += 1
                self.assertGreater(found, 0)
                for c, component in enumerate(jpeg.components):
                    reach = (y * component.v // jpeg.mcu_height, (x + width - 1) // jpeg.mcu_width * component.h)
                    self.assertIn((c, *reach), known)

    def test_only_its_rows(self):
        """A region is decoded only from its own rows: the data before them may be arbitrary."""
        jpeg, index, known, _ = self.images["420"]
        whole = jpeg.scan
        begin, end = index[1][3][0][0] // 8, index[1][5][0][0] // 8 + 1
        jpeg.scan = bytes(begin) + whole[begin:end]
        blocks = spec.decode_region(jpeg, index, 10, 3 * 16, 30, 32)
        jpeg.scan = whole
        for place, block in blocks.items():
            self.assertEqual(block, known[place])

    def test_wrong_entries_show(self):
        jpeg, index, known, _ = self.images["420"]
        rows = index[1]
        place, predictors = rows[2][0]
        for wrong in ((place, [predictors[0] + 1, *predictors[1:]]), (place + 1, predictors), rows[3][0]):
            try:
                blocks = spec.decode_mcus(jpeg, 2, wrong, range(2))[0]
            except (ValueError, IndexError):
                continue
            self.assertNotEqual(blocks, {key: known[key] for key in blocks})

    def test_pixels(self):
        """Grey images: without chroma, samples equal pixels up to the rounding of the integer transform."""
        jpeg, index, _, rgb = self.images["grey"]
        x0, y0, width, height = 20, 35, 30, 25
        blocks = spec.decode_region(jpeg, index, x0, y0, width, height)
        quant = jpeg.quant[jpeg.components[0].quant]
        pixels = {}
        for y in range(y0, y0 + height):
            for x in range(x0, x0 + width):
                key = (0, y // 8, x // 8)
                if key not in pixels:
                    pixels[key] = spec.block_pixels(blocks[key], quant)
                self.assertLessEqual(abs(pixels[key][y % 8][x % 8] - rgb[3 * (y * jpeg.width + x)]), 1)


if __name__ == "__main__":
    unittest.main()
