"""Checks that a loader does the work of a row with structured samples: on pictures that state at each place where it lies.

R and G of an image are its column and row, from 0 at the left and the top to 255 at the right and the bottom. From this follow a mask's numbers, a
box's corners and a raster's values, and so, of a finished sample, what each must be. preparesamples.py writes the files, judge() is for a batch of them.
"""

import numpy
import peer

SAMPLES = 64  # of each form
CELLS = 4  # columns and rows of boxes
SLOPE = 30000  # of a raster from one side to the other
TOLERANCE = 8  # of R and G, of 255: JPEG, chroma at half the resolution, resizing, rounding
SHARE = 0.98  # of a mask's pixels that must agree; those at borders between numbers may not


def box_of(kind):
    """Returns the box of a class, as fractions of width and height: (left, top, right, bottom)."""
    column, row = kind % CELLS, kind // CELLS
    return (column + 0.2) / CELLS, (row + 0.2) / CELLS, (column + 0.8) / CELLS, (row + 0.8) / CELLS


def picture(number, width, height):
    """Returns (image, mask, number of boxes, depth) of a check picture. B is 15 times the number of boxes, whose classes count from 0."""
    boxes = number % (CELLS * CELLS + 1)
    x, y = (numpy.arange(width) + 0.5) / width, (numpy.arange(height) + 0.5) / height
    planes = numpy.broadcast_arrays(255 * x[None], 255 * y[:, None], 15.0 * boxes)
    mask = numpy.floor(16 * x)[None] + 16 * numpy.floor(16 * y)[:, None]
    depth = SLOPE * x[None] + SLOPE * y[:, None]
    return numpy.stack(planes, -1).round().astype("u1"), mask.astype("u1"), boxes, depth.round().astype("<u2")


def arrays(value):
    """Returns a value of a batch as an array, ragged ones as a list of arrays."""
    if hasattr(value, "to_list"):
        return [numpy.asarray(rows, value.dtype.as_numpy_dtype) for rows in value.to_list()]
    return [numpy.asarray(rows) for rows in value] if isinstance(value, list) else numpy.asarray(value)


def last_channels(images):
    return numpy.moveaxis(images, 1, -1) if images.shape[1] == 3 else images


def require(condition, text):
    if not condition:
        raise ValueError(text)


def check_form(name, value, dtype, shape):
    require(value.dtype == dtype, f"{name}: {value.dtype}, not {numpy.dtype(dtype)}")
    require(value.shape == shape, f"{name}: shape {value.shape}, not {shape}")


def judge_images(images):
    """Samples must differ in their crops, and some must be mirrored."""
    columns = images[:, :, :, 0].astype(float).mean(1)
    mirrored = columns[:, 0] > columns[:, -1]
    require(0 < mirrored.sum() < len(images), f"image: {mirrored.sum()} of {len(images)} are mirrored")
    widths = abs(columns[:, 0] - columns[:, -1])
    require(widths.max() - widths.min() > 50, f"image: crops are {widths.min():.0f} to {widths.max():.0f} of 255 wide")


def judge_mask(images, masks):
    check_form("mask", masks, "u1", images.shape[:3])
    for shown, mask in ((images[..., 0], masks % 16), (images[..., 1], masks // 16)):
        low = mask * (255 / 16) - TOLERANCE
        agree = ((shown >= low) & (shown <= low + 255 / 16 + 2 * TOLERANCE)).mean((1, 2))
        require(agree.min() > SHARE, f"mask: {agree.min():.1%} of a sample's pixels are those of the image")


def judge_depth(images, depth):
    check_form("depth", depth, "u2", images.shape[:3])
    side = images.shape[1]
    at = numpy.arange(side) - (side - 1) / 2
    for shown, raster in zip(images.astype(float), depth.astype(float)):
        x, y = (raster * at).sum() / (side * (at * at).sum()), (raster * at[:, None]).sum() / (side * (at * at).sum())
        wrong = abs(raster - raster.mean() - x * at - y * at[:, None])[2:-2, 2:-2].max()
        require(wrong < 24, f"depth: off by {wrong:.0f} of 65535, so it has fewer than 16 bits or is of another resize")
        there = (shown[..., 0].mean() + shown[..., 1].mean()) / 255 * SLOPE
        require(abs(raster.mean() - there) < TOLERANCE / 255 * SLOPE, f"depth: {raster.mean():.0f} where the image shows {there:.0f}")
        require((x > 0) == (shown[:, -1, 0].mean() > shown[:, 0, 0].mean()), "depth: mirrored where the image is not")


def judge_box(image, box, kind):
    """Each corner lies where its class says, or where the picture ends."""
    side = len(image)
    left, top, right, bottom = (float(edge) for edge in box)
    require(0 <= left < right <= side and 0 <= top < bottom <= side, f"boxes: {box} of a picture of {side} x {side}")
    low_x, low_y, high_x, high_y = (255 * edge for edge in box_of(kind))
    x, y = int((left + right) / 2), int((top + bottom) / 2)
    for edge, shown, expected, (low, high) in (
        (left, image[y, :, 0], (low_x, high_x), (low_x, high_x)), (right, image[y, :, 0], (low_x, high_x), (low_x, high_x)),
        (top, image[:, x, 1], (low_y,), (low_y, high_y)), (bottom, image[:, x, 1], (high_y,), (low_y, high_y)),
    ):  # fmt: skip
        at = float(shown[min(int(edge), side - 1)])
        near = min(abs(at - place) for place in expected) < TOLERANCE
        cut = (edge < 1 or edge > side - 1) and low - TOLERANCE < at < high + TOLERANCE
        require(near or cut, f"boxes: {box} of class {kind} has an edge at {at:.0f} of 255")


def judge_boxes(images, boxes, kinds):
    require(len(boxes) == len(kinds) == len(images), f"boxes: {len(boxes)} lists and {len(kinds)} of classes for {len(images)} images")
    delivered = 0
    for image, rows, classes in zip(images, boxes, kinds):
        require(len(rows) == len(classes), f"boxes: {len(rows)} with {len(classes)} classes")
        require(not len(rows) or (rows.dtype == "f4" and rows.shape[1:] == (4,)), f"boxes: {rows.dtype} {rows.shape}")
        for box, kind in zip(rows, classes):
            judge_box(image, box, int(kind))
        delivered += len(rows)
        ends = [(float(image[:, :, axis].min()), float(image[:, :, axis].max())) for axis in (0, 1)]
        for kind in range(round(float(image[..., 2].mean()) / 15)):
            low, high = box_of(kind)[:2], box_of(kind)[2:]
            inside = [min(255 * b, end) - max(255 * a, begin) for (begin, end), a, b in zip(ends, low, high)]
            require(min(inside) < TOLERANCE or kind in classes, f"boxes: class {kind} is shown but not delivered")
    require(delivered > 0, "boxes: none are delivered")


def judge(batch, size, side):
    """Raises ValueError unless a batch {name: arrays} of check pictures is what the row asks for."""
    values = {name: arrays(value) for name, value in batch.items()}
    images = last_channels(values.pop("image"))
    check_form("image", images, "u1", (size, side, side, 3))
    judge_images(images)
    if "mask" in values:
        judge_mask(images, values["mask"].reshape(images.shape[:3]))
    if "depth" in values:
        judge_depth(images, values["depth"].reshape(images.shape[:3]))
    if "boxes" in values:
        judge_boxes(images, values["boxes"], values["class"])


def judge_mix(batches, count, side):
    """Checks batches of form mix: their shapes, and that both datasets have the shares of peer.SHARES and are in each batch."""
    for batch in batches:
        check_form("image", last_channels(batch["image"]), "u1", (count, side, side, 3))
        require(len(batch["part"]) == count, f"part: {len(batch['part'])} numbers, not {count}")
        require(len(set(batch["part"].tolist())) == len(peer.SHARES), "part: a batch is of one dataset")
    numbers = numpy.concatenate([batch["part"] for batch in batches])
    for part, share in enumerate(peer.SHARES):
        wanted, found = share / sum(peer.SHARES), (numbers == part).mean()
        # Five standard deviations of independent draws.
        most = 5 * (wanted * (1 - wanted) / len(numbers)) ** 0.5
        require(abs(found - wanted) <= most, f"part {part}: {found:.3f} of the samples, not {wanted:.3f}")


def judge_buckets(batches, count):
    """Checks batches of form buckets, of check pictures: each has the shape of a bucket, and not all the same; images cover it, mirrored or not, and what
    is beyond it is cropped at random."""
    seen, corners = set(), []
    for batch in batches:
        images = last_channels(batch["image"])
        height, width = images.shape[1:3]
        require((width, height) in peer.BUCKETS, f"image: {width} x {height} is no bucket")
        check_form("image", images, "u1", (count, height, width, 3))
        seen.add((width, height))
        for image in images.astype(float):
            columns, rows = image[..., 0].mean(0), image[..., 1].mean(1)
            spans = abs(columns[-1] - columns[0]), abs(rows[-1] - rows[0])
            require(max(spans) > 255 - TOLERANCE, f"image: shows {spans[0]:.0f} and {spans[1]:.0f} of 255: it does not cover its bucket as little as possible")
            if spans[0] < 255 - 2 * TOLERANCE:
                corners.append((columns.min(), columns[0] > columns[-1]))
    require(len(seen) > 1, f"all batches have the shape {seen}")
    require(corners and numpy.ptp([corner for corner, _ in corners]) > TOLERANCE, "image: crops are not random")
    require(len({mirrored for _, mirrored in corners}) == 2, "image: none is mirrored, or all are")
