"""16-bit images: depth maps of TUM's RGB-D benchmark train torchvision's LR-ASPP.

    python depth.py [rgbd_dataset_freiburg1_desk]        (rgb/ and depth/ with files of the same names)
"""

import torch
from torchvision.models.segmentation import lraspp_mobilenet_v3_large

import common
import sources
from loaderd import Feed, Writer

PIPELINE = "random_resized_crop(64, scale=0.5:1) hflip color_jitter(0.2, 0.2)"
VALUES = ["depth"]
UNITS = 5000  # of depth in a metre
SCHEMA = """
    image: image u8[h,w,3]
    depth: raster(image) u16[h,w]
"""


def pack(source, packed):
    with Writer(packed, SCHEMA) as writer:
        for image in sorted((source / "rgb").glob("*.png")):
            writer.add({"image": image, "depth": source / "depth" / image.name, "key": image.name})


def targets(batch):
    """Metres [count, height, width], 0 where the depth is unknown."""
    return batch.tensors()["depth"] / UNITS


def train(packed, steps):
    torch.manual_seed(0)
    model = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=1)

    def loss_of(batch):
        depth = targets(batch)
        return (model(common.images_of(batch))["out"][:, 0] - depth)[depth > 0].abs().mean()

    with Feed(packed, pipeline=PIPELINE, batch_size=8, shuffle=True, values=VALUES) as feed:
        yield from common.fit(model, feed, steps, loss_of)


if __name__ == "__main__":
    common.main(__doc__, pack, train, sources.rgbd)
