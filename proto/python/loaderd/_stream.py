"""The open stream of a feed: opens it at a position, moves it to others, and registers its memory with a device."""

import gc
import logging
import os
import threading
import time
from collections import deque
from typing import Any, Deque, Dict, Optional, Sequence, Tuple, Union

from . import _feed
from ._daemon import Daemon, find_fetcher, is_address, shown
from ._errors import BadOption, DaemonGone, FeedError, LimitExceeded, NoDaemon, NoFreeBatch, WrongProcess, translated
from ._options import FOREVER, Options
from ._ranks import NO_DATALOADER, rank_info

_logger = logging.getLogger("loaderd")

LABELS = 1  # number of the label's section, RING_LABELS of proto/ring.h
_OPEN_TIMEOUT_MS = 0  # libfeed's default
_RECONNECT_S = 60.0  # libfeed's default
_RELEASE_POLL_S = 0.001  # between two attempts to get a batch that another thread has released
_REOPEN_POLL_S = 0.05  # between two attempts to reach the next daemon
_PROGRESS_S = 5.0  # between two lines on the progress of opening
_FETCHING_S = 2.0  # before the first line on the progress of fetching an index
_QUOTA_S = 5.0  # time for the daemon to free the previous stream's memory
_PRIVATE = "@loaderd-"  # prefix of the sockets of private daemons
_DYING_S = 1.0  # maximum time between closing the sockets and the exit of a dying process
_HOLDERS = (
    " batch.images, batch.torch() and batch.buffer() are views that hold a batch, and so do arrays and tensors made from these without a "
    "copy; batch.labels, samples, flags and fields are copies that hold none."
)


_Section = Tuple[str, int, str, str]  # name, role, line of the schema, name of the view


def _shown(section: _Section, image: str) -> str:
    """Returns the name that a batch has for the section: NAME, or of a view VIEW for the image of that name, and VIEW.NAME for others."""
    name, _, _, view = section
    return name if not view else view if name == image else f"{view}.{name}"


def _by_name(sections: Sequence[_Section]) -> "Dict[str, Tuple[Union[int, Tuple[int, ...]], int]]":
    """Returns number and role of each value's section; of a view's value, the numbers of the sections of all copies."""
    found: Dict[str, Tuple[Union[int, Tuple[int, ...]], int]] = {}
    for number, section in enumerate(sections):
        name = _shown(section, sections[0][0])
        before = found[name][0] if name in found else ()
        found[name] = ((*before, number) if section[3] and isinstance(before, tuple) else number, section[1])
    return found


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f}" if count >= 10_000_000 else f"{count / 1e6:.1f}"


class _Progress:
    """Logs how far a daemon is that examines samples to open a feed, or a fetcher that reads its index from a store, from time to time."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self._next = time.monotonic() + (_FETCHING_S if any(map(is_address, paths)) else _PROGRESS_S)

    def __call__(self, done: int, total: int, fetching: bool) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PROGRESS_S
        if not fetching:
            _logger.warning("Opening the feed: %s of %s samples are examined.", f"{done:,}", f"{total:,}")
        elif total:
            _logger.warning("Opening %s: %s of %s MB of its index are there.", shown(self._paths[0]), _megabytes(done), _megabytes(total))
        else:
            _logger.warning("Opening %s: its header is not there yet.", shown(self._paths[0]))


    @staticmethod
    def waiting(text: str) -> None:
        """Explains why the first batch is not there."""
        _logger.warning("%s", text)


class Source:
    """The open stream of a feed. A position is (epoch, batch); moving to another one replaces the stream."""

    def __init__(self, address: Optional[str], daemon: Optional[Daemon], options: Options, position: Tuple[int, int]) -> None:
        self.address = address
        self.daemon = daemon
        self.options = options
        self.closed = False
        self.closed_by = ""  # reason, if the stream was closed because it could not be moved
        self._owner = os.getpid()
        self._in_flight: Deque[Tuple[Any, _feed.Slot]] = deque()
        self._pinned: Optional[int] = None
        self._reconnects_before = 0  # sum over the previous streams
        self._open(position)

    def _paths(self) -> Sequence[str]:
        """Returns paths and addresses of the datasets."""
        dataset, order = self.options["dataset"], self.options["order"]
        if dataset is not None:
            return (os.fsdecode(dataset),)
        return tuple(os.fsdecode(part[0]) for part in order[0]) if order else ()

    def _open(self, position: Tuple[int, int]) -> None:
        epoch, batch = position
        paths = self._paths()
        find_fetcher(paths)
        try:
            self._stream = _feed.Stream(socket=self.address, epoch=epoch, batch=batch, timeout_ms=_OPEN_TIMEOUT_MS, progress=_Progress(paths), **self.options)
        except _feed.Error as error:
            failure = translated(error)
            if isinstance(failure, (DaemonGone, NoDaemon)):
                failure = translated(error, self._last_words())
            try:
                raise failure from None
            finally:
                del failure  # as in next()
        self.info = self._stream.info()
        self.parts = self._stream.parts()
        self.buckets = self._stream.buckets()  # the number of samples of each
        sections = self._stream.sections()
        self.sections = _by_name(sections)
        # sections of the images of all views; () without views
        self.views = tuple(i for i, (name, _, _, view) in enumerate(sections) if view and name == sections[0][0])
        # values with any number of rows
        self.ragged = frozenset(_shown(section, sections[0][0]) for section in sections if "[*" in section[2].rpartition(":")[2])
        # names of the targets that the pipeline makes: of a weight of each class, or of two labels and of a share
        self.targets = tuple(section[0] for section in sections[len(sections) - self.info["targets"] :])
        self._part = self.options["rank"], self.options["world"]
        self.closed = False
        self.closed_by = ""

    def _last_words(self) -> str:
        """Returns the last log line of a private daemon that has died."""
        if self.daemon is None:
            return ""
        until = time.monotonic() + _DYING_S
        while self.daemon.alive:
            if time.monotonic() >= until:
                return ""
            time.sleep(_RELEASE_POLL_S)
        lines = self.daemon.log.strip().splitlines()
        return f" Its last log line: {lines[-1]}" if lines else ""

    @property
    def is_ours(self) -> bool:
        """False in a process that was forked from the one that opened the feed."""
        return os.getpid() == self._owner

    @property
    def is_outdated(self) -> bool:
        """True if rank or world in the options differ from those of the open stream."""
        return self._part != (self.options["rank"], self.options["world"])

    @property
    def position(self) -> Tuple[int, int]:
        return self._stream.position()

    @property
    def reconnects(self) -> int:
        return self._reconnects_before + self.info["reconnects"]

    def fileno(self) -> int:
        return self._stream.fileno()

    def move(self, position: Tuple[int, int]) -> None:
        """Reopens the stream at a position, with the current `options`. Waits for the daemon like a reconnect."""
        if not self.is_ours:
            raise WrongProcess(f"this feed was opened in another process; open it in the one that reads from it. {NO_DATALOADER}", 10)
        pinned = self._pinned is not None
        before = self.reconnects
        self.close()
        try:
            self._open_patiently(position)
        except FeedError as error:
            self.closed_by = f", because it could not be opened again at epoch {position[0]}, batch {position[1]}: {error}"
            raise
        self._reconnects_before = before
        if pinned:
            self.pin()

    def _open_patiently(self, position: Tuple[int, int]) -> None:
        begin = time.monotonic()
        limit_ms = self.options["reconnect_timeout_ms"]
        is_private = self.address is not None and self.address.startswith(_PRIVATE)  # libfeed has restarted it, or reports why it cannot
        limit = float("inf") if limit_ms == FOREVER else limit_ms / 1000 or _RECONNECT_S
        while True:
            passed = time.monotonic() - begin
            try:
                return self._open(position)
            except LimitExceeded:
                if passed >= _QUOTA_S:
                    raise
            except NoDaemon:
                if is_private or not self.options["reconnect"] or passed >= limit:
                    raise
            except DaemonGone:
                if not self.options["reconnect"] or passed >= limit:
                    raise
            time.sleep(_REOPEN_POLL_S)

    def next(self, timeout_ms: int) -> "Optional[_feed.Slot]":
        """Returns the next batch, or None at the feed's end. A negative timeout waits without limit."""
        if self.closed:
            raise DaemonGone(f"this feed was closed{self.closed_by}", 107)
        self._drop_finished()
        try:
            return self._stream.next(timeout_ms)
        except _feed.Error as error:
            failure = translated(error)
            if isinstance(failure, DaemonGone):
                raise translated(error, self._last_words()) from None
            if isinstance(failure, WrongProcess) and rank_info().workers > 0:
                raise translated(error, f" {NO_DATALOADER}") from None
            if not isinstance(failure, NoFreeBatch):
                try:
                    raise failure from None
                finally:
                    del failure  # with its traceback it would be a cycle that holds the callers' locals, such as an iteration
            held = translated(error, _HOLDERS)
        try:
            return self._next_after_release(timeout_ms, held)
        finally:
            del held

    def _next_after_release(self, timeout_ms: int, failure: FeedError) -> "Optional[_feed.Slot]":
        """Gets a batch although all slots are held: waits for a copy, the garbage collector or another thread to release one."""
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
                if not isinstance(translated(error), NoFreeBatch):
                    raise translated(error) from None
            if threading.active_count() == 1 or (until is not None and time.monotonic() >= until):
                try:
                    raise failure
                finally:
                    del failure
            time.sleep(_RELEASE_POLL_S)

    def note_reconnect(self) -> None:
        """Registers the new ring memory with CUDA after a reconnect."""
        _logger.warning("%s", self._stream.reconnect_text())
        self.info = self._stream.info()
        if self._pinned is not None:
            self._unpin()
            self.pin()

    def keep_until(self, done: Any, slot: "_feed.Slot") -> None:
        """Holds a batch until a copy on a device has finished: `done` is a CUDA event."""
        self._in_flight.append((done, slot))

    def _drop_finished(self) -> None:
        while self._in_flight and self._in_flight[0][0].query():
            self._in_flight.popleft()

    def pin(self) -> None:
        import torch

        if self._pinned is not None:
            return
        flags = 0 if self.options["writable"] else 8  # cudaHostRegisterReadOnly
        address = self.info["address"]
        self._stream.keep(address)
        status = torch.cuda.cudart().cudaHostRegister(address, self.info["bytes"], flags)
        if int(status) != 0:
            self._stream.drop(address)
            remedy = "" if self.options["writable"] else "; writable=True may help"
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
        if self.closed:
            return
        self.closed = True
        while self._in_flight:
            self._in_flight.popleft()[0].synchronize()
        if self._pinned is not None:
            self._unpin()
        self._stream.close()

    @property
    def held(self) -> int:
        return self._stream.held()

    def want(self, epoch: int, samples: Sequence[int]) -> None:
        try:
            self._stream.want(epoch, samples)
        except _feed.Error as error:
            raise translated(error) from None
        except OverflowError:
            raise BadOption(f"samples: {min(samples)} .. {max(samples)} are not all sample numbers of the dataset", 22) from None

    def forget(self) -> None:
        try:
            self._stream.forget()
        except _feed.Error as error:
            raise translated(error) from None
