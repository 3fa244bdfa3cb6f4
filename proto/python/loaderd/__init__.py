"""Batches of images from loaderd, through shared memory.

    from loaderd import Feed

    feed = Feed("train.pimg", pipeline="random_resized_crop(224) hflip(0.5)", batch_size=256, shuffle=True)
    for epoch in range(90):
        for batch in feed:                       # one epoch
            images, labels = batch.torch()       # uint8, channels_last, no copy
            ...
        torch.save({"feed": feed.state_dict(), ...}, "last.pt")

See Feed for the options, Batch for the data, FeedError for the errors.
"""

from . import _feed
from ._batch import DEFERRED, FIELD_CUT, FIELD_MISSING, KEY, SUBSTITUTED, Batch, LabelWarning, Tensors
from ._daemon import Daemon
from ._dataset import Dataset, Field, dataset
from ._errors import (
    BadOption,
    BadPipeline,
    DaemonGone,
    DatasetReplaced,
    FeedError,
    FeedFailed,
    FeedTimeout,
    LimitExceeded,
    NoDaemon,
    NoDataset,
    NoFreeBatch,
    NotPermitted,
    ProtocolError,
    WrongProcess,
)
from ._ranks import RankWarning
from ._subscription import Feed

__all__ = [
    "BadOption", "BadPipeline", "Batch", "Daemon", "DaemonGone", "Dataset", "DatasetReplaced", "DEFERRED", "FIELD_CUT",
    "FIELD_MISSING", "Feed", "Field", "FeedError", "FeedFailed", "FeedTimeout", "KEY", "LabelWarning", "LimitExceeded", "NoDaemon", "NoDataset", "NoFreeBatch",
    "NotPermitted", "ProtocolError", "RankWarning", "SUBSTITUTED", "Tensors", "WrongProcess", "dataset",
]

__version__ = _feed.version

for _name in __all__:  # users and pickles see loaderd.NAME, whichever module defines it
    if hasattr(globals()[_name], "__module__"):
        globals()[_name].__module__ = __name__
