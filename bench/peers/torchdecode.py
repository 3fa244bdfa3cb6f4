"""Times torchvision's decode_jpeg over the JPEG files of a folder, in batches, on a GPU (nvJPEG) or a CPU: whole images, without further transforms.

torchvision before 0.19 takes no batches: it then decodes one image after the other, and the settings say so.
"""

import peer
import torch
import torchvision
from torchvision.io import ImageReadMode, decode_jpeg

BATCHED = tuple(int(part) for part in torchvision.__version__.split(".")[:2]) >= (0, 19)
HELD = 2048  # maximum number of files in memory

config = peer.config()
device, size = config.get("device", "cuda"), config["batch"]
paths, _ = peer.files(config["data"])
files = [torchvision.io.read_file(path) for path in paths[:HELD]]


def decode(chosen):
    if BATCHED:
        return decode_jpeg(chosen, ImageReadMode.RGB, device)
    return [decode_jpeg(file, ImageReadMode.RGB, device) for file in chosen]


def batches():
    first = 0
    while True:
        chosen = [files[(first + i) % len(files)] for i in range(size)]
        first += size
        yield decode(chosen)
        if device != "cpu":
            torch.cuda.synchronize()


peer.serve(
    batches(),
    f"torchvision.io.decode_jpeg of {size} {'at once' if BATCHED else 'one by one'}, {device}",
    torch=torch.__version__,
    torchvision=torchvision.__version__,
)
