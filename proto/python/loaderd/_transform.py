"""Runs the user's transforms on samples and batches, concurrently with the consumer, in threads or child processes."""

import inspect
import queue
import random
import threading
import time
from hashlib import blake2b
from struct import pack
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch
from torch.utils.data import default_collate

from ._errors import TransformError

Call = Callable[..., Any]
Columns = Mapping[str, Any]  # name -> tensor or list, with one entry for each sample


def seed_of(seed: int, epoch: int, sample: int, occurrence: int) -> int:
    """Hashes the arguments to 64 bits, independent of threads, processes and the order of work."""
    digest = blake2b(pack("<4Q", seed, epoch, sample, occurrence), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def occurrences(samples: Sequence[int]) -> List[int]:
    """For each number: how many equal numbers precede it."""
    seen: Dict[int, int] = {}
    result = []
    for sample in samples:
        result.append(seen.get(sample, 0))
        seen[sample] = result[-1] + 1
    return result


def takes_rng(function: Optional[Call]) -> bool:
    """True if the function has a parameter named rng."""
    try:
        return function is not None and "rng" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def generator(seed: int) -> Any:
    import numpy

    return numpy.random.Generator(numpy.random.PCG64(seed))


def seed_globals(seed: int) -> None:
    """Seeds the generators that libraries use by default. Only in a process of its own."""
    import numpy

    random.seed(seed)
    numpy.random.seed(seed & 0xFFFFFFFF)
    torch.default_generator.manual_seed(seed & 0x7FFFFFFFFFFFFFFF)  # torch.manual_seed() takes milliseconds if CUDA is available


class Plan(NamedTuple):
    """What to do with each batch. Sent to worker processes, so transform and batch_transform must then be picklable under spawn."""

    transform: Optional[Call]
    batch_transform: Optional[Call]
    numpy: bool  # transform gets tensors as NumPy arrays, images as [height, width, channels]
    names: Optional[Mapping[str, str]]  # keys of dictionaries, by column; None for tuples (image, label)
    images: Tuple[str, ...] = ("image",)  # columns of images [channels, height, width]
    ragged: Tuple[str, ...] = ()  # keys of values with any number of rows, which batches have as lists
    target: str = "label"  # column of the second in a tuple


class Views(List[Any]):
    """A column of which each sample has several values: one tensor or list for each copy of a view."""

    def sample(self, i: int) -> Tuple[Any, ...]:
        return tuple(copy[i] for copy in self)

    def samples(self, at: int, end: int) -> "Views":
        return Views(copy[at:end] for copy in self)


def entry(column: Any, i: int) -> Any:
    """Returns what sample i has in a column."""
    return column.sample(i) if isinstance(column, Views) else column[i]


def sample_at(columns: Columns, i: int, plan: Plan) -> Any:
    """Returns sample i as the user sees it: (image, label) or a dictionary. Labels and other numbers are Python's."""

    def shown(column: str, value: Any) -> Any:
        if not plan.numpy or not isinstance(value, torch.Tensor):
            return value
        return value.permute(1, 2, 0).numpy() if column in plan.images else value.numpy()

    def at(column: str) -> Any:
        value = entry(columns[column], i)
        if isinstance(columns[column], Views):
            return tuple(shown(column, one) for one in value)
        return shown(column, value)

    if plan.names is None:
        return at("image"), at(plan.target)
    return {name: at(column) for column, name in plan.names.items()}


def collate(samples: List[Any], plan: Plan) -> Any:
    """Like default_collate(), except that values with any number of rows stay lists."""
    lists = [name for name in plan.ragged if isinstance(samples[0], Mapping) and all(name in sample for sample in samples)]
    if not lists:
        return default_collate(samples)
    batch = default_collate([{name: value for name, value in sample.items() if name not in lists} for sample in samples])
    return {**batch, **{name: [_tensor(sample[name]) for sample in samples] for name in lists}}


def _tensor(value: Any) -> Any:
    return torch.from_numpy(value) if type(value).__module__ == "numpy" and hasattr(value, "shape") else value


def transformed(sample: Any, plan: Plan, seed: int, with_rng: bool) -> Any:
    assert plan.transform is not None
    more = {"rng": generator(seed)} if with_rng else {}
    if plan.names is None:
        return plan.transform(sample[0], **more), sample[1]
    return plan.transform(sample, **more)


def plain_columns(columns: Columns) -> Columns:
    """Converts columns with one number for each sample from tensors to Python numbers."""
    return {name: column.tolist() if isinstance(column, torch.Tensor) and column.dim() == 1 else column for name, column in columns.items()}


def run_chunk(columns: Columns, seeds: Sequence[int], plan: Plan, with_rng: bool, globally: bool) -> "Tuple[List[Any], Optional[Failure]]":
    """Transforms the samples of a chunk. Stops at the first failure."""
    results: List[Any] = []
    for i, seed in enumerate(seeds):
        try:
            if globally:
                seed_globals(seed)
            results.append(transformed(sample_at(columns, i, plan), plan, seed, with_rng))
        except Exception as error:
            return results, Failure(i, error)
    return results, None


class Failure(NamedTuple):
    """Exception of a transform, and the sample's position in the chunk; -1 for batch_transform."""

    position: int
    error: BaseException


class Job:
    """One batch on its way through the transforms. The threads of the pool share its chunks."""

    def __init__(
        self, pool: "Pool", columns: Columns, seeds: Sequence[int], batch_seed: int, keys: Optional[Sequence[str]], collate: bool
    ) -> None:
        self.seconds = 0.0  # of transforms, over all threads
        self.result: Any = None  # a finished batch; a list of samples if collate is False
        self._pool = pool
        self._columns = plain_columns(columns)
        self._batch = columns
        self._samples: List[int] = columns["sample"].tolist()
        self._keys = keys
        self._seeds = seeds
        self._batch_seed = batch_seed
        self._collate = collate
        self._results: List[Any] = [None] * len(seeds)
        step = max(1, -(-len(seeds) // (4 * pool.workers)) if pool.processes else 1)
        self._chunks = iter([(at, min(at + step, len(seeds))) for at in range(0, len(seeds), step)])
        self._lock = threading.Lock()
        self._runners = 0
        self._failure: Optional[BaseException] = None
        self._cancelled = False
        self._done = threading.Event()

    def begin(self, runners: int) -> None:
        self._runners = runners
        for _ in range(runners):
            self._pool.submit(self._run)

    def _next_chunk(self) -> Optional[Tuple[int, int]]:
        with self._lock:
            return None if self._cancelled or self._failure else next(self._chunks, None)

    def _run(self) -> None:
        spent = 0.0
        try:
            chunk = self._next_chunk() if self._pool.plan.transform is not None else None
            while chunk is not None:
                begun = time.perf_counter()
                self._transform(*chunk)
                spent += time.perf_counter() - begun
                chunk = self._next_chunk()
        except BaseException as error:
            self._fail(error)
        with self._lock:
            self.seconds += spent
            self._runners -= 1
            last = self._runners == 0
        if last:
            self._finish()

    def _transform(self, at: int, end: int) -> None:
        columns = {
            name: column.samples(at, end) if isinstance(column, Views) else column[at:end] for name, column in self._columns.items()
        }
        results, failure = self._pool.run_chunk(columns, self._seeds[at:end])
        self._results[at : at + len(results)] = results
        if failure is not None:
            position = at + failure.position
            self._fail(self._error("transform", failure.error, position))

    def _error(self, what: str, error: BaseException, position: int) -> BaseException:
        if not isinstance(error, Exception):
            return error
        sample = self._samples[position] if position >= 0 else None
        source = self._keys[position] if self._keys and position >= 0 else None
        where = "a batch" if sample is None else f"sample {sample}" + (f" ({source})" if source else "")
        raised = TransformError(f"{what} failed for {where}: {type(error).__name__}: {error}")
        raised.sample, raised.source = sample, source
        raised.__cause__ = error
        return raised

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._failure = self._failure or error

    def _finish(self) -> None:
        """Collates; in the thread that was the last to finish its samples."""
        begun = time.perf_counter()
        try:
            if self._failure is None and not self._cancelled:
                self.result = self._collated()
        except BaseException as error:
            self._fail(error)
        self.seconds += time.perf_counter() - begun
        self._columns, self._results, self._batch = {}, [], {}  # the slot becomes free
        self._done.set()

    def _collated(self) -> Any:
        plan = self._pool.plan
        if not self._collate:
            return self._results if plan.transform is not None else [sample_at(self._columns, i, plan) for i in range(len(self._seeds))]
        if plan.transform is None:
            result = self._untouched()
        elif plan.names is None:
            result = default_collate([image for image, _ in self._results]), self._batch[plan.target]
        else:
            result = collate(self._results, plan)
        if plan.batch_transform is None:
            return result
        value, failure = self._pool.run_batch(result, self._batch_seed)
        if failure is not None:
            raise self._error("batch_transform", failure.error, -1)
        return value

    def _untouched(self) -> Any:
        names = self._pool.plan.names
        if names is None:
            return self._batch["image"], self._batch[self._pool.plan.target]
        return {name: self._batch[column] for column, name in names.items()}

    def wait(self) -> None:
        self._done.wait()
        if self._failure is not None:
            raise self._failure

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True


def _work(tasks: "queue.SimpleQueue[Optional[Callable[[], None]]]") -> None:
    while True:
        task = tasks.get()
        if task is None:
            return
        task()
        del task  # it holds a batch


class Pool:
    """Threads that run the transforms; with processes=True each thread has a worker process that does the work."""

    def __init__(self, plan: Plan, workers: int, processes: bool, globally: bool, context: Any) -> None:
        self.plan = plan
        self._globally = globally  # this process runs only transforms, so the libraries' global generators may be seeded
        self.workers = workers
        self.processes = processes
        self._with_rng = takes_rng(plan.transform)
        self._batch_with_rng = takes_rng(plan.batch_transform)
        self._tasks: "queue.SimpleQueue[Optional[Callable[[], None]]]" = queue.SimpleQueue()
        for number in range(workers):  # daemon threads: the program's exit does not wait for prefetched batches
            threading.Thread(target=_work, args=(self._tasks,), name=f"loaderd transform {number}", daemon=True).start()
        self._idle: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._processes: List[Any] = []
        if processes:
            from ._transform_process import Worker

            for number in range(workers):
                worker = Worker(plan, self._with_rng, self._batch_with_rng, number, context)
                self._processes.append(worker)
                self._idle.put(worker)

    def submit(self, function: Callable[[], None]) -> None:
        self._tasks.put(function)

    def start(self, columns: Columns, seeds: Sequence[int], batch_seed: int, keys: Optional[Sequence[str]], collate: bool) -> Job:
        job = Job(self, columns, seeds, batch_seed, keys, collate)
        job.begin(1 if self.plan.transform is None else min(self.workers, len(seeds)))
        return job

    def run_chunk(self, columns: Columns, seeds: Sequence[int]) -> Tuple[List[Any], Optional[Failure]]:
        if not self.processes:
            return run_chunk(columns, seeds, self.plan, self._with_rng, self._globally)
        return self._remote("chunk", columns, list(seeds))  # type: ignore[no-any-return]

    def run_batch(self, batch: Any, seed: int) -> Tuple[Any, Optional[Failure]]:
        if not self.processes:
            return run_batch(batch, seed, self.plan, self._batch_with_rng, self._globally)
        return self._remote("batch", batch, seed)  # type: ignore[no-any-return]

    def _remote(self, *call: Any) -> Any:
        worker = self._idle.get()
        try:
            return worker.call(*call)
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        for _ in range(self.workers):
            self._tasks.put(None)
        for worker in self._processes:
            worker.close()


def run_batch(batch: Any, seed: int, plan: Plan, with_rng: bool, globally: bool) -> Tuple[Any, Optional[Failure]]:
    assert plan.batch_transform is not None
    try:
        if globally:
            seed_globals(seed)
        return plan.batch_transform(batch, **({"rng": generator(seed)} if with_rng else {})), None
    except Exception as error:
        return None, Failure(-1, error)
