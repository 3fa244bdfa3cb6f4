"""Exceptions. Each is a FeedError with a message for the user and the errno in .code."""

import errno
from typing import Dict, Optional, Tuple, Type

from . import _feed


class FeedError(Exception):
    """Base class of all errors of this package."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code
        if isinstance(self, OSError):
            setattr(self, "errno", code)  # OSError's attributes, which only some subclasses have
            setattr(self, "strerror", text)

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> "Tuple[Type[FeedError], Tuple[str, int]]":
        return type(self), (str(self), self.code)


class NoDaemon(FeedError, ConnectionError):
    """No daemon listens on the socket, or a private one did not start."""


class DaemonGone(FeedError, ConnectionError):
    """The daemon ended, and the feed could not be reopened, or must not be (reconnect=False)."""


class BadOption(FeedError, ValueError):
    """An option is invalid; the text names it."""


class BadPipeline(BadOption):
    """The pipeline is invalid; the text shows the position."""


class DatasetReplaced(FeedError):
    """The dataset at the path was replaced since the feed was opened."""


class NoDataset(FeedError, FileNotFoundError):
    """The dataset does not exist."""


class NotPermitted(FeedError, PermissionError):
    """This user may not read the dataset or use the daemon, or the daemon's configuration forbids the request."""


class LimitExceeded(FeedError):
    """The request exceeds a limit of the daemon."""


class FeedTimeout(FeedError, TimeoutError):
    """No batch came within the timeout."""


class FeedFailed(FeedError):
    """The daemon ended the feed, for instance at a damaged sample with bad="fail"."""


class NoFreeBatch(FeedError):
    """The program holds a batch in every slot of the feed."""


class ProtocolError(FeedError):
    """The daemon and the library speak incompatible protocols, or one of them broke the protocol."""


class RankChanged(FeedError, RuntimeError):
    """A process group was initialized in which this process has another rank than its feed, which has already delivered batches."""


class TransformError(FeedError):
    """A transform= or batch_transform= raised an exception, which is the __cause__.

    sample is the sample's number and source the name of its source file, each None if it is not known.
    """

    sample: Optional[int] = None
    source: Optional[str] = None


class BadSample(FeedError, ValueError):
    """A sample given to a Writer has a value that cannot be stored, or reading it raised an exception, which is the __cause__.

    sample is its number and field the name of the value, each None if it is not known.
    """

    sample: Optional[int] = None
    field: Optional[str] = None


class WriteFailed(FeedError, OSError):
    """A dataset could not be written."""


class WrongProcess(FeedError, RuntimeError):
    """A Feed was used in a process forked from the one that opened it."""


_BY_CODE: Dict[int, Type[FeedError]] = {
    errno.ECONNRESET: DaemonGone,
    errno.ENOTCONN: DaemonGone,
    errno.ECONNREFUSED: NoDaemon,
    errno.ECHILD: WrongProcess,
    errno.EINVAL: BadOption,
    errno.EACCES: NotPermitted,
    errno.EPERM: NotPermitted,
    errno.ENAMETOOLONG: BadOption,
    errno.EMSGSIZE: BadOption,
    errno.ENOENT: NoDaemon,
    errno.EDQUOT: LimitExceeded,
    errno.ETIMEDOUT: FeedTimeout,
    errno.EBADMSG: FeedFailed,
    errno.ENOBUFS: NoFreeBatch,
    errno.EPROTO: ProtocolError,
    errno.ESTALE: DatasetReplaced,
}


def translated(error: "_feed.Error", more: str = "") -> FeedError:
    """Returns the exception for an error of libfeed."""
    code, text = error.args
    kind = _BY_CODE.get(code, FeedError)
    if kind in (BadOption, FeedError) and text.startswith("pipeline"):  # arguments out of bounds have a separate errno
        kind = BadPipeline
    if code == errno.ENOENT and text.startswith("dataset"):
        kind = NoDataset
    return kind(text + more, code)
