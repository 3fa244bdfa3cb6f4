#!/usr/bin/env python3
"""Makes the reference data that test_device_optimizers compares updates with.

    python3 -m venv venv && venv/bin/pip install torch timm && venv/bin/python make.py

Each case runs an optimizer of PyTorch or timm, in double precision, for 20 steps on a few tensors. The test makes the same gradients with
the same counter-based generator. A line of optimizers.txt has the case, the tensor, the norm of its total change, and SAMPLES of its final
elements.
"""
import os
import unittest.mock

import numpy as np
import timm.optim
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, SAMPLES = 20, 16
# As in test_device_optimizers.c. Convolutions are [K][R][S][C]. Includes a tensor of several chunks of an update, with rows across chunk ends.
TENSORS = [("conv", (24, 3, 3, 16)), ("linear", (41, 601)), ("zero", (7, 5)), ("vector", (33,)),
           ("tall", (57, 11))]


def uniform(seed, count):
    """splitmix64 of a counter, as in tests/unit/trainer/device/test_device_reference.c."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.arange(count, dtype=np.uint64) * np.uint64(0xD1342543DE82EF95)
        z += np.uint64(0x632BE59BD9B4E019)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def tensor(seed, shape, scale, shift):
    values = ((uniform(seed, int(np.prod(shape))) - shift) * scale).astype(np.float32)
    return torch.from_numpy(values.astype(np.float64).reshape(shape))


def centralize(parameters):
    """Centralizes the gradient of each row of a weight (Yong et al. 2020, equation 1)."""
    for p in parameters:
        if p.dim() > 1:
            p.grad -= p.grad.mean(dim=tuple(range(1, p.dim())), keepdim=True)


def gradients(parameters, step, curvature):
    """Sets the gradients of a step. curvature: how strongly they depend on the parameters."""
    for i, p in enumerate(parameters):
        p.grad = tensor(100 * step + i, p.shape, 0.1, 0.4) + curvature * p.detach()


def sharpen(parameters, step, curvature):
    """SAM (Foret et al. 2021): takes the gradients at a distance rho along the gradient, then restores the parameters."""
    start = [p.detach().clone() for p in parameters]
    norm = torch.stack([p.grad.norm() for p in parameters]).norm()
    with torch.no_grad():
        for p in parameters:
            p += 0.05 * p.grad / (norm + 1e-12)
    gradients(parameters, step, curvature)
    with torch.no_grad():
        for p, begin in zip(parameters, start):
            p.copy_(begin)


def follow(name, make, lr, prepare=None, curvature=0, rho_every=0, mean_from=0):
    parameters = [torch.nn.Parameter(tensor(i, shape, 0 if tensor_name == "zero" else 0.2, 0.5))
                  for i, (tensor_name, shape) in enumerate(TENSORS)]
    start = [p.detach().clone() for p in parameters]
    weights, vectors = [p for p in parameters if p.dim() > 1], [p for p in parameters if p.dim() == 1]
    optimizer = make(weights, vectors)
    mean = torch.optim.swa_utils.AveragedModel(torch.nn.ParameterList(parameters)) if mean_from else None
    for step in range(1, STEPS + 1):
        gradients(parameters, step, curvature)
        if rho_every and step % rho_every == 0:
            sharpen(parameters, step, curvature)
        if prepare:
            prepare(parameters)
        for group in optimizer.param_groups:
            group["lr"] = lr * group.get("factor", 1) * (1 - step / 40)
        if step == 1 and isinstance(optimizer, timm.optim.Lookahead):
            optimizer.sync_lookahead()  # start the slow weights at the initial weights, as in the paper; timm starts them later
        optimizer.step()
        if mean and step >= mean_from and (step - mean_from) % 3 == 0:
            mean.update_parameters(torch.nn.ParameterList(parameters))
    if mean:
        parameters = list(mean.module)
    for (tensor_name, _), p, begin in zip(TENSORS, parameters, start):
        flat, moved = p.detach().reshape(-1), (p.detach() - begin).norm().item()
        entries = [flat[i * (flat.numel() - 1) // (SAMPLES - 1)].item() for i in range(SAMPLES)]
        yield " ".join([name, tensor_name, f"{moved:.12g}"] + [f"{e:.12g}" for e in entries])


def groups(weights, vectors, decay):
    return [{"params": weights, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]


def sgd(weights, vectors):
    return torch.optim.SGD(groups(weights, vectors, 0.05), lr=1, momentum=0.9, nesterov=True)


def adam(weights, vectors):
    return torch.optim.Adam(groups(weights, vectors, 0.05), lr=1, betas=(0.9, 0.98), eps=1e-6)


def adamw(weights, vectors):
    return torch.optim.AdamW(groups(weights, vectors, 0.05), lr=1, betas=(0.9, 0.98), eps=1e-6)


def lars(weights, vectors):
    return timm.optim.Lars(groups(weights, vectors, 0.05), lr=1, momentum=0.9, nesterov=True, trust_coeff=0.01, eps=1e-6)


def lamb(weights, vectors):
    return timm.optim.Lamb(groups(weights, vectors, 0.05), lr=1, betas=(0.9, 0.98), eps=1e-6, max_grad_norm=None)


class Muon:
    """torch.optim.Muon for weights, reshaped to matrices, and AdamW for vectors and the weight of shape `head`.

    Computes Muon's products in double precision instead of bfloat16, whose rounding would hide other differences.
    """

    def __init__(self, weights, vectors, head=None, **how):
        vectors = vectors + [w for w in weights if tuple(w.shape) == head]
        self.weights = [w for w in weights if tuple(w.shape) != head]
        self.matrices = [torch.nn.Parameter(w.data.view(len(w), -1)) for w in self.weights]
        decays = [{"params": [v], "weight_decay": 0.05 if v.dim() > 1 else 0.0, "factor": 0.3} for v in vectors]
        self.muon = torch.optim.Muon(self.matrices, lr=1, weight_decay=0.05, **{"momentum": 0.9, **how})
        self.adamw = torch.optim.AdamW(decays, lr=1, betas=(0.9, 0.98), eps=1e-6)
        self.param_groups = self.muon.param_groups + self.adamw.param_groups

    def step(self):
        for matrix, weight in zip(self.matrices, self.weights):
            matrix.grad = weight.grad.reshape(matrix.shape)
        with unittest.mock.patch.object(torch, "bfloat16", torch.float64):
            self.muon.step()
        self.adamw.step()


def clip(parameters):
    torch.nn.utils.clip_grad_value_(parameters, 0.03)


def all_of_it(parameters):
    torch.nn.utils.clip_grad_norm_(parameters, 2, error_if_nonfinite=True)
    torch.nn.utils.clip_grad_value_(parameters, 0.01)
    centralize(parameters)


CASES = [("sgd", sgd, 0.05), ("adam", adam, 0.01), ("adamw", adamw, 0.01), ("lars", lars, 0.5), ("lamb", lamb, 0.01),
         ("sgd_centralized", sgd, 0.05, centralize), ("adamw_centralized", adamw, 0.01, centralize), ("sgd_clipped", sgd, 0.05, clip),
         ("lamb_prepared", lamb, 0.01, all_of_it), ("sgd_sam", sgd, 0.05, None, 3, 1), ("adamw_sam", adamw, 0.01, None, 3, 3),
         ("sgd_lookahead", lambda *groups: timm.optim.Lookahead(sgd(*groups), alpha=0.7, k=6), 0.05),
         ("adamw_swa", adamw, 0.01, None, 0, 0, 5), ("muon", Muon, 0.02),
         ("muon_plain", lambda *groups: Muon(*groups, nesterov=False, ns_steps=3), 0.02),
         ("muon_prepared", lambda *groups: Muon(*groups, head=(41, 601), adjust_lr_fn="match_rms_adamw"), 0.01, all_of_it),
         ("muon_sam", Muon, 0.02, None, 3, 3)]
with open(os.path.join(HERE, "optimizers.txt"), "w") as file:
    file.write(f"# torch {torch.__version__}, timm {timm.__version__}\n")
    for case in CASES:
        for line in follow(*case):
            file.write(line + "\n")
