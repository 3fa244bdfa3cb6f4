"""Times PyTorch's scaled dot product attention, forward and backward, of packed q, k and v as in a vision transformer; one "image" is the attention of one sample."""

import peer
import torch

HEADS, WIDTH, TOKENS = 6, 64, 197  # ViT-S/16

config = peer.config()
torch.set_num_threads(config["threads"])
peer.keep_memory()
batch = config["batch"]
element = {"bf16": torch.bfloat16, "fp32": torch.float32}[config["precision"]]
qkv = torch.randn(batch, TOKENS, 3 * HEADS * WIDTH, dtype=element, requires_grad=True)
gradient = torch.randn(batch, TOKENS, HEADS * WIDTH, dtype=element)


def attention():
    """Splits the result of the linear layer into heads, and joins the heads again, as timm's attention does."""
    q, k, v = qkv.view(batch, TOKENS, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4).unbind(0)
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    return y.transpose(1, 2).reshape(batch, TOKENS, HEADS * WIDTH)


def steps():
    while True:
        qkv.grad = None
        attention().backward(gradient)
        yield range(batch)


peer.serve(steps(), f"scaled_dot_product_attention, {config['precision']}", torch=torch.__version__)
