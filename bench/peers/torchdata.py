"""PyTorch's DataLoader with torchvision's v2 transforms, on decode_jpeg or on Pillow."""

import peer
import numpy
import torch
import torchvision
from PIL import Image, __version__ as pillow_version
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2

config = peer.config()
workers = config["workers"]
pillow = config["variant"] == "pillow"
raw = config["form"] == "raw"
transform = v2.Compose(
    [v2.RandomResizedCrop(config["side"], antialias=True), v2.RandomHorizontalFlip()]
    + ([v2.PILToTensor()] if pillow and not raw else [])
)


class Files(torch.utils.data.Dataset):
    def __init__(self):
        self.paths, self.labels = peer.files(config["data"])

    def __len__(self):
        # Long epochs, so that the pause between two does not count.
        return len(self.paths) * peer.EPOCH_REPEAT

    def image(self, path):
        if raw:
            # prepare.py: height and width as little-endian uint32, then the pixels; strided as v2's uint8 kernels like it.
            height, width = numpy.fromfile(path, "<u4", 2)
            pixels = numpy.fromfile(path, "u1", offset=8).reshape(height, width, 3)
            return torch.from_numpy(pixels).permute(2, 0, 1)
        if pillow:
            return Image.open(path).convert("RGB")
        return decode_jpeg(read_file(path), mode=ImageReadMode.RGB)

    def __getitem__(self, index):
        index %= len(self.paths)
        return transform(self.image(self.paths[index])), self.labels[index]


def batches():
    loader = torch.utils.data.DataLoader(
        Files(),
        batch_size=config["batch"],
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        persistent_workers=True,
        prefetch_factor=2,
    )
    while True:
        for images, _ in loader:
            yield images


torch.set_num_threads(1)
peer.serve(
    batches(),
    f"DataLoader with {workers} persistent worker processes, prefetch factor 2; v2 transforms on "
    + ("raw pixels" if raw else "Pillow images" if pillow else "decode_jpeg"),
    torch=torch.__version__,
    torchvision=torchvision.__version__,
    pillow=pillow_version,
)
