"""Writes datasets from Python: checks each sample, encodes it in threads as packimg convert does, and writes it in order."""

import json
import os
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from difflib import get_close_matches
from math import isnan
from operator import index
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type, Union

from . import _checks, _feed
from ._errors import BadOption, BadSample, WriteFailed
from ._processes import WorkerEnded, ordered_map
from ._schema import Text, Value, parse

_CODECS = {"jpeg": 1, "raw": 2, "zstd": 3}  # enum packimg_codec
_FIELD_TYPES = {"bytes": 3, "json": 4, "text": 5}  # enum packimg_field_type, beside the numbers
_INT64, _FLOAT64 = 1, 2
_BYTES_HELD = 256 << 20  # limit of the bytes of samples that wait for being written
_HEAD = 64  # mean and deviation are those of this many samples and of one in _STRIDE
_STRIDE = 128
_SHARD_MIN = 1 << 16


class _Prepared(NamedTuple):
    """A checked sample, of which only the image is still to be encoded."""

    number: int
    data: bytes  # image file or pixels
    shape: Tuple[int, int, int]  # height, width and channels of pixels; channels 0 if data is a file
    label: int
    source: bytes
    values: List[Tuple[int, Union[int, float, bytes]]]


def _shown(value: Any) -> str:
    """Shows a value that may be long, or an array."""
    if isinstance(value, (bytes, bytearray, memoryview, str)):
        return repr(value[:40] if len(value) > 40 else value) + ("..." if len(value) > 40 else "")
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and isnan(value))


def _read(path: "os.PathLike[str]") -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _pixels(value: Any) -> Tuple[bytes, Tuple[int, int, int]]:
    """Copies an array or a PIL image; ValueError says what it should be."""
    if hasattr(value, "convert") and hasattr(value, "mode"):  # PIL
        value = value if value.mode in ("L", "RGB") else value.convert("RGB")
        return value.tobytes(), (value.height, value.width, len(value.getbands()))
    if hasattr(value, "detach"):  # a tensor of PyTorch
        value = value.detach().cpu().numpy()
    try:
        view = memoryview(value)
    except TypeError:
        raise ValueError(f"it is a {type(value).__name__}; give the bytes of an image file, a path as pathlib.Path, or an array u8[height, width, 3]") from None
    shape: Tuple[int, ...] = view.shape or ()
    if view.format != "B":
        raise ValueError(f"its elements are of format {view.format!r}; convert them to bytes of 0..255: array.astype('uint8')")
    if len(shape) == 2:
        shape = (*shape, 1)
    if len(shape) != 3 or shape[2] not in (1, 3):
        hint = "; array.transpose(1, 2, 0) puts channels last" if len(shape) == 3 and shape[0] in (1, 3) else ""
        raise ValueError(f"its shape is {shape}, not (height, width, 3), (height, width, 1) or (height, width){hint}")
    if not 0 < shape[0] < 1 << 16 or not 0 < shape[1] < 1 << 16:
        raise ValueError(f"its shape is {shape}; sides are 1 to 65535")
    return view.tobytes(), (shape[0], shape[1], shape[2])


def _image(value: Any) -> Tuple[bytes, Tuple[int, int, int]]:
    if isinstance(value, str):
        raise ValueError("it is a text; give a path as pathlib.Path")
    if isinstance(value, os.PathLike):
        return _read(value), (0, 0, 0)
    if isinstance(value, (bytes, bytearray)) or (isinstance(value, memoryview) and value.ndim == 1):
        return bytes(value), (0, 0, 0)
    return _pixels(value)


def _integer(value: Any, bounds: Tuple[int, int]) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    try:
        whole = index(value)
    except TypeError:
        raise ValueError("it is not a whole number") from None
    if not bounds[0] <= whole < bounds[1]:
        raise ValueError(f"it is not in {bounds[0]} .. {bounds[1] - 1}")
    return whole


def _real(value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise ValueError("it is not a number")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError("it is not a number") from None


def _text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError("it is not a text")
    if "\0" in value:
        raise ValueError("it contains a zero character; the role bytes takes any")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise ValueError("it contains surrogates, which UTF-8 has none of; the role bytes takes any") from None


def _json(value: Any) -> bytes:
    try:
        return json.dumps(value, allow_nan=False, default=_plain).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(f"JSON cannot hold it: {error}") from None


def _plain(value: Any) -> Any:
    """Converts arrays and scalars of NumPy for json.dumps()."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} is not a number, text, list or dictionary")


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        raise ValueError("it is a text; the role text takes it")
    try:
        return memoryview(value).tobytes()
    except TypeError:
        raise ValueError("it is not bytes") from None


_CONVERSIONS: Dict[str, Callable[[Any], bytes]] = {"text": _text, "bytes": _bytes, "json": _json}


class _Encoders:
    """Encodes samples, with an encoder for each thread. Holds no Writer, so that an abandoned one ends at once and in its own thread."""

    def __init__(self, new: Callable[[], Any]) -> None:
        self._new, self._local = new, threading.local()

    def __call__(self, prepared: _Prepared) -> Any:
        if not hasattr(self._local, "encoder"):
            self._local.encoder = self._new()
        in_statistics = prepared.number < _HEAD or prepared.number % _STRIDE == 0
        return self._local.encoder.encode(prepared.data, *prepared.shape, in_statistics)


class Writer:
    """Writes a dataset: nothing appears at the path before finish(), and an exception within `with` leaves nothing.

    with loaderd.Writer("train.pimg", "image: image u8[h,w,3]\\nlabel: class i32\\ncaption: text", classes=["cat", "dog"]) as writer:
        writer.add({"image": jpeg, "label": "dog", "caption": "a dog"})

    schema has a line for each value, or is a dictionary of them; label (class i32) and key (a sample's name) are implied, and samples may
    lack them. An image is the bytes of a file of any kind that packimg reads, a pathlib.Path of one, a uint8 array of height x width x 3
    (or 1), or a PIL image. JPEGs are stored as they are; other images as pixels compressed by zstd, or as non_jpeg says: "jpeg" (of the
    quality given), "raw" or "zstd". A label is a number, or one of the names in classes; None means that there is none.

    Samples are encoded by `jobs` threads (0: all CPUs), so an image that cannot be read raises BadSample in a later call, with the
    sample's number; on_error="skip" leaves such samples out, counts them and keeps (number, key, reason) in `skipped`. The file depends on
    samples and options only, not on jobs. shard_size begins a new file after that many bytes.
    """

    def __init__(
        self,
        path: Union[str, "os.PathLike[str]"],
        schema: Text = "image: image u8[h,w,3]",
        shard_size: int = 0,
        jobs: int = 0,
        *,
        classes: Optional[Sequence[str]] = None,
        non_jpeg: str = "zstd",
        quality: int = 95,
        on_error: str = "raise",
        overwrite: bool = False,
    ) -> None:
        self._writer: Optional[Any] = None  # first, for __del__
        self.path = os.fspath(path)
        self.schema = tuple(parse(schema))
        self.skipped: List[Tuple[int, str, str]] = []
        codec = _checks.choice("non_jpeg", non_jpeg, _CODECS)
        self._skip = bool(_checks.choice("on_error", on_error, {"raise": 0, "skip": 1}))
        self._jobs = _checks.number("jobs", jobs) or len(os.sched_getaffinity(0))
        self._classes = None if classes is None else [_checks.text("classes", name) for name in classes]
        self._numbers = {name: number for number, name in enumerate(self._classes or ())}
        self._check_options(_checks.number("quality", quality), _checks.number("shard_size", shard_size, 64), overwrite)
        self._packimg = packimg = _extension()
        self._names = {value.name for value in self.schema}
        self._label = next((value for value in self.schema if value.role == "class" and value.element == "i32"), None)
        self._largest_label = -1
        self._next = 0  # number of the next sample
        self._encoders = _Encoders(lambda: packimg.Encoder(quality, codec))
        self._threads = ThreadPoolExecutor(self._jobs, "loaderd-writer")
        self._pending: Deque[Tuple[_Prepared, "Future[Any]"]] = deque()
        self._pending_bytes = 0
        self._writer = self._call(lambda: self._packimg.Writer(os.fsencode(self.path), shard_size))
        self._fields = {value.name: self._declare(value) for value in self.schema if value is not self._label and value.role not in ("image", "key")}

    def _check_options(self, quality: int, shard_size: int, overwrite: bool) -> None:
        if not self.path.endswith(".pimg"):
            raise BadOption(f"path: {self.path!r}: the name of a dataset ends in .pimg", 22)
        if not 1 <= quality <= 100:
            raise BadOption(f"quality: {quality} is not in 1 .. 100", 22)
        if shard_size and shard_size < _SHARD_MIN:
            raise BadOption(f"shard_size: {shard_size} is less than {_SHARD_MIN} bytes", 22)
        if len(self._numbers) < len(self._classes or ()):
            twice = next(name for name in self._numbers if (self._classes or []).count(name) > 1)
            raise BadOption(f"classes: {twice!r} is listed twice", 22)
        stem = os.path.basename(self.path)[: -len(".pimg")]
        folder = os.path.dirname(self.path) or "."
        there = [name for name in (os.listdir(folder) if os.path.isdir(folder) else ()) if name == f"{stem}.pimg" or name.startswith(f"{stem}-00000-of-")]
        if there and not overwrite:
            raise BadOption(f"path: {os.path.join(folder, there[0])!r} exists; overwrite=True replaces it when the new dataset is complete", 17)

    def _call(self, function: Callable[[], Any]) -> Any:
        """Calls libpackimg; an error ends the writer."""
        try:
            return function()
        except self._packimg.Error as error:
            code, text = error.args
            self.abort()
            raise WriteFailed(text, code) from None

    def _declare(self, value: Value) -> int:
        kind = _FIELD_TYPES.get(value.role) or (_FLOAT64 if value.is_real else _INT64)
        return int(self._call(lambda: self._open().field(value.name, kind)))

    def _open(self) -> Any:
        if self._writer is None:
            raise WriteFailed(f"{self.path}: the writer is closed", 22)
        return self._writer

    def __enter__(self) -> "Writer":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Any, traceback: Any) -> None:
        if kind is None:
            self.finish()
        else:
            self.abort()

    def __del__(self) -> None:
        if self._writer is not None:
            self.abort()

    def __len__(self) -> int:
        """Samples added, without those that were skipped."""
        return self._next - len(self.skipped)

    def _bad(self, sample: int, field: str, value: Any, why: str) -> BadSample:
        error = BadSample(f"{self.path}: sample {sample}: {field}: {_shown(value)}: {why}", 22)
        error.sample, error.field = sample, field
        return error

    def _label_of(self, value: Any) -> int:
        if _is_missing(value):
            return -1
        if not isinstance(value, str):
            return _integer(value, (-1, len(self._classes) if self._classes is not None else 1 << 24))
        if self._classes is None:
            raise ValueError("it is a name; classes=[...] gives the names of the classes in the order of their numbers")
        if value not in self._numbers:
            near = get_close_matches(value, self._numbers, 1)
            raise ValueError("it is not one of classes" + (f"; did you mean {near[0]!r}?" if near else ""))
        return self._numbers[value]

    def _check_names(self, sample: Mapping[str, Any]) -> None:
        if not isinstance(sample, Mapping):
            raise self._bad(self._next, "sample", sample, "it is not a dictionary of " + ", ".join(sorted(self._names)))
        for name in sample:
            if name not in self._names:
                near = get_close_matches(str(name), self._names, 1)
                raise self._bad(self._next, str(name), sample[name], "the schema has no such value" + (f"; did you mean {near[0]}?" if near else ""))
        for value in self.schema:
            if not value.sparse and value.name not in sample:
                raise self._bad(self._next, value.name, None, "the sample lacks it; 'sparse' in the schema allows that")

    def _convert(self, value: Value, given: Any) -> Union[int, float, bytes]:
        if value.role in _CONVERSIONS:
            return _CONVERSIONS[value.role](given)
        return _real(given) if value.is_real else _integer(given, value.bounds)

    def _prepare(self, sample: Mapping[str, Any]) -> _Prepared:
        self._check_names(sample)
        data, shape, label, source, values = b"", (0, 0, 0), -1, b"", []
        for value in self.schema:
            given = sample.get(value.name)
            try:
                if value.role == "image":
                    data, shape = _image(given)
                elif value is self._label:
                    label = self._label_of(given)
                elif given is None and value.sparse:
                    continue
                elif given is None:
                    raise ValueError("it is missing; 'sparse' in the schema allows that")
                elif value.role == "key":
                    source = _text(given)
                else:
                    values.append((self._fields[value.name], self._convert(value, given)))
            except ValueError as error:
                raise self._bad(self._next, value.name, given, str(error)) from None
        return _Prepared(self._next, data, shape, label, source, values)

    def _write_first(self) -> None:
        """Writes the sample that was added first of those that wait."""
        prepared, future = self._pending.popleft()
        self._pending_bytes -= len(prepared.data)
        try:
            encoded = future.result()
        except self._packimg.Error as error:
            reason = error.args[1]
            if self._skip:
                self.skipped.append((prepared.number, prepared.source.decode(), reason))
                return
            self.abort()
            raise self._bad(prepared.number, self._image_name(), prepared.data[:16], reason) from None
        self._largest_label = max(self._largest_label, prepared.label)
        self._call(lambda: self._open().add(encoded, prepared.label, prepared.source, prepared.values))

    def _image_name(self) -> str:
        return next(value.name for value in self.schema if value.role == "image")

    def _key_name(self) -> str:
        return next((value.name for value in self.schema if value.role == "key"), "")

    def _drain(self) -> None:
        while self._pending:
            self._write_first()

    def add(self, sample: Mapping[str, Any]) -> None:
        """Adds a sample: {name: value}. Raises BadSample, which names the sample, the value and what to do; then nothing was added."""
        self._open()
        try:
            prepared = self._prepare(sample)
        except OSError as error:  # of the image's file
            if not self._skip:
                raise self._bad(self._next, self._image_name(), sample[self._image_name()], str(error)) from None
            self.skipped.append((self._next, str(sample.get(self._key_name()) or ""), str(error)))
            self._next += 1
            return
        self._next += 1
        self._pending.append((prepared, self._threads.submit(self._encoders, prepared)))
        self._pending_bytes += len(prepared.data)
        while self._pending and (len(self._pending) > 4 * self._jobs or self._pending_bytes > _BYTES_HELD or self._pending[0][1].done()):
            self._write_first()

    def copy(self, dataset: Any, map: Optional[Callable[[Any], Mapping[str, Any]]] = None, workers: Optional[int] = None) -> int:
        """Adds the samples of a map-style dataset or an iterable, in their order; returns their number.

        map turns an item into a sample, {name: value}. It runs in worker processes (None: one for each CPU, 0: none), in which a
        map-style dataset is read, too; an iterable is read in this process.
        """
        count = 0
        for sample in self._samples(dataset, map, len(os.sched_getaffinity(0)) if workers is None else _checks.number("workers", workers)):
            self.add(sample)
            count += 1
        return count

    def _samples(self, dataset: Any, function: Optional[Callable[[Any], Any]], workers: int) -> Iterator[Any]:
        indexed = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
        items: Iterable[Any] = range(len(dataset)) if indexed else dataset
        work = _Work(dataset if indexed else None, function)
        self._drain()  # no thread works while processes fork
        samples = ordered_map(work, items, workers, 2 if indexed else 1) if workers and (indexed or function) else map(work, items)
        while True:
            try:
                sample = next(samples)
            except StopIteration:
                return
            except WorkerEnded as error:
                raise WriteFailed(
                    f"{self.path}: sample {self._next}: a worker process ended (exit status {error.args[0]}), perhaps for lack of memory; workers=0 uses none"
                ) from None
            except Exception as error:
                bad = BadSample(f"{self.path}: sample {self._next}: reading or mapping it raised {type(error).__name__}: {error}", 22)
                bad.sample = self._next
                raise bad from error
            yield sample

    def finish(self) -> None:
        """Writes what waits and renames the dataset to its name; until then nothing is there."""
        self._drain()
        self.skipped.sort()
        classes = self._classes
        if classes is None and self._largest_label >= 0:
            classes = [str(number) for number in range(self._largest_label + 1)]
        self._call(lambda: self._open().finish(classes, f"loaderd.Writer {_feed.version}"))
        self.abort()  # frees what is left

    def abort(self) -> None:
        """Ends the writer; unless it has finished, leaves nothing behind. May be called twice."""
        writer, self._writer = self._writer, None
        for _, future in self._pending:
            future.cancel()
        self._threads.shutdown(wait=True)
        self._pending.clear()
        if writer is not None:
            writer.close()


class _Work:
    """What a worker process does with an item."""

    def __init__(self, dataset: Any, function: Optional[Callable[[Any], Any]]) -> None:
        self._dataset, self._function = dataset, function

    def __call__(self, item: Any) -> Any:
        if self._dataset is not None:
            item = self._dataset[item]
        return item if self._function is None else self._function(item)


def _extension() -> Any:
    try:
        from . import _packimg
    except ImportError as error:
        raise ImportError(f"loaderd.Writer needs packimg's encoder, which this build lacks ({error}); the wheel and Debian's packages have it") from None
    return _packimg
