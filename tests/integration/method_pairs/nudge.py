"""Changes weights in their last place, to show how much a network amplifies rounding errors."""

import array
import json
import random


def nudge(path, output, seed):
    """Moves each weight of a .safetensors file by one unit in the last place, up or down at random; keeps zeros."""
    draw = random.Random(seed)
    with open(path, "rb") as file:
        size = file.read(8)
        header = file.read(int.from_bytes(size, "little"))
        data = bytearray(file.read())
    for name, tensor in json.loads(header).items():
        if name == "__metadata__" or tensor["dtype"] != "F32" or "running" in name:
            continue
        begin, end = tensor["data_offsets"]
        bits = array.array("I", bytes(data[begin:end]))
        signs = draw.randbytes(len(bits))
        for i, word in enumerate(bits):
            if word & 0x7FFFFFFF:
                bits[i] = word + (1 if signs[i] & 1 else -1)
        data[begin:end] = bits.tobytes()
    with open(output, "wb") as file:
        file.write(size + header + data)
