"""Imported by every Python process of a row. Records the labels of each step, which identify the samples.

Appends a line of JSON per call of the loss to $LOADERD_RECORD/PID: t in seconds, train, labels. Also registers a model "tiny"
with torchvision and timm, so that published scripts spend most time on loading.
"""

import importlib.abc
import importlib.util
import json
import os
import sys
import time

record = None


def record_step(labels, train):
    global record
    if record is None or record[0] != os.getpid():
        record = os.getpid(), open(os.path.join(os.environ["LOADERD_RECORD"], str(os.getpid())), "a", buffering=1)
    line = {"t": time.monotonic(), "train": bool(train), "labels": [int(label) for label in labels]}
    record[1].write(json.dumps(line) + "\n")


def torch_losses(functional):
    import torch

    if "KERAS_BACKEND" in os.environ:
        return  # keras_losses() records Keras, which calls PyTorch's loss inside
    cross_entropy = functional.cross_entropy

    inside = False

    def recording(input, target, *rest, **options):
        nonlocal inside
        if inside:  # PyTorch calls the function again for subclasses of Tensor, such as fastai's
            return cross_entropy(input, target, *rest, **options)
        record_step(target.tolist(), torch.is_grad_enabled())
        inside = True
        try:
            return cross_entropy(input, target, *rest, **options)
        finally:
            inside = False

    functional.cross_entropy = recording


def keras_losses(keras):
    from keras.src.backend.common.stateless_scope import in_stateless_scope

    compute_loss = keras.Model.compute_loss

    def recording(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if not in_stateless_scope():  # skip Keras's trial run on a generated batch
            record_step(y.flatten().tolist(), training)
        return compute_loss(self, x, y, y_pred, sample_weight, training)

    keras.Model.compute_loss = recording


def jax_steps(jax):
    """The labels are the last argument of the function that the script compiles."""
    jit = jax.jit

    def recording(function, *rest, **options):
        compiled = jit(function, *rest, **options)
        if function.__module__ != "__main__":
            return compiled

        def call(*arguments):
            record_step(arguments[-1].tolist(), True)
            return compiled(*arguments)

        return call

    jax.jit = recording


def tiny_model(num_classes=1000, **ignored):
    from torch import nn

    return nn.Sequential(nn.Conv2d(3, 16, 16, 16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, num_classes))


def torchvision_models(models):
    def tiny(**options):
        return tiny_model(**options)

    from torchvision.models._api import register_model

    models.tiny = register_model(name="tiny")(tiny)


def timm_models(models):
    def tiny(pretrained=False, **options):
        model = tiny_model(**options)
        model.pretrained_cfg = model.default_cfg = {
            "input_size": (3, 96, 96), "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225), "interpolation": "bilinear"}
        model.num_classes = options.get("num_classes", 1000)
        return model

    models._registry._model_entrypoints["tiny"] = tiny


HOOKS = {
    "torch.nn.functional": torch_losses,
    "keras": keras_losses,
    "jax": jax_steps,
    "torchvision.models": torchvision_models,
    "timm.models": timm_models,
}


class ImportHooks(importlib.abc.MetaPathFinder):
    """Calls a module's hook after its import."""

    def find_spec(self, name, path, target=None):
        hook = HOOKS.pop(name, None)
        if hook is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is not None:
            execute = spec.loader.exec_module

            def exec_module(module):
                execute(module)
                hook(module)

            spec.loader.exec_module = exec_module
        return spec


if "LOADERD_RECORD" in os.environ:
    sys.meta_path.insert(0, ImportHooks())
