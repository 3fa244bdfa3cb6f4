"""Times a matrix product in PyTorch: one "image" is a product of two matrices of side x side numbers, in `threads` threads."""

import peer
import torch

config = peer.config()
torch.set_num_threads(config["threads"])
element = {"bf16": torch.bfloat16, "fp32": torch.float32}[config["precision"]]
a, b = (torch.randn(config["side"], config["side"], dtype=element) for _ in range(2))


def products():
    while True:
        yield [torch.mm(a, b)]


peer.serve(products(), f"torch.mm, {config['precision']}", torch=torch.__version__)
