"""DALI's pipeline on the CPU: decodes the cropped region, antialiased triangular resize, flip."""

import peer
import numpy
import nvidia.dali as dali
import nvidia.dali.fn as fn
import nvidia.dali.types as types

config = peer.config()


@dali.pipeline_def(
    batch_size=config["batch"], num_threads=config["workers"], device_id=None, prefetch_queue_depth=2
)
def pipeline():
    files, labels = fn.readers.file(file_root=config["data"], random_shuffle=True, initial_fill=4096)
    images = fn.decoders.image_random_crop(
        files, device="cpu", random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3]
    )
    images = fn.resize(images, size=(config["side"], config["side"]), interp_type=types.INTERP_TRIANGULAR)
    return fn.flip(images, horizontal=fn.random.coin_flip()), labels


def batches():
    built = pipeline()
    built.build()
    while True:
        images, _ = built.run()
        yield numpy.asarray(images.as_tensor())


peer.serve(
    batches(),
    f"readers.file, decoders.image_random_crop and resize on the CPU; {config['workers']} threads, prefetch queue of 2",
    dali=dali.__version__,
)
