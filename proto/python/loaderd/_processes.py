"""Worker processes: functions applied to many items in order, and exceptions sent from one process to another. Standard library only."""

import multiprocessing
import os
import pickle
import traceback
from typing import Any, Callable, Iterable, Iterator, List, Tuple

_PARENT_POLL_S = 5.0  # between two looks at whether the parent lives


class WorkerTraceback(Exception):
    """Holds the traceback of a worker process as text, as the cause of the exception that it sent."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class WorkerEnded(Exception):
    """A worker process ended by itself; the argument is its exit status."""


def pack_error(error: BaseException) -> Tuple[bytes, str]:
    """Pickled exception and traceback, for the other process."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        pickled = pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return pickled, text


def unpack_error(pickled: bytes, text: str) -> BaseException:
    error: BaseException = pickle.loads(pickled)
    error.__cause__ = WorkerTraceback(text)
    return error


def _main(connection: Any, others: List[Any], function: Callable[[Any], Any], parent: int) -> None:
    for other in others:
        other.close()
    while True:
        while not connection.poll(_PARENT_POLL_S):
            if os.getppid() != parent:
                return
        try:
            item = connection.recv()
            try:
                answer: Tuple[bool, Any] = True, pickle.dumps(function(item), 5)
            except Exception as error:
                answer = False, pack_error(error)
            connection.send(answer)
        except (EOFError, ConnectionError, KeyboardInterrupt):
            return


class _Worker:
    """A worker process, as its parent sees it."""

    def __init__(self, function: Callable[[Any], Any], others: List[Any]) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(
            target=_main, args=(theirs, [*others, self.connection], function, os.getpid()), name="loaderd map", daemon=True
        )
        self._process.start()
        theirs.close()
        self.waiting = 0  # items sent of which the result has not been received

    def send(self, item: Any) -> None:
        try:
            self.connection.send(item)
        except ConnectionError:
            self._ended()
        self.waiting += 1

    def receive(self) -> Any:
        self.waiting -= 1
        try:
            good, answer = self.connection.recv()
        except (EOFError, ConnectionError):
            self._ended()
        if good:
            return pickle.loads(answer)
        raise unpack_error(*answer)

    def _ended(self) -> None:
        self._process.join(1)
        raise WorkerEnded(self._process.exitcode)

    def close(self) -> None:
        self.connection.close()
        self._process.terminate()
        self._process.join()


def ordered_map(function: Callable[[Any], Any], items: Iterable[Any], count: int, ahead: int) -> Iterator[Any]:
    """Yields function(item) of every item, in order, from `count` worker processes.

    Each worker holds up to `ahead` items: 1 unless all items are small, since two processes that send each other more than a pipe holds
    would wait for each other. Raises what the function raised, with WorkerTraceback as its cause, or WorkerEnded.
    """
    workers: List[_Worker] = []
    try:
        for _ in range(count):
            workers.append(_Worker(function, [worker.connection for worker in workers]))
        sent = received = 0
        for item in items:
            worker = workers[sent % count]
            if worker.waiting == ahead:
                yield worker.receive()
                received += 1
            worker.send(item)
            sent += 1
        for i in range(received, sent):
            yield workers[i % count].receive()
    finally:
        for worker in workers:
            worker.close()
