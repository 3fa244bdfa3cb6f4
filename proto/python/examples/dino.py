"""Self-distillation without labels: views of each image train a small convolutional network (DINO, Caron et al. 2021).

    python dino.py [FOLDER]        (images; --checkpoint FILE continues from that file, and writes it after the last step)
"""

import copy
import subprocess

import torch
from torch import nn
from torch.nn import functional as F

import common
import sources
from loaderd import Feed

COLOUR = "color_jitter(0.4, 0.4, 0.2, 0.1, p=0.8) random_grayscale(0.2) gaussian_blur(5, p=0.5)"
PIPELINE = f"""
    view global(2) {{ random_resized_crop(64, scale=0.4:1) hflip {COLOUR} }}
    view local(4) {{ random_resized_crop(32, scale=0.05:0.4) hflip {COLOUR} }}
"""


def block(inputs, outputs):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class Network(nn.Module):
    """Scores of images [count, outputs]; the backbone's features are what is used afterwards."""

    def __init__(self, outputs):
        super().__init__()
        self.backbone = nn.Sequential(block(3, 32), block(32, 64), block(64, 128), block(128, 256), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Sequential(nn.Linear(256, 256), nn.BatchNorm1d(256), nn.GELU(), nn.Linear(256, 64))
        self.prototypes = nn.Parameter(torch.randn(outputs, 64))

    def forward(self, images):
        return F.linear(F.normalize(self.head(self.backbone(images)), dim=-1), F.normalize(self.prototypes, dim=-1))


class Dino(nn.Module):
    def __init__(self, outputs=256):
        super().__init__()
        self.student = Network(outputs)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.register_buffer("centre", torch.zeros(outputs))

    def loss(self, global_crops, local_crops):
        """Mean cross-entropy of the student's output for each crop with the teacher's for each other, global crop. Takes lists of crops."""
        teacher = self.teacher(torch.cat(global_crops)).unflatten(0, (len(global_crops), -1))
        student = torch.cat([self.student(torch.cat(global_crops)), self.student(torch.cat(local_crops))]).unflatten(0, (len(global_crops + local_crops), -1))
        targets = ((teacher - self.centre) / 0.04).softmax(-1)
        self.centre.lerp_(teacher.mean((0, 1)), 0.1)  # keeps one output from winning for all images
        losses = -torch.einsum("tnk,snk->tsn", targets, (student / 0.1).log_softmax(-1)).mean(-1)
        return losses[~torch.eye(*losses.shape, dtype=torch.bool)].mean()

    @torch.no_grad()
    def update_teacher(self, momentum=0.97):
        """Moves the teacher towards the student. Long runs use a momentum of 0.996 or more."""
        for mean, parameter in zip(self.teacher.parameters(), self.student.parameters()):
            mean.lerp_(parameter, 1 - momentum)


def pack(source, packed):
    subprocess.run(["packimg", "convert", source, "--class-from", "none", "-o", packed], check=True)


def crops(batch):
    """Two lists, of global and local crops: images [count, 3, height, width], 0 .. 1."""
    tensors = batch.tensors()
    return [[images / 255 for images in tensors[view]] for view in ("global", "local")]


def train(packed, steps, checkpoint=None):
    """Yields the loss of each step. Continues from the checkpoint if that file exists, and writes it after the last step."""
    torch.manual_seed(0)
    model = Dino()
    optimizer = torch.optim.AdamW(model.student.parameters(), lr=1e-3)
    with Feed(packed, pipeline=PIPELINE, batch_size=16, shuffle=True) as feed:
        parts = {"model": model, "optimizer": optimizer, "feed": feed}
        if checkpoint and checkpoint.exists():
            for name, state in torch.load(checkpoint).items():
                parts[name].load_state_dict(state)
        for _ in range(steps):
            loss = model.loss(*crops(next(feed)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            model.update_teacher()
            yield loss.item()
        if checkpoint:
            torch.save({name: part.state_dict() for name, part in parts.items()}, checkpoint)


if __name__ == "__main__":
    common.main(__doc__, pack, train, sources.images, resumes=True)
