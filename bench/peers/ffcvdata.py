"""FFCV's loader on a file made by ffcvwrite.py."""

import peer
import cv2
import numba
import numpy
import torch
from ffcv.fields.decoders import IntDecoder
from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.reader import Reader
from ffcv.transforms import RandomHorizontalFlip, ToTensor
from importlib.metadata import version

config = peer.config()
cv2.setNumThreads(1)
torch.set_num_threads(1)
loader = Loader(
    config["data"],
    batch_size=config["batch"],
    num_workers=config["workers"],
    order=OrderOption.RANDOM,
    os_cache=True,
    drop_last=True,
    batches_ahead=2,
    # Long epochs, so that the pause between epochs does not matter.
    indices=numpy.tile(numpy.arange(Reader(config["data"]).num_samples, dtype="uint64"), peer.EPOCH_REPEAT),
    pipelines={
        "image": [
            RandomResizedCropRGBImageDecoder((config["side"], config["side"])),
            RandomHorizontalFlip(),
            ToTensor(),
        ],
        "label": [IntDecoder(), ToTensor()],
    },
)


def batches():
    while True:
        for images, _ in loader:
            yield images


peer.serve(
    batches(),
    f"{config['workers']} workers, random order, the operating system's cache, 2 batches ahead",
    ffcv=version("ffcv"),
    numba=numba.__version__,
)
