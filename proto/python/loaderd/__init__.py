"""Batches of images from loaderd, through shared memory.

    from loaderd import Feed

    feed = Feed("train.pimg", pipeline="random_resized_crop(224) hflip(0.5)", batch_size=256, shuffle=True)
    for epoch in range(90):
        for batch in feed:                       # one epoch
            images, labels = batch.torch()       # uint8, channels_last, no copy
            ...
        torch.save({"feed": feed.state_dict(), ...}, "last.pt")

See Feed for the options, Batch for what comes out, FeedError for what can go wrong.
"""

import logging
import os
import threading
import time
import warnings
from collections import deque
from dataclasses import dataclass
from typing import Any, Deque, Dict, Iterator, Mapping, NamedTuple, NoReturn, Optional, Sequence, Tuple, TypedDict, Union
from uuid import UUID

from . import _feed
from ._batch import DEFERRED, FIELD_CUT, FIELD_MISSING, KEY, SUBSTITUTED, Batch, LabelWarning, Tensors
from ._checks import choice as _choice
from ._checks import flag, milliseconds, refuse_unknown, text
from ._checks import number as _number
from ._daemon import Daemon, Settings, choose
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
    translated,
)
from ._place import NO_DATALOADER, Number, RankWarning, place, resolve

__all__ = [
    "BadOption", "BadPipeline", "Batch", "Daemon", "DaemonGone", "Dataset", "DatasetReplaced", "DEFERRED", "FIELD_CUT",
    "FIELD_MISSING", "Feed", "Field", "FeedError", "FeedFailed", "FeedTimeout", "KEY", "LabelWarning", "LimitExceeded", "NoDaemon", "NoDataset", "NoFreeBatch",
    "NotPermitted", "ProtocolError", "RankWarning", "SUBSTITUTED", "Tensors", "WrongProcess", "dataset",
]

__version__ = _feed.version

_logger = logging.getLogger("loaderd")

_LAST = {"drop": 0, "short": 1}
_BAD = {"substitute": 0, "skip": 1, "fail": 2}
_FIELD_TYPES = ("unknown", "int64", "float64", "bytes", "json", "text")
_OPEN_TIMEOUT_MS = 0  # libfeed's
_RELEASE_POLL_S = 0.001  # between two looks for a batch that another thread gave back
_DYING_S = 1.0  # a process closes its sockets some time before it is gone


class Field(NamedTuple):
    """An extra field that a feed may be asked for."""

    type: str  # "int64", "float64", "text", "json", "bytes"; "unknown" when the daemon is too old to say
    longest: Optional[int]  # bytes of its longest value; None for numbers, and where the file does not record it


@dataclass(frozen=True)
class Dataset:
    """Facts about a dataset. mean and std are R, G, B in 0..255, None where not recorded."""

    samples: int
    classes: Sequence[str]
    mean: Optional[Tuple[float, float, float]]
    std: Optional[Tuple[float, float, float]]
    metadata: str
    uuid: Optional[str]  # stands for its content; None when the daemon is too old to say
    fields: Mapping[str, Field]


def dataset(
    path: Union[str, "os.PathLike[str]"],
    *,
    socket: Optional[str] = None,
    daemon: str = "auto",
    threads: int = 0,
    settings: Optional[Settings] = None,
) -> Dataset:
    """Asks a daemon, chosen as for Feed, about a dataset."""
    address, _ = choose(socket, daemon, threads, settings)
    try:
        samples, classes, mean, std, metadata, uuid, fields = _feed.dataset(address, os.fsencode(path))
    except _feed.Error as error:
        raise translated(error) from None
    described = {name: Field(_FIELD_TYPES[kind], longest if kind >= 3 else None) for name, kind, longest in fields}
    return Dataset(samples, classes, mean, std, metadata, _uuid_text(uuid), described)


def _uuid_text(uuid: bytes) -> Optional[str]:
    return str(UUID(bytes=uuid)) if any(uuid) else None


def _reconnect_timeout_ms(reconnect: Union[bool, float, None]) -> int:
    if isinstance(reconnect, bool):
        return 0
    if reconnect is None:
        return (1 << 32) - 1
    if isinstance(reconnect, str):
        raise TypeError(f"reconnect: {reconnect!r} is neither True, False, None nor a number of seconds")
    if not 0 < reconnect <= 1 << 22:
        raise BadOption(f"reconnect: {reconnect!r} is neither True, False, None nor a number of seconds above 0", 22)
    return max(1, round(reconnect * 1000))


class _Options(TypedDict):
    """A feed's, as _feed.Stream takes them, without the position."""

    dataset: bytes
    pipeline: str
    name: str
    batch_size: int
    shuffle: bool
    seed: int
    epoch_end: int
    rank: int
    world: int
    last: int
    bad: int
    slots: int
    fields: Tuple[str, ...]
    field_bytes: int
    writable: bool
    reconnect: bool
    reconnect_timeout_ms: int
    cut_values: bool
    repeats: int


class _Epoch:
    """Batches of a feed up to the end of an epoch."""

    def __init__(self, feed: "Feed") -> None:
        self._feed = feed
        self._number = feed._iterators
        self._over = False

    def __iter__(self) -> "_Epoch":
        return self

    def __next__(self) -> Batch:
        if self._over:
            raise StopIteration
        if self._feed._iterators != self._number:
            raise FeedError(
                "this iterator is older than another one of the same feed, or than its load_state_dict(), and the feed has one "
                "position: go on with the newer one, make one with iter(feed), or open a feed for each", 22,
            )  # fmt: skip
        batch = self._feed.next()
        self._over = batch is None or batch.last
        if batch is None:
            raise StopIteration
        return batch


class Feed:
    """One subscription to a dataset: batches to iterate over.

    A `for` loop over a Feed gives the batches up to the end of the epoch; the next loop gives the next epoch. A loop that was
    left early is continued by the next one, as the position is the feed's; one that was left at the epoch's last batch is
    followed by the next epoch. `epoch_end` ends the feed for good.

    dataset      path of a .pimg file or set of shards
    pipeline     what is done to each image, see loaderd(1); "" delivers stored pixels of equal size
    batch_size   samples per batch of this rank
    shuffle      a new order each epoch, drawn from seed; else the stored order
    seed         with (epoch, sample) it determines order, crops and augmentation, on any machine and number of threads
    epoch, batch position to start at
    epoch_end    the feed ends before this epoch; None: never
    rank, world  this process's part of each epoch. "auto": as torch.distributed or jax.distributed say once they are initialized,
                 else as torchrun, mpirun or srun do, else 0 of 1; each worker of a DataLoader has a part of that. None: as "auto",
                 with a RankWarning where this is one process of several
    last         "drop" or "short": what becomes of a last batch that is not full
    repeats      so often each sample is in its batch, every time augmented anew; batch_size times world is a multiple
    bad          "substitute", "skip" or "fail": what becomes of samples that cannot be decoded
    slots        batches of shared memory; 0: the daemon chooses
    fields       names of extra fields to deliver, see Batch.field and dataset(); KEY: the names of the files that samples were made from;
                 DEFERRED: what of the pipeline's end is left to the client, whose images come without it
    field_bytes  room per text, bytes or JSON value; 0: as much as the longest takes, or 256 where the file is too old to say
    cut_values   longer values come cut, with the flag FIELD_CUT; else they are an error, here where the file tells, or at the first
    name         shown by `loaderctl status`
    writable     what is written to a batch goes to the shared memory itself rather than to this process's own pages, for GPUs
                 that can register no other; the daemon may refuse. See pin()
    timeout      seconds to wait for a batch; None: for ever
    reconnect    what to do when the daemon goes away: wait for the next one, up to this number of seconds (True: 60, None: for
                 ever), and go on with the very next batch, which the logger "loaderd" tells in one line; or, False, raise
                 DaemonGone at once
    socket       of the daemon; "@name" for an abstract one
    daemon       "auto": socket, else $LOADERD_SOCKET, else the user's own service or the system's if it answers within ten
                 seconds, else a private daemon that this process's feeds share and that ends with it; the logger "loaderd" warns
                 where there is a service that does not answer. "system": never a private one. "private": always
    threads      of a private daemon that is started for this feed; 0: all CPUs, divided by the number of ranks on this machine
    settings     of a private daemon (daemon="private"), see Daemon: feeds of the same settings share one

    A batch with a sample without a label, of a dataset with classes, brings one LabelWarning for each feed.

    A feed serves one thread at a time, but batches may be used and dropped in any thread. It does not survive a fork: open it in
    the process that reads from it.
    """

    def __init__(
        self,
        dataset: Union[str, "os.PathLike[str]"],
        *,
        pipeline: str = "",
        batch_size: int = 256,
        shuffle: bool = False,
        seed: int = 0,
        epoch: int = 0,
        batch: int = 0,
        epoch_end: Optional[int] = None,
        rank: Number = None,
        world: Number = None,
        last: str = "drop",
        repeats: int = 1,
        bad: str = "substitute",
        slots: int = 0,
        fields: Sequence[str] = (),
        field_bytes: int = 0,
        cut_values: bool = False,
        name: str = "",
        writable: bool = False,
        timeout: Optional[float] = None,
        reconnect: Union[bool, float, None] = True,
        socket: Optional[str] = None,
        daemon: str = "auto",
        threads: int = 0,
        settings: Optional[Settings] = None,
        **unknown: NoReturn,
    ) -> None:
        if unknown:
            refuse_unknown(unknown, Feed.__init__.__kwdefaults__ or ())
        if isinstance(fields, str):
            raise BadOption("fields: a list of names is wanted, not one string", 22)
        if batch_size == 0:
            raise BadOption("batch_size: 0 samples make no batch", 22)
        self._fields = tuple(fields)
        self._empty = epoch_end is not None and epoch_end == 0  # for the daemon 0 is never
        self._timeout_ms = milliseconds("timeout", timeout)
        rank, world, warning = resolve(rank, world)
        if warning:
            warnings.warn(warning, RankWarning, stacklevel=2)
        self._options: _Options = {
            "dataset": os.fsencode(dataset),
            "pipeline": text("pipeline", pipeline),
            "name": text("name", name),
            "batch_size": _number("batch_size", batch_size, 32),
            "shuffle": flag("shuffle", shuffle),
            "seed": _number("seed", seed, 64),
            "epoch_end": 0 if epoch_end is None else _number("epoch_end", epoch_end, 64),
            "rank": _number("rank", rank, 32),
            "world": _number("world", world, 32),
            "last": _choice("last", last, _LAST),
            "repeats": _number("repeats", repeats, 32),
            "bad": _choice("bad", bad, _BAD),
            "slots": _number("slots", slots, 32),
            "fields": self._fields,
            "field_bytes": _number("field_bytes", field_bytes, 32),
            "cut_values": flag("cut_values", cut_values),
            "writable": flag("writable", writable),
            "reconnect": reconnect is not False,
            "reconnect_timeout_ms": _reconnect_timeout_ms(reconnect),
        }
        epoch, batch = _number("epoch", epoch, 64), _number("batch", batch, 64)
        self._address, self._daemon = choose(socket, daemon, threads, settings)
        self._in_flight: Deque[Tuple[Any, _feed.Slot]] = deque()
        self._pinned: Optional[int] = None
        self._iterators = 0  # made so far
        self._warned = False  # of a sample without a label
        self._open(epoch, batch)

    def _open(self, epoch: int, batch: int) -> None:
        self._closed = False
        self._iterators += 1  # none that there is goes on
        try:
            self._stream = _feed.Stream(
                socket=self._address, epoch=epoch, batch=batch, timeout_ms=_OPEN_TIMEOUT_MS, **self._options
            )
        except _feed.Error as error:
            failure = translated(error)
            if isinstance(failure, (DaemonGone, NoDaemon)):
                failure = translated(error, self._last_words())
            raise failure from None
        self._info = self._stream.info()

    def _last_words(self) -> str:
        """Of a private daemon that has died, what it said last."""
        if self._daemon is None:
            return ""
        until = time.monotonic() + _DYING_S
        while self._daemon.alive:
            if time.monotonic() >= until:
                return ""
            time.sleep(_RELEASE_POLL_S)
        lines = self._daemon.log.strip().splitlines()
        return f" It said last: {lines[-1]}" if lines else ""

    def __iter__(self) -> Iterator[Batch]:
        """The rest of the epoch at whose batch the feed is: the whole next one, once an epoch's last batch was taken, by whatever loop.

        A feed has one position. An iterator that is not the latest, or older than load_state_dict(), raises FeedError.
        """
        self._iterators += 1
        return _Epoch(self)

    def __next__(self) -> Batch:
        """As next(); StopIteration at the feed's end."""
        batch = self.next()
        if batch is None:
            raise StopIteration
        return batch

    def next(self, timeout: Optional[float] = None) -> Optional[Batch]:
        """The next batch across the ends of epochs, None at the feed's end. timeout in seconds; None: the feed's."""
        if self._closed:
            raise DaemonGone("this feed was closed", 107)
        if self._empty:
            return None
        timeout_ms = self._timeout_ms if timeout is None else milliseconds("timeout", timeout)
        self._drop_finished()
        try:
            slot = self._stream.next(timeout_ms)
        except _feed.Error as error:
            failure = translated(error)
            if isinstance(failure, DaemonGone):
                raise translated(error, self._last_words()) from None
            if isinstance(failure, WrongProcess) and place().workers > 0:
                raise translated(error, f" {NO_DATALOADER}") from None
            if not isinstance(failure, NoFreeBatch):
                raise failure from None
            slot = self._next_after_release(timeout_ms, failure)
        if slot is None:
            return None
        batch = Batch(slot, self._fields, self)
        if not self._warned and self.classes:
            self._warned = batch.warn_of_missing_labels(self._path)
        if batch.reconnects != self._info["reconnects"]:
            self._note_reconnect()
        return batch

    def _note_reconnect(self) -> None:
        """The memory is another one: what CUDA knew of the old one ends, and the old one with it."""
        _logger.warning("%s", self._stream.reconnect_text())
        self._info = self._stream.info()
        if self._pinned is not None:
            self._unpin()
            self.pin()

    def _next_after_release(self, timeout_ms: int, failure: NoFreeBatch) -> "Optional[_feed.Slot]":
        """Every batch is held: by copies under way, by garbage, or by other threads, which will give one back."""
        import gc

        if self._in_flight:
            self._in_flight[0][0].synchronize()
            self._drop_finished()
        else:
            gc.collect()
        until = None if timeout_ms < 0 else time.monotonic() + timeout_ms / 1000
        while True:
            try:
                return self._stream.next(timeout_ms)
            except _feed.Error as error:
                again = translated(error)
                if not isinstance(again, NoFreeBatch):
                    raise again from None
            if threading.active_count() == 1:
                raise failure
            if until is not None and time.monotonic() >= until:
                raise failure
            time.sleep(_RELEASE_POLL_S)

    def _keep_until(self, done: Any, slot: "_feed.Slot") -> None:
        self._in_flight.append((done, slot))

    def _drop_finished(self) -> None:
        while self._in_flight and self._in_flight[0][0].query():
            self._in_flight.popleft()

    def __len__(self) -> int:
        """Batches per epoch of this rank."""
        return self._info["batches_per_epoch"]

    @property
    def samples(self) -> int:
        """Samples in the dataset."""
        return self._info["samples"]

    @property
    def uuid(self) -> Optional[str]:
        """Stands for the dataset's content, as `packimg info` shows it; None when the daemon is too old to say."""
        return _uuid_text(self._info["uuid"])

    @property
    def classes(self) -> int:
        """Classes of the dataset; their names are in dataset()."""
        return self._info["classes"]

    @property
    def slots(self) -> int:
        """Batches that may be held at a time, including those on their way."""
        return self._info["slots"]

    @property
    def socket(self) -> Optional[str]:
        """Of the daemon in use."""
        return self._address

    @property
    def daemon(self) -> Optional[Daemon]:
        """The private daemon in use, None when it is not one of ours."""
        return self._daemon

    @property
    def reconnects(self) -> int:
        """Times that the feed was opened again because its daemon went away."""
        return self._info["reconnects"]

    @property
    def position(self) -> Tuple[int, int]:
        """(epoch, batch) of the batch that comes next."""
        return self._stream.position()

    def fileno(self) -> int:
        """For event loops: readable when next(timeout=0) is worth another try after FeedTimeout."""
        return self._stream.fileno()

    def state_dict(self) -> Dict[str, Any]:
        """The position after the last batch handed out, and what it depends on."""
        epoch, batch = self.position
        kept = ("pipeline", "batch_size", "shuffle", "seed", "world", "last", "repeats")
        options: Mapping[str, Any] = self._options
        return {"epoch": epoch, "batch": batch, "uuid": self.uuid, "dataset": self._path, **{key: options[key] for key in kept}}

    @property
    def _path(self) -> str:
        return os.fsdecode(self._options["dataset"])

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Goes on exactly where a feed's state_dict() was taken, also with another batch size or number of ranks.

        Order and augmentation depend on shuffle, seed and repeats, so these must be the same; so must the dataset, wherever it lies. With
        strict=False it may be another, whose batches are others then.
        """
        if strict:
            self._check_dataset(state)
        given = {"repeats": 1, **state}  # which states of older versions have not
        for key, own in (("shuffle", self._options["shuffle"]), ("seed", self._options["seed"]), ("repeats", self._options["repeats"])):
            if given[key] != own:
                raise BadOption(
                    f"{key}: the state was saved with {given[key]!r}, this feed has {own!r}, and would "
                    "give other batches", 22,
                )
        done = state["batch"] * state["batch_size"] * max(1, state["world"])
        step = self._options["batch_size"] * max(1, self._options["world"])
        if done % step != 0:
            raise BadOption(
                f"batch_size: the state was saved after {done} samples of the epoch, which is no whole number of steps "
                f"of {step} samples (batch_size times world)", 22,
            )
        self.close()
        self._open(state["epoch"], done // step)
        if strict:
            self._check_dataset(state)  # the file may have been replaced since this feed was opened

    def _check_dataset(self, state: Mapping[str, Any]) -> None:
        """Passes when either side does not say what its dataset is."""
        saved = state.get("uuid")
        if None not in (saved, self.uuid) and saved != self.uuid:
            raise BadOption(
                f"dataset: the state was saved with {state['dataset']}, {saved}; this feed reads {self._path}, "
                f"{self.uuid}, and would give other batches. strict=False goes on all the same", 22,
            )

    def pin(self) -> None:
        """Registers the feed's memory with CUDA, so that Batch.to("cuda") copies by DMA.

        With writable=True so does .to(..., non_blocking=True) of tensors from Batch.torch().
        """
        import torch

        if self._pinned is not None:
            return
        flags = 0 if self._options["writable"] else 8  # cudaHostRegisterReadOnly
        address = self._info["address"]
        self._stream.keep(address)
        status = torch.cuda.cudart().cudaHostRegister(address, self._info["bytes"], flags)
        if int(status) != 0:
            self._stream.drop(address)
            remedy = "" if self._options["writable"] else "; writable=True may help"
            raise FeedError(f"CUDA cannot register the feed's memory: {status}{remedy}")
        self._pinned = address

    def _unpin(self) -> None:
        import torch

        assert self._pinned is not None
        while self._in_flight:
            self._in_flight.popleft()[0].synchronize()
        torch.cuda.cudart().cudaHostUnregister(self._pinned)
        self._stream.drop(self._pinned)
        self._pinned = None

    def close(self) -> None:
        """Hangs up: the daemon frees its side at once. Batches, arrays and tensors at hand stay valid."""
        if self._closed:
            return
        self._closed = True
        while self._in_flight:
            self._in_flight.popleft()[0].synchronize()
        if self._pinned is not None:
            self._unpin()
        self._stream.close()

    def __enter__(self) -> "Feed":
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError(f"a Feed cannot be pickled; open it in the process that reads from it. {NO_DATALOADER}")

    def __repr__(self) -> str:
        closed = ", closed" if self._closed else ""
        return f"<loaderd.Feed {self._path} at {self._address}, position {self.position}{closed}>"


for _name in __all__:  # where users know them from
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = __name__
