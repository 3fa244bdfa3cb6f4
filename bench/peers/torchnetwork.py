"""Trains a network of torchvision, timm or airbench in PyTorch, on one batch of random images that stays on the device, or on the JPEG files of a folder.

Uses automatic mixed precision, channels last unless channels_last is false, cuDNN's autotuner and fused SGD; fp16 with a gradient scaler, which with fused
SGD never waits for the device. net: a name of torchvision, or a key of TIMM, or speednet. mode: eager, or the mode of torch.compile. threads: CPU
threads. Waits for a step after queueing the two that follow it, as device_bench does.

memory: limit of GPU memory in bytes.

data: a folder of CLASS/NAME.jpg; torchloader.py then reads batches in `workers` processes into page-locked memory. They are copied as bytes while the previous step runs, and
normalised on the device. A "measure WARMUP SECONDS" line asks for `steps` steps, or as many as fit in SECONDS; data_wait in the answer is the share of time
that the program waited for the DataLoader.
"""

import math
import sys
import time

import peer
import torch
import torchvision

LAG = 2  # further steps that are queued before waiting for a step
WARM = 8  # steps before the program is ready: they include compiling, autotuning and the capture of CUDA graphs
MEAN, DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # of ImageNet, for pixels of 0..255

config = peer.config()
device = torch.device(config.get("device", "cuda"))
precision, mode = config["precision"], config["mode"]
side, batch = config["side"], config["batch"]
memory_format = torch.channels_last if config.get("channels_last", True) else torch.contiguous_format
element = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[precision]


# The trainer's name, with keys of its recipe -> timm's name, and arguments of create_model(); "blur" stands for aa_layer.
TIMM = {
    "vit_tiny_patch16": ("vit_tiny_patch16_224", {}),
    "vit_small_patch16": ("vit_small_patch16_224", {}),
    "vit_base_patch16": ("vit_base_patch16_224", {}),
    "convnext_tiny": ("convnext_tiny", {}),
    "resnet18 model.blur=all": ("resnet18", {"blur": True}),
    "resnet50 model.blur=all model.squeeze_excite=yes": ("resnet50", {"blur": True, "block_args": {"attn_layer": "se"}}),
}


def make_model():
    net = config["net"]
    if net == "speednet":
        import torchspeednet

        return torchspeednet.make_network(device, torch.float32).train()
    if net in TIMM:
        import timm

        name, arguments = TIMM[net]
        if "blur" in arguments:
            arguments = {**arguments, "aa_layer": timm.layers.BlurPool2d}
            del arguments["blur"]
        model = timm.create_model(name, **arguments)
    else:
        model = getattr(torchvision.models, net)()
    return model.to(device, memory_format=memory_format).train()


def make_step():
    """Returns a function that queues a step on images and labels, and a list with the loss of the last step."""
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    model = make_model()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-5, fused=True
    )
    # Fused SGD would create uninitialised buffers, and keep them if a gradient overflow skips the first step.
    for parameter in model.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    scaler = torch.amp.GradScaler(device.type, enabled=precision == "fp16")
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)

    def loss_of(images, labels):
        with torch.autocast(device.type, dtype=element, enabled=precision != "fp32"):
            return criterion(model(images), labels)

    if mode != "eager":
        loss_of = torch.compile(loss_of, mode=mode)
    last = [None]

    def step(images, labels):
        torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(images, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        # Clone, because CUDA graphs write the next loss to the same memory.
        last[0] = loss.detach().clone()

    return step, last


# ---- batches ----


class RandomBatch:
    """One random batch that stays on the device."""

    waited = 0.0

    def __init__(self):
        self.images = torch.randn(batch, 3, side, side, device=device, dtype=element).contiguous(memory_format=memory_format)
        self.labels = torch.randint(0, 10 if config["net"] == "speednet" else 1000, (batch,), device=device)

    def take(self):
        return self.images, self.labels

    def fetch(self):
        pass


class LoadedBatches:
    """Batches of a DataLoader. The next one is copied to the device while a step runs. waited: total seconds of waiting for the DataLoader."""

    def __init__(self):
        import torchloader

        self.source = torchloader.batches(config, pin_memory=device.type == "cuda")
        self.stream = torch.cuda.Stream() if device.type == "cuda" else None
        # CUDA graphs need the same memory in every step.
        self.images = torch.empty(batch, 3, side, side, device=device, dtype=element).contiguous(memory_format=torch.channels_last)
        self.labels = torch.empty(batch, device=device, dtype=torch.int64)
        self.mean, self.deviation = (torch.tensor(values, device=device).view(3, 1, 1) for values in (MEAN, DEVIATION))
        self.waited = 0.0
        self.fetch()

    def fetch(self):
        begin = time.monotonic()
        images, labels = next(self.source)
        self.waited += time.monotonic() - begin
        with torch.cuda.stream(self.stream):
            self.next = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)

    def take(self):
        images, labels = self.next
        if self.stream:
            torch.cuda.current_stream().wait_stream(self.stream)
            for tensor in self.next:
                tensor.record_stream(torch.cuda.current_stream())
        self.images.copy_((images - self.mean) / self.deviation)
        self.labels.copy_(labels)
        return self.images, self.labels


def batches(source, step):
    """Runs steps; yields after each one."""
    queue = []
    while True:
        images, labels = source.take()
        step(images, labels)
        source.fetch()
        if device.type == "cuda":
            event = torch.cuda.Event()
            event.record()
            queue.append(event)
            if len(queue) > LAG:
                queue.pop(0).synchronize()
        yield images


# ---- measurement with a DataLoader ----


def measure_fed(done, source, seconds):
    """Measures steps after a warm-up of a tenth of them, which fills the pipelines."""
    for _ in range(config["steps"] // 10):
        next(done)
    steps, begin, waited = 0, time.monotonic(), source.waited
    elapsed = 0.0
    while steps < config["steps"] and (not steps or elapsed < seconds):
        next(done)
        steps += 1
        elapsed = time.monotonic() - begin
    return {"images_per_s": steps * batch / elapsed, "data_wait": (source.waited - waited) / elapsed, "steps": steps}


def main():
    begin = time.monotonic()
    if "memory" in config:
        torch.cuda.set_per_process_memory_fraction(min(1.0, config["memory"] / torch.cuda.get_device_properties(device).total_memory))
    if "threads" in config:
        torch.set_num_threads(config["threads"])
    if device.type == "cpu":
        peer.keep_memory()
    step, last = make_step()
    source = LoadedBatches() if "data" in config else RandomBatch()
    done = batches(source, step)
    for _ in range(WARM):
        next(done)
    # Reading the loss waits for the device, and shows that it computes.
    loss = last[0].float().item()
    if not math.isfinite(loss):
        sys.exit(f"the loss is {loss} after {WARM} steps: what follows would be no training")
    settings = (
        f"{config['net']}, AMP {precision}, channels {'last' if memory_format == torch.channels_last else 'first'}, fused SGD, "
        + ("eager" if mode == "eager" else f"torch.compile(mode={mode!r})")
        + f"; ready after {time.monotonic() - begin:.0f} s, loss {loss:.3f}"
    )
    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    if device.type == "cuda":
        versions["cudnn"] = str(torch.backends.cudnn.version())
    if "data" not in config:
        return peer.serve(done, settings, **versions)
    settings += f"; DataLoader with {config['workers']} persistent worker processes, decode_jpeg, v2 transforms, page-locked memory"
    peer.answer(ready=True, settings=settings, versions=versions)
    for line in sys.stdin:
        peer.answer(**measure_fed(done, source, float(line.split()[2])))


main()
