"""PyTorch's DataLoader over the files of a folder, with torchvision's v2 transforms; used by torchdata.py and torchnetwork.py."""

import peer
import numpy
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2


class Files(torch.utils.data.Dataset):
    """Samples (image, class number). config: data and side; variant, form and scale are optional."""

    def __init__(self, config):
        self.paths, self.labels = peer.files(config["data"])
        self.pillow, self.raw = config.get("variant") == "pillow", config.get("form") == "raw"
        self.transform = v2.Compose(
            [v2.RandomResizedCrop(config["side"], scale=config.get("scale", (0.08, 1)), antialias=True), v2.RandomHorizontalFlip()]
            + ([v2.PILToTensor()] if self.pillow and not self.raw else [])
        )

    def __len__(self):
        # Long epochs, so that the pause between epochs does not matter.
        return len(self.paths) * peer.EPOCH_REPEAT

    def image(self, path):
        if self.raw:
            # prepare.py: height and width as little-endian uint32, then the pixels. The strides suit v2's uint8 kernels.
            height, width = numpy.fromfile(path, "<u4", 2)
            pixels = numpy.fromfile(path, "u1", offset=8).reshape(height, width, 3)
            return torch.from_numpy(pixels).permute(2, 0, 1)
        if self.pillow:
            return Image.open(path).convert("RGB")
        return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)

    def __getitem__(self, index):
        index %= len(self.paths)
        return self.transform(self.image(self.paths[index])), self.labels[index]


def batches(config, **more):
    """Yields (images [n][3][side][side] of bytes, labels [n]) without end."""
    loader = torch.utils.data.DataLoader(
        Files(config),
        batch_size=config["batch"],
        shuffle=True,
        drop_last=True,
        num_workers=config["workers"],
        persistent_workers=True,
        prefetch_factor=2,
        **more,
    )
    while True:
        yield from loader
