"""torchvision's decode_jpeg over the JPEG files of a folder, in batches, on a GPU (that is nvJPEG) or a CPU: whole images, nothing else done to them."""

import peer
import torch
import torchvision
from torchvision.io import ImageReadMode, decode_jpeg

HELD = 2048  # files that are kept in memory

config = peer.config()
device, size = config.get("device", "cuda"), config["batch"]
paths, _ = peer.files(config["data"])
files = [torchvision.io.read_file(path) for path in paths[:HELD]]


def batches():
    first = 0
    while True:
        chosen = [files[(first + i) % len(files)] for i in range(size)]
        first += size
        yield decode_jpeg(chosen, ImageReadMode.RGB, device)
        if device != "cpu":
            torch.cuda.synchronize()


peer.serve(
    batches(),
    f"torchvision.io.decode_jpeg of {size} at once, {device}",
    torch=torch.__version__,
    torchvision=torchvision.__version__,
)
