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

from typing import TYPE_CHECKING, Any, List

from . import _feed
from ._batch import DEFERRED, FIELD_CUT, FIELD_MISSING, KEY, SUBSTITUTED, Batch, LabelWarning, Tensors
from ._buckets import OpenedBucket, bucket_sizes
from ._daemon import Daemon
from ._dataset import Dataset, Field, dataset
from ._errors import (
    BadOption,
    BadPipeline,
    BadSample,
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
    TransformError,
    WriteFailed,
    WrongProcess,
)
from ._order import OpenedPart, Part
from ._pipelines import Argument, Transform, pipelines
from ._polygons import join_polygons, split_polygons
from ._ragged import Ragged
from ._ranks import RankWarning
from ._subscription import Feed
from ._timings import Timings
from ._writer import Writer

if TYPE_CHECKING:
    from ._image_dataset import DatasetWarning, ImageDataset
    from ._loader import DataLoader
    from ._sampler import BatchSampler

# Names that need PyTorch, and the modules that define them; imported when first used.
_WITH_TORCH = {
    "BatchSampler": "_sampler", "DataLoader": "_loader", "DatasetWarning": "_image_dataset", "ImageDataset": "_image_dataset",
}  # fmt: skip

# In the order of the reference: what one begins with first, errors last.
__all__ = [
    "Feed", "Part", "OpenedPart", "OpenedBucket", "bucket_sizes", "Batch", "Tensors", "Ragged", "SUBSTITUTED", "FIELD_MISSING", "FIELD_CUT", "KEY", "DEFERRED", "DataLoader", "ImageDataset", "BatchSampler",
    "Timings", "dataset", "Dataset", "Field", "pipelines", "Transform", "Argument", "Daemon", "Writer", "join_polygons", "split_polygons", "LabelWarning", "RankWarning", "DatasetWarning",
    "FeedError", "BadOption", "BadPipeline", "NoDataset", "NotPermitted", "LimitExceeded", "NoDaemon", "DaemonGone", "DatasetReplaced",
    "FeedFailed", "FeedTimeout", "NoFreeBatch", "RankChanged", "TransformError", "ProtocolError", "WrongProcess",
    "BadSample", "WriteFailed",
]  # fmt: skip

__version__ = _feed.version

for _name in set(__all__) - set(_WITH_TORCH):  # users and pickles see loaderd.NAME, whichever module defines it
    if hasattr(globals()[_name], "__module__"):
        globals()[_name].__module__ = __name__


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        value = getattr(import_module(f".{_WITH_TORCH[name]}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(f"loaderd.{name} needs PyTorch (pip install torch); Feed does without", name="torch") from None
    value.__module__ = __name__
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted({*globals(), *__all__})
