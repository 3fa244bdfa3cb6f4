"""The network of airbench94 in PyTorch (Keller Jordan, "94% on CIFAR-10 in 3.29 Seconds on a Single GPU", 2024, arXiv:2404.00498)."""

import torch
from torch import nn

WIDTHS, NORM_MOMENTUM, LOGIT_SCALE = (64, 256, 256), 0.6, 1 / 9


def convolution(inputs, outputs):
    """A 3 x 3 convolution whose first filters are initialised to the identity."""
    layer = nn.Conv2d(inputs, outputs, 3, padding="same", bias=False)
    nn.init.dirac_(layer.weight.data[:inputs])
    return layer


def norm(channels):
    layer = nn.BatchNorm2d(channels, eps=1e-12, momentum=1 - NORM_MOMENTUM)
    layer.weight.requires_grad = False
    return layer


class Scale(nn.Module):
    def forward(self, x):
        return x * LOGIT_SCALE


def make_network(device, element):
    whiten = nn.Conv2d(3, 24, 2, padding=0, bias=True)
    whiten.weight.requires_grad = False
    layers = [whiten, nn.GELU()]
    for inputs, outputs in zip((24, *WIDTHS), WIDTHS):
        layers += [convolution(inputs, outputs), nn.MaxPool2d(2), norm(outputs), nn.GELU()]
        layers += [convolution(outputs, outputs), norm(outputs), nn.GELU()]
    layers += [nn.MaxPool2d(3), nn.Flatten(), nn.Linear(WIDTHS[-1], 10, bias=False), Scale()]
    network = nn.Sequential(*layers).to(device)
    for layer in network:
        if not isinstance(layer, nn.BatchNorm2d):
            layer.to(element)
    return network.to(memory_format=torch.channels_last)
