"""DataLoader: torch's, over an ImageDataset, with batches that the daemon makes ahead."""

import inspect
import os
import warnings
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Tuple, Union

import torch
from torch.utils import data

from ._checks import flag, number
from ._daemon_order import DaemonOrder, Order
from ._errors import BadOption
from ._image_dataset import ImageDataset, finished
from ._sampler import BatchList, BatchSampler, Epochs, Given, Items, Lists, Position, call_set_epoch, source_of
from ._timings import Timings

_TORCH = inspect.signature(data.DataLoader.__init__).parameters

_ELSEWHERE = {
    "transform": "give it to loaderd.ImageDataset",
    "pipeline": "give it to loaderd.ImageDataset",
    "seed": "give it to loaderd.ImageDataset; the order follows from generator, as in torch",
    "last": "drop_last=True drops an incomplete last batch",
    "rank": "give a torch.utils.data.DistributedSampler as sampler",
}


def _subset(dataset: Any) -> "Tuple[ImageDataset, Optional[Callable[[List[Any]], List[Any]]]]":
    """Finds the ImageDataset within torch's Subsets, and the mapping from their sample numbers to its own."""
    if isinstance(dataset, ImageDataset):
        return dataset, None
    if isinstance(dataset, data.Subset):
        base, inner = _subset(dataset.dataset)
        indices = dataset.indices

        def mapped(samples: List[Any]) -> List[Any]:
            own = [indices[sample] for sample in samples]
            return own if inner is None else inner(own)

        return base, mapped
    raise TypeError(
        f"dataset: {type(dataset).__name__} is not a loaderd.ImageDataset, nor a torch.utils.data.Subset of one; "
        "torch.utils.data.DataLoader takes any dataset, also one that uses ImageDatasets"
    )


class _Start:
    """State of the samplers and generators at the beginning of an epoch, from which its order can be drawn again."""

    def __init__(self, loader: "DataLoader") -> None:
        self.generators = [None if generator is None else generator.get_state() for generator in loader._generators()]
        sampler = loader._order_sampler()
        self.sampler_epoch = getattr(sampler, "epoch", None) if hasattr(sampler, "set_epoch") else None
        self.sampler = sampler.state_dict() if hasattr(sampler, "state_dict") and hasattr(sampler, "load_state_dict") else None
        self.torch = torch.get_rng_state() if getattr(sampler, "generator", None) is None else None  # not needed if the sampler has its own generator

    def state(self, drawn: bool) -> Dict[str, Any]:
        return {**self.__dict__, "torch": self.torch if drawn else None}

    @staticmethod
    def restore(loader: "DataLoader", state: Mapping[str, Any]) -> None:
        for generator, saved in zip(loader._generators(), state["generators"]):
            if generator is not None and saved is not None:
                generator.set_state(saved)
        sampler = loader._order_sampler()
        if state["sampler"] is not None:
            sampler.load_state_dict(state["sampler"])
        if state["sampler_epoch"] is not None:
            call_set_epoch(sampler, state["sampler_epoch"])


class _Iterator:
    """One epoch of a DataLoader."""

    def __init__(self, loader: "DataLoader", lists: Lists, start: _Start, single: bool) -> None:
        self._loader = loader
        self._lists = lists
        self._start = start
        self._single = single  # batch_size=None: yields single samples
        self.position = Position(lists.epoch, lists.taken)

    def __iter__(self) -> "_Iterator":
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        loader = self._loader
        if self._start.torch is not None and self._lists.taken == 0:
            self._start.torch = torch.get_rng_state()  # the order is drawn now
        indices = next(self._lists)
        self.position.batches += 1
        return loader._finish(self._fetch(indices))

    def _fetch(self, indices: BatchList) -> Any:
        loader = self._loader
        if self._single and self._lists.single:
            sample = loader._images._fetch(indices, False)[0]
            return sample if loader.collate_fn is finished else loader.collate_fn(sample)
        if loader.collate_fn is finished:
            return loader._images._fetch(indices, True)
        return loader.collate_fn(list(loader._images._fetch(indices, False)))


class DataLoader(data.DataLoader):  # type: ignore[misc]
    """torch.utils.data.DataLoader with the same arguments, order and defaults, over a loaderd.ImageDataset.

        dataset = loaderd.ImageDataset("train.pimg", "random_resized_crop(224) hflip(0.5)")
        loader = loaderd.DataLoader(dataset, batch_size=256, shuffle=True)
        for epoch in range(90):
            for images, labels in loader:
                ...

    Images are tensors [batch, channels, height, width] in channels_last memory, of the element that the pipeline makes; labels are
    int64. With ImageDataset's as_dict, batches are dictionaries. Each iter() begins a new epoch, with new augmentation, also after a
    loop that was left early; set_epoch() names the next one. A generator in the same state gives the same order as in torch.

    dataset          an ImageDataset, or a torch.utils.data.Subset of one; or the path of a .pimg file, with ImageDataset's options
                     as further arguments
    shuffle          True: torch's RandomSampler draws the order. "daemon": the daemon does, for this process's part of the epoch
                     as with Feed's rank="auto"; no list of samples is made, and resuming takes no time. Frameworks that build a
                     loader of their own, such as Accelerate and Lightning with several processes, need True
    collate_fn       gets a list of samples, copied from shared memory. Without one, batches come without a copy
    num_workers      any number: no worker processes are needed, since the daemon's threads decode. The attribute is always 0
    prefetch_factor  batches made ahead: the feed gets this number of ring slots and two for batches in use. Default: the daemon's
    pin_memory       copies batches to pinned memory if there is an accelerator
    timeout          seconds to wait for a batch, else FeedTimeout; 0 for ImageDataset's

    batch_size, sampler, batch_sampler, drop_last and generator are those of torch. persistent_workers, worker_init_fn,
    multiprocessing_context, pin_memory_device and in_order are accepted; without worker processes they mean nothing: seeds do not
    depend on them, and batches come in order.

    Batches refer to shared memory, and each occupies a slot of the feed until it is dropped. If a program keeps so many that the
    daemon could not work ahead, the following batches are copies: any number may be kept.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: Optional[int] = 1,
        shuffle: Union[bool, str, None] = None,
        sampler: Optional[Items] = None,
        batch_sampler: Optional[Items] = None,
        num_workers: int = 0,
        collate_fn: Optional[Callable[[Any], Any]] = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Optional[Callable[[int], None]] = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: Optional[int] = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        **own: Any,
    ) -> None:
        if isinstance(dataset, (str, os.PathLike)):
            dataset = ImageDataset(dataset, **own)
        elif own:
            _refuse(own)
        number("num_workers", num_workers)
        if not isinstance(timeout, (int, float)) or timeout < 0:
            raise ValueError(f"timeout: {timeout!r} is not a number of seconds of at least 0")
        base, mapping = _subset(dataset)
        by_daemon = shuffle == "daemon"
        if by_daemon:
            DaemonOrder.check(dataset, batch_size, sampler=sampler, batch_sampler=batch_sampler, generator=generator)
            sampler, shuffle = DaemonOrder(base), None
        elif shuffle not in (None, False, True):
            raise BadOption(f'shuffle: {shuffle!r} is not one of True, False, None, "daemon"', 22)
        newer = {"in_order": in_order} if "in_order" in _TORCH else {}
        super().__init__(
            dataset, batch_size, shuffle, sampler, batch_sampler, 0, collate_fn or finished, pin_memory, drop_last, 0,
            worker_init_fn, None, generator, pin_memory_device=pin_memory_device, **newer,
        )  # fmt: skip
        self.in_order = in_order
        slots = 0 if prefetch_factor is None else number("prefetch_factor", prefetch_factor) + 2
        if batch_sampler is None and batch_size is not None:
            batch_sampler = BatchSampler(self.sampler, batch_size, flag("drop_last", drop_last))
            object.__setattr__(self, "batch_sampler", batch_sampler)  # torch made one of its own
        if isinstance(batch_sampler, BatchSampler):
            batch_sampler.slots = slots
            batch_sampler.finished = collate_fn is None and mapping is None
        self._images, self._mapping, self._slots = base, mapping, slots
        self._wait = timeout or None
        self._order: Optional[Order] = None
        if by_daemon:
            assert batch_size is not None
            self._order = Order(base, batch_size, drop_last, slots)
        self._epochs = Epochs()  # for a batch sampler that does not number them
        self._newest: Optional[Tuple[Position, _Start]] = None  # of the newest iterator
        self._resume: Optional[Dict[str, Any]] = None

    # order

    def _epoch_counter(self) -> Epochs:
        if type(self.batch_sampler) is BatchSampler and self._order is None:
            return self.batch_sampler.epochs
        return self._epochs

    def _order_sampler(self) -> Any:
        """The sampler that draws the order."""
        inner = getattr(self.batch_sampler, "sampler", self.batch_sampler)
        return self.sampler if inner is None else inner

    def _generators(self) -> List[Any]:
        """The torch generators from which the order is drawn; [None] for the global one."""
        drawn = getattr(self._order_sampler(), "generator", None)
        return [self.generator] if drawn is None or drawn is self.generator else [self.generator, drawn]

    def _lists(self) -> Lists:
        batches = self.batch_sampler if self.batch_sampler is not None else Given(self.sampler)
        source = batches if isinstance(batches, Given) else source_of(batches)
        self._epoch_counter().follow(self._order_sampler())
        lists = Lists(source, self._epoch_counter().begin(), self._mapping)
        lists.batch_size = getattr(batches, "batch_size", 0) or 0
        lists.slots, lists.timeout, lists.finished = self._slots, self._wait, self.collate_fn is finished
        return lists

    def _get_iterator(self) -> Any:
        if self._order is not None:
            return self._order.iterate(self)
        if self.pin_memory and not torch.cuda.is_available():
            warnings.warn("pin_memory: there is no accelerator, so batches stay in pageable memory", stacklevel=3)
        resumed = self._take_resume()
        if resumed is not None:
            return resumed
        start = _Start(self)
        lists = self._lists()
        # torch's loader draws a seed for its workers here; drawing it too keeps the generator's later orders equal to torch's
        torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        return self._made(lists, start)

    def _made(self, lists: Lists, start: _Start) -> _Iterator:
        iterator = _Iterator(self, lists, start, self.batch_sampler is None)
        self._newest = iterator.position, start
        return iterator

    def _take_resume(self) -> Optional[_Iterator]:
        """Returns an iterator at the loaded position; None without one, or if another epoch begins."""
        state, self._resume = self._resume, None
        epochs = self._epoch_counter()
        epochs.follow(self._order_sampler())
        if state is None or epochs.named not in (None, state["epoch"]):
            return None
        named = epochs.named is not None
        _Start.restore(self, state)
        epochs.follow(self._order_sampler())
        epochs.begin_at(state["epoch"])
        start = _Start(self)
        if state["torch"] is not None:
            start.torch = state["torch"]
        with _torch_state(state["torch"]):
            lists = self._lists()
            if state["torch"] is None or self.generator is not None:
                torch.empty((), dtype=torch.int64).random_(generator=self.generator)
            for _ in range(state["batches"]):
                if next(lists, None) is None:
                    break
            if lists.at_end() and state["batches"] and not named:
                return None  # the epoch was over; the next one begins
        return self._made(lists, start)

    def set_epoch(self, epoch: int) -> None:
        """The next iter() begins this epoch. After load_state_dict(), the epoch that was loaded continues where it was.

        Also calls set_epoch() of the sampler, as torch's DistributedSampler needs it.
        """
        call_set_epoch(self._order_sampler(), epoch)
        if self.batch_sampler is not None and type(self.batch_sampler) is not BatchSampler:
            call_set_epoch(self.batch_sampler, epoch)
        self._epoch_counter().follow(self._order_sampler())
        self._epoch_counter().set(epoch)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return int(super().__len__()) if self._order is None else len(self._order)

    @property
    def _collates(self) -> bool:
        """True if collate_fn is the user's."""
        return self.collate_fn is not finished

    # what follows the dataset

    def _finish(self, batch: Any) -> Any:
        if self.pin_memory and torch.cuda.is_available():
            return data._utils.pin_memory.pin_memory(batch)
        return batch

    @property
    def timings(self) -> Timings:
        """Where the time goes: loaderd.Timings of the dataset."""
        return self._images.timings

    # position

    def state_dict(self) -> Dict[str, Any]:
        """Returns the position after the last batch that the newest iterator returned. For torch.save(), since it has tensors."""
        own = {"seed": self._images.seed, "uuid": self._images.uuid, "batch_size": getattr(self.batch_sampler, "batch_size", None)}
        if self._order is not None:
            return {**self._order.state(self), **own}
        if self._resume is not None:
            return dict(self._resume)
        if self._newest is None:
            return {"epoch": self._epoch_counter().next, "batches": 0, **_Start(self).state(drawn=False), **own}
        position, start = self._newest
        return {"epoch": position.epoch, "batches": position.batches, **start.state(drawn=position.batches > 0), **own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iter() continues exactly where state_dict() was called; at an epoch's end, with the next epoch.

        The samplers must be of the same kind. Their order is drawn again, which takes the time of drawing, not of decoding.
        """
        own = {"seed": self._images.seed, "uuid": self._images.uuid, "batch_size": getattr(self.batch_sampler, "batch_size", None)}
        for key, value in own.items():
            if state[key] != value and not (key == "uuid" and None in (state[key], value)):
                raise BadOption(
                    f"{key}: the state was saved with {state[key]!r}, but this loader has {value!r}, which gives different batches", 22
                )
        if self._order is not None:
            self._order.load(state)
            self._epoch_counter().begin_at(state["epoch"])
        elif "generators" not in state:
            raise BadOption('shuffle: the state was saved with shuffle="daemon", but this loader has another order', 22)
        else:
            self._resume = dict(state)
            self._epoch_counter().follow(self._order_sampler())
            self._epoch_counter().begin_at(state["epoch"])


class _torch_state:
    """Runs a block with another state of torch's global generator, and restores the old one. Does nothing for None."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def __enter__(self) -> None:
        if self._state is not None:
            self._before = torch.get_rng_state()
            torch.set_rng_state(self._state)

    def __exit__(self, *unused: object) -> None:
        if self._state is not None:
            torch.set_rng_state(self._before)


def _refuse(unknown: Mapping[str, Any]) -> NoReturn:
    from difflib import get_close_matches

    name = next(iter(unknown))
    near = get_close_matches(name, [key for key in _TORCH if key != "self"], 1)
    hint = _ELSEWHERE.get(name) or (f"did you mean {near[0]}?" if near else "help(loaderd.DataLoader) lists the options")
    raise TypeError(f"DataLoader has no option {name}: {hint}")
