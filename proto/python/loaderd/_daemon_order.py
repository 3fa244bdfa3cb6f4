"""DataLoader(shuffle="daemon"): the order of a plain feed, drawn by the daemon."""

import time
from collections import deque
from typing import TYPE_CHECKING, Any, Deque, Dict, Iterator, List, Mapping, Optional

from torch.utils import data

from ._batch import Batch
from ._errors import BadOption
from ._prefetch import JOBS_AHEAD, Request, scarce
from ._sampler import Position
from ._subscription import Feed

if TYPE_CHECKING:
    from ._image_dataset import ImageDataset
    from ._loader import DataLoader
    from ._transform import Job


class DaemonOrder(data.Sampler):  # type: ignore[misc]
    """Placeholder for the sampler attribute of a loader with shuffle="daemon", which does not know the order in advance."""

    def __init__(self, dataset: "ImageDataset") -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __iter__(self) -> Iterator[int]:
        raise BadOption(
            'shuffle: with "daemon", only loaderd.DataLoader itself can iterate; a framework that builds its own loader needs shuffle=True', 22
        )

    @staticmethod
    def check(dataset: Any, batch_size: Optional[int], **others: Any) -> None:
        """Refuses arguments that conflict with the daemon's order."""
        if batch_size is None:
            raise BadOption('batch_size: shuffle="daemon" makes whole batches; set a number', 22)
        for name, value in others.items():
            if value is not None:
                raise BadOption(f'{name}: shuffle="daemon" lets the daemon draw the order; omit {name}, or set shuffle=True', 22)
        if isinstance(dataset, data.Subset):
            raise BadOption('dataset: shuffle="daemon" draws from all samples; a Subset needs shuffle=True', 22)


class _Iterator:
    """One epoch, from a feed that the iterator holds until the epoch ends or the iterator dies."""

    def __init__(self, order: "Order", loader: "DataLoader", feed: Feed, epoch: int, batch: int) -> None:
        self.position = Position(epoch, batch)
        self._order = order
        self._loader = loader
        self._feed: Optional[Feed] = feed
        iter(feed)  # determines the rank again: the process group may be newer than the loader
        self._left = len(feed) - batch
        self._jobs: "Deque[Job]" = deque()

    def __iter__(self) -> "_Iterator":
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        loader = self._loader
        if self._feed is None or (self._left <= 0 and not self._jobs):
            self._release_feed()
            raise StopIteration
        base, collate = loader._images, not loader._collates
        if base._transforms:
            while self._left > 0 and len(self._jobs) < JOBS_AHEAD:
                batch = self._next()
                self._jobs.append(base._start(batch, Request(batch.epoch, batch.samples.tolist()), collate))
            job = self._jobs.popleft()
            begun = time.perf_counter()
            job.wait()
            base.timings.transformed(time.perf_counter() - begun, job.seconds)
            made = job.result
        else:
            batch = self._next()
            made = base._batch(batch, scarce(self._feed)) if collate else base._list(batch)
            del batch
        self.position.batches += 1
        if self._left <= 0 and not self._jobs:
            self._release_feed()
        return loader._finish(made if collate else loader.collate_fn(list(made)))

    def _next(self) -> Batch:
        assert self._feed is not None
        begun = time.perf_counter()
        batch = self._feed.next(self._loader._wait)
        self._loader._images.timings.waited(time.perf_counter() - begun)
        assert batch is not None  # the feed has no end
        self._left -= 1
        return batch

    def _release_feed(self) -> None:
        if self._feed is not None:
            self._order.idle.append(self._feed)
            self._feed = None

    def __del__(self) -> None:
        for job in self._jobs:
            job.cancel()
        self._release_feed()


class Order:
    """The feeds of one loader, and its position."""

    def __init__(self, dataset: "ImageDataset", batch_size: int, drop_last: bool, slots: int) -> None:
        self._dataset = dataset
        self._options: Dict[str, Any] = dict(batch_size=batch_size, drop_last=drop_last, slots=slots)
        self.idle: List[Feed] = []
        self._newest: Optional[Position] = None  # of the newest iterator
        self._loaded: Optional[Dict[str, int]] = None

    def __len__(self) -> int:
        """Batches of this process in an epoch."""
        if not self.idle:
            self.idle.append(self._feed(0, 0))
        return len(self.idle[-1])

    def _feed(self, epoch: int, batch: int) -> Feed:
        """Returns a feed at a position: an idle one that is there already, or a new one."""
        for feed in self.idle:
            if feed.position == (epoch, batch):
                self.idle.remove(feed)
                return feed
        while self.idle:
            self.idle.pop().close()
        return self._dataset._feed(shuffle=True, rank="auto", epoch=epoch, batch=batch, **self._options)

    def iterate(self, loader: "DataLoader") -> _Iterator:
        epochs = loader._epoch_counter()
        epoch, named = epochs.next, epochs.named is not None
        state, self._loaded = self._loaded, None
        batch = state["batches"] if state is not None and state["epoch"] == epoch else 0
        if batch and not named and batch >= len(self):
            epochs.begin()
            epoch, batch = epoch + 1, 0  # the epoch was over; the next one begins
        epochs.begin()
        at_end = batch > 0 and batch >= len(self)
        iterator = _Iterator(self, loader, self._feed(epoch, 0 if at_end else batch), epoch, batch)
        self._newest = iterator.position
        return iterator

    def state(self, loader: "DataLoader") -> Dict[str, Any]:
        if self._loaded is not None:
            return {"order": "daemon", **self._loaded}
        if self._newest is None:
            return {"order": "daemon", "epoch": loader._epoch_counter().next, "batches": 0}
        return {"order": "daemon", "epoch": self._newest.epoch, "batches": self._newest.batches}

    def load(self, state: Mapping[str, Any]) -> None:
        if state.get("order") != "daemon":
            raise BadOption('shuffle: the state was saved with an order of a sampler, but this loader has shuffle="daemon"', 22)
        self._loaded = {"epoch": state["epoch"], "batches": state["batches"]}

