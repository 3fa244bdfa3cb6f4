#!/usr/bin/env python3
"""Compares the logits of networks exported to ONNX with the trainer's, on the same images.

    tests/integration/onnx/logits.py NETWORKS [--onnxruntime]

NETWORKS is the program in this folder. The package onnx checks each model. Computes it in NumPy, operator by operator as ONNX defines them, and with --onnxruntime
in onnxruntime too. Exits with 77 if a package is missing.
"""
import math
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnx.numpy_helper
    if "--onnxruntime" in sys.argv:
        import onnxruntime
except ImportError as error:
    print(error)
    sys.exit(77)

TOLERANCE = 2e-5  # relative to the largest logit


def padded(x, pads, value):
    return np.pad(x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])], constant_values=value)


def windows(x, kernel_shape, strides):
    """Yields each kernel position with the input that it is multiplied by: (row, column), [n][c][p][q]."""
    p, q = ((x.shape[2 + i] - kernel_shape[i]) // strides[i] + 1 for i in range(2))
    for r in range(kernel_shape[0]):
        for s in range(kernel_shape[1]):
            yield (r, s), x[:, :, r:r + (p - 1) * strides[0] + 1:strides[0], s:s + (q - 1) * strides[1] + 1:strides[1]]


def conv(x, weight, bias=None, *, kernel_shape, strides, pads, group):
    x, y = padded(x, pads, 0), 0
    for (r, s), part in windows(x, kernel_shape, strides):
        n, c, p, q = part.shape
        y = y + np.einsum("ngcpq,gkc->ngkpq", part.reshape(n, group, c // group, p, q), weight[:, :, r, s].reshape(group, -1, c // group), optimize=True)
    y = y.reshape(y.shape[0], -1, *y.shape[3:])
    return y if bias is None else y + bias[:, None, None]


def average_pool(x, *, kernel_shape, strides, pads, count_include_pad):
    assert not count_include_pad
    sums, counts = (sum(part for _, part in windows(padded(a, pads, 0), kernel_shape, strides)) for a in (x, np.ones_like(x)))
    return sums / counts


def max_pool(x, *, kernel_shape, strides, pads):
    return np.max([part for _, part in windows(padded(x, pads, -np.inf), kernel_shape, strides)], axis=0)


def batch_normalization(x, *vectors, epsilon):
    gamma, beta, mean, var = (vector[:, None, None] for vector in vectors)
    return (x - mean) / np.sqrt(var + epsilon) * gamma + beta


def layer_normalization(x, gamma, beta, *, axis, epsilon):
    centred = x - x.mean(axis, keepdims=True)
    return centred / np.sqrt((centred ** 2).mean(axis, keepdims=True) + epsilon) * gamma + beta


def softmax(x, *, axis):
    power = np.exp(x - x.max(axis, keepdims=True))
    return power / power.sum(axis, keepdims=True)


OPERATORS = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "MatMul": np.matmul,
    "AveragePool": average_pool, "BatchNormalization": batch_normalization, "Conv": conv, "LayerNormalization": layer_normalization, "MaxPool": max_pool, "Softmax": softmax,
    "Cast": lambda x, to: x.astype(onnx.mapping.TENSOR_TYPE_TO_NP_TYPE[to] if hasattr(onnx, "mapping") else onnx.helper.tensor_dtype_to_np_dtype(to)),
    "Concat": lambda *x, axis: np.concatenate(x, axis),
    "Erf": np.vectorize(math.erf, otypes=[np.float32]),
    "Expand": lambda x, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape))),
    "Gather": lambda x, indices, axis=0: np.take(x, indices, axis),
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdims=True),
    "GlobalMaxPool": lambda x: x.max((2, 3), keepdims=True),
    "Relu": lambda x: np.maximum(x, 0),
    "Reshape": lambda x, shape: x.reshape(shape),
    "Shape": lambda x: np.array(x.shape, np.int64),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Transpose": lambda x, perm: x.transpose(perm),
}


def compute(model, images, seen):
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    values["images"] = images
    for node in model.graph.node:
        attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
        values[node.output[0]] = OPERATORS[node.op_type](*(values[name] for name in node.input), **attributes)
        seen.add(node.op_type)
    return values["logits"]


def main():
    wrong, seen = [], set()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        for path in sorted(pathlib.Path(folder).glob("*.onnx")):
            model = onnx.load(path)
            onnx.checker.check_model(model, full_check=True)
            (given,) = model.graph.input
            shape = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
            bytes_ = given.type.tensor_type.elem_type == onnx.TensorProto.UINT8
            images = np.fromfile(path.with_suffix(".images"), np.uint8 if bytes_ else np.float32).reshape(-1, *shape[1:])
            wanted = np.fromfile(path.with_suffix(".logits"), np.float32).reshape(len(images), -1)
            results = {"NumPy": compute(model, images, seen)}
            if "--onnxruntime" in sys.argv:
                session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
                results["onnxruntime"] = session.run(["logits"], {"images": images})[0]
                # test another batch size than the graph's
                results["onnxruntime, one image"] = np.concatenate([session.run(["logits"], {"images": images[i:i + 1]})[0] for i in range(len(images))])
            for name, logits in results.items():
                error = np.abs(logits - wanted).max() / np.abs(wanted).max()
                print(f"{path.stem:20} {len(model.graph.node):4} nodes  {name}: {error:.1e} of {np.abs(wanted).max():.3g}")
                if logits.shape != wanted.shape or not error <= TOLERANCE:
                    wrong.append(f"{path.stem}: {name} makes other logits")
    if seen != OPERATORS.keys():
        wrong.append(f"no network has {', '.join(sorted(OPERATORS.keys() - seen))}")
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()
