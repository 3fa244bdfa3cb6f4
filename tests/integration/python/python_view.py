"""packimg view: pages and sheets of a dataset with hostile names, with the bytes that the daemon ($LOADERD) delivers."""

import base64
import hashlib
import html.parser
import math
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import unittest
import zlib

import loaderd

try:
    import numpy
except ImportError:
    print("NumPy is not installed")
    sys.exit(77)

PACKIMG = os.environ["PACKIMG"]
WIDTH, HEIGHT = 48, 40
SAMPLES = 6
CLASSES = ["<script>alert(1)</script>", "a\"b'c</script>&amp;", "plain"]
CAPTIONS = ["</dd><img src=x onerror=alert(1)>", "\u202egnp.exe", "bell\x07 escape\x1b[31m", "é", "a" * 1000, "--><!--"]
SCHEMA = """
image: image u8[h,w,3]
mask: mask(image) u8[h,w]
boxes: boxes(image) f32[*,4] xyxy
kinds: class(boxes) i32[*]
points: keypoints(image) f32[2,3] xyv
outline: polygons(image) f32[*,2]
caption: text
split: value i32
score: value f64
"""
# further images and rasters, in frames of their own and in that of the first image
STEREO = r"""
image: image u8[h,w,3]
depth: raster(image) u16[h,w] sparse
"<i>&\"": raster(image) f32[h,w] sparse
right: image u8[h,w,3] sparse
seen: boxes(right) f32[*,4] xyxy sparse
part: mask(right) u8[h,w] sparse
flow: raster i16[h,w,2]
"""
VALUES = ["image", "depth", '<i>&"', "right", "flow"]  # with pictures
PIPELINE = "random_resized_crop(32, scale=0.3:1) hflip color_jitter(0.4)"
# colours 1 and 2 of tools/packimg/view/colours.c
BLUE, GREEN = (0x56, 0xB4, 0xE9), (0x00, 0x9E, 0x73)
ORANGE = (0xE6, 0x9F, 0x00)


def image_of(i):
    y, x, c = numpy.indices((HEIGHT, WIDTH, 3))
    return (40 + i * 20 + x + y * 2 + c * 5).astype(numpy.uint8)


def write_dataset(path):
    mask = numpy.zeros((HEIGHT, WIDTH), numpy.uint8)
    mask[30:, :10] = 2
    with loaderd.Writer(path, SCHEMA, classes=CLASSES) as writer:
        for i in range(SAMPLES):
            writer.add({
                "image": image_of(i), "mask": mask, "boxes": [[8, 8, 24, 24], [30, 4, 44, 12]], "kinds": [1, 2],
                "points": [[40, 30, 2], [4, 4, 0]], "outline": [[28, 20], [36, 20], [32, 28], [numpy.nan] * 2, [1, 1], [5, 1], [3, 3], [1, 3]],
                "caption": CAPTIONS[i], "split": i % 2, "score": i / 10, "label": i % 3, "key": f"folder/<b>{i}</b>\x1b.png"})


def stereo_sample(i):
    y, x = numpy.indices((HEIGHT, WIDTH))
    heat = (x / 7 - 2).astype(numpy.float32)
    heat[0, 0], heat[0, 1], heat[1, 0] = numpy.nan, numpy.inf, -numpy.inf
    part = numpy.zeros((HEIGHT, WIDTH - 8), numpy.uint8)
    part[:4, :5] = 1
    return {"image": image_of(i), "depth": (x * 100 + y + 500).astype(numpy.uint16), '<i>&"': heat, "right": image_of(i + 1)[:, 8:], "part": part,
            "seen": [[8, 8, 24, 24]], "flow": numpy.stack([x[:9, :7] - 3, y[:9, :7] + 30000], 2).astype(numpy.int16), "label": 0}


def normalised(numbers):
    """The picture of a raster: the smallest finite number is black, the largest white, what is not finite red."""
    numbers = numbers.astype(float)
    finite = numpy.isfinite(numbers)
    low, high = numbers[finite].min(), numbers[finite].max()
    grey = numpy.rint((numpy.where(finite, numbers, low) - low) / (high - low) * 255).astype(numpy.uint8)
    return numpy.where(finite[:, :, None], grey[:, :, None], numpy.array((0xD0, 0, 0x30), numpy.uint8))


def unfiltered(kind, row, above, step):
    """Reverses the filter of a row of a PNG (PNG specification, clause 9)."""
    for i, byte in enumerate(row):
        a, b, c = (row[i - step] if i >= step else 0), above[i], (above[i - step] if i >= step else 0)
        estimate = a + b - c
        near = min((abs(estimate - a), 0, a), (abs(estimate - b), 1, b), (abs(estimate - c), 2, c))[2]
        row[i] = (byte + (0, a, b, (a + b) // 2, near)[kind]) & 255
    return row


def pixels(png):
    """Returns the pixels of an 8-bit PNG, height x width x channels."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, data = 8, b""
    while at < len(png):
        size, kind = int.from_bytes(png[at:at + 4], "big"), png[at + 4:at + 8]
        if kind == b"IHDR":
            width, height = int.from_bytes(png[at + 8:at + 12], "big"), int.from_bytes(png[at + 12:at + 16], "big")
            channels = {0: 1, 2: 3, 6: 4}[png[at + 17]]
        data += png[at + 8:at + 8 + size] if kind == b"IDAT" else b""
        at += size + 12
    data, row, rows = zlib.decompress(data), bytearray(width * channels), []
    for y in range(height):
        first = y * (width * channels + 1)
        row = unfiltered(data[first], bytearray(data[first + 1:first + 1 + width * channels]), row, channels)
        rows.append(bytes(row))
    return numpy.frombuffer(b"".join(rows), numpy.uint8).reshape(height, width, channels)


class Page(html.parser.HTMLParser):
    """Parses a page: all elements with their attributes, texts by element, and the panels and values of each figure."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self.figures, self.open = [], {}, [], []
        self.source = pathlib.Path(path).read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.elements.append((tag, attributes))
        if tag not in ("img", "meta", "input"):
            self.open.append(tag)
        if tag == "figure":
            self.figures.append({"label": attributes["data-label"], "panels": [], "caption": "", "dd": []})
        kind = attributes.get("class", "")
        if kind == "panel":
            self.figures[-1]["panels"].append({"polygons": [], "names": [], "note": ""})
        if tag == "img":
            prefix, data = attributes["src"].split(",")
            assert prefix == "data:image/png;base64"
            self.figures[-1]["panels"][-1][kind.split()[0]] = base64.b64decode(data, validate=True)
        if tag == "polygon":
            points = [tuple(map(float, point.split(","))) for point in attributes["points"].split()]
            self.figures[-1]["panels"][-1]["polygons"].append((attributes["stroke"], points))
        if tag == "circle":
            self.figures[-1]["panels"][-1]["circle"] = float(attributes["cx"]), float(attributes["cy"])
        if tag in ("dd", "text"):
            self.figures[-1]["dd"].append("")

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data):
        tag = self.open[-1] if self.open else ""
        self.texts.setdefault(tag, []).append(data)
        if tag == "figcaption":
            self.figures[-1]["caption"] += data
        if tag == "text":
            self.figures[-1]["panels"][-1]["names"].append(data)
        if tag == "dd":
            self.figures[-1]["dd"][-1] += data
        if tag == "p" and self.figures:
            self.figures[-1]["panels"][-1]["note"] += data


class ViewCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="packimg-view-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.dir = pathlib.Path(cls.folder.name)
        cls.path = cls.dir / "hostile<i>.pimg"
        write_dataset(cls.path)

    def view(self, *arguments, rc=0, path=None):
        done = subprocess.run([PACKIMG, "view", str(path or self.path), *map(str, arguments)], cwd=self.dir,
                              capture_output=True, check=False)
        self.assertEqual(done.returncode, rc, done.stderr.decode())
        self.assertNotRegex(done.stdout + done.stderr, rb"[\x00-\x09\x0b-\x1f]")
        return done.stdout.decode() + done.stderr.decode()

    def page(self, *arguments, **options):
        self.view("--force", "-o", "out.html", *arguments, **options)
        return Page(self.dir / "out.html")

    def sheet(self, *arguments, **options):
        self.view("--force", "-o", "out.png", *arguments, **options)
        return pixels((self.dir / "out.png").read_bytes())


class View(ViewCase):
    def test_names_cannot_become_markup(self):
        page = self.page("--pipeline", PIPELINE)
        self.assertEqual(page.open, [])
        self.assertEqual({tag for tag, _ in page.elements}, set(
            "html head meta title style body header h1 p code form label select option input output main figure div img svg polygon text circle "
            "figcaption dl dt dd script".split()))
        for tag, attributes in page.elements:
            self.assertFalse([name for name in attributes if name.startswith("on") or name in ("href", "style", "action")], tag)
        self.assertEqual(len(page.texts["script"]), 1)
        self.assertEqual([figure["caption"] for figure in page.figures], [f"#{i} {CLASSES[i % 3]}" for i in range(SAMPLES)])
        for i, figure in enumerate(page.figures):
            self.assertEqual(figure["panels"][0]["names"], CLASSES[1:], "names of the boxes' classes")
            self.assertIn(f"folder/<b>{i}</b>\\x1b.png", figure["dd"])
        texts = [text for figure in page.figures for text in figure["dd"]]
        self.assertIn(CAPTIONS[0], texts)
        self.assertIn("\\u202egnp.exe", texts)
        self.assertIn("bell\\x07 escape\\x1b[31m", texts)
        self.assertIn("é", texts)
        self.assertIn("a" * 297 + "...", texts)
        self.assertNotRegex(page.source, "[\x00-\x08\x0b-\x1f\x7f\u202e]")
        self.assertIn("a&quot;b&#39;c&lt;/script&gt;&amp;amp;", page.source)
        self.assertEqual(page.texts["h1"], [str(self.path)])

    def test_policy_permits_the_pages_own_script_and_no_network(self):
        page = self.page()
        policy = next(attributes["content"] for tag, attributes in page.elements if attributes.get("http-equiv") == "Content-Security-Policy")
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
        self.assertEqual(rules["default-src"], "'none'")
        self.assertEqual(rules["img-src"], "data:")
        for tag in ("script", "style"):
            digest = base64.b64encode(hashlib.sha256("".join(page.texts[tag]).encode()).digest()).decode()
            self.assertEqual(rules[f"{tag}-src"], f"'sha256-{digest}'")

    def test_page_shows_samples_as_stored(self):
        for i, figure in enumerate(self.page().figures):
            panel, = figure["panels"]
            self.assertTrue((pixels(panel["picture"]) == image_of(i)).all())
            layer = pixels(panel["mask"])
            self.assertEqual(tuple(layer[35, 5]), (*GREEN, 128))
            self.assertEqual(numpy.count_nonzero(layer[:, :, 3]), 100)
            self.assertEqual(panel["polygons"], [
                ("#56b4e9", [(8, 8), (24, 8), (24, 24), (8, 24)]), ("#009e73", [(30, 4), (44, 4), (44, 12), (30, 12)]),
                ("#e69f00", [(28, 20), (36, 20), (32, 28)]), ("#56b4e9", [(1, 1), (5, 1), (3, 3), (1, 3)])], "not-a-numbers are between two polygons")
            self.assertEqual(panel["circle"], (40, 30), "the other point is not visible")

    def test_page_shows_what_the_daemon_delivers(self):
        for seed, epoch, pipeline in ((0, 0, PIPELINE), (7, 3, PIPELINE), (7, 3, f"{PIPELINE} sanitize_boxes(min_size=12)"),
                                      (7, 3, "random_iou_crop(sampler_options=0:0.3) resize(40x40) hflip"),
                                      (7, 3, "pad(9) random_crop(40) hflip mask: fill(7) boxes: sanitize_boxes(min_size=12)")):
            figures = self.page("--pipeline", pipeline, "--seed", seed, "--epoch", epoch).figures
            with loaderd.Feed(self.path, pipeline=pipeline, batch_size=SAMPLES, seed=seed, epoch=epoch, epoch_end=epoch + 1,
                              values=["mask", "boxes"], daemon="private") as feed:
                batch = next(iter(feed))
                for i, sample in enumerate(batch.samples):
                    panel = figures[int(sample)]["panels"][1]
                    self.assertEqual(pixels(panel["picture"]).tobytes(), numpy.asarray(batch.images[i]).tobytes())
                    layer, mask = pixels(panel["mask"]), numpy.asarray(batch["mask"][i])
                    self.assertTrue(((layer[:, :, 3] > 0) == (mask > 0)).all())
                    boxes = [box for box in numpy.asarray(batch["boxes"][i]).tolist() if box[2] > box[0] and box[3] > box[1]]
                    drawn = [(*points[0], *points[2]) for colour, points in panel["polygons"][:len(boxes)]]
                    numpy.testing.assert_allclose(drawn, boxes, atol=1e-3)

    def test_page_says_what_black_and_white_are(self):
        page = self.page("--pipeline", "resize(16x16) to(f32) normalize(imagenet) layout(nchw)")
        notes = [text for text in page.texts["p"] if text.startswith("delivered: 16 x 16 f32, black is ")]
        self.assertEqual(len(notes), SAMPLES)
        shown = pixels(page.figures[0]["panels"][1]["picture"])
        self.assertEqual((shown.min(), shown.max()), (0, 255))

    def test_sheet_draws_annotations(self):
        sheet = self.sheet("--size", WIDTH)
        left, top = 8, 8  # position of the first picture
        self.assertEqual(tuple(sheet[top + 14, left + 8]), BLUE, "the box's left edge")
        self.assertEqual(tuple(sheet[top + 24, left + 14]), BLUE, "its lower edge")
        self.assertEqual(tuple(sheet[top + 20, left + 32]), ORANGE, "the polygon's upper edge")
        self.assertEqual(tuple(sheet[top + 30, left + 40]), ORANGE, "the point")
        self.assertEqual(tuple(sheet[top + 17, left + 40]), tuple(image_of(0)[17, 40]), "nothing is drawn here")
        stored = image_of(0)[35, 5].astype(int)
        expected = (stored * 127 + numpy.array(GREEN) * 128 + 127) // 255
        self.assertEqual(tuple(sheet[top + 35, left + 5]), tuple(expected), "the mask is translucent")
        # The caption begins with '#', whose upper row sets pixels 1 and 3.
        caption = sheet[top + WIDTH + 3, left:left + 5]
        self.assertEqual([pixel[0] < 128 for pixel in caption], [False, True, False, True, False])

    def test_sheet_enlarges_small_pictures_and_shrinks_large_ones(self):
        sheet = self.sheet("--size", 2 * WIDTH + 5, "-i", 3)
        self.assertEqual(tuple(sheet[8 + 2 * 14, 8 + 2 * 8]), BLUE)
        self.assertEqual(tuple(sheet[8 + 2 * 17 + 1, 8 + 2 * 40 + 1]), tuple(image_of(3)[17, 40]))
        sheet = self.sheet("--size", 32, "--pipeline", "resize(64x64)", "-i", 0)
        self.assertEqual(sheet.shape[1], 8 + 2 * (32 + 8))

    def test_chooses_samples(self):
        def shown(*arguments):
            return [int(figure["caption"].split()[0][1:]) for figure in self.page(*arguments).figures]

        self.assertEqual(shown("--samples", 3), [0, 2, 4])
        self.assertEqual(shown("--class", "plain"), [2, 5])
        self.assertEqual(shown("--field", "split=1"), [1, 3, 5])
        self.assertEqual(shown("--field", "split=1", "--class", "plain"), [5])
        self.assertEqual(shown("--field", "caption=é"), [3])
        self.assertEqual(shown("--field", "score=0.1"), [1])
        self.assertEqual(shown("folder/<b>4</b>\x1b.png", "folder/<b>1</b>\x1b.png"), [1, 4])
        for arguments, sentence in (
                (["--field", "splt=1"], 'there is no field "splt"; did you mean split'), (["--field", "split"], "give NAME=VALUE"),
                (["--field", "split=9"], "no sample matches all options"), (["nothing\x1b"], r'no sample has the key "nothing\\x1b"'),
                (["--class", "none"], 'no class "none"'), (["--samples", 2000], "1024"), (["-o", "out.gif"], "neither .html nor .png"),
                (["--pipeline", "resize(16"], "--pipeline: at byte "), (["--pipeline", "resize(16x16) masks: fill(7)"], 'no value "masks"; did you mean "mask"'),
                (["--pipeline", "resize(16x16) boxes: fill(7)"], "fill is for masks")):
            self.assertRegex(self.view(*(arguments if "-o" in arguments else ["-o", "no.html", *arguments]), rc=2), sentence)
        self.assertFalse((self.dir / "no.html").exists())

    def test_writes_both_files_and_replaces_none(self):
        self.view("--samples", 2)
        page, sheet = self.dir / "hostile<i>.html", self.dir / "hostile<i>.png"
        self.assertEqual(len(Page(page).figures), 2)
        before = page.read_bytes()
        self.assertIn("--force", self.view(rc=2))
        self.assertEqual(page.read_bytes(), before)
        page.unlink()
        self.assertIn("--force", self.view(rc=2))
        self.assertFalse(page.exists())
        sheet.unlink()
        self.assertEqual([path.name for path in self.dir.iterdir() if path.name.endswith(".tmp")], [])

    def test_a_full_disk_leaves_nothing(self):
        # The process ignores SIGXFSZ, which it inherits, so the write fails as on a full disk.
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

        for name in ("full.html", "full.png"):
            done = subprocess.run([PACKIMG, "view", self.path, "-o", name], cwd=self.dir, stderr=subprocess.PIPE, preexec_fn=limit,
                                  restore_signals=False, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{name}: File too large".encode(), done.stderr)
        self.assertEqual([path.name for path in self.dir.iterdir() if path.name.startswith("full")], [])

    def test_refuses_sheets_that_are_too_large(self):
        path = self.dir / "many.pimg"
        with loaderd.Writer(path, "image: image u8[h,w,3]") as writer:
            for i in range(80):
                writer.add({"image": numpy.full((2, 2, 3), i, numpy.uint8)})
        said = self.view("-n", 80, "--size", 1024, path=path, rc=2)
        self.assertRegex(said, "the limit is 64 million: choose fewer by --samples, or a smaller --size")
        self.assertFalse((self.dir / "many.html").exists())

    def test_shows_why_a_sample_is_damaged(self):
        data = bytearray(self.path.read_bytes())
        path = self.dir / "damaged.pimg"
        data[4096 + 20] ^= 1  # a byte of the first sample's pixels
        path.write_bytes(data)
        self.view("--force", "-o", "out.html", "--pipeline", PIPELINE, path=path, rc=1)
        page = Page(self.dir / "out.html")
        self.assertEqual(len(page.figures), SAMPLES)
        self.assertTrue(any("damaged" in text for text in page.texts["p"]))

    def test_draws_every_format_of_boxes(self):
        path = self.dir / "formats.pimg"
        formats = {"xyxy": [10, 4, 30, 12], "xywh": [10, 4, 20, 8], "cxcywh": [20, 8, 20, 8], "cxcywhr": [20, 8, 8, 20, 90]}
        schema = "image: image u8[h,w,3]\n" + "".join(f"{name}: boxes(image) f32[*,{len(box)}] {name}\n" for name, box in formats.items())
        schema += "turned: boxes(image) f32[5] cxcywhr normalized\npart: boxes(image) f32[4] xyxy normalized\nmany: keypoints(image) f32[*,2] xy"
        with loaderd.Writer(path, schema) as writer:
            turned = [20 / WIDTH, 8 / HEIGHT, 10 / WIDTH, 4 / HEIGHT, 30]
            part = [10 / WIDTH, 4 / HEIGHT, 30 / WIDTH, 12 / HEIGHT]
            writer.add({"image": image_of(0), "part": part, "turned": turned, "many": [[1, 1]] * 3000, **{name: [box] for name, box in formats.items()}})
        panel, = self.page(path=path).figures[0]["panels"]
        self.assertEqual(len(panel["polygons"]), 6)
        _, points = panel["polygons"].pop(4)
        across, up = (5 * math.cos(math.pi / 6), 5 * math.sin(math.pi / 6)), (2 * math.sin(math.pi / 6), 2 * math.cos(math.pi / 6))
        upper_right = (20 + across[0] - up[0], 8 - across[1] - up[1])
        numpy.testing.assert_allclose(points[1], upper_right, atol=1e-4, err_msg="counterclockwise")
        for _, points in panel["polygons"]:
            numpy.testing.assert_allclose(sorted(points), [(10, 4), (10, 12), (30, 4), (30, 12)], atol=1e-4)
        page = self.page("--pipeline", "resize(20x24)", path=path)
        self.assertEqual(len(page.figures[0]["panels"][1]["polygons"]), 6)
        self.assertIn("; 1006 more boxes, points or polygons are not drawn", page.source)

    def test_polygons_of_boxes_have_their_classes_and_go_with_them(self):
        path = self.dir / "objects.pimg"
        schema = "image: image u8[h,w,3]\nboxes: boxes(image) f32[*,4]\noutlines: polygons(boxes) f32[*,2]\nkinds: class(boxes) i32[*]"
        with loaderd.Writer(path, schema, classes=CLASSES) as writer:
            outlines = loaderd.join_polygons([[[(1, 1), (5, 1), (3, 3)], [(2, 5), (4, 5), (3, 6)]], [], [[(20, 20), (30, 20), (25, 30)]]])
            writer.add({"image": image_of(0), "boxes": [[1, 1, 5, 6], [8, 8, 9, 9], [20, 20, 30, 30]], "outlines": outlines, "kinds": [1, 0, 2]})
        stored, delivered = self.page("--pipeline", "resize(40x48) sanitize_boxes(min_size=8)", path=path).figures[0]["panels"]
        self.assertEqual([(colour, len(points)) for colour, points in stored["polygons"][3:]], [("#56b4e9", 3), ("#56b4e9", 3), ("#009e73", 3)])
        self.assertEqual([(colour, len(points)) for colour, points in delivered["polygons"]], [("#009e73", 4), ("#009e73", 3)])

    def test_number_of_samples_limits_keys_too(self):
        keys = [f"folder/<b>{i}</b>\x1b.png" for i in (0, 1, 5)]
        self.assertEqual(len(self.page(*keys).figures), 3)
        self.assertEqual(len(self.page("-n", 2, *keys).figures), 2)

    def test_names_damaged_values(self):
        golden = pathlib.Path(__file__).parents[2] / "golden" / "bad" / "check_column_values.pimg"
        said = self.view("--force", "-o", "out.html", path=golden, rc=1)
        self.assertRegex(said, r'packimg: sample \d+: its value ".+" is damaged')

    def test_says_what_cannot_follow_a_pipeline(self):
        page = self.page("--pipeline", "resize(32x32) rand_augment")
        self.assertTrue(re.search("not drawn as delivered: ", page.source))
        for figure in page.figures:
            self.assertEqual(figure["panels"][1]["polygons"], [])
            self.assertEqual(len(figure["panels"][0]["polygons"]), 4)


class FurtherPictures(ViewCase):
    """Samples of several images and rasters."""

    def write(self, *samples, schema=STEREO):
        path = self.dir / "stereo.pimg"
        with loaderd.Writer(path, schema, classes=["one"], overwrite=True) as writer:
            for sample in samples:
                writer.add(sample)
        return path

    def test_page_shows_further_images_and_rasters_as_stored(self):
        sample = stereo_sample(0)
        page = self.page(path=self.write(sample))
        panels = dict(zip(VALUES, page.figures[0]["panels"]))
        self.assertEqual(len(page.figures[0]["panels"]), len(VALUES))
        self.assertEqual(pixels(panels["right"]["picture"]).tolist(), sample["right"].tolist())
        self.assertEqual(pixels(panels["depth"]["picture"]).tolist(), normalised(sample["depth"]).tolist())
        self.assertEqual(pixels(panels['<i>&"']["picture"]).tolist(), normalised(sample['<i>&"']).tolist())
        self.assertEqual(pixels(panels["flow"]["picture"]).tolist(), normalised(sample["flow"][:, :, 0]).tolist())
        self.assertEqual([panel["note"] for panel in panels.values()], [
            "image, stored: 48 x 40 raw+zstd", "depth, stored: 48 x 40 raster u16, black is 500, white is 5239",
            '<i>&", stored: 48 x 40 raster f32, black is -2, white is 4.714, 3 not finite (red)', "right, stored: 40 x 40 raw+zstd",
            "flow, stored: 7 x 9 raster i16, black is -3, white is 3, channel 0 of 2"])
        self.assertEqual([name for name, panel in panels.items() if "mask" in panel or panel["polygons"]], ["right"], "what is in its frame")
        self.assertEqual(numpy.count_nonzero(pixels(panels["right"]["mask"])[:, :, 3]), 20)
        self.assertEqual(panels["right"]["polygons"][0][1], [(8, 8), (24, 8), (24, 24), (8, 24)])
        self.assertNotIn("i", {tag for tag, _ in page.elements})

    def test_page_shows_them_as_delivered(self):
        path = self.write(*map(stereo_sample, range(3)))
        for pipeline in ("random_resized_crop(32, scale=0.3:1) hflip right: color_jitter(0.4)", "resize(20x30) depth: filter(bilinear) vflip",
                         "resize(50x50) random_crop(40) depth: fill(77) depth: to(i32) random_rotation(20)"):
            figures = self.page("--pipeline", pipeline, "--seed", 5, path=path).figures
            with loaderd.Feed(path, pipeline=pipeline, batch_size=3, seed=5, epoch_end=1, values=VALUES[1:] + ["seen", "part"], daemon="private") as feed:
                batch = next(iter(feed))
                for i, number in enumerate(batch.samples):
                    panels = dict(zip(VALUES, figures[int(number)]["panels"][1::2]))
                    self.assertEqual(pixels(panels["right"]["picture"]).tobytes(), numpy.asarray(batch["right"][i]).tobytes())
                    for name in VALUES[1:3]:
                        self.assertEqual(pixels(panels[name]["picture"]).tolist(), normalised(numpy.asarray(batch[name][i])).tolist(), name)
                    numpy.testing.assert_array_equal(pixels(panels["right"]["mask"])[:, :, 3] > 0, numpy.asarray(batch["part"][i]) > 0)
        self.assertIn(" i32, black is 77, white is ", panels["depth"]["note"])

    def test_shows_what_a_sample_lacks_as_missing(self):
        path = self.write({"image": image_of(0), "flow": stereo_sample(0)["flow"], "label": 0})
        for panels in (self.page(path=path).figures[0]["panels"], self.page("--pipeline", "resize(16x16)", path=path).figures[0]["panels"][1::2]):
            self.assertEqual([panel["note"] for panel in panels][1:4], ["depth: missing", '<i>&": missing', "right: missing"])
            self.assertEqual(["picture" in panel for panel in panels], [True, False, False, False, True])

    def test_says_which_no_feed_delivers(self):
        path = self.write(stereo_sample(0), schema=STEREO + "found: boxes(image) f32[*,4] xyxy sparse")
        notes = [panel["note"] for panel in self.page("--pipeline", "random_iou_crop resize(16x16)", path=path).figures[0]["panels"][1::2]]
        self.assertEqual([note[:28] for note in notes[3:]], ["right: random_iou_crop choos", "flow: random_iou_crop choose"])
        self.assertTrue(notes[1].startswith("depth, delivered: 16 x 16 u16"), notes)
        notes = [panel["note"] for panel in self.page("--pipeline", "resize(16x16) rand_augment", path=path).figures[0]["panels"][1::2]]
        self.assertTrue(notes[1].startswith("depth: at byte 14: rand_augment, "), notes)
        self.assertTrue(notes[3].startswith("right, delivered: 16 x 16 u8"), notes)

    def test_draws_numbers_without_a_range(self):
        maps = [numpy.full((4, 4), numpy.nan, numpy.float32), numpy.full((4, 4), 2.5, numpy.float32), numpy.full((4, 4), -3e38, numpy.float32)]
        maps[2][0, 0] = 3e38
        path = self.write(*({"image": image_of(0), "map": m} for m in maps), schema="image: image u8[h,w,3]\nmap: raster f32[h,w]")
        panels = [figure["panels"][1] for figure in self.page(path=path).figures]
        self.assertEqual([panel["note"].split("f32, ")[1] for panel in panels], ["no pixel is finite", "all are 2.5", "black is -3e+38, white is 3e+38"])
        self.assertEqual([tuple(pixels(panel["picture"])[0, 0]) for panel in panels], [(0xD0, 0, 0x30), (128,) * 3, (255,) * 3])

    def test_a_first_image_of_16_bits_is_shown(self):
        wide = numpy.arange(12, dtype=numpy.uint16).reshape(3, 4) * 5000
        panel, = self.page(path=self.write({"image": wide}, schema="image: image u16[h,w]")).figures[0]["panels"]
        self.assertEqual(panel["note"], "stored: 4 x 3 raster u16, black is 0, white is 55000")
        self.assertEqual(pixels(panel["picture"]).tolist(), normalised(wide).tolist())

    def test_sheet_has_a_column_for_each_value_and_a_row_with_a_pipeline(self):
        path, side = self.write(stereo_sample(0)), 48
        sheet = self.sheet("--size", side, path=path)
        self.assertEqual(sheet.shape[:2], (8 + side + 8 + 11 + 22, 8 + 5 * (side + 8)))
        self.assertEqual(sheet[8:8 + HEIGHT, 8 + side + 8:][:, :WIDTH].tolist(), normalised(stereo_sample(0)["depth"]).tolist())
        self.assertEqual(tuple(sheet[8 + 8, 8 + 3 * (side + 8) + 20]), ORANGE, "the box of the further image")
        self.assertTrue((sheet[8 + side + 3:8 + side + 10, 8 + side + 8:8 + 2 * side] < 128).any(), "a label below the picture")
        sheet = self.sheet("--size", side, "--pipeline", "resize(48x40)", path=path)
        self.assertEqual(sheet.shape[:2], (8 + 5 * (side + 8 + 11) + 22, 8 + 2 * (side + 8)))
        self.assertEqual(sheet[8 + side + 19:][:HEIGHT, 8 + side + 8:][:, :WIDTH].tolist(), normalised(stereo_sample(0)["depth"]).tolist())

    def test_a_damaged_raster_leaves_the_other_pictures(self):
        noise = numpy.random.default_rng(0).integers(0, 65536, (HEIGHT, WIDTH), numpy.uint16)  # which no encoder shortens
        path = self.write({**stereo_sample(0), "depth": noise})
        data = bytearray(path.read_bytes())
        data[data.index(noise.tobytes()[:16])] ^= 1
        path.write_bytes(data)
        said = self.view("--force", "-o", "out.html", path=path, rc=1)
        self.assertIn('sample 0: depth: its raster "depth" is damaged', said)
        panels = Page(self.dir / "out.html").figures[0]["panels"]
        self.assertEqual(["picture" in panel for panel in panels], [True, False, True, True, True])

    def test_shows_fewer_samples_of_many_pictures(self):
        schema = "image: image u8[h,w,3]\n" + "".join(f"v{k}: raster u8[h,w]\n" for k in range(31))
        sample = {"image": image_of(0)[:4, :4], **{f"v{k}": numpy.zeros((2, 2), numpy.uint8) for k in range(31)}}
        path = self.write(*[sample] * 9, schema=schema)
        self.assertEqual(len(self.page(path=path).figures), 8)
        self.assertEqual(len(self.page("--pipeline", "resize(4x4)", path=path).figures), 4)
        self.assertEqual(len(self.page("-n", 9, path=path).figures), 9)


if __name__ == "__main__":
    unittest.main()
