"""PyTorch's DataLoader with torchvision's v2 transforms, on decode_jpeg or on Pillow."""

import peer
import torch
import torchloader
import torchvision
from PIL import __version__ as pillow

config = peer.config()
source = "raw pixels" if config["form"] == "raw" else "Pillow images" if config["variant"] == "pillow" else "decode_jpeg"
torch.set_num_threads(1)
peer.serve(
    (images for images, _ in torchloader.batches(config)),
    f"DataLoader with {config['workers']} persistent worker processes, prefetch factor 2; v2 transforms on {source}",
    torch=torch.__version__,
    torchvision=torchvision.__version__,
    pillow=pillow,
)
