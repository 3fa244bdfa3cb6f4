"""The peers' transforms: decode_jpeg, a random-resized crop to 224, a flip."""

import numpy
import torch
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import v2

BATCH = 64
WORKERS = 2
torch.set_num_threads(1)
transform = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip()])


def crop(data):
    return transform(decode_jpeg(torch.from_numpy(numpy.frombuffer(data, "u1").copy()), mode=ImageReadMode.RGB))
