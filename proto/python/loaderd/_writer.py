"""Writes datasets from Python: checks each sample, encodes it in threads as packimg convert does, and writes it in order."""

import os
import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from difflib import get_close_matches
from math import isnan
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type, Union

from . import _checks, _feed
from ._errors import BadOption, BadSample, WriteFailed
from ._pixels import Pixels, prepare
from ._polygons import count_objects
from ._processes import WorkerEnded, ordered_map
from ._schema import IN_COLUMN, IN_LABEL, IN_NUMBER, IN_SOURCE, Stored, Text, Value, convert, integer, is_implied, key, largest_class, parse, states

_CODECS = {"jpeg": 1, "raw": 2, "zstd": 3}  # enum packimg_codec
_BYTES_HELD = 256 << 20  # limit on the bytes of samples that wait to be written
_HEAD = 64  # statistics use the first _HEAD samples and then one in _STRIDE
_STRIDE = 128
_SHARD_MIN = 1 << 16


class _Prepared(NamedTuple):
    """A checked sample whose images are not encoded yet."""

    number: int
    images: List[Pixels]  # the one of the index record first
    label: int
    source: bytes
    fields: List[Tuple[int, Stored]]
    largest_class: int

    @property
    def size(self) -> int:
        return sum(len(image.data) for image in self.images)


def _shown(value: Any) -> str:
    """Formats a value for a message; shortens long ones and arrays."""
    if isinstance(value, (bytes, bytearray, memoryview, str)):
        return repr(value[:40] if len(value) > 40 else value) + ("..." if len(value) > 40 else "")
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and isnan(value))


class _Fault(Exception):
    """A value of a sample that cannot be written."""

    def __init__(self, value: Value, given: Any, why: str) -> None:
        super().__init__(why)
        self.value, self.given, self.why = value, given, why


class _Encoders:
    """Encodes samples, with an encoder for each thread. Has no reference to the Writer, which is then freed at once and in its own thread."""

    def __init__(self, new: Callable[[], Any], error: Type[Exception]) -> None:
        self._new, self._error, self._local = new, error, threading.local()

    def __call__(self, prepared: _Prepared) -> List[Any]:
        if not hasattr(self._local, "encoder"):
            self._local.encoder = self._new()
        in_statistics = prepared.number < _HEAD or prepared.number % _STRIDE == 0
        return [self._encode(pixels, in_statistics) for pixels in prepared.images]

    def _encode(self, pixels: Pixels, in_statistics: bool) -> Any:
        try:
            return pixels.encode(self._local.encoder, in_statistics)
        except self._error as error:
            raise _Fault(pixels.value, pixels.data[:16], error.args[1]) from None


class Writer:
    """Writes a dataset: nothing appears at the path before finish(), and an exception within `with` leaves nothing.

    with loaderd.Writer("train.pimg", "image: image u8[h,w,3]\\nlabel: class i32\\ncaption: text", classes=["cat", "dog"]) as writer:
        writer.add({"image": jpeg, "label": "dog", "caption": "a dog"})

    schema has a line for each value, or is a dictionary of them: SPEC.md of the format describes it. label (class i32) and key (a sample's
    name) are implied, and samples may then lack them. An image u8[h,w,3] is the bytes of a file of any kind that packimg reads, a
    pathlib.Path of one, a uint8 array of height x width x 3 (or 1), or a PIL image. JPEGs are stored as they are; others as pixels
    compressed by zstd, unless non_jpeg selects "jpeg" (with the given quality), "raw" or "zstd". Masks, rasters and other images are
    arrays of their element, PIL images, or files that PIL reads, with the size of the image in their brackets, upright. If an image has
    an EXIF orientation, annotations="upright" confirms that its masks, boxes and points refer to the upright image. Other values are
    numbers, nested lists or arrays. A class is a number, or one of the names in classes; a label may be None.

    Samples are encoded by `jobs` threads (0: all CPUs), so an image that cannot be read may raise BadSample in a later call, with the
    sample's number; on_error="skip" leaves out samples with an image, a mask or a raster that cannot be read or is of a wrong shape or
    element, counts them and keeps (number, key, reason) in `skipped`. The file depends on
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
        annotations: Optional[str] = None,
        overwrite: bool = False,
    ) -> None:
        self._writer: Optional[Any] = None  # first, for __del__
        self.path = os.fspath(path)
        self.skipped: List[Tuple[int, str, str]] = []
        codec = _checks.choice("non_jpeg", non_jpeg, _CODECS)
        self._skip = bool(_checks.choice("on_error", on_error, {"raise": 0, "skip": 1}))
        self._upright = annotations is not None and _checks.choice("annotations", annotations, {"upright": 1}) == 1
        self._jobs = _checks.number("jobs", jobs) or len(os.sched_getaffinity(0))
        self._classes = None if classes is None else [_checks.text("classes", name) for name in classes]
        self._numbers = {name: number for number, name in enumerate(self._classes or ())}
        self._check_options(_checks.number("quality", quality), _checks.number("shard_size", shard_size, 64), overwrite)
        self._packimg = packimg = _extension()
        values, self.schema = parse(schema, packimg)
        self._values = [value for value in values if value.store != IN_NUMBER]
        self._names = {value.name: value for value in self._values}
        # label and key may be missing unless the schema given states them
        self._optional = {value.name for value in self._values if value.sparse or (value.store in (IN_LABEL, IN_SOURCE) and not states(schema, value.name))}
        self._all_values = values  # indexed by value.of
        self._largest_class = -1
        self._next = 0  # number of the next sample
        self._encoders = _Encoders(lambda: packimg.Encoder(quality, codec), packimg.Error)
        self._threads = ThreadPoolExecutor(self._jobs, "loaderd-writer")
        self._pending: Deque[Tuple[_Prepared, "Future[Any]"]] = deque()
        self._pending_bytes = 0
        self._writer = self._call(lambda: self._packimg.Writer(os.fsencode(self.path), shard_size))
        if not is_implied(values):
            self._call(lambda: self._open().schema(self.schema))

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

    def _class_number(self, value: Any) -> int:
        """Returns the number of a class by its name."""
        if self._classes is None:
            raise ValueError("it is a name; classes=[...] gives the names of the classes in the order of their numbers")
        if value not in self._numbers:
            near = get_close_matches(value, self._numbers, 1)
            raise ValueError(f"{value!r} is not one of classes" + (f"; did you mean {near[0]!r}?" if near else ""))
        return self._numbers[value]

    def _named_classes(self, given: Any) -> Any:
        """Replaces names of classes by their numbers, in lists too."""
        if isinstance(given, str):
            return self._class_number(given)
        if getattr(getattr(given, "dtype", None), "kind", "") in ("U", "O"):
            given = given.tolist()  # a NumPy array that may hold names
        return [self._named_classes(item) for item in given] if isinstance(given, (list, tuple)) else given

    def _check_names(self, sample: Mapping[str, Any]) -> None:
        if not isinstance(sample, Mapping):
            raise self._bad(self._next, "sample", sample, "it is not a dictionary of " + ", ".join(sorted(self._names)))
        for name in sample:
            if name not in self._names:
                near = get_close_matches(str(name), self._names, 1)
                raise self._bad(self._next, str(name), sample[name], "the schema has no such value" + (f"; did you mean {near[0]}?" if near else ""))
        for value in self._values:
            if value.name not in sample and value.name not in self._optional:
                raise self._bad(self._next, value.name, None, "the sample lacks it; 'sparse' in the schema allows that")

    def _check_class(self, largest: int) -> None:
        if self._classes is not None and largest >= len(self._classes):
            raise ValueError(f"there is no class {largest} among {len(self._classes)}")

    def _prepare(self, sample: Mapping[str, Any]) -> _Prepared:
        self._check_names(sample)
        images: List[Pixels] = []
        fields: List[Tuple[int, Stored]] = []
        label, source, largest = -1, b"", -1
        rows: Dict[str, int] = {}
        for value in self._values:
            given = sample.get(value.name)
            try:
                if value.store == IN_LABEL:
                    label = -1 if _is_missing(given) else integer(self._named_classes(given), (-1, 1 << 24))
                    self._check_class(label)
                    largest = max(largest, label)
                elif given is None and (value.sparse or value.store == IN_SOURCE):
                    continue
                elif given is None:
                    raise ValueError("it is missing; 'sparse' in the schema allows that")
                elif value.has_pixels:
                    images.append(prepare(value, given))
                elif value.store == IN_SOURCE:
                    source = key(given)
                else:
                    stored = convert(value, self._named_classes(given) if value.role == "class" else given)
                    fields.append((value.number, stored))
                    highest = largest_class(value, stored)
                    self._check_class(highest)
                    largest = max(largest, highest)
                    rows[value.name] = self._count_rows(value, stored)
                    self._check_rows(value, rows)
            except (ValueError, OSError) as error:  # OSError: an image file cannot be read
                raise _Fault(value, given, str(error)) from None
        images.sort(key=lambda pixels: (pixels.value.store, pixels.value.number))
        return _Prepared(self._next, images, label, source, fields, largest)

    def _owner(self, value: Value) -> Optional[Value]:
        """The value to whose rows this value's rows belong."""
        other = self._all_values[value.of] if value.of >= 0 else None
        return None if other is None or other.has_pixels else other

    def _has_polygons_of_objects(self, value: Value) -> bool:
        return value.role == "polygons" and len(value.shape) == 2 and self._owner(value) is not None

    def _count_rows(self, value: Value, stored: Stored) -> int:
        if isinstance(stored, bytes) and self._has_polygons_of_objects(value):
            return count_objects(stored)
        return value.rows(stored)

    def _check_rows(self, value: Value, rows: Mapping[str, int]) -> None:
        """Checks that a value has as many rows as the value in its brackets; polygons of objects, as many objects."""
        other = self._owner(value)
        if other is None or rows[value.name] == rows.get(other.name, 0):
            return
        unit = "objects" if self._has_polygons_of_objects(value) else "rows"
        raise ValueError(f"it has {rows[value.name]} {unit}, but {other.name}, to whose rows they belong, has {rows.get(other.name, 0)}")

    def _skip_or_raise(self, prepared: _Prepared, name: str, given: Any, reason: str) -> None:
        if not self._skip:
            self.abort()
            raise self._bad(prepared.number, name, given, reason)
        self.skipped.append((prepared.number, os.fsdecode(prepared.source), reason))

    def _image_fault(self, prepared: _Prepared, encoded: Sequence[Any]) -> Optional[Tuple[str, str]]:
        """Returns the first image that does not fit its frame, and the reason; None if all fit."""
        shapes = {pixels.value.name: one.shape for pixels, one in zip(prepared.images, encoded)}
        stored = {number for number, _ in prepared.fields}
        for value in self._values:
            frame = self._all_values[value.of] if value.of >= 0 else None
            here = value.name in shapes if value.has_pixels else value.store == IN_COLUMN and value.number in stored
            if frame is None or not frame.has_pixels or not here:
                continue
            if frame.name not in shapes:
                return value.name, f"the sample lacks {frame.name}, whose pixels it refers to"
            width, height, orientation = shapes[frame.name]
            if value.has_pixels and shapes[value.name][:2] != (width, height):
                return value.name, f"it is {shapes[value.name][0]} x {shapes[value.name][1]}, but {frame.name} is {width} x {height}, upright"
            if orientation != 1 and not self._upright:
                return value.name, (
                    f"{frame.name} has the EXIF orientation {orientation}: set annotations='upright' if all values refer to the upright image; "
                    "PIL.ImageOps.exif_transpose() turns an image upright"
                )
        return None

    def _write_first(self) -> None:
        """Writes the oldest waiting sample."""
        prepared, future = self._pending.popleft()
        self._pending_bytes -= prepared.size
        try:
            encoded = future.result()
        except _Fault as error:
            self._skip_or_raise(prepared, error.value.name, error.given, error.why)
            return
        fault = self._image_fault(prepared, encoded)
        if fault:
            self._skip_or_raise(prepared, fault[0], None, fault[1])
            return
        self._largest_class = max(self._largest_class, prepared.largest_class)
        self._call(lambda: self._put(prepared, encoded))

    def _put(self, prepared: _Prepared, encoded: Sequence[Any]) -> None:
        writer = self._open()
        writer.add(encoded[0], prepared.label, prepared.source, prepared.fields)
        for pixels, one in zip(prepared.images[1:], encoded[1:]):
            writer.image(pixels.value.number, one)

    def _key_name(self) -> str:
        return next((value.name for value in self._values if value.store == IN_SOURCE), "")

    def _drain(self) -> None:
        while self._pending:
            self._write_first()

    def add(self, sample: Mapping[str, Any]) -> None:
        """Adds a sample: {name: value}. Raises BadSample, which names the sample, the value and what to do; then nothing was added."""
        self._open()
        try:
            prepared = self._prepare(sample)
        except _Fault as fault:
            if not self._skip or not fault.value.has_pixels or fault.given is None:
                raise self._bad(self._next, fault.value.name, fault.given, fault.why) from None
            self.skipped.append((self._next, str(sample.get(self._key_name()) or ""), fault.why))
            self._next += 1
            return
        self._next += 1
        self._pending.append((prepared, self._threads.submit(self._encoders, prepared)))
        self._pending_bytes += prepared.size
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
        self._drain()  # let threads finish before processes fork
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
        """Writes the waiting samples and commits the dataset: until then nothing exists at the path."""
        self._drain()
        self.skipped.sort()
        classes = self._classes
        if classes is None and self._largest_class >= 0:
            classes = [str(number) for number in range(self._largest_class + 1)]
        self._call(lambda: self._open().finish(classes, f"loaderd.Writer {_feed.version}"))
        self.abort()  # frees what is left

    def abort(self) -> None:
        """Ends the writer; without finish(), leaves no files. May be called twice."""
        writer, self._writer = self._writer, None
        for _, future in self._pending:
            future.cancel()
        self._threads.shutdown(wait=True)
        self._pending.clear()
        if writer is not None:
            writer.close()


class _Work:
    """Runs in a worker process: reads an item and applies the user's function to it."""

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
