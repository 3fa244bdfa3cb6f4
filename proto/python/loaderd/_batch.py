"""A batch in shared memory, as arrays and tensors without a copy."""

import json
import os
import sys
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Sequence, Union

from . import _feed

if TYPE_CHECKING:  # for annotations only; the package needs none of these libraries
    import numpy
    from numpy.typing import NDArray
    from torch import Tensor
    from torch import device as Device

    from ._subscription import Feed

_ELEMENTS = {1: "u8", 2: "f16", 3: "bf16", 4: "f32"}
_LAYOUTS = {1: "nhwc", 2: "nchw"}
_JSON = 4

SUBSTITUTED = 1  #: flag of a sample that could not be decoded; another sample replaces it
FIELD_MISSING = 2  #: flag of a sample without a value for a delivered field; the value is zero
FIELD_CUT = 4  #: flag of a sample with a value longer than field_bytes, in a feed opened with cut_values=True
KEY = "__key__"  #: field of the samples' source names
DEFERRED = "__deferred__"  #: field of the transforms left to the client; loaderd-protocol(7), "Deferred transforms"


class LabelWarning(UserWarning):
    """A batch of a dataset with classes has a sample without a label."""


class Tensors(NamedTuple):
    """Result of Batch.torch() and Batch.to()."""

    images: "Tensor"
    labels: "Tensor"


def _array(section: "_feed.Array") -> "NDArray[Any]":
    try:
        import numpy
    except ImportError:
        raise ImportError(
            "arrays need NumPy (pip install numpy); without it, memoryview(batch.buffer('images')) gives the bytes"
        ) from None
    return numpy.asarray(section)


def _level_of_caller() -> int:
    """Returns the stacklevel for warnings.warn() of the first caller outside this package."""
    folder = os.path.dirname(__file__)
    level = 1
    while os.path.dirname(sys._getframe(level).f_code.co_filename) == folder and sys._getframe(level).f_back:
        level += 1
    return level


class Batch:
    """One batch. Arrays and tensors made from it refer to shared memory without a copy and keep that memory valid.

    The memory returns to the daemon when the batch and all arrays and tensors made from it have died; release(), or the
    end of a `with` block, stands for the death of the batch. Arrays and tensors are writable: unless the feed has
    writable=True, the first write to a page makes a private copy, and writes are discarded with the batch.
    """

    __slots__ = (
        "_slot", "_names", "_feed", "_shown", "number", "epoch", "index", "count", "height", "width", "channels",
        "element", "layout", "bad", "last", "publish_ns", "reconnects", "__weakref__",
    )

    def __init__(self, slot: "_feed.Slot", names: Sequence[str], feed: "Feed") -> None:
        self._slot: Optional[_feed.Slot] = slot
        self._names = names
        self._feed = feed
        self._shown = False  # set once the caller has the images and may write to them
        (
            self.number, self.epoch, self.index, self.count, self.height, self.width, self.channels,
            element, layout, self.bad, self.last, self.publish_ns, self.reconnects,
        ) = slot.facts()
        self.element = _ELEMENTS[element]
        self.layout = _LAYOUTS[layout]

    def _held(self) -> "_feed.Slot":
        if self._slot is None:
            raise ValueError("this batch was released")
        return self._slot

    def warn_of_missing_labels(self, dataset: str) -> bool:
        """Warns if a sample of this batch has no label. Returns True if it did."""
        sample = self._held().unlabelled()
        if sample is None:
            return False
        warnings.warn(
            f"{dataset}: sample {sample} has no label, and perhaps others have none: their batch.labels are -1, which "
            "torch.nn.functional.cross_entropy() rejects without ignore_index=-1. `packimg info` counts them",
            LabelWarning,
            stacklevel=_level_of_caller(),
        )
        return True

    def release(self) -> None:
        """Releases the batch, at once or when the last array or tensor made from it dies. May be called repeatedly."""
        self._slot = None

    def __enter__(self) -> "Batch":
        return self

    def __exit__(self, *unused: object) -> None:
        self.release()

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        released = ", released" if self._slot is None else ""
        return (
            f"<loaderd.Batch {self.index} of epoch {self.epoch}: {self.count} images {self.height}x{self.width}x"
            f"{self.channels} {self.element} {self.layout}{released}>"
        )

    def buffer(self, section: str) -> "_feed.Array":
        """Returns "images", "labels", "samples" or "flags" with the buffer protocol and DLPack, for other libraries."""
        if section not in ("images", "labels", "samples", "flags"):
            raise ValueError(f"section: {section!r} is not one of images, labels, samples, flags")
        slot = self._held()
        makers = {"images": self._images, "labels": slot.labels, "samples": slot.samples, "flags": slot.flags}
        return makers[section]()

    def _images(self) -> "_feed.Array":
        self._shown = True
        return self._held().images()

    @property
    def images(self) -> "NDArray[Any]":
        """NumPy array [count, height, width, channels], or [count, channels, height, width] with layout(nchw).

        bf16 becomes ml_dtypes.bfloat16 if that package is installed, otherwise uint16 with the same bits.
        """
        array = _array(self._images())
        if self.element == "bf16":
            try:
                import ml_dtypes
            except ImportError:
                return array
            array = array.view(ml_dtypes.bfloat16)
        return array

    @property
    def labels(self) -> "NDArray[numpy.int32]":
        """NumPy int32 [count], -1 for none."""
        return _array(self._held().labels())

    @property
    def samples(self) -> "NDArray[numpy.uint64]":
        """NumPy uint64 [count]: index of each sample in the dataset."""
        return _array(self._held().samples())

    @property
    def flags(self) -> "NDArray[numpy.uint8]":
        """NumPy uint8 [count]: SUBSTITUTED, FIELD_MISSING, FIELD_CUT."""
        return _array(self._held().flags())

    def field(self, name: str) -> Any:
        """Returns an extra field: NumPy int64 or float64 [count], or a list of str, of bytes, or of parsed JSON.

        If a sample has no value, which its flag shows, the value is 0, "", b"" or None. Truncated JSON is None.
        """
        try:
            position = self._names.index(name)
        except ValueError:
            raise KeyError(f"the feed delivers {list(self._names)}, not {name!r}") from None
        value = self._held().field(position)
        if not isinstance(value, tuple):
            return _array(value)
        records, kind = value
        return [_parsed(record) for record in records] if kind == _JSON else records

    def torch(self, layout: str = "nchw") -> Tensors:
        """Returns (images, labels) for PyTorch: images without a copy, labels as int64.

        layout "nchw" views images stored as nhwc as [count, channels, height, width] in channels_last memory
        format, which models expect and which runs fastest; "stored" keeps the stored order.
        """
        return self._tensors(self._images(), layout)

    def _tensors(self, stored: "_feed.Array", layout: str) -> Tensors:
        import torch

        if layout not in ("nchw", "stored"):
            raise ValueError(f'layout: {layout!r} is neither "nchw" nor "stored"')
        images = torch.from_dlpack(stored)
        if layout == "nchw" and self.layout == "nhwc":
            images = images.permute(0, 3, 1, 2)
        return Tensors(images, torch.from_dlpack(self._held().labels()).long())

    def to(self, device: "Union[str, int, Device]", layout: str = "nchw") -> Tensors:
        """Returns (images, labels) on a PyTorch device.

        On a GPU the copy is asynchronous after Feed.pin(). The feed holds the batch until the copy has finished, so the caller
        may drop it at once.
        """
        import torch

        device = torch.device(device)
        if device.type == "cpu":
            return self.torch(layout)
        slot = self._held()
        # Only the shared memory can be registered with a device, but the caller's changes are in private pages.
        here = self._tensors(slot.images() if self._shown else slot.shared_images(), layout)
        there = Tensors(here.images.to(device, non_blocking=True), here.labels.to(device, non_blocking=True))
        if device.type == "cuda":
            done = torch.cuda.Event()
            done.record(torch.cuda.current_stream(device))
            self._feed._keep_until(done, slot)
        return there

    def __dlpack__(self, **options: Any) -> Any:
        """The images; so torch.from_dlpack(batch), jax.dlpack.from_dlpack(batch) and numpy.from_dlpack(batch) work."""
        return self._images().__dlpack__(**options)

    def __dlpack_device__(self) -> "tuple[int, int]":
        return (1, 0)


def _parsed(record: Union[bytes, str]) -> Any:
    try:
        return json.loads(record)
    except (ValueError, RecursionError):
        return None
