"""Batches of images from loaderd, through shared memory.

    from loaderd import Feed

    feed = Feed("train.pimg", pipeline="random_resized_crop(224) hflip(0.5)", batch_size=256, shuffle=True)
    for epoch in range(90):
        for batch in feed:                       # one epoch
            images, labels = batch.torch()       # uint8, channels_last, no copy; `images, labels = batch` for NumPy
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
    RankChanged,
    WrongProcess,
)
from ._ranks import RankWarning
from ._subscription import Feed

# In the order of the reference: what one begins with first, errors last.
__all__ = [
    "Feed", "Batch", "Tensors", "SUBSTITUTED", "FIELD_MISSING", "FIELD_CUT", "KEY", "DEFERRED", "dataset", "Dataset", "Field", "Daemon",
    "LabelWarning", "RankWarning", "FeedError", "BadOption", "BadPipeline", "NoDataset", "NotPermitted", "LimitExceeded", "NoDaemon", "DaemonGone",
    "DatasetReplaced", "FeedFailed", "FeedTimeout", "NoFreeBatch", "RankChanged", "ProtocolError", "WrongProcess",
]  # fmt: skip

__version__ = _feed.version

for _name in __all__:  # users and pickles see loaderd.NAME, whichever module defines it
    if hasattr(globals()[_name], "__module__"):
        globals()[_name].__module__ = __name__
