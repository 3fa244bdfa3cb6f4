"""ImageDataset: a packed dataset as a map-style dataset of PyTorch, on wanted feeds."""

import os
import re
import threading
import warnings
import weakref
from collections.abc import Sequence as SequenceABC
from operator import index
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple, Union

import torch
from torch.utils import data
from torch.utils.data import default_collate

from ._batch import IMAGE_ROLE, KEY, Batch
from ._checks import flag, level_of_caller, number
from ._daemon import Settings
from ._dataset import Dataset as Facts
from ._dataset import dataset as facts_of
from ._errors import BadOption, FeedError, FeedTimeout, TransformError
from ._launchers import local_ranks
from ._prefetch import Prefetcher, PrefetcherPool, Request, scarce
from ._ragged import Ragged
from ._sampler import BatchList, Lists
from ._subscription import Feed
from ._timings import Timings
from ._transform import Job, Plan, Pool, Views, collate, entry, occurrences, plain_columns, sample_at, seed_of

_COLUMNS = ("image", "label", "sample", "flags")
_TARGETS = ("target", "share")  # columns of pipelines that mix batches, unless the dataset has values of these names
_NEEDS_VALUES = re.compile(r"\{|\b(mixup|cutmix|targets)\b")  # what feeds with fields do not deliver: views, targets
_DIRECT = 1 << 62  # epochs from here on are for samples requested outside of an epoch

_ELSEWHERE = {
    "target_transform": "with as_dict=True, transform gets the label too",
    "loader": "the daemon decodes; packimg convert packs the images",
    "is_valid_file": "packimg convert chooses the files",
    "root": "the first argument is a .pimg file, which packimg convert makes from a folder",
    "shuffle": "give it to loaderd.DataLoader",
    "batch_size": "give it to loaderd.DataLoader",
}


class DatasetWarning(UserWarning):
    """An ImageDataset is used in a way that works but is slow."""


class Samples(List[Any]):
    """Samples of one request: a list for any collate_fn. finish() makes the batch that DataLoader would have yielded."""

    def __init__(self, samples: Sequence[Any], plan: Plan, batch: Any = None) -> None:
        super().__init__(samples)
        self._plan = plan
        self._batch = batch  # the samples are views of it; None if each sample has its own memory

    def finish(self) -> Any:
        if self._batch is not None:
            return self._batch
        batch = collate(list(self), self._plan)
        if self._plan.names is None:
            batch = tuple(batch)
        return batch if self._plan.batch_transform is None else self._plan.batch_transform(batch)


class Finished(SequenceABC):  # type: ignore[type-arg]
    """A finished batch on its way to `finished`, DataLoader's collate_fn; a sequence of samples for any other one."""

    def __init__(self, batch: Any, count: int, plan: Plan) -> None:
        self.batch = batch
        self._count = count
        self._plan = plan

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: Any) -> Any:
        if self._plan.batch_transform is not None:
            raise BadOption("batch_transform: makes whole batches, so it cannot be combined with a collate_fn; call it in collate_fn", 22)
        if not -self._count <= i < self._count:
            raise IndexError(i)

        def at(column: Any) -> Any:
            value = entry(column, i)
            return value.item() if isinstance(value, torch.Tensor) and value.dim() == 0 else value

        if self._plan.names is None:
            return tuple(at(column) for column in self.batch)
        return {name: at(column) for name, column in self.batch.items()}


def finished(samples: Any) -> Any:
    """The collate_fn of loaderd.DataLoader: an ImageDataset's batches are finished already."""
    if isinstance(samples, Finished):
        return samples.batch
    return samples.finish() if isinstance(samples, Samples) else default_collate(samples)


class ImageDataset(data.Dataset):  # type: ignore[misc]
    """A packed dataset as PyTorch's map-style dataset: ds[i] is (image, label), as in torchvision's ImageFolder.

    Best used with loaderd.DataLoader, which asks for batches ahead. Also works in torch.utils.data.DataLoader, Subset and
    everything else that takes map-style datasets. The image is a tensor [channels, height, width] of the element that the pipeline
    makes, uint8 by default; the label an int, -1 if there is none. If the pipeline mixes batches, the target takes its place, float32
    [classes]; as_dict has both, as label and target.

    path                     of a .pimg file or set of shards, or an address in a store
    pipeline                 transforms that the daemon applies, see loaderd(1)
    seed                     with epoch, sample and occurrence in the batch, determines augmentation
    transform                Python to run on each image after the pipeline, transform(image) -> image; with as_dict,
                             transform(sample) on the dictionary. A parameter named rng gets a numpy.random.Generator that depends
                             on seed, epoch, sample and occurrence alone
    batch_transform          Python to run on each batch of DataLoader, batch_transform(batch) -> batch; may have a parameter rng,
                             too
    numpy                    transform gets images as NumPy arrays [height, width, channels], for OpenCV or Albumentations, and other
                             tensors as arrays, too
    transform_workers        threads that run the transforms, 0 for all CPUs divided by the ranks on this machine
    transform_processes      run them in processes instead, for Python that holds the interpreter's lock. Each sample then also
                             begins with random, numpy.random and torch seeded. In threads, only rng is independent of the number of
                             threads
    multiprocessing_context  start method of these processes, None for Python's default
    as_dict                  True: samples and batches are dictionaries with image, label, sample (its number) and the fields. A
                             mapping, as {"image": "pixel_values", "label": "labels"}, selects and names them; flags is there, too
    values                   names of values of the dataset's schema, such as masks and boxes, which follow the image through the
                             pipeline, see Feed; they need as_dict. Those with any number of rows are lists in batches, of a tensor
                             for each sample
    fields                   names of extra fields, see Feed; they need as_dict
    bad                      "substitute" or "fail": handling of samples that cannot be decoded
    slots                    ring slots for each iteration in progress; 0 lets the daemon choose

    field_bytes, cut_values, name, timeout, reconnect, socket, daemon, threads and settings are those of Feed.

    An iteration that asks for batches ahead has a feed of its own, so loops may be nested and iterators zipped; its feed is reused
    when it is over. A pickled or forked dataset opens feeds of its own, with a DatasetWarning in a DataLoader's workers, since
    num_workers=0 is faster.
    """

    def __init__(
        self,
        path: "Union[str, os.PathLike[str]]",
        pipeline: str = "",
        *,
        seed: int = 0,
        transform: Optional[Callable[..., Any]] = None,
        batch_transform: Optional[Callable[..., Any]] = None,
        numpy: bool = False,
        transform_workers: int = 0,
        transform_processes: bool = False,
        multiprocessing_context: Any = None,
        as_dict: Union[bool, Mapping[str, str]] = False,
        values: Sequence[str] = (),
        fields: Sequence[str] = (),
        bad: str = "substitute",
        slots: int = 0,
        field_bytes: int = 0,
        cut_values: bool = False,
        name: str = "",
        timeout: Optional[float] = None,
        reconnect: Union[bool, float, None] = True,
        socket: Optional[str] = None,
        daemon: str = "auto",
        threads: int = 0,
        settings: Optional[Settings] = None,
        **unknown: NoReturn,
    ) -> None:
        if unknown:
            _refuse(unknown)
        for option, given in (("values", values), ("fields", fields)):
            if isinstance(given, str):
                raise BadOption(f"{option}: must be a list of names, not one string", 22)
        if bad == "skip":
            raise BadOption('bad: "skip" would return fewer samples than were requested; "substitute" flags them', 22)
        self.path = os.fspath(path)
        self.pipeline = pipeline
        self.seed = number("seed", seed, 64)
        self.timings = Timings()
        self._slots = number("slots", slots)
        self._values = tuple(values)
        self._fields = tuple(fields)
        self._all_columns = not isinstance(as_dict, Mapping)
        names = _names(as_dict, values=self._values, fields=self._fields)
        self._plan = Plan(transform, batch_transform, flag("numpy", numpy), names)
        self._workers = number("transform_workers", transform_workers)
        self._processes = flag("transform_processes", transform_processes)
        self._context = multiprocessing_context
        self._epoch: Optional[int] = None
        self._private: Optional[str] = None  # socket of the private daemon, for other processes of this user
        self._options: Dict[str, Any] = dict(
            bad=bad, field_bytes=field_bytes, cut_values=cut_values, name=name, timeout=timeout, reconnect=reconnect, socket=socket,
            daemon=daemon, threads=threads, settings=settings,
        )  # fmt: skip
        self._facts: Optional[Facts] = None
        # feeds deliver source names, for errors of transforms; fields cannot be combined with values, views and targets
        self._keyed = self._transforms and KEY not in self._fields and not self._values and not _NEEDS_VALUES.search(pipeline)
        if self._keyed and not fields:
            self._options["cut_values"] = True  # no name is too long
        prefetcher = self._open_prefetcher(1, 0)  # reports invalid arguments now
        self._samples, self._uuid = prefetcher.feed.samples, prefetcher.feed.uuid
        self._describe(prefetcher.feed)
        self._begin()
        self._prefetchers.add(prefetcher)

    def _describe(self, feed: Feed) -> None:
        """Records which columns are images and which have any number of rows."""
        sections, ragged = feed._source.sections, feed._source.ragged
        for name in self._values:
            if name not in sections:
                raise BadOption(f"values: {name!r} follows the image into each view; ImageDataset delivers images of views, a Feed all", 22)
            if name in _COLUMNS and sections[name][0] != _COLUMNS.index(name):
                raise BadOption(f"values: {name!r} is also the name of a standard column; rename the value, or use a Feed", 22)
        self._add_targets(feed._source.targets)
        names = self._plan.names or {}
        self._plan = self._plan._replace(
            images=("image", *(name for name in self._values if name not in _COLUMNS and sections[name][1] == IMAGE_ROLE)),
            ragged=tuple(shown for name, shown in names.items() if name in self._values and name in ragged),
        )

    def _add_targets(self, targets: Tuple[str, ...]) -> None:
        """Records the columns of targets that the pipeline makes: the second of a tuple, and the entries of a dictionary."""
        names = self._plan.names
        lacking = [name for name in names or () if name in _TARGETS and name not in (*targets, *self._values, *self._fields)]
        if lacking:
            raise BadOption(f"as_dict: {lacking[0]!r} comes from mixup, cutmix or targets in the pipeline, which makes none", 22)
        if names is None and len(targets) > 1:
            raise BadOption("pipeline: targets(pairs) makes two labels and a share; as_dict=True delivers them, and targets(dense) a tensor", 22)
        if names is not None and self._all_columns:
            names = {**names, **{name: name for name in targets}}
        self._plan = self._plan._replace(names=names, target="label" if names is not None or not targets else targets[0])

    def _begin(self) -> None:
        """Initialises the state that is separate in each process."""
        self._prefetchers = PrefetcherPool(self._open_prefetcher, self._samples)
        self._pool: Optional[Pool] = None
        self._lock = threading.Lock()
        self._recent: "Optional[weakref.ref[Lists]]" = None
        self._direct: Optional[int] = None

    def _feed(self, **position: Any) -> Feed:
        """Opens a feed with this dataset's options."""
        fields = self._fields + ((KEY,) if self._keyed else ())
        options = {**self._options, **position}
        options["slots"] = self._slots or options["slots"]
        feed = Feed(self.path, pipeline=self.pipeline, seed=self.seed, values=self._values, fields=fields, **options)
        if feed.daemon is not None:
            self._private = feed.socket
        return feed

    def _open_prefetcher(self, capacity: int, slots: int) -> Prefetcher:
        """Opens a wanted feed for batches of up to `capacity` samples."""
        feed = self._feed(wanted=True, batch_size=capacity, slots=slots)
        return Prefetcher(feed, capacity, self.timings, self._start if self._transforms else None)

    @property
    def _transforms(self) -> bool:
        return self._plan.transform is not None or self._plan.batch_transform is not None

    # what a map-style dataset has

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, (list, tuple)):
            return finished(self.__getitems__(list(i)))
        return self._fetch(BatchList([_whole(i)], None, 0, self._direct_epoch()), False)[0]

    def __getitems__(self, indices: Sequence[int]) -> Any:
        """Returns the samples of a batch, in the order of the list. DataLoaders of PyTorch call this."""
        lists = indices.lists if isinstance(indices, BatchList) else None
        if lists is not None and not lists.adopted:
            lists.adopted = True
            lists.epoch = lists.epoch if self._epoch is None else self._epoch
        if lists is not None and lists.finished:
            return Finished(self._fetch(indices, True), len(indices), self._plan)
        samples = self._fetch(indices, False)
        return samples if isinstance(samples, Samples) else Samples(samples, self._plan)

    @property
    def facts(self) -> Facts:
        """Facts about the dataset, as loaderd.dataset() returns them."""
        if self._facts is None:
            self._facts = facts_of(self.path, **{name: self._options[name] for name in ("socket", "daemon", "threads", "settings")})
        return self._facts

    @property
    def classes(self) -> List[str]:
        """Names of the classes, by label."""
        return list(self.facts.classes)

    @property
    def class_to_idx(self) -> Dict[str, int]:
        return {name: label for label, name in enumerate(self.facts.classes)}

    @property
    def uuid(self) -> Optional[str]:
        """UUID of the content, as `packimg info` shows it; None if the daemon is too old to report it."""
        return self._uuid

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch on which augmentation depends. Iterators of loaderd.DataLoader ignore it.

        By default, a loaderd.BatchSampler numbers its epochs, and each request from elsewhere gets a new augmentation, as in torchvision.
        """
        self._epoch = number("epoch", epoch, 64)

    # requests

    def _direct_epoch(self) -> int:
        """Returns the epoch for a request that does not come from a BatchSampler."""
        if self._epoch is not None:
            return self._epoch
        recent = None if self._recent is None else self._recent()
        if recent is not None:
            return recent.epoch  # such as the lists that Accelerate completes
        with self._lock:
            if self._direct is None:
                info = data.get_worker_info()
                # Each worker begins with a different number in each epoch, from torch's generator.
                self._direct = 0 if info is None else seed_of(info.seed & (1 << 64) - 1, 0, 0, 0) >> 2
            self._direct += 1
            return _DIRECT | self._direct & (_DIRECT - 1)

    def _fetch(self, indices: Sequence[int], collate: bool) -> Any:
        """Returns a finished batch, or a list of samples."""
        self._here()
        lists, position, part = None, 0, None
        if isinstance(indices, BatchList):
            lists, position, part = indices.lists, indices.number, indices.part
            epoch = indices.epoch if lists is None else lists.epoch
        else:
            epoch = self._direct_epoch()
        request = Request(epoch, self._checked(indices))
        if lists is not None and (self._recent is None or self._recent() is not lists):
            self._recent = weakref.ref(lists)
        prefetcher = self._prefetchers.acquire(lists, len(indices))
        try:
            got = prefetcher.fetch(request, lists, position, part)
            if isinstance(got, Job):
                return got.result
            return self._batch(got, scarce(prefetcher.feed)) if collate else self._list(got)
        except FeedError as error:
            if not isinstance(error, (FeedTimeout, TransformError)):
                self._prefetchers.discard(prefetcher)
            raise
        finally:
            self._prefetchers.release(prefetcher)

    def _checked(self, indices: Sequence[int]) -> List[int]:
        numbers = [_whole(i) for i in indices]
        if not numbers:
            raise IndexError("an empty list of samples")
        if min(numbers) < 0 or max(numbers) >= self._samples:
            for i, sample in enumerate(numbers):
                if not -self._samples <= sample < self._samples:
                    raise IndexError(f"sample {sample} of a dataset of {self._samples} samples")
                numbers[i] = sample % self._samples
        return numbers

    def _here(self) -> None:
        """Reinitialises in a process other than the one that opened the feeds."""
        if self._prefetchers.pid == os.getpid():
            return
        self._begin()
        if self._private is not None:
            self._options.update(socket=self._private, daemon="auto", threads=0, settings=None)
        info = data.get_worker_info()
        if info is not None and info.id == 0:
            warnings.warn(
                f"an ImageDataset opens a feed in each of the {info.num_workers} workers of a DataLoader, and its batches are copied "
                "from there. loaderd.DataLoader, or num_workers=0, needs no workers and is faster",
                DatasetWarning,
                stacklevel=level_of_caller(),
            )

    # batches

    def _columns(self, batch: Batch, copy: bool, own: Any = torch.preserve_format) -> Dict[str, Any]:
        if batch.layout == "patches":
            raise BadOption(
                "pipeline: patch_resize divides each image into patches of its own number, and an ImageDataset has images of one shape: "
                "use a Feed, whose batch.images has the patches, or resize in place of patch_resize", 22,
            )  # fmt: skip
        images, labels = batch.torch().images, batch._label_tensor()
        if isinstance(images, list):
            columns = {"image": Views(image.clone(memory_format=own) if copy else image for image in images), "label": labels}
        else:
            columns = {"image": images.clone(memory_format=own) if copy else images, "label": labels}
        if self._plan.names is not None or self._pool is not None:
            columns["sample"] = torch.from_dlpack(batch.buffer("samples")).clone()
            columns["flags"] = torch.from_dlpack(batch.buffer("flags")).clone()
        for name in batch._source.targets:
            columns[name] = batch.tensor(name)
        for name in self._fields:
            values = batch.field(name)
            columns[name] = values if isinstance(values, list) else torch.from_numpy(values.copy())
        for name in self._values:
            if name not in _COLUMNS:
                value = batch.tensor(name)
                columns[name] = value.list() if isinstance(value, Ragged) else value.clone() if copy and hasattr(value, "clone") else value
        return columns

    def _batch(self, batch: Batch, copy: bool) -> Any:
        return self._named(self._columns(batch, copy))

    def _named(self, columns: Dict[str, Any]) -> Any:
        if self._plan.names is None:
            return columns["image"], columns[self._plan.target]
        return {name: columns[column] for column, name in self._plan.names.items()}

    def _list(self, batch: Batch) -> List[Any]:
        own = torch.contiguous_format if batch.count == 1 else torch.preserve_format
        columns = self._columns(batch, True, own)
        plain = plain_columns(columns)
        if not isinstance(columns["image"], Views):
            plain = {**plain, "image": columns["image"].unbind(0)}
        return Samples([sample_at(plain, i, self._plan) for i in range(batch.count)], self._plan, self._named(columns))

    def _start(self, batch: Batch, request: Request, collate: bool) -> Job:
        """Hands a batch to the transforms."""
        if self._pool is None:
            here = data.get_worker_info() is not None  # DataLoader workers are daemonic and cannot have children
            cpus = max(1, len(os.sched_getaffinity(0)) // local_ranks())
            workers = 1 if here else self._workers or cpus
            self._pool = Pool(self._plan, workers, self._processes and not here, self._processes and here, self._context)
            weakref.finalize(self, self._pool.close)
        keys = batch.field(KEY) if self._keyed or KEY in self._fields else None
        counts = occurrences(request.samples)
        seeds = [seed_of(self.seed, request.epoch, sample, count) for sample, count in zip(request.samples, counts)]
        batch_seed = seed_of(self.seed, request.epoch, request.samples[0], len(seeds))
        return self._pool.start(self._columns(batch, not collate), seeds, batch_seed, keys, collate)

    # copies for other processes

    def __getstate__(self) -> Dict[str, Any]:
        own = ("_prefetchers", "_pool", "_lock", "_recent", "_direct", "timings")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.timings = Timings()
        self._begin()
        self._prefetchers.pid = 0  # no process: the first request reinitialises, and warns if necessary

    def close(self) -> None:
        """Closes the feeds and ends the transforms' threads or processes. Batches stay valid; the next request opens new feeds."""
        self._prefetchers.close()
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def __repr__(self) -> str:
        return f"<loaderd.ImageDataset {self.path}: {self._samples} samples, pipeline {self.pipeline!r}>"


def _refuse(unknown: Mapping[str, Any]) -> NoReturn:
    from difflib import get_close_matches

    name = next(iter(unknown))
    near = get_close_matches(name, ImageDataset.__init__.__kwdefaults__ or (), 1)
    hint = _ELSEWHERE.get(name) or (f"did you mean {near[0]}?" if near else "help(loaderd.ImageDataset) lists the options")
    raise TypeError(f"ImageDataset has no option {name}: {hint}")


def _whole(i: Any) -> int:
    if type(i) is int:
        return i
    try:
        return index(i)
    except TypeError:
        raise TypeError(f"{i!r} is not a sample number") from None


def _names(as_dict: Union[bool, Mapping[str, str]], **more: Tuple[str, ...]) -> Optional[Dict[str, str]]:
    """Returns the names of the columns in dictionaries, None for tuples. `more` has the options that add columns."""
    known = tuple(dict.fromkeys((*_COLUMNS, *(name for names in more.values() for name in names))))
    if isinstance(as_dict, Mapping):
        for column in as_dict:
            if column not in (*known, *_TARGETS):
                raise BadOption(f"as_dict: {column!r} is not one of {', '.join(known)}", 22)
        return dict(as_dict)
    if not flag("as_dict", as_dict):
        for option, names in more.items():
            if names:
                raise BadOption(f"{option}: samples are (image, label); as_dict=True makes them dictionaries that have {', '.join(names)}", 22)
        return None
    return {column: column for column in known if column != "flags"}
