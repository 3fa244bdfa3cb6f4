"""PyTorch's DataLoader with torchvision's v2 transforms, on torchvision.io, torchcodec or Pillow."""

import peer
import torch
import torchloader
import torchvision
from importlib.metadata import version
from PIL import __version__ as pillow

config = peer.config()
torch.set_num_threads(1)


def batches(folder):
    for batch in torchloader.batches({**config, "data": folder}):
        yield batch if isinstance(batch, dict) or "views" in config else batch[0]


peer.serve(
    peer.checked(batches),
    f"DataLoader with {config['workers']} persistent worker processes, prefetch factor 2; v2 transforms on {torchloader.decoder(config).name}",
    torch=torch.__version__,
    torchvision=torchvision.__version__,
    pillow=pillow,
    **({"torchcodec": version("torchcodec")} if config["variant"] == "torchcodec" else {}),
)
