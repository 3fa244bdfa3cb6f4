"""Wanted feeds behind an ImageDataset: one prefetcher for each iteration in progress, and the pool of prefetchers."""

import os
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Callable, Deque, List, Optional, Sequence, Tuple

from ._batch import Batch
from ._errors import FeedError, FeedTimeout
from ._subscription import Feed
from ._timings import Timings

if TYPE_CHECKING:
    from ._sampler import Lists
    from ._transform import Job

_WANTS_BEYOND_SLOTS = 2  # batches wanted beyond the slots, so that the daemon can fill a slot as soon as it is free
JOBS_AHEAD = 2  # maximum batches in the user's transform at a time
_IDLE_MAX = 3


class Request:
    """A requested batch: epoch and sample numbers. Equal requests give equal bytes."""

    __slots__ = ("epoch", "samples")

    def __init__(self, epoch: int, samples: Sequence[int]) -> None:
        self.epoch = epoch
        self.samples = tuple(samples)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Request) and self.epoch == other.epoch and self.samples == other.samples

    __hash__ = None  # type: ignore[assignment]


class Prefetcher:
    """One wanted feed and the batches requested from it in advance. One thread at a time."""

    def __init__(
        self, feed: Feed, capacity: int, timings: Timings, start: "Optional[Callable[[Batch, Request, bool], Job]]"
    ) -> None:
        self.feed = feed
        self.capacity = capacity  # samples of its largest batch
        self.owner: "Optional[weakref.ref[Lists]]" = None
        self.busy = False
        self._timings = timings
        self._start = None if start is None else weakref.WeakMethod(start)  # the dataset owns this prefetcher
        self._wanted: Deque[Request] = deque()  # requested from the feed
        self._jobs: "Deque[Tuple[Request, Job]]" = deque()  # in the user's transform; older than those in _wanted
        self._last = -1  # number of the newest list that was requested
        self._asked: Optional[int] = None  # number of the list that the consumer fetched last
        self._stride: Optional[int] = None  # difference between successive list numbers: 1, or the number of processes that share the lists
        self._part: Optional[slice] = None
        self._returned = 0.0

    @property
    def idle(self) -> bool:
        """True if no iteration needs the batches that this prefetcher has requested."""
        owner = None if self.owner is None else self.owner()
        return not self.busy and (owner is None or owner.ended)

    def bind(self, lists: "Lists", stride: Optional[int]) -> None:
        self.forget()
        prefetcher = weakref.ref(self)

        def left(_: object) -> None:  # the loop was left, so its transforms are not needed
            this = prefetcher()
            if this is not None:
                this._cancel()

        self.owner = weakref.ref(lists, left)
        self._asked, self._stride, self._part, self._returned = None, stride, None, 0.0

    @property
    def stride(self) -> Optional[int]:
        return self._stride

    def forget(self) -> None:
        """Drops all batches requested in advance."""
        self._cancel()
        self._jobs.clear()
        if self._wanted:
            self._wanted.clear()
            self.feed.forget()

    def _cancel(self) -> None:
        for _, job in list(self._jobs):
            job.cancel()

    def _want(self, request: Request) -> None:
        self.feed.want(request.epoch, request.samples)
        self._wanted.append(request)

    def _expected(self) -> Optional[Request]:
        if self._jobs:
            return self._jobs[0][0]
        return self._wanted[0] if self._wanted else None

    def fetch(self, request: Request, lists: "Optional[Lists]", number: int, part: Optional[slice]) -> "Any":
        """Returns the batch of a request: a Batch, or the finished Job if there is a transform.

        lists, number and part are the request's position in an iteration, from which the following requests are predicted.
        """
        begun = time.perf_counter()
        self._timings.consumed(begun - self._returned if self._returned else 0.0)
        try:
            return self._fetch(request, lists, number, part)
        finally:
            self._returned = time.perf_counter()

    def _fetch(self, request: Request, lists: "Optional[Lists]", number: int, part: Optional[slice]) -> "Any":
        if lists is not None:
            self._learn(lists, number, part)
        if self._expected() != request:
            self.forget()
            self._want(request)
            self._last = number
        if lists is not None:
            self._want_ahead(lists)
        if self._start is None:
            return self._take(True, lists)
        self._start_jobs(lists, JOBS_AHEAD, True)
        job = self._finished(self._jobs.popleft()[1])
        try:
            self._start_jobs(lists, JOBS_AHEAD - 1, False)  # a batch that arrived during the wait is transformed while the caller works
        except FeedError:
            pass  # the next request raises it again
        return job

    def _start_jobs(self, lists: "Optional[Lists]", count: int, wait: bool) -> None:
        """Hands batches that have arrived to the user's transform until it has `count`; waits for the first of these if `wait`."""
        while len(self._jobs) < count and self._wanted:
            due = self._wanted[0]
            batch = self._take(wait and not self._jobs, lists)
            if batch is None:
                return
            assert self._start is not None
            start = self._start()
            assert start is not None  # the dataset is the caller
            self._jobs.append((due, start(batch, due, lists is not None and lists.finished)))
            if lists is not None:
                self._want_ahead(lists)

    def _finished(self, job: "Job") -> "Job":
        begun = time.perf_counter()
        job.wait()
        self._timings.transformed(time.perf_counter() - begun, job.seconds)
        return job

    def _take(self, wait: bool, lists: "Optional[Lists]") -> Optional[Batch]:
        """Returns the oldest requested batch, or None if it has not arrived and `wait` is False."""
        begun = time.perf_counter()
        try:
            batch = self.feed.next(None if lists is None else lists.timeout) if wait else self.feed.next(0)
        except FeedTimeout:
            if wait:
                raise
            return None
        self._timings.waited(time.perf_counter() - begun)
        self._wanted.popleft()
        if batch is None:
            raise FeedError("the daemon ended a wanted feed before its last batch")
        return batch

    def _learn(self, lists: "Lists", number: int, part: Optional[slice]) -> None:
        """Records which of an iteration's lists this consumer fetches, and which part of each."""
        if self._asked is not None and number > self._asked:
            self._stride = number - self._asked
        elif self._stride is None and lists.taken == number + 1 and number == 0:
            self._stride = 1  # a guess from the only list so far; the second one corrects it
        self._asked = number
        self._part = part

    def _want_ahead(self, lists: "Lists") -> None:
        if self._stride is None or not self._wanted and not self._jobs:
            return
        while len(self._wanted) < self.feed.slots + _WANTS_BEYOND_SLOTS:
            samples = lists.peek(self._last + self._stride)
            if samples is not None and self._part is not None:
                samples = samples[self._part]
            if not samples or len(samples) > self.capacity:
                return
            try:
                self._want(Request(lists.epoch, samples))
            except (FeedError, TypeError, OverflowError):
                return  # the request for this list itself raises the error
            self._last += self._stride

    def close(self) -> None:
        self.forget()
        self.feed.close()


def scarce(feed: Feed) -> bool:
    """True if batches in use leave the feed too few slots to work ahead."""
    slots = feed.slots
    return feed.held > slots - (1 if slots <= 4 else 2)


class PrefetcherPool:
    """The prefetchers of one ImageDataset in one process: opens them as needed, and reuses idle ones."""

    def __init__(self, open_prefetcher: "Callable[[int, int], Prefetcher]", samples: int) -> None:
        self._samples = samples  # samples of the dataset
        self._open = weakref.WeakMethod(open_prefetcher)  # (capacity, slots) -> Prefetcher; of the dataset, which owns this
        self._lock = threading.Lock()
        self._all: List[Prefetcher] = []
        self._stride: Optional[int] = None  # of the newest iteration
        self.pid = os.getpid()

    def acquire(self, lists: "Optional[Lists]", count: int) -> Prefetcher:
        """Returns a prefetcher for a batch of `count` samples; the caller holds it until release()."""
        with self._lock:
            prefetcher = self._bound(lists, count) or self._idle(lists, count)
            if prefetcher is not None:
                prefetcher.busy = True
        if prefetcher is None:
            capacity = self._capacity(lists, count)
            open_prefetcher = self._open()
            assert open_prefetcher is not None  # the dataset is the caller
            prefetcher = open_prefetcher(capacity, 0 if lists is None else lists.slots)
            prefetcher.busy = True
            with self._lock:
                self._all.append(prefetcher)
                surplus = self._surplus()
            for other in surplus:
                other.close()
        if lists is not None and (prefetcher.owner is None or prefetcher.owner() is not lists):
            prefetcher.bind(lists, self._stride)
        return prefetcher

    def add(self, prefetcher: Prefetcher) -> None:
        with self._lock:
            self._all.append(prefetcher)

    def discard(self, prefetcher: Prefetcher) -> None:
        """Closes a prefetcher whose feed has failed; the next request opens another one."""
        with self._lock:
            if prefetcher in self._all:
                self._all.remove(prefetcher)
        prefetcher.feed.close()

    def release(self, prefetcher: Prefetcher) -> None:
        with self._lock:
            prefetcher.busy = False
            if prefetcher.stride is not None:
                self._stride = prefetcher.stride

    def _capacity(self, lists: "Optional[Lists]", count: int) -> int:
        """Samples of the largest batch expected. A batch size beyond the dataset is only a limit."""
        return count if lists is None else max(count, min(lists.batch_size, self._samples))

    def _bound(self, lists: "Optional[Lists]", count: int) -> Optional[Prefetcher]:
        if lists is None:
            return None
        for prefetcher in self._all:
            if not prefetcher.busy and prefetcher.owner is not None and prefetcher.owner() is lists and prefetcher.capacity >= count:
                return prefetcher
        return None

    def _idle(self, lists: "Optional[Lists]", count: int) -> Optional[Prefetcher]:
        need = self._capacity(lists, count)
        fitting = [prefetcher for prefetcher in self._all if prefetcher.idle and prefetcher.capacity >= need]
        prefetcher = min(fitting, key=lambda prefetcher: prefetcher.capacity, default=None)
        if prefetcher is not None and lists is None:
            prefetcher.owner = None
        return prefetcher

    def _surplus(self) -> List[Prefetcher]:
        """Removes the smallest idle prefetchers from the list if there are more than _IDLE_MAX, and returns them."""
        idle = sorted((prefetcher for prefetcher in self._all if prefetcher.idle), key=lambda prefetcher: prefetcher.capacity)
        surplus = idle[: max(0, len(idle) - _IDLE_MAX)]
        self._all = [prefetcher for prefetcher in self._all if prefetcher not in surplus]
        return surplus

    def close(self) -> None:
        with self._lock:
            prefetchers, self._all = self._all, []
        for prefetcher in prefetchers:
            prefetcher.close()
