"""Feed: the subscription to a dataset, and its iterators."""

import gc
import logging
import os
import threading
import time
import warnings
from collections import deque
from typing import Any, Deque, Dict, Iterator, Mapping, NoReturn, Optional, Sequence, Tuple, Union

from . import _feed
from ._batch import Batch
from ._checks import choice, flag, milliseconds, number, refuse_unknown, text
from ._daemon import Daemon, Settings, choose
from ._dataset import uuid_text
from ._errors import BadOption, DaemonGone, FeedError, NoDaemon, NoFreeBatch, WrongProcess, translated
from ._options import BAD, LAST, Options, reconnect_timeout_ms
from ._ranks import NO_DATALOADER, Number, RankWarning, rank_info, resolve

_logger = logging.getLogger("loaderd")

_OPEN_TIMEOUT_MS = 0  # libfeed's default
_RELEASE_POLL_S = 0.001  # between two attempts to get a batch that another thread has released
_DYING_S = 1.0  # a process closes its sockets some time before it has exited


class _Epoch:
    """Iterator over a feed's batches up to the end of an epoch."""

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
                "a newer iterator of this feed, or its load_state_dict(), has replaced this iterator, because a feed has one "
                "position: use the newer one, make one with iter(feed), or open a feed for each", 22,
            )  # fmt: skip
        batch = self._feed.next()
        self._over = batch is None or batch.last
        if batch is None:
            raise StopIteration
        return batch

class Feed:
    """One subscription to a dataset: batches to iterate over.

    A `for` loop over a Feed yields the batches up to the end of the epoch; the next loop yields the next epoch. The position
    belongs to the feed: after a loop that was left early, the next loop continues the epoch, or begins the next one if the
    epoch's last batch was taken. `epoch_end` ends the feed for good.

    dataset      path of a .pimg file or set of shards
    pipeline     transforms applied to each image, see loaderd(1); "" delivers stored pixels, which must have equal size
    batch_size   samples per batch of this rank
    shuffle      a new order each epoch, derived from seed; otherwise the stored order
    seed         determines, with (epoch, sample), order, crops and augmentation, on any machine and with any number of threads
    epoch, batch position to start at
    epoch_end    exclusive end epoch; None means unlimited
    rank, world  this process's part of each epoch. "auto" takes them from torch.distributed or jax.distributed once initialized,
                 else from torchrun, mpirun or srun, else 0 of 1; each worker of a DataLoader gets a share of that part. None acts
                 like "auto", with a RankWarning if this is one process of several
    last         "drop" or "short": whether to drop or deliver an incomplete last batch
    repeats      number of times each sample appears in its batch, with independent augmentation; must divide batch_size times world
    bad          "substitute", "skip" or "fail": handling of samples that cannot be decoded
    slots        ring slots, each for one batch; 0 lets the daemon choose
    fields       names of extra fields to deliver, see Batch.field and dataset(). KEY delivers the names of the samples' source files;
                 DEFERRED delivers the last transforms of the pipeline, left to the client, without applying them to the images
    field_bytes  capacity of a text, bytes or JSON value; 0 means the longest value's size, or 256 if the file does not record it
    cut_values   truncate longer values and set the flag FIELD_CUT; otherwise they are an error, here if the file records their length,
                 else at the first such value
    name         shown by `loaderctl status`
    writable     writes to a batch go to the shared memory itself instead of private pages, for GPUs that cannot register
                 read-only memory; the daemon may refuse. See pin()
    timeout      seconds to wait for a batch; None means no limit
    reconnect    if the daemon goes away, wait for the next one up to this number of seconds (True means 60, None no limit) and
                 continue with the next batch; the logger "loaderd" gets one line. False raises DaemonGone at once
    socket       socket of the daemon; "@name" for an abstract one
    daemon       "auto" uses socket, else $LOADERD_SOCKET, else the user's or the system's service if it answers within ten seconds,
                 else a private daemon that this process's feeds share and that ends with the process; the logger "loaderd" warns of
                 a service that does not answer. "system" never uses a private daemon, "private" always
    threads      number of threads of a private daemon started for this feed; 0 means all CPUs, divided by the ranks on this machine
    settings     settings of a private daemon (daemon="private"), see Daemon; feeds with the same settings share one

    If a dataset with classes has a sample without a label, the feed issues one LabelWarning at the first such batch.

    A feed belongs to one thread at a time, but any thread may use and drop batches. A feed does not survive a fork: open it in
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
            raise BadOption("fields: must be a list of names, not one string", 22)
        if batch_size == 0:
            raise BadOption("batch_size: 0 is below the minimum of 1", 22)
        self._fields = tuple(fields)
        self._empty = epoch_end is not None and epoch_end == 0  # 0 means unlimited to the daemon
        self._timeout_ms = milliseconds("timeout", timeout)
        rank, world, warning = resolve(rank, world)
        if warning:
            warnings.warn(warning, RankWarning, stacklevel=2)
        self._options: Options = {
            "dataset": os.fsencode(dataset),
            "pipeline": text("pipeline", pipeline),
            "name": text("name", name),
            "batch_size": number("batch_size", batch_size, 32),
            "shuffle": flag("shuffle", shuffle),
            "seed": number("seed", seed, 64),
            "epoch_end": 0 if epoch_end is None else number("epoch_end", epoch_end, 64),
            "rank": number("rank", rank, 32),
            "world": number("world", world, 32),
            "last": choice("last", last, LAST),
            "repeats": number("repeats", repeats, 32),
            "wanted": False,
            "bad": choice("bad", bad, BAD),
            "slots": number("slots", slots, 32),
            "fields": self._fields,
            "field_bytes": number("field_bytes", field_bytes, 32),
            "cut_values": flag("cut_values", cut_values),
            "writable": flag("writable", writable),
            "reconnect": reconnect is not False,
            "reconnect_timeout_ms": reconnect_timeout_ms(reconnect),
        }
        epoch, batch = number("epoch", epoch, 64), number("batch", batch, 64)
        self._address, self._daemon = choose(socket, daemon, threads, settings)
        self._in_flight: Deque[Tuple[Any, _feed.Slot]] = deque()
        self._pinned: Optional[int] = None
        self._iterators = 0  # number created so far
        self._warned = False  # has warned of a sample without a label
        self._open(epoch, batch)

    def _open(self, epoch: int, batch: int) -> None:
        self._closed = False
        self._iterators += 1  # invalidates all existing iterators
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
        """Returns the last log line of a private daemon that has died."""
        if self._daemon is None:
            return ""
        until = time.monotonic() + _DYING_S
        while self._daemon.alive:
            if time.monotonic() >= until:
                return ""
            time.sleep(_RELEASE_POLL_S)
        lines = self._daemon.log.strip().splitlines()
        return f" Its last log line: {lines[-1]}" if lines else ""

    def __iter__(self) -> Iterator[Batch]:
        """Iterates over the rest of the current epoch, or over the whole next one if the last batch of an epoch was taken.

        A feed has one position: only its latest iterator is valid. Older ones, and ones made before load_state_dict(), raise
        FeedError.
        """
        self._iterators += 1
        return _Epoch(self)

    def __next__(self) -> Batch:
        """Like next(), but raises StopIteration at the feed's end."""
        batch = self.next()
        if batch is None:
            raise StopIteration
        return batch

    def next(self, timeout: Optional[float] = None) -> Optional[Batch]:
        """Returns the next batch, continuing across epochs, or None at the feed's end. timeout is in seconds; None means the feed's."""
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
            if isinstance(failure, WrongProcess) and rank_info().workers > 0:
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
        """Replaces the registration with CUDA, since a reconnect has replaced the ring memory."""
        _logger.warning("%s", self._stream.reconnect_text())
        self._info = self._stream.info()
        if self._pinned is not None:
            self._unpin()
            self.pin()

    def _next_after_release(self, timeout_ms: int, failure: NoFreeBatch) -> "Optional[_feed.Slot]":
        """Gets a batch although all are held: by copies in progress, by garbage, or by other threads, which will release one."""
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
        """Batches per epoch for this rank."""
        return self._info["batches_per_epoch"]

    @property
    def samples(self) -> int:
        """Samples in the dataset."""
        return self._info["samples"]

    @property
    def uuid(self) -> Optional[str]:
        """UUID of the dataset's content, as `packimg info` shows it; None if the daemon is too old to report it."""
        return uuid_text(self._info["uuid"])

    @property
    def classes(self) -> int:
        """Classes of the dataset; their names are in dataset()."""
        return self._info["classes"]

    @property
    def slots(self) -> int:
        """Number of batches that may be held at a time, including those in asynchronous copies."""
        return self._info["slots"]

    @property
    def socket(self) -> Optional[str]:
        """Socket of the daemon in use."""
        return self._address

    @property
    def daemon(self) -> Optional[Daemon]:
        """The private daemon in use; None if the daemon is not private to this process."""
        return self._daemon

    @property
    def reconnects(self) -> int:
        """Number of times that the feed was reopened because its daemon went away."""
        return self._info["reconnects"]

    @property
    def position(self) -> Tuple[int, int]:
        """(epoch, batch) of the next batch."""
        return self._stream.position()

    def fileno(self) -> int:
        """File descriptor for event loops: readable when next(timeout=0) should be tried again after FeedTimeout."""
        return self._stream.fileno()

    def state_dict(self) -> Dict[str, Any]:
        """Returns the position after the last batch returned, and the options that it depends on."""
        epoch, batch = self.position
        kept = ("pipeline", "batch_size", "shuffle", "seed", "world", "last", "repeats")
        options: Mapping[str, Any] = self._options
        return {"epoch": epoch, "batch": batch, "uuid": self.uuid, "dataset": self._path, **{key: options[key] for key in kept}}

    @property
    def _path(self) -> str:
        return os.fsdecode(self._options["dataset"])

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Continues exactly where state_dict() was called, also with another batch size or number of ranks.

        Order and augmentation depend on shuffle, seed and repeats, so these must be the same. So must the dataset's content; its path may
        differ. strict=False allows another dataset, which then gives different batches.
        """
        if strict:
            self._check_dataset(state)
        given = {"repeats": 1, **state}  # states of older versions lack it
        for key, own in (("shuffle", self._options["shuffle"]), ("seed", self._options["seed"]), ("repeats", self._options["repeats"])):
            if given[key] != own:
                raise BadOption(
                    f"{key}: the state was saved with {given[key]!r}, but this feed has {own!r}, which gives "
                    "different batches", 22,
                )
        done = state["batch"] * state["batch_size"] * max(1, state["world"])
        step = self._options["batch_size"] * max(1, self._options["world"])
        if done % step != 0:
            raise BadOption(
                f"batch_size: the state was saved after {done} samples of the epoch, which is not a whole number of steps "
                f"of {step} samples (batch_size times world)", 22,
            )
        self.close()
        self._open(state["epoch"], done // step)
        if strict:
            self._check_dataset(state)  # the file may have been replaced since this feed was opened

    def _check_dataset(self, state: Mapping[str, Any]) -> None:
        """Compares the datasets' UUIDs; passes if either is unknown."""
        saved = state.get("uuid")
        if None not in (saved, self.uuid) and saved != self.uuid:
            raise BadOption(
                f"dataset: the state was saved with {state['dataset']}, {saved}; but this feed reads {self._path}, "
                f"{self.uuid}, which gives different batches. strict=False continues anyway", 22,
            )

    def pin(self) -> None:
        """Registers the feed's memory with CUDA, so that Batch.to("cuda") copies by DMA.

        With writable=True, .to(..., non_blocking=True) of tensors from Batch.torch() does so too.
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
        """Hangs up: the daemon frees its resources at once. Existing batches, arrays and tensors stay valid."""
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
