"""Writes the datasets of the row mix with Mosaic Streaming's writer: bytes of the JPEG files, and the number of the dataset.

One JSON argument: data, the folder of orders.link_mix(), and out.
"""

import os

import peer
from streaming import MDSWriter

config = peer.config()
for number, part in enumerate(peer.listed(config["data"])):
    with MDSWriter(out=os.path.join(config["out"], str(number)), columns={"image": "bytes", "part": "int"}) as writer:
        for path in peer.files(part)[0]:
            with open(path, "rb") as file:
                writer.write({"image": file.read(), "part": number})
