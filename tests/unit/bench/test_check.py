"""bench/peers/check.py on batches made here: it accepts what a loader has to deliver, and refuses each fault."""

import os
import random
import sys
import unittest

try:
    import numpy
except ImportError:
    print("numpy is not installed")
    sys.exit(77)

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.environ["BENCH"], "peers"))
import check  # noqa: E402

SIDE, SIZE, WIDTH, HEIGHT = 128, 8, 320, 240


def cut(pixels, place, mirror, fraction=False):
    """Returns a crop at SIDE x SIDE, by the nearest pixel, or between pixels of a plane that rises evenly."""
    x, y, w, h = place
    at = (numpy.arange(SIDE) + 0.5) / SIDE
    rows, columns = y + h * at, x + w * at
    if fraction:
        made = (check.SLOPE * (rows[:, None] / HEIGHT + columns[None] / WIDTH)).round().astype("u2")
    else:
        made = pixels[rows.astype(int)][:, columns.astype(int)]
    return made[:, ::-1] if mirror else made


def boxes_of(count, place, mirror):
    x, y, w, h = place
    rows, kinds = [], []
    for kind in range(count):
        box = numpy.array(check.box_of(kind)) * (WIDTH, HEIGHT, WIDTH, HEIGHT)
        box = (box - (x, y, x, y)) * (SIDE / w, SIDE / h, SIDE / w, SIDE / h)
        left, top, right, bottom = box.clip(0, SIDE)
        if right - left >= 1 and bottom - top >= 1:
            rows.append((SIDE - right, top, SIDE - left, bottom) if mirror else (left, top, right, bottom))
            kinds.append(kind)
    return numpy.array(rows, "f4").reshape(-1, 4), numpy.array(kinds)


def batch():
    draw, values = random.Random(1), {name: [] for name in ("image", "mask", "depth", "boxes", "class")}
    for number in range(SIZE):
        image, mask, count, _ = check.picture(number + 9, WIDTH, HEIGHT)
        w, h = draw.randint(120, WIDTH), draw.randint(120, HEIGHT)
        place, mirror = (draw.randint(0, WIDTH - w), draw.randint(0, HEIGHT - h), w, h), number % 2
        rows, kinds = boxes_of(count, place, mirror)
        made = (cut(image, place, mirror), cut(mask, place, mirror), cut(None, place, mirror, True), rows, kinds)
        for name, value in zip(values, made):
            values[name].append(value)
    return {name: value if name in ("boxes", "class") else numpy.stack(value) for name, value in values.items()}


class Check(unittest.TestCase):
    def refuses(self, name, change, text):
        made = batch()
        made[name] = change(made[name])
        with self.assertRaisesRegex(ValueError, text):
            check.judge(made, SIZE, SIDE)

    def test_accepts(self):
        made = batch()
        check.judge(made, SIZE, SIDE)
        check.judge({**made, "image": numpy.moveaxis(made["image"], -1, 1)}, SIZE, SIDE)

    def test_images(self):
        self.refuses("image", lambda images: images.astype("f4"), "image: float32")
        self.refuses("image", lambda images: images[1:], "image: shape")
        self.refuses("image", lambda images: numpy.stack([images[0], images[1]] * (SIZE // 2)), "image: crops are")
        self.refuses("image", lambda images: images[::2].repeat(2, 0), "image: 0 of 8 are mirrored")

    def test_masks(self):
        self.refuses("mask", lambda masks: masks[:, :, ::-1], "mask: ")
        self.refuses("mask", lambda masks: numpy.roll(masks, 1, 0), "mask: ")
        self.refuses("mask", lambda masks: masks.astype("i4"), "mask: int32")

    def test_depths(self):
        self.refuses("depth", lambda depths: depths[:, :, ::-1], "depth: mirrored")
        self.refuses("depth", lambda depths: depths >> 8 << 8, "depth: off by")
        self.refuses("depth", lambda depths: numpy.roll(depths, 2, 0), "depth: .* where the image shows")

    def test_boxes(self):
        self.refuses("boxes", lambda boxes: [rows + numpy.float32(9) for rows in boxes], "boxes: ")
        self.refuses("boxes", lambda boxes: [rows[1:] for rows in boxes], "boxes: .* with .* classes")
        self.refuses("boxes", lambda boxes: boxes[1:] + boxes[:1], "boxes: ")
        self.refuses("class", lambda kinds: [numpy.roll(own, 1) for own in kinds], "boxes: ")
        made = batch()
        for name in ("boxes", "class"):
            made[name] = [rows[1:] for rows in made[name]]
        with self.assertRaisesRegex(ValueError, "is shown but not delivered"):
            check.judge(made, SIZE, SIDE)


def mixed(part_of=lambda i: i % 4 // 3):
    """Batches of form mix; sample i is of dataset part_of(i)."""
    numbers = numpy.array([part_of(i) for i in range(400)]).reshape(4, 100)
    return [{"image": numpy.zeros((100, 3, 8, 8), "u1"), "part": row} for row in numbers]


def bucketed(wider=1.2, corner=lambda i: i / 7, mirrored=lambda i: i % 2, sizes=((64, 64), (80, 48))):
    """Batches of form buckets. A picture is `wider` than its bucket; corner() says where image i begins in what is beyond, from 0 to 1."""
    batches = []
    for width, height in sizes:
        whole, _, _, _ = check.picture(1, round(width * wider), height)
        lefts = [round(corner(i) * (whole.shape[1] - width)) for i in range(SIZE)]
        cuts = [whole[:, left : left + width] for left in lefts]
        batches.append({"image": numpy.stack([image[:, ::-1] if mirrored(i) else image for i, image in enumerate(cuts)])})
    return batches


class Orders(unittest.TestCase):
    def setUp(self):
        self.buckets = check.peer.BUCKETS
        check.peer.BUCKETS = ((64, 64), (80, 48))

    def tearDown(self):
        check.peer.BUCKETS = self.buckets

    def test_mix(self):
        check.judge_mix(mixed(), 100, 8)
        for batches, text in (
            (mixed(lambda i: i % 2), "part 0: 0.500 of the samples, not 0.750"),
            (mixed(lambda i: i // 300), "part: a batch is of one dataset"),
            ([{**batch, "image": batch["image"][1:]} for batch in mixed()], "image: shape"),
        ):
            with self.assertRaisesRegex(ValueError, text):
                check.judge_mix(batches, 100, 8)

    def test_buckets(self):
        check.judge_buckets(bucketed(), SIZE)
        for batches, text in (
            (bucketed(sizes=((64, 60), (80, 48))), "image: 64 x 60 is no bucket"),
            (bucketed(sizes=((64, 64),)), "all batches have the shape"),
            (bucketed(corner=lambda i: 0.5), "crops are not random"),
            (bucketed(mirrored=lambda i: False), "none is mirrored"),
            ([{"image": batch["image"][:, ::2].repeat(2, 1)[:, 8:-8].repeat(2, 1)[:, : batch["image"].shape[1]]} for batch in bucketed()],
             "does not cover its bucket as little as possible"),
        ):  # fmt: skip
            with self.assertRaisesRegex(ValueError, text):
                check.judge_buckets(batches, SIZE)


if __name__ == "__main__":
    unittest.main()
