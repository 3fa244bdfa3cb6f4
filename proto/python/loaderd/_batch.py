"""A batch in shared memory, as arrays and tensors without a copy."""

import json
import sys
import warnings
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, NamedTuple, Optional, Sequence, Tuple, Union

from . import _feed
from ._checks import level_of_caller
from ._ragged import Ragged, as_tensor, jagged, packed

if TYPE_CHECKING:  # for annotations only; the package needs none of these libraries
    import numpy
    from numpy.typing import NDArray
    from torch import Tensor
    from torch import device as Device

    from ._stream import Source

_ELEMENTS = {1: "u8", 2: "f16", 3: "bf16", 4: "f32"}
_PATCHES = "patches"
_LAYOUTS = {1: "nhwc", 2: "nchw", 3: _PATCHES}
_JSON = 4
_JSON_ROLE = 13  # of a value
IMAGE_ROLE = 1
_PICTURE_ROLES = (IMAGE_ROLE, 2, 3)  # images, masks and rasters
_SECTIONS = ("images", "labels", "samples", "flags")

SUBSTITUTED = 1  #: flag of a sample that could not be decoded; another sample replaces it
FIELD_MISSING = 2  #: flag of a sample without a value for a delivered field; the value is zero
FIELD_CUT = 4  #: flag of a sample with a value longer than field_bytes, in a feed opened with cut_values=True
KEY = "__key__"  #: field of the samples' source names
DEFERRED = "__deferred__"  #: field of the transforms left to the client; loaderd-protocol(7), "Deferred transforms"


class LabelWarning(UserWarning):
    """A batch of a dataset with classes has a sample without a label."""


class Tensors(NamedTuple):
    """Result of Batch.torch() and Batch.to()."""

    images: "Tensor"  #: with views, a list of tensors, one for each copy
    labels: "Tensor"  #: of mixed batches the target, float32 [count, classes]


def _array(section: "_feed.Array") -> "NDArray[Any]":
    try:
        import numpy
    except ImportError:
        raise ImportError(
            "arrays need NumPy (pip install numpy); without it, memoryview(batch.buffer('images')) gives the bytes"
        ) from None
    return numpy.asarray(section)


class Batch:
    """One batch: `images, labels = batch`, or by name: batch["images"], batch["labels"], batch["samples"], batch["flags"], batch[FIELD].

    If the pipeline mixes batches, or has targets, then batch["target"] is a float32 array [count, classes], and in `images, target = batch`,
    torch() and to() it takes the place of the labels. With targets(pairs), batch["target"] is int32 [count, 2], labels of the sample and of
    its neighbour, batch["share"] float32 [count], the weight of the first, and labels keep their place.

    Images are views of shared memory: arrays and tensors made from `images`, torch() or buffer() keep that memory valid. It returns to
    the daemon when the batch and all of these have died; release(), or the end of a `with` block, counts as the death of the batch.
    Labels, samples, flags and fields are copies, a few kilobytes made on first access: keep them as long as you like.

    With patch_resize in the pipeline, images is a Ragged, whose rows are patches: see images.

    With views in the pipeline, images is a list, one entry for each copy; batch[VIEW] has those of one view; see value().

    All may be written to. Unless the feed has writable=True, the first write to a page of the images makes a private copy, and writes
    are discarded with the batch.

    In JAX a batch is a pytree with the leaves images and labels, if JAX was imported before the batch came; functions given to jit or
    tree.map get a named tuple of the two.
    """

    __slots__ = (
        "_slot", "_names", "_source", "_shown", "_copies", "number", "epoch", "index", "count", "height", "width", "channels",
        "element", "layout", "bad", "last", "publish_ns", "reconnects", "__weakref__",
    )

    def __init__(self, slot: "_feed.Slot", names: Sequence[str], source: "Source") -> None:
        if not _registered and "jax" in sys.modules:
            _register_with_jax()
        self._slot: Optional[_feed.Slot] = slot
        self._names = names
        self._source = source
        self._copies: Dict[str, Any] = {}  # of labels, samples, flags and fields, by name
        self._shown = False  # set once the caller has the images and may write to them
        (
            self.number, self.epoch, self.index, self.count, self.height, self.width, self.channels,
            element, layout, self.bad, self.last, self.publish_ns, self.reconnects,
        ) = slot.facts()
        self.element = _ELEMENTS[element]
        self.layout = _LAYOUTS[layout]

    def _held(self) -> "_feed.Slot":
        if self._slot is None:
            raise ValueError("this batch was released; read what you need before, or keep batch.labels and the like, which are copies")
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
            stacklevel=level_of_caller(),
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

    def __iter__(self) -> "Iterator[NDArray[Any]]":
        """Yields images and labels, or targets of classes, so that `images, labels = batch` works."""
        return iter((self.images, self.labels if self._target is None else self.value(self._target)))

    @property
    def _target(self) -> Optional[str]:
        """Name of the weights of classes, which take the place of labels."""
        return self._source.targets[0] if len(self._source.targets) == 1 else None

    def keys(self) -> Tuple[str, ...]:
        """Names for batch[NAME]: images, labels, samples, flags, and the feed's values or fields."""
        return _SECTIONS + tuple(name for name in (*self._source.sections, *self._names) if name not in _SECTIONS)

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __getitem__(self, name: str) -> Any:
        """Returns the value of the schema, the attribute or the extra field of that name, in this order; see value() and field()."""
        if name in self._source.sections:
            return self.value(name)
        if name in _SECTIONS:
            return getattr(self, name)
        if name in self._names:
            return self.field(name)
        raise KeyError(f"{name!r} is none of {', '.join(self.keys())}; `images, labels = batch` takes both at once")

    def __repr__(self) -> str:
        released = ", released" if self._slot is None else ""
        if self.layout == _PATCHES:
            return f"<loaderd.Batch {self.index} of epoch {self.epoch}: {self.count} images of {self.element} patches{released}>"
        return (
            f"<loaderd.Batch {self.index} of epoch {self.epoch}: {self.count} images {self.height}x{self.width}x"
            f"{self.channels} {self.element} {self.layout}{released}>"
        )

    def buffer(self, section: str) -> "_feed.Array":
        """Returns a view of "images", "labels", "samples" or "flags" with the buffer protocol and DLPack, for other libraries."""
        if section not in _SECTIONS:
            raise ValueError(f"section: {section!r} is not one of images, labels, samples, flags")
        slot = self._held()
        makers = {"images": self._images, "labels": slot.labels, "samples": slot.samples, "flags": slot.flags}
        return makers[section]()

    def _images(self) -> "_feed.Array":
        self._shown = True
        return self._held().images()

    def _spans(self) -> Tuple[Sequence[int], Sequence[int]]:
        """Returns where the patches of each sample begin, and how many they are."""
        rows: Any = self._held().value(0)
        return rows[1], rows[2]

    @property
    def images(self) -> "NDArray[Any]":
        """NumPy array [count, height, width, channels], or [count, channels, height, width] with layout(nchw).

        With views, a list of such arrays, one for each copy in the order of the pipeline. bf16 becomes ml_dtypes.bfloat16 if that
        package is installed, otherwise uint16 with the same bits.

        With patch_resize, a Ragged: images[i] is [patches, elements], the patches of a sample from the top left, row by row, and the
        elements of a patch its pixels in the same order, with their channels. images.values are all patches of the batch, and
        images.offsets where each sample's begin, for attention of variable length. batch["__grid__"] has rows and columns, if asked for.
        """
        if self.layout == _PATCHES:
            rows = self._viewed(self._images(), IMAGE_ROLE)
            ragged: Any = Ragged(rows, *self._spans(), copy=False)
            return ragged  # type: ignore[no-any-return]
        if self._source.views:
            self._shown = True
            views: Any = [self._viewed(self._held().value(number), IMAGE_ROLE) for number in self._source.views]
            return views  # type: ignore[no-any-return]
        return self._viewed(self._images(), IMAGE_ROLE)

    def _copy(self, name: str, read: Callable[[], Any]) -> Any:
        """Returns the copy of that name, which is made on first access."""
        if name not in self._copies:
            value = read()
            self._copies[name] = _array(value).copy() if isinstance(value, _feed.Array) else value
        return self._copies[name]

    @property
    def labels(self) -> "NDArray[numpy.int32]":
        """NumPy int32 [count], -1 for none."""
        labels: "NDArray[numpy.int32]" = self._copy("labels", self._held().labels)
        return labels

    @property
    def samples(self) -> "NDArray[numpy.uint64]":
        """NumPy uint64 [count]: index of each sample in the dataset; in a feed of several parts, behind those of the parts before."""
        samples: "NDArray[numpy.uint64]" = self._copy("samples", self._held().samples)
        return samples

    @property
    def parts(self) -> "NDArray[numpy.int64]":
        """NumPy int64 [count]: number of each sample's part, in the order of Feed.parts; 0 in a feed without parts."""
        import numpy

        firsts = [first for first, _, _, _ in self._source.parts] or [0]
        found: "NDArray[numpy.int64]" = numpy.searchsorted(numpy.array(firsts, numpy.uint64), self.samples, side="right") - 1
        return found

    @property
    def flags(self) -> "NDArray[numpy.uint8]":
        """NumPy uint8 [count]: SUBSTITUTED, FIELD_MISSING, FIELD_CUT."""
        flags: "NDArray[numpy.uint8]" = self._copy("flags", self._held().flags)
        return flags

    def field(self, name: str) -> Any:
        """Returns an extra field: NumPy int64 or float64 [count], or a list of str, of bytes, or of parsed JSON.

        If a sample has no value, which its flag shows, the value is 0, "", b"" or None. Truncated JSON is None.
        """
        try:
            position = self._names.index(name)
        except ValueError:
            raise KeyError(f"the feed delivers {list(self._names)}, not {name!r}") from None
        slot = self._held()
        return self._copy(f"field {name}", lambda: _values(slot.field(position)))

    def value(self, name: str) -> Any:
        """Returns a value of the dataset's schema by its name there.

        For the image, the label and the sample number, returns the same as images, labels and samples. Further images, masks and rasters
        are views of shared memory, too: NumPy arrays [count, height, width] or with channels. Others are copies: a NumPy array
        [count, ...] if all samples have the same shape, a Ragged if they have rows, or a list of str, of bytes, or of parsed JSON. If a
        sample has no value, which its flag shows, the value is 0, no rows, "", b"" or None.

        With views, the image is found by the view's name, and what follows the image as "VIEW.NAME": a list of values, one for each
        copy of the view.
        """
        try:
            numbers, role = self._source.sections[name]
        except KeyError:
            raise KeyError(f"the feed delivers {list(self._source.sections)}, not {name!r}") from None
        if isinstance(numbers, tuple):
            return [self._value_of(number, role) for number in numbers]
        return getattr(self, _SECTIONS[numbers]) if numbers < len(_SECTIONS) else self._value_of(numbers, role)

    def _value_of(self, number: int, role: int) -> Any:
        """Returns the value in a section."""
        slot = self._held()
        if role in _PICTURE_ROLES:
            self._shown = True
            return self._viewed(slot.value(number), role)
        return self._copy(f"section {number}", lambda: _value(slot.value(number), role))

    def _viewed(self, picture: Any, role: int) -> "NDArray[Any]":
        array = _array(picture)
        if self.element == "bf16" and role == IMAGE_ROLE:
            try:
                import ml_dtypes
            except ImportError:
                return array
            array = array.view(ml_dtypes.bfloat16)
        return array

    def tensors(self, layout: str = "nchw") -> Dict[str, Any]:
        """Returns all values by their names in the schema: images and labels as torch() has them, arrays as tensors, others as value().

        Masks and rasters are [count, height, width], or [count, height, width, channels]. uint16 becomes int32 before PyTorch 2.3.

        Tensors of arrays share memory with the arrays that value() returns.
        """
        return {name: self.tensor(name, layout) for name in self._source.sections}

    def tensor(self, name: str, layout: str = "nchw") -> Any:
        """Returns a value by its name in the schema, in the form of tensors()."""
        numbers, role = self._source.sections.get(name, (len(_SECTIONS), 0))
        if isinstance(numbers, int) and numbers < 2:
            return self._label_tensor() if numbers else self.torch(layout)[0]
        if role == IMAGE_ROLE:
            self._shown = True
            slot = self._held()
            if isinstance(numbers, tuple):
                return [self._torch_images(slot.value(number), layout) for number in numbers]
            return self._torch_images(slot.value(numbers), layout)
        value = self.value(name)
        if isinstance(numbers, tuple):
            return [as_tensor(one) if hasattr(one, "dtype") else one for one in value]
        return as_tensor(value) if hasattr(value, "dtype") else value

    def torch(self, layout: str = "nchw") -> Tensors:
        """Returns (images, labels) for PyTorch: images without a copy, with views as a list; labels as a copy in int64, or if the pipeline
        mixes batches, the target as float32 [count, classes].

        Patches are a nested tensor of layout torch.jagged, whose values() and offsets() are those of Batch.images; it needs PyTorch 2.5.

        layout "nchw" views images stored as nhwc as [count, channels, height, width] in channels_last memory
        format, which models expect and which runs fastest; "stored" keeps the stored order.
        """
        slot = self._held()
        self._shown = True
        return self._tensors([slot.value(number) for number in self._source.views] or slot.images(), layout)

    def _tensors(self, stored: Any, layout: str) -> Tensors:
        """stored: the images of the batch, or of all views."""
        import torch

        if layout not in ("nchw", "stored"):
            raise ValueError(f'layout: {layout!r} is neither "nchw" nor "stored"')
        several = isinstance(stored, list)
        images: Any = [self._torch_images(one, layout) for one in stored] if several else self._torch_images(stored, layout)
        return Tensors(images, self._label_tensor() if self._target is None else self.tensor(self._target))

    def _label_tensor(self) -> "Tensor":
        import torch

        copied = self._copies.get("labels")  # includes changes by the caller
        return (torch.from_dlpack(self._held().labels()) if copied is None else torch.from_numpy(copied)).long()

    def _torch_images(self, stored: Any, layout: str) -> "Tensor":
        import torch

        images = torch.from_dlpack(stored)
        if self.layout == _PATCHES:
            starts, counts = self._spans()
            lengths = torch.tensor([0, *counts], dtype=torch.int64)
            return jagged(packed(images, starts, counts, torch.cat), torch.cumsum(lengths, 0))
        return images.permute(0, 3, 1, 2) if layout == "nchw" and self.layout == "nhwc" else images

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
        views = [(slot.value if self._shown else slot.shared_value)(number) for number in self._source.views]
        here = self._tensors(views or (slot.images() if self._shown else slot.shared_images()), layout)

        def move(tensor: "Tensor") -> "Tensor":
            return tensor.to(device, non_blocking=True)

        there = Tensors([move(image) for image in here.images] if views else move(here.images), move(here.labels))
        if device.type == "cuda":
            done = torch.cuda.Event()
            done.record(torch.cuda.current_stream(device))
            self._source.keep_until(done, slot)
        return there

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> "NDArray[Any]":
        """The images, with views those of the first; so numpy.asarray(batch) and jax.numpy.asarray(batch) work."""
        images = self._viewed(self._images(), IMAGE_ROLE)
        if dtype is not None and images.dtype != dtype:
            if copy is False:
                raise ValueError(f"images of {images.dtype} cannot be had as {dtype} without a copy")
            return images.astype(dtype)
        return images.copy() if copy else images

    def __jax_array__(self) -> Any:
        return sys.modules["jax.numpy"].asarray(self._viewed(self._images(), IMAGE_ROLE))

    def __dlpack__(self, **options: Any) -> Any:
        """The images; so torch.from_dlpack(batch), jax.dlpack.from_dlpack(batch) and numpy.from_dlpack(batch) work."""
        return self._images().__dlpack__(**options)

    def __dlpack_device__(self) -> "tuple[int, int]":
        return (1, 0)


class Arrays(NamedTuple):
    """A batch's leaves inside JAX functions: tracers, or the results of a function."""

    images: Any
    labels: Any


_registered = False


def _register_with_jax() -> None:
    """Registers Batch as a pytree node once the program has imported JAX. JAX treats earlier batches as leaves."""
    global _registered
    tree = sys.modules.get("jax.tree_util")
    if tree is None:
        return  # JAX is still being imported
    _registered = True
    keys = tree.GetAttrKey("images"), tree.GetAttrKey("labels")
    tree.register_pytree_with_keys(
        Batch,
        lambda batch: (tuple(zip(keys, batch)), None),
        lambda _, leaves: Arrays(*leaves),
        lambda batch: (tuple(batch), None),
    )


def _value(value: Any, role: int) -> Any:
    """Converts a value from the extension's form; parses JSON."""
    if isinstance(value, tuple):
        rows, starts, counts = value
        return Ragged(_array(rows), starts, counts)
    if role == _JSON_ROLE:
        return [_parsed(record) for record in value]
    return value


def _values(value: Any) -> Any:
    """Converts a field from the extension's form; parses JSON."""
    if not isinstance(value, tuple):
        return value
    records, kind = value
    return [_parsed(record) for record in records] if kind == _JSON else records


def _parsed(record: Union[bytes, str]) -> Any:
    try:
        return json.loads(record)
    except (ValueError, RecursionError):
        return None
