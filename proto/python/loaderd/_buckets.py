"""Buckets by aspect ratio and size: batches of one shape each."""

from math import isqrt
from typing import Any, List, NamedTuple, Sequence, Tuple

from ._checks import number
from ._errors import BadOption

_BUCKETS_MAX = 256  # BUCKETS_MAX of the daemon


class OpenedBucket(NamedTuple):
    """A bucket as the daemon has opened it: Feed.buckets."""

    width: int  #: of its images, in pixels
    height: int
    batch_size: int  #: samples per batch of this rank
    samples: int  #: samples, or entries of `samples`, that belong to it


def bucket_sizes(area: int, step: int = 64, ratio: Tuple[float, float] = (0.5, 2.0)) -> List[Tuple[int, int]]:
    """Returns sizes (width, height) for Feed(buckets=...), the narrowest first. Sides are multiples of `step`: for each short side the
    longest other one with which the size has at most `area` pixels, upright and turned, if width / height is within `ratio`.

    bucket_sizes(1024 * 1024) returns SDXL's sizes between 768 x 1344 and 1344 x 768, among others.
    """
    area, step = number("area", area, 64), number("step", step, 32)
    low, high = ratio
    if step == 0 or area < step * step:
        raise BadOption(f"area: {area} pixels are fewer than a square of step, {step} x {step}, has: give width times height, as in bucket_sizes(512 * 512)", 22)
    if not 0 < low <= high:
        raise BadOption(f"ratio: {low}, {high} are not a lower and an upper limit above 0", 22)
    found = set()
    # A side above the square root is the longer one of a size that the shorter one gives, turned.
    for short in range(step, isqrt(area) + 1, step):
        long = area // short // step * step
        found |= {size for size in ((short, long), (long, short)) if low <= size[0] / size[1] <= high}
    if not 1 <= len(found) <= _BUCKETS_MAX:
        raise BadOption(f"step: {step} makes {len(found)} sizes, but a feed has 1 to {_BUCKETS_MAX} buckets", 22)
    return sorted(found, key=lambda size: (size[0] / size[1], size))


def parse(buckets: Any, batch_size: int, batch_pixels: int) -> Tuple[Tuple[int, int, int], ...]:
    """Returns (width, height, batch_size) of each bucket, in the form that _feed.Stream takes; () for None."""
    batch_pixels = number("batch_pixels", batch_pixels, 64)
    if buckets is None and batch_pixels:
        raise BadOption("batch_pixels: limits the batches of buckets, and there are none: give buckets, or omit it", 22)
    if buckets is None:
        return ()
    if not isinstance(buckets, Sequence) or isinstance(buckets, (str, bytes)):
        raise TypeError(f"buckets: {buckets!r} is not a list of sizes (width, height); loaderd.bucket_sizes() makes one")
    if not 1 <= len(buckets) <= _BUCKETS_MAX:
        raise BadOption(f"buckets: {len(buckets)} of them, but a feed has 1 to {_BUCKETS_MAX}", 22)
    found = []
    for size in buckets:
        if not isinstance(size, Sequence) or isinstance(size, (str, bytes)) or len(size) != 2:
            raise TypeError(f"buckets: {size!r} is not a size: list sizes as [(512, 512), (640, 384)], width first")
        width, height = number("buckets", size[0]), number("buckets", size[1])
        fits = batch_pixels // max(1, width * height) if batch_pixels else batch_size
        if fits == 0:
            raise BadOption(f"batch_pixels: {batch_pixels} are fewer than one image of {width} x {height} has", 22)
        found.append((width, height, min(fits, batch_size)))
    return tuple(found)
