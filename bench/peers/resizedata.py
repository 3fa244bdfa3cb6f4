"""Times other libraries' resize of the crops that stages_bench has written, to side x side, in microseconds of CPU time per crop.

One JSON argument: data (the crops), side, library ("pillow", "torchvision" or "opencv"). Answers "measure" lines like
peer.py, with a dictionary `us` by method.
"""

import sys
import time

import numpy
import peer

config = peer.config()
side = config["side"]


def crops():
    data = numpy.fromfile(config["data"], "u1")
    at, found = 0, []
    while at < len(data):
        width, height = (int(n) for n in data[at : at + 8].view("<u4"))
        end = at + 8 + 3 * width * height
        found.append(data[at + 8 : end].reshape(height, width, 3))
        at = end
    return found


def methods():
    """Returns {name: (input, function)} and the library's version."""
    if config["library"] == "opencv":
        import cv2

        cv2.setNumThreads(1)
        how = {"OpenCV, INTER_AREA": cv2.INTER_AREA, "OpenCV, INTER_LINEAR (no antialiasing)": cv2.INTER_LINEAR}
        return {
            name: (lambda image: image, lambda image, flag=flag: cv2.resize(image, (side, side), interpolation=flag))
            for name, flag in how.items()
        }, {"opencv": cv2.__version__}
    if config["library"] == "pillow":
        from PIL import Image, __version__

        return {
            "Pillow, BILINEAR": (Image.fromarray, lambda image: image.resize((side, side), Image.Resampling.BILINEAR))
        }, {"pillow": __version__}
    import torch
    import torchvision
    from torchvision.transforms.v2 import functional

    torch.set_num_threads(1)
    return {
        "torchvision, antialiased": (
            # Interleaved pixels, unlike those of decode_jpeg, because they are resized faster.
            lambda image: torch.from_numpy(image).permute(2, 0, 1),
            lambda image: functional.resize(image, [side, side], antialias=True),
        )
    }, {"torchvision": torchvision.__version__}


images = crops()
every, versions = methods()
ready = {name: ([prepare(image) for image in images], resize) for name, (prepare, resize) in every.items()}
peer.answer(ready=True, versions=versions)
for line in sys.stdin:
    us = {}
    for name, (inputs, resize) in ready.items():
        for _ in range(2):
            begin = time.process_time()
            for image in inputs:
                resize(image)
            us[name] = (time.process_time() - begin) / len(inputs) * 1e6
    peer.answer(us=us)
