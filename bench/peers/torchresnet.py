"""PyTorch trains a ResNet of torchvision's on one batch of random images that stays on the device.

Automatic mixed precision, channels last, cuDNN's autotuner, fused SGD; fp16 with a gradient scaler, which with fused SGD never waits for the
device. mode: eager, or what torch.compile is given. A step's end is awaited two steps later, as device_bench does it.
"""

import time

import peer
import torch
import torchvision

LAG = 2  # steps that are queued before the end of one is waited for
WARM = 8  # steps before it is ready: compiling, autotuning, and recording CUDA graphs are done by then

config = peer.config()
device = torch.device(config.get("device", "cuda"))
precision, mode = config["precision"], config["mode"]
side, batch = config["side"], config["batch"]


def make_model():
    model = getattr(torchvision.models, config["net"])().to(device, memory_format=torch.channels_last)
    return model.train()


def make_step():
    """A function that queues a step, and the loss tensor of the last one in a list."""
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    element = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[precision]
    model = make_model()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-5, fused=device.type == "cuda" or None
    )
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    images = torch.randn(batch, 3, side, side, device=device, dtype=element).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,), device=device)

    def loss_of(images, labels):
        with torch.autocast(device.type, dtype=element, enabled=precision != "fp32"):
            return criterion(model(images), labels)

    if mode != "eager":
        loss_of = torch.compile(loss_of, mode=mode)
    last = [None]

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(images, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        # CUDA graphs give the next loss the same memory.
        last[0] = loss.detach().clone()

    return images, step, last


def batches(images, step):
    """One item for every step whose end has been seen."""
    queue = []
    while True:
        step()
        if device.type == "cuda":
            event = torch.cuda.Event()
            event.record()
            queue.append(event)
            if len(queue) > LAG:
                queue.pop(0).synchronize()
        yield images


begin = time.monotonic()
images, step, last = make_step()
source = batches(images, step)
for _ in range(WARM):
    next(source)
# Reading the loss waits for the device, and shows that it computes something.
loss = last[0].float().item()
peer.serve(
    source,
    f"torchvision's {config['net']}, AMP {precision}, channels last, fused SGD, "
    + ("eager" if mode == "eager" else f"torch.compile(mode={mode!r})")
    + f"; ready after {time.monotonic() - begin:.0f} s, loss {loss:.3f}",
    torch=torch.__version__,
    torchvision=torchvision.__version__,
    **({"cudnn": str(torch.backends.cudnn.version())} if device.type == "cuda" else {}),
)
