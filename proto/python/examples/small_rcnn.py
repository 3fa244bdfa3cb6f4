"""Parts for torchvision's R-CNNs that train on a CPU within seconds: a small backbone and small heads, for images of 128 pixels."""

from torchvision.models import mobilenet_v3_small
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead
from torchvision.ops import MultiScaleRoIAlign

import common

CHANNELS = 48


def pool(side):
    """Pools the backbone's features in each box to side x side."""
    return MultiScaleRoIAlign(["0"], side, 2)


def arguments(classes):
    """Arguments for FasterRCNN, MaskRCNN and KeypointRCNN; `classes` includes the background."""
    backbone = mobilenet_v3_small(weights=None).features[:9]  # features at 1/16 of the image's size
    backbone.out_channels = CHANNELS
    return {
        "backbone": backbone, "min_size": 128, "max_size": 128, "rpn_post_nms_top_n_train": 64, "box_batch_size_per_image": 16,
        "rpn_anchor_generator": AnchorGenerator(((16, 32, 64, 128),), ((0.5, 1.0, 2.0),)),
        "box_roi_pool": pool(7), "box_head": TwoMLPHead(CHANNELS * 7 * 7, 128), "box_predictor": FastRCNNPredictor(128, classes),
    }  # fmt: skip


def fit(model, feed, steps, targets):
    """Trains on the sum of the losses that an R-CNN returns; targets(batch) makes a dictionary for each image. Yields the sums."""
    return common.fit(model, feed, steps, lambda batch: sum(model(list(common.images_of(batch)), targets(batch)).values()))
