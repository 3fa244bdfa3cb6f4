"""Choice of the daemon for a Feed, and private daemons."""

import atexit
import logging
import os
import re
import socket as sockets
import sys
import threading
from typing import Dict, Mapping, Optional, Sequence, Tuple, Union

from . import _feed
from ._checks import number, text
from ._errors import BadOption, FeedError, NoDaemon, translated
from ._launchers import local_ranks

Settings = Mapping[str, Union[str, int]]

_logger = logging.getLogger("loaderd")
_ANSWER_S = 10.0  # a service may have to start first
_GET_STATUS = b"\x02\0\0\0\x12\0"  # a frame with the request GetStatus


def _binary(variable: str = "LOADERD", name: str = "loaderd") -> Optional[str]:
    """Finds a program: by its variable, then in this package, then in this environment; else libfeed searches, last in PATH."""
    if os.environ.get(variable):
        return os.environ[variable]
    for path in (
        os.path.join(os.path.dirname(__file__), "bin", name),
        os.path.join(sys.prefix, "bin", name),
    ):
        if os.access(path, os.X_OK):
            return path
    return None


def is_address(path: str) -> bool:
    """Returns true for the address of a dataset in a store, as libfeed does."""
    return re.match(r"[A-Za-z0-9][A-Za-z0-9+.-]*://", path) is not None


def shown(path: str) -> str:
    """Returns an address without its query, which may hold a signature; or a path."""
    return path.partition("?")[0] if is_address(path) else path


def find_fetcher(paths: Sequence[str]) -> None:
    """Tells libfeed, by its variable, where the program is that fetches datasets from stores, if a path is an address."""
    program = _binary("LOADERD_FETCH", "loaderd-fetch") if any(map(is_address, paths)) else None
    if program is not None:
        os.environ["LOADERD_FETCH"] = program


def _default_threads() -> int:
    """Returns a rank's share of the CPUs if this machine runs several ranks, each with its daemon; else 0, the default."""
    local = local_ranks()
    return max(1, len(os.sched_getaffinity(0)) // local) if local > 1 else 0


def _words(settings: Optional[Settings]) -> Tuple[str, ...]:
    """Formats settings as arguments of loaderd --set, in an order that does not depend on the dictionary's."""
    words = []
    for name, value in (settings or {}).items():
        section, _, key = text("settings", name).partition(".")
        if not section or not key or "=" in name:
            raise BadOption(f'settings: {name!r} is not a "SECTION.KEY" of loaderd.conf(5), such as "io.mode"', 22)
        if isinstance(value, bool):
            value = "yes" if value else "no"
        elif not isinstance(value, str):
            value = str(number(f"settings: {name}", value, 64, "neither text nor a whole number"))
        words.append(f"{name}={text(f'settings: {name}', value)}")
    return tuple(sorted(words))


def _failure(error: "_feed.Error") -> FeedError:
    failure = translated(error)
    return failure if isinstance(failure, BadOption) else NoDaemon(str(failure), failure.code)


class Daemon:
    """A private daemon: only this user can reach it, and it ends with this process.

    Any process of this user may open feeds on its `socket`. If several ranks of a training run on one machine, start
    one daemon and set $LOADERD_SOCKET to its socket. `settings` are keys of loaderd.conf(5), as in {"io.mode": "uring",
    "io.readahead_bytes": "1G", "limits.slots": 128}; the daemon reads no configuration file.
    """

    def __init__(
        self,
        threads: int = 0,
        binary: "Union[str, os.PathLike[str], None]" = None,
        settings: Optional[Settings] = None,
    ) -> None:
        program = _binary() if binary is None else os.fspath(binary)
        threads = number("threads", threads) or _default_threads()
        try:
            self._daemon = _feed.Daemon(program, threads, _words(settings))
        except _feed.Error as error:
            raise _failure(error) from None
        self._socket = str(self._daemon.socket)
        self._pid = self._daemon.pid or 0

    @property
    def socket(self) -> str:
        """Address for Feed(socket=...) and $LOADERD_SOCKET."""
        return self._socket

    @property
    def pid(self) -> int:
        """Process id; changes with a restart, and keeps its last value after stop()."""
        self._pid = self._daemon.pid or self._pid
        return self._pid

    @property
    def alive(self) -> bool:
        return self._daemon.alive

    @property
    def log(self) -> str:
        """The end of the daemon's standard error."""
        return self._daemon.log

    def restart(self) -> None:
        """Restarts the daemon on the same socket if it has ended. Feeds of this process do so automatically."""
        try:
            self._daemon.restart()
        except _feed.Error as error:
            raise _failure(error) from None

    def stop(self) -> None:
        """Stops the daemon and waits for it. Its open feeds raise DaemonGone."""
        self._daemon.stop()

    def __enter__(self) -> "Daemon":
        return self

    def __exit__(self, *unused: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<loaderd.Daemon {self._socket}, pid {self.pid}{'' if self.alive else ', ended'}>"


_lock = threading.Lock()
_shared: Dict[Tuple[str, ...], Daemon] = {}  # by their settings
_shared_owner = 0


def _stop_shared() -> None:
    if _shared_owner == os.getpid():
        for daemon in _shared.values():
            daemon.stop()


def shared_daemon(threads: int, settings: Optional[Settings]) -> Daemon:
    """Returns this process's private daemon, started when first needed and shared by its feeds; a new one after a fork.

    There is one daemon per choice of settings; without settings, the first existing one is used.
    """
    global _shared, _shared_owner
    words = _words(settings)
    with _lock:
        if _shared_owner != os.getpid():
            if _shared_owner == 0:
                atexit.register(_stop_shared)
            _shared, _shared_owner = {}, os.getpid()
        daemon = next(iter(_shared.values()), None) if settings is None else _shared.get(words)
        if daemon is None:
            daemon = _shared[words] = Daemon(threads, settings=settings)
        elif not daemon.alive:
            daemon.restart()
        return daemon


def _service_answers(socket: str) -> bool:
    """Returns True if the service answers: its socket alone proves nothing, since systemd keeps it open if the service cannot start."""
    with sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM) as probe:
        probe.settimeout(_ANSWER_S)
        try:
            probe.connect(socket)
            probe.sendall(_GET_STATUS)
            if probe.recv(1):
                return True
            why = "it hangs up"
        except FileNotFoundError:
            return False  # none is installed
        except OSError as error:
            why = str(error)
    whose = "" if socket.startswith("/run/loaderd/") else "--user "
    _logger.warning("The service on %s does not answer (%s): this process uses a private daemon. journalctl %s-u loaderd may say why.",
                    socket, why, whose)  # fmt: skip
    return False


def choose(
    socket: Optional[str], daemon: str, threads: int, settings: Optional[Settings]
) -> "tuple[Optional[str], Optional[Daemon]]":
    """Returns the socket to use, and its private daemon or None. Feed's documentation has the rule."""
    if daemon not in ("auto", "system", "private"):
        raise BadOption(f'daemon: {daemon!r} is not one of "auto", "system", "private"', 22)
    if settings is not None and daemon != "private":
        raise BadOption('settings: require a private daemon; set daemon="private" too', 22)
    threads = number("threads", threads)
    if socket is not None:
        text("socket", socket)
    if daemon != "private":
        if socket or os.environ.get("LOADERD_SOCKET"):
            return socket or os.environ["LOADERD_SOCKET"], None
        service = _feed.default_socket()
        if daemon == "system" or _service_answers(service):
            return service, None
    elif socket:
        raise BadOption('socket: a private daemon has its own socket; omit socket, or daemon="private"', 22)
    private = shared_daemon(threads, settings)
    return private.socket, private
