"""Checks a batch of loaderd, as peer.checked() checks a peer's: takes it by the Python client from the check pictures of a row with structured samples.

One JSON argument: check (the packed pictures), pipeline, values, batch, side.
"""

import peer
import check
import loaderd
import numpy

config = peer.config()


def xyxy(boxes):
    """Of COCO's boxes, which loaderd delivers in their stored format, xywh."""
    return numpy.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)


with loaderd.Feed(
    config["check"], pipeline=config["pipeline"], batch_size=config["batch"], shuffle=True, values=config["values"].split(","), daemon="private"
) as feed:
    batch = next(feed)
    rows = {name: batch[name] for name in config["values"].split(",")}
    if "boxes" in rows:
        rows["boxes"] = [xyxy(rows["boxes"][i]) for i in range(config["batch"])]
    found = {name: [value[i] for i in range(config["batch"])] if isinstance(value, loaderd.Ragged) else value for name, value in rows.items()}
    check.judge({"image": batch.images, **found}, config["batch"], config["side"])
