#!/usr/bin/env python3
"""Makes the reference data that test_device_losses compares training with.

    python3 -m venv venv && venv/bin/pip install torch timm && venv/bin/python make.py

Each case trains a linear layer with a loss of PyTorch or timm, in double precision, for 20 steps of SGD with momentum. The test makes the
same batches with the same counter-based generator. A line of losses.txt has the case, the loss of each step, each sample's loss in the last
step, and the layer's weights and bias after it.
"""
import os

import numpy as np
import timm
import timm.data.mixup
import timm.loss
import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, SAMPLES, FEATURES, CLASSES = 20, 12, 7, 10  # as in test_device_losses.c


def uniform(seed, count):
    """splitmix64 of a counter, as in tests/unit/trainer/device/test_device_reference.c."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.arange(count, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95)
        z += np.uint64(0x632BE59BD9B4E019)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def single(values, *shape):
    return torch.from_numpy(np.asarray(values, dtype=np.float32).astype(np.float64).reshape(shape))


WEIGHTS = single(0.25 + 2 * uniform(77, CLASSES), CLASSES)


class Batch:
    def __init__(self, step):
        self.x = single(uniform(1000 + step, SAMPLES * FEATURES) * 2 - 1, SAMPLES, FEATURES)
        self.label = torch.from_numpy((uniform(2000 + step, SAMPLES) * CLASSES).astype(np.int64))
        self.second = torch.from_numpy((uniform(3000 + step, SAMPLES) * CLASSES).astype(np.int64))
        self.share = single(uniform(4000 + step, SAMPLES), SAMPLES)
        dense = uniform(5000 + step, SAMPLES * CLASSES).reshape(SAMPLES, CLASSES) ** 4
        self.dense = single(dense / dense.sum(1, keepdims=True), SAMPLES, CLASSES)
        self.teacher = single(uniform(6000 + step, SAMPLES * CLASSES) * 8 - 4, SAMPLES, CLASSES)
        # for regression
        self.values = single(uniform(7000 + step, SAMPLES * CLASSES) * 6 - 3, SAMPLES, CLASSES)
        # every fifth sample has no label or values
        self.some = self.label.clone()
        self.some[::5] = -1

    def mixed(self, smoothing):
        """timm's mixup_target(), but with a separate share for each sample."""
        rows = [timm.data.mixup.mixup_target(torch.stack([first, second]), CLASSES, float(share), smoothing)[0]
                for first, second, share in zip(self.label, self.second, self.share)]
        return torch.stack(rows).double()


def by_labels(z, label, second, share, smoothing):
    """Returns each sample's loss, weighted over both labels by their shares, and the total divided by the labels' weights."""
    part = [F.cross_entropy(z, of, WEIGHTS, label_smoothing=smoothing, reduction="none") for of in (label, second)]
    losses = share * part[0] + (1 - share) * part[1]
    return losses, losses.sum() / (share * WEIGHTS[label] + (1 - share) * WEIGHTS[second]).sum()


def cross_entropy(target, **options):
    return lambda z, b: [F.cross_entropy(z, target(b), reduction=reduction, ignore_index=-1, **options) for reduction in ("none", "mean")]


def dense_cross_entropy(target, **options):
    return lambda z, b: [F.cross_entropy(z, target(b), reduction=reduction, **options) for reduction in ("none", "mean")]


def bce(target, **options):
    def loss(z, b):
        return [timm.loss.BinaryCrossEntropy(reduction=reduction, **options)(z, target(b)) for reduction in ("none", "mean")]
    return lambda z, b: [loss(z, b)[0].mean(1), loss(z, b)[1]]


def kl(target, temperature):
    def loss(z, b, reduction):
        return F.kl_div(F.log_softmax(z / temperature, 1), target(b), reduction=reduction) * temperature**2
    return lambda z, b: [loss(z, b, "none").sum(1), loss(z, b, "batchmean")]


def regression(function):
    """The mean over the outputs of a sample, and over the samples that have values."""
    def loss(z, b):
        losses = function(z, b.values, reduction="none").mean(1) * (b.some >= 0)
        return losses, function(z[b.some >= 0], b.values[b.some >= 0])
    return loss


def soft(z, b):
    return [(-b.mixed(0.1) * F.log_softmax(z, 1)).sum(1), timm.loss.SoftTargetCrossEntropy()(z, b.mixed(0.1))]


def distillation(hard, share, temperature, some=False, weighted=False):
    """Distillation (Hinton, Vinyals, Dean 2015): a hard loss plus the divergence from a teacher, averaged over the labelled samples."""
    def loss(z, b):
        losses, mean = hard(z, b)
        label = b.some if some else b.label
        parts = F.kl_div(F.log_softmax(z / temperature, 1), F.log_softmax(b.teacher / temperature, 1), reduction="none", log_target=True).sum(1)
        parts = parts * temperature**2 * (label >= 0)
        divisor = WEIGHTS[label[label >= 0]].mean() if weighted else 1
        return (1 - share) * losses + share * divisor * parts, (1 - share) * mean + share * parts.sum() / (label >= 0).sum()
    return loss


CASES = {
    "softmax": cross_entropy(lambda b: b.some),
    "softmax_smooth": cross_entropy(lambda b: b.some, label_smoothing=0.1),
    "softmax_weighted": cross_entropy(lambda b: b.some, weight=WEIGHTS),
    "softmax_weighted_smooth": cross_entropy(lambda b: b.some, weight=WEIGHTS, label_smoothing=0.2),
    "softmax_two": soft,
    "softmax_two_weighted": lambda z, b: by_labels(z, b.label, b.second, b.share, 0.1),
    "softmax_dense": dense_cross_entropy(lambda b: b.dense),
    "softmax_dense_weighted": dense_cross_entropy(lambda b: b.dense, weight=WEIGHTS, label_smoothing=0.1),
    "sigmoid": bce(lambda b: b.label, smoothing=0),
    "sigmoid_smooth": bce(lambda b: b.label, smoothing=0.1),
    "sigmoid_two": bce(lambda b: b.mixed(0.1), smoothing=0),
    "sigmoid_dense_weighted": bce(lambda b: b.dense, smoothing=0, weight=WEIGHTS),
    "kl": kl(lambda b: b.dense, 1),
    "kl_two": kl(lambda b: b.mixed(0.1), 1),
    "kl_warm": kl(lambda b: b.dense, 4),
    "squared": regression(F.mse_loss),
    "huber": regression(F.smooth_l1_loss),
}
CASES |= {
    "taught": distillation(CASES["softmax"], 0.25, 1, some=True),
    "taught_warm": distillation(CASES["softmax_smooth"], 0.75, 4, some=True),
    "taught_alone": distillation(CASES["softmax"], 1, 2, some=True),
    "taught_weighted": distillation(CASES["softmax_weighted"], 0.5, 3, some=True, weighted=True),
    "taught_two": distillation(CASES["softmax_two"], 0.5, 2),
    "taught_dense": distillation(CASES["softmax_dense"], 0.5, 2),
    "taught_sigmoid": distillation(CASES["sigmoid"], 0.5, 2),
    "taught_kl_warm": distillation(CASES["kl_warm"], 0.5, 2),
}


def follow(name, loss):
    weight = torch.nn.Parameter(single(uniform(1, CLASSES * FEATURES) - 0.5, CLASSES, FEATURES))
    bias = torch.nn.Parameter(torch.zeros(CLASSES, dtype=torch.float64))
    optimizer = torch.optim.SGD([weight, bias], lr=0.5, momentum=0.9)
    means = []
    for step in range(1, STEPS + 1):
        batch = Batch(step)
        losses, mean = loss(F.linear(batch.x, weight, bias), batch)
        optimizer.zero_grad()
        mean.backward()
        optimizer.step()
        means.append(mean.item())
    numbers = means + losses.tolist() + weight.detach().reshape(-1).tolist() + bias.tolist()
    return " ".join([name] + [f"{number:.12g}" for number in numbers])


with open(os.path.join(HERE, "losses.txt"), "w") as file:
    file.write(f"# torch {torch.__version__}, timm {timm.__version__}\n")
    for case in CASES.items():
        file.write(follow(*case) + "\n")
