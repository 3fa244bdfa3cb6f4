"""SPDL: FFmpeg decodes, and its filters crop, flip and scale, in the threads of SPDL's pipeline.

One task makes a whole batch, as SPDL's load_image_batch does; that is faster than a task for each image. load_image_batch
itself has one filter description for all images of a batch, so it cannot crop at random; its parts are called here instead.
"""

import peer
import math
import random
import spdl.io
from importlib.metadata import version
from spdl.pipeline import PipelineBuilder

config = peer.config()
workers, side = config["workers"], config["side"]
# Naming the format spares FFmpeg the search for it, a tenth of the time.
demux = spdl.io.demux_config(format="jpeg_pipe")


def window(width, height):
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return w, h, random.randint(0, width - w), random.randint(0, height - h)
    short = min(width, height)
    return short, short, (width - short) // 2, (height - short) // 2


def load(path):
    packets = spdl.io.demux_image(path, demux_config=demux)
    w, h, x, y = window(packets.width, packets.height)
    flip = "hflip," if random.random() < 0.5 else ""
    filters = f"crop={w}:{h}:{x}:{y}:exact=1,{flip}scale={side}:{side}:flags=bilinear,format=pix_fmts=rgb24"
    return spdl.io.decode_packets(packets, filter_desc=filters)


def make(samples):
    frames = [load(path) for path, _ in samples]
    return spdl.io.to_numpy(spdl.io.convert_frames(frames)), [label for _, label in samples]


def order():
    samples = list(zip(*peer.files(config["data"])))
    while True:
        random.shuffle(samples)
        yield from samples


def batches():
    pipeline = (
        PipelineBuilder()
        .add_source(order())
        .aggregate(config["batch"])
        .pipe(make, concurrency=workers)
        .add_sink(2)
        .build(num_threads=workers)
    )
    with pipeline.auto_stop():
        for images, _ in pipeline:
            yield images


peer.serve(
    batches(),
    f"files; FFmpeg's decoder, crop, flip and bilinear scale; {workers} threads, a batch to each, 2 batches ahead",
    spdl=version("spdl"),
)
