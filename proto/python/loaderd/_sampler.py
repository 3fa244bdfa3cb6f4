"""BatchSampler: like torch's, but its lists of sample numbers can be read ahead."""

import itertools
from collections import deque
from operator import index
from typing import Any, Callable, Deque, Iterable, Iterator, List, Optional, SupportsIndex, Tuple, overload

from torch.utils import data

Items = Iterable[Any]  # what a sampler yields: sample numbers, or lists of them
Mapping = Callable[[List[Any]], List[Any]]


def call_set_epoch(sampler: Any, epoch: int) -> None:
    """Calls the sampler's set_epoch() if it has one, as DistributedSampler does."""
    method = getattr(sampler, "set_epoch", None)
    if method is not None:
        method(epoch)


def _length(sampler: Any) -> Optional[int]:
    try:
        return len(sampler)
    except (TypeError, NotImplementedError):
        return None


class BatchList(List[int]):
    """The sample numbers of one batch: a list with its position in the iteration.

    lists   the iteration that made it, which has the following lists too; None after pickling
    number  its number in the iteration, from 0
    epoch   the epoch for the augmentation's seed
    part    the slice of the iteration's list that it contains, None for all of it
    """

    __slots__ = ("lists", "number", "epoch", "part")

    def __init__(
        self, samples: Iterable[int], lists: "Optional[Lists]", number: int, epoch: int, part: Optional[slice] = None
    ) -> None:
        super().__init__(samples)
        self.lists = lists
        self.number = number
        self.epoch = epoch
        self.part = part

    @overload
    def __getitem__(self, key: SupportsIndex) -> int: ...

    @overload
    def __getitem__(self, key: slice) -> "BatchList": ...

    def __getitem__(self, key: Any) -> Any:
        value = super().__getitem__(key)
        if isinstance(key, slice) and self.part is None:
            return BatchList(value, self.lists, self.number, self.epoch, key)
        return value

    def __reduce__(self) -> "Tuple[Any, ...]":
        return BatchList, (list(self), None, self.number, self.epoch, self.part)


class Source:
    """Source of Lists: groups of samples. Each pull() returns the next group."""

    single = False  # the last group was one number, not a list

    def pull(self, ahead: bool) -> Optional[List[Any]]:
        """Returns the next list, or None.

        With ahead=True, the sampler draws no random numbers that it would not have drawn without look-ahead. None then means that
        only the consumer's own request may continue.
        """
        raise NotImplementedError

    def used(self, samples: List[Any]) -> None:
        """Completes a list from pull(ahead=True) when it is handed out."""


class Groups(Source):
    """Lists of batch_size items of a sampler, as torch's BatchSampler makes them."""

    def __init__(self, sampler: Items, batch_size: int, drop_last: bool) -> None:
        self._sampler = sampler
        self._batch_size = batch_size
        self._drop_last = drop_last
        self._items: Optional[Iterator[Any]] = None  # made late: some samplers draw random numbers in __iter__()
        self._left: Optional[int] = None  # items that the sampler still has, if it has a length
        self._ended = False

    def pull(self, ahead: bool) -> Optional[List[Any]]:
        if self._items is None:
            self._items = iter(self._sampler)
            self._left = _length(self._sampler)
        count = self._batch_size
        if ahead and self._left is not None:
            # Samplers such as RandomSampler draw random numbers when they reach their end: only the consumer's request goes there.
            count = min(count, self._left)
        if self._ended or count == 0 or (ahead and self._drop_last and count < self._batch_size):
            return None
        samples = list(itertools.islice(self._items, count))
        if self._left is not None:
            self._left = max(0, self._left - len(samples))
        self._ended = len(samples) < count
        if not samples or (self._drop_last and len(samples) < self._batch_size):
            return None
        return samples

    def used(self, samples: List[Any]) -> None:
        if self._items is not None and not self._ended and len(samples) < self._batch_size:
            more = list(itertools.islice(self._items, self._batch_size - len(samples)))
            samples.extend(more)
            self._ended = len(samples) < self._batch_size


class Given(Source):
    """The lists of a batch sampler of another class, or numbers as lists of one. Does not read the last one ahead, which may reach the end."""

    def __init__(self, batches: Items) -> None:
        self._batches = batches
        self._iterator: Optional[Iterator[Any]] = None
        self._left: Optional[int] = None

    def pull(self, ahead: bool) -> Optional[List[Any]]:
        if self._iterator is None:
            self._iterator = iter(self._batches)
            self._left = _length(self._batches)
        if ahead and self._left is not None and self._left <= 1:
            return None
        samples = next(self._iterator, None)
        if self._left is not None:
            self._left -= 1
        if samples is None:
            return None
        self.single = hasattr(samples, "__index__") and not hasattr(samples, "__len__") or getattr(samples, "shape", None) == ()
        return [samples] if self.single else list(samples)


class Lists(Iterator[BatchList]):
    """One iteration over the lists of an epoch. The consumer takes them in order; peek() returns later ones.

    epoch       for the augmentation's seed
    mapping     converts the sampler's numbers to those of the ImageDataset, for torch's Subset; None if they are the same
    batch_size  the largest list expected, 0 if unknown
    slots       ring slots that the consumer asks for, 0 for the daemon's choice
    timeout     seconds to wait for a batch, None for the dataset's
    finished    the consumer's collate_fn is loaderd's, so it gets finished batches instead of lists of samples
    """

    def __init__(self, source: Source, epoch: int, mapping: Optional[Mapping] = None) -> None:
        self.epoch = epoch
        self.taken = 0  # lists handed out
        self.ended = False
        self.batch_size = 0
        self.slots = 0
        self.timeout: Optional[float] = None
        self.finished = False
        self.adopted = False  # an ImageDataset has set the epoch
        self._source = source
        self._mapping = mapping
        # Pulled but not yet handed out: (list, mapped list or None before peek()). Plain lists, because BatchLists would form a reference cycle.
        self._ahead: Deque[Tuple[List[Any], Optional[List[Any]]]] = deque()

    @property
    def single(self) -> bool:
        """True if the newest list is a single number."""
        return self._source.single

    def _mapped(self, samples: List[Any]) -> List[Any]:
        return samples if self._mapping is None else self._mapping(samples)

    def __next__(self) -> BatchList:
        if self.at_end():
            raise StopIteration
        samples, _ = self._ahead.popleft()
        self._source.used(samples)
        self.taken += 1
        return BatchList(self._mapped(samples), self, self.taken - 1, self.epoch)

    def at_end(self) -> bool:
        """Returns True if no list follows. Reaches the sampler's end as the consumer would."""
        if not self._ahead and not self.ended:
            pulled = self._source.pull(ahead=False)
            if pulled is None:
                self.ended = True
            else:
                self._ahead.append((pulled, None))
        return not self._ahead

    def peek(self, number: int) -> Optional[List[Any]]:
        """Returns list `number`, which the caller must not change, or None if it was handed out or cannot be read ahead."""
        if number < self.taken:
            return None
        while self.taken + len(self._ahead) <= number:
            pulled = None if self.ended else self._source.pull(ahead=True)
            if pulled is None:
                return None
            self._ahead.append((pulled, None))
        samples, mapped = self._ahead[number - self.taken]
        if mapped is None:
            mapped = self._mapped(samples)
            self._ahead[number - self.taken] = (samples, mapped)
        return mapped


def source_of(batches: Items) -> Source:
    """Returns the lists of any batch sampler without calling its __iter__()."""
    if type(batches) in (data.BatchSampler, BatchSampler):
        return Groups(batches.sampler, batches.batch_size, batches.drop_last)  # type: ignore[attr-defined]
    return Given(batches)


class Epochs:
    """Numbers the iterations: each begins the next epoch, unless set_epoch() has set another."""

    def __init__(self) -> None:
        self.next = 0
        self.named: Optional[int] = None  # from set_epoch(), until an iteration begins
        self._of_sampler = 0  # the sampler's epoch when last read

    def set(self, epoch: int) -> None:
        self.next = self.named = index(epoch)

    def begin_at(self, epoch: int) -> None:
        self.next, self.named = epoch, None

    def follow(self, sampler: Any) -> None:
        """Adopts the sampler's epoch if its own set_epoch(), such as DistributedSampler's, was called."""
        epoch = getattr(sampler, "epoch", None)
        if isinstance(epoch, int) and hasattr(sampler, "set_epoch") and epoch != self._of_sampler:
            self._of_sampler = epoch
            self.set(epoch)

    def begin(self) -> int:
        epoch = self.next
        self.next, self.named = epoch + 1, None
        return epoch


class Position:
    """Position of an iteration: epoch and number of batches handed out. Outlives the iterator."""

    def __init__(self, epoch: int, batches: int) -> None:
        self.epoch = epoch
        self.batches = batches


class BatchSampler(data.BatchSampler):  # type: ignore[misc]
    """torch.utils.data.BatchSampler whose lists ImageDataset reads ahead, so that batches are made before they are requested.

    sampler     yields sample numbers; any iterable
    batch_size  samples per list
    drop_last   whether to drop an incomplete last list

    It yields the same lists as torch's. Each list also has its epoch and its number, and passes unchanged through the wrappers that
    frameworks put around a batch sampler (Accelerate's BatchSamplerShard, skipped batches). Each iter() begins the next epoch, from 0;
    set_epoch() sets the epoch of the next iter(), and calls the set_epoch() of a sampler that has one, such as DistributedSampler. Calling
    the sampler's own set_epoch() has the same effect.
    """

    def __init__(self, sampler: Items, batch_size: int, drop_last: bool) -> None:
        super().__init__(sampler, batch_size, drop_last)
        self.epochs = Epochs()
        self.slots, self.finished = 0, False  # for Lists; DataLoader sets them

    @property
    def epoch(self) -> int:
        """The epoch that the next iter() begins."""
        return self.epochs.next

    def set_epoch(self, epoch: int) -> None:
        call_set_epoch(self.sampler, epoch)
        self.epochs.follow(self.sampler)
        self.epochs.set(epoch)

    def __iter__(self) -> Lists:
        self.epochs.follow(self.sampler)
        lists = Lists(Groups(self.sampler, self.batch_size, self.drop_last), self.epochs.begin())
        lists.batch_size = self.batch_size
        lists.slots, lists.finished = self.slots, self.finished
        return lists
