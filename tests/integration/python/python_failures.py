"""Failures of a feed of the package loaderd, and effects of other processes and threads on it."""

import copy
import errno
import gc
import logging
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import loaderd

from feed_test import PATIENCE, expected_bytes, open_descriptors, open_feed


class Failures(unittest.TestCase):
    def test_names_and_texts(self):
        cases = [
            (dict(dataset="missing"), loaderd.NoDataset, "dataset: there is no file"),
            (dict(pipeline="resize(9) blur(3)"), loaderd.BadPipeline, r"\n  resize\(9\) blur\(3\)\n            \^"),
            (dict(batch_size=0), loaderd.BadOption, "batch_size: 0"),
            (dict(batch_size=-1), loaderd.BadOption, "batch_size: -1 is not in"),
            (dict(seed=1 << 64), loaderd.BadOption, "seed: .* is not in"),
            (dict(rank=2, world=2), loaderd.BadOption, "rank: 2 is not below world, 2"),
            (dict(last="maybe"), loaderd.BadOption, "last: 'maybe' is not one of drop, short"),
            (dict(last="drop", drop_last=False), loaderd.BadOption, "drop_last: False and last: 'drop' cannot be combined"),
            (dict(fields="size"), loaderd.BadOption, "a list of names"),
            (dict(slots=300), loaderd.BadOption, "no ring of that size"),
            (dict(pipeline="a\0b"), ValueError, "pipeline: .* contains a zero byte"),
            (dict(timeout=-1), ValueError, "timeout: -1 is not a number of seconds"),
            (dict(timeout=float("nan")), ValueError, "timeout: nan"),
            (dict(settings={"mode": 1}), ValueError, "settings: 'mode' is not a \"SECTION.KEY\""),
        ]
        for options, kind, text in cases:
            script = options.pop("dataset", "plain")
            with self.subTest(text), self.assertRaisesRegex(kind, text) as caught:
                open_feed(script, **options)
            self.assertIsInstance(caught.exception, loaderd.FeedError)
            self.assertGreater(caught.exception.code, 0)

    def test_no_whole_numbers(self):
        for name in ("batch_size", "seed", "epoch", "epoch_end", "slots"):
            with self.assertRaisesRegex(TypeError, f"{name}: 2.5 is not a whole number"):
                open_feed(**{name: 2.5})

    def test_options_of_other_loaders(self):
        for options, text in (
            (dict(num_workers=4), "Feed has no option num_workers: threads=N"),
            (dict(transform=None), 'Feed has no option transform: pipeline="'),
            (dict(bach_size=4), "Feed has no option bach_size: did you mean batch_size?"),
        ):
            with self.subTest(text), self.assertRaisesRegex(TypeError, re.escape(text)):
                loaderd.Feed("train.pimg", **options)

    def test_other_kinds(self):
        for options in (dict(pipeline=5), dict(name=b"x"), dict(shuffle="no"), dict(drop_last="no"), dict(writable=None), dict(timeout="1"),
                        dict(dataset=5), dict(wanted="no"), dict(reconnect="yes"), dict(threads=1.5), dict(settings={"io.mode": None}), dict(settings={5: 5}),
                        dict(fields=[5])):  # fmt: skip
            with self.subTest(options), self.assertRaises(TypeError):
                open_feed(options.pop("dataset", "plain"), **options)

    def test_errors_travel(self):
        """Errors can be pickled for another process, and are the corresponding OSErrors."""
        with self.assertRaises(FileNotFoundError) as caught:
            open_feed("missing")
        error = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((type(error), str(error), error.code, error.errno), (loaderd.NoDataset, str(caught.exception), 2, errno.ENOENT))
        self.assertNotIn("Errno", str(error))
        self.assertFalse(hasattr(loaderd.FeedFailed("x"), "errno"))

    def test_settings(self):
        settings = {"io.mode": "mmap", "limits.slots": 99, "access.writable_rings": False}
        with open_feed() as first, open_feed(settings=settings) as other, open_feed(settings=dict(reversed(settings.items()))) as same:
            self.assertEqual([line for line in other.daemon.log.splitlines() if line.startswith("set ")],
                             ["set access.writable_rings=no", "set io.mode=mmap", "set limits.slots=99"])  # fmt: skip
            self.assertIs(other.daemon, same.daemon)
            self.assertIsNot(other.daemon, first.daemon)
            with open_feed() as again:
                self.assertIs(again.daemon, first.daemon)
        for daemon in ("auto", "system"):
            with self.assertRaisesRegex(loaderd.BadOption, 'settings: .* daemon="private"'):
                loaderd.Feed("plain", daemon=daemon, settings=settings)

    def test_version(self):
        self.assertRegex(loaderd.__version__, r"^\d+\.\d+\.\d+$")

    def test_families(self):
        for kind, family in [
            (loaderd.DaemonGone, ConnectionError),
            (loaderd.NoDaemon, ConnectionError),
            (loaderd.NoDataset, FileNotFoundError),
            (loaderd.NotPermitted, PermissionError),
            (loaderd.BadPipeline, ValueError),
            (loaderd.FeedTimeout, TimeoutError),
        ]:
            self.assertTrue(issubclass(kind, family) and issubclass(kind, loaderd.FeedError))
        denied = loaderd._errors.translated(loaderd._feed.Error(errno.EACCES, "dataset: /a.pimg: Permission denied"))
        self.assertIsInstance(denied, PermissionError)
        self.assertEqual(denied.code, errno.EACCES)

    def test_no_daemon(self):
        with self.assertRaisesRegex(loaderd.NoDaemon, "No daemon listens on @nobody"):
            loaderd.Feed("x", socket="@nobody")
        with self.assertRaisesRegex(loaderd.NoDaemon, "/nonexistent/loaderd"):
            loaderd.Daemon(binary="/nonexistent/loaderd")
        with self.assertRaises(ValueError):
            loaderd.Feed("x", daemon="maybe")

    def test_a_service_that_does_not_answer(self):
        """A service manager keeps the socket, but nothing answers. Without daemon="system", a private daemon serves instead, and the log
        says so.
        """
        own = {"XDG_RUNTIME_DIR": tempfile.mkdtemp(), "LOADERD_SOCKET": ""}
        path = os.path.join(own["XDG_RUNTIME_DIR"], "loaderd.sock")
        self.addCleanup(shutil.rmtree, own["XDG_RUNTIME_DIR"])
        with mock.patch.dict(os.environ, own), mock.patch.object(loaderd._daemon, "_ANSWER_S", 0.2):
            with socket.socket(socket.AF_UNIX) as service:
                service.bind(path)
                for how in ("refuses", "is silent"):
                    with self.subTest(how), self.assertLogs("loaderd") as logs:
                        with loaderd.Feed("plain", batch_size=8) as feed:
                            self.assertEqual(feed.next().index, 0)
                        self.assertRegex(logs.output[0], f"The service on {path} does not answer .*: this process uses a private daemon.*journalctl")
                    service.listen()
            with loaderd.Daemon() as serving, mock.patch.object(logging.getLogger("loaderd"), "handle") as logged:
                self.assertTrue(loaderd._daemon._service_answers(serving.socket.replace("@", "\0")))
                self.assertFalse(loaderd._daemon._service_answers(path + ".none"))
            logged.assert_not_called()

    def test_the_daemon_goes(self):
        with open_feed("die-2", reconnect=False) as feed:
            self.assertEqual([feed.next().index for _ in range(2)], [0, 1])
            for _ in range(2):
                with self.assertRaisesRegex(loaderd.DaemonGone, "went away.*epoch 0, batch 2"):
                    feed.next()

    def test_a_private_daemon_is_killed(self):
        with loaderd.Daemon() as daemon:
            feed = loaderd.Feed("hang-1", batch_size=8, socket=daemon.socket, reconnect=False)
            held = feed.next()
            threading.Timer(0.2, os.kill, (daemon.pid, signal.SIGKILL)).start()
            with self.assertRaises(loaderd.DaemonGone):
                feed.next()
            self.assertEqual(bytes(held.buffer("images")), expected_bytes(held))

    def test_a_feed_goes_on(self):
        with self.assertLogs("loaderd") as logs, open_feed("die-3") as feed:
            held = [feed.next() for _ in range(8)]
            self.assertEqual([(b.number, b.index, b.reconnects) for b in held], [(i + 1, i, i // 3) for i in range(8)])
            for batch in held:
                self.assertEqual(bytes(batch.buffer("images")), expected_bytes(batch))
            self.assertEqual(feed.reconnects, 2)
        self.assertEqual(len(logs.output), 2)
        self.assertRegex(logs.output[0], "went away; the feed goes on at epoch 0, batch 3")

    def test_a_private_daemon_is_started_again(self):
        with loaderd.Daemon() as daemon:
            feed = loaderd.Feed("slow-5", batch_size=8, socket=daemon.socket)
            before = daemon.pid
            with self.assertLogs("loaderd"):
                for index in range(10):
                    self.assertEqual(feed.next(PATIENCE).index, index)
                    if index == 2:
                        os.kill(daemon.pid, signal.SIGKILL)
            self.assertNotEqual(daemon.pid, before)
            daemon.stop()
            with self.assertRaisesRegex(loaderd.DaemonGone, "could not be opened again"):
                while True:
                    feed.next(PATIENCE)
            with self.assertRaises(loaderd.NoDaemon):
                daemon.restart()

    def test_what_comes_back_is_compared(self):
        with open_feed("replaced-2") as feed:
            self.assertEqual([feed.next().index for _ in range(2)], [0, 1])
            with self.assertRaisesRegex(loaderd.DatasetReplaced, "another dataset"):
                feed.next()
        for bad in (0, -1, float("nan")):
            with self.assertRaisesRegex(loaderd.BadOption, "reconnect: "):
                open_feed(reconnect=bad)

    def test_the_shared_daemon_is_started_again(self):
        feed = open_feed("hang-0", reconnect=False)
        os.kill(feed.daemon.pid, signal.SIGKILL)
        with self.assertRaisesRegex(loaderd.DaemonGone, "last log line: loaderd: ready"):
            feed.next(PATIENCE)
        while feed.daemon.alive:
            time.sleep(0.01)
        with open_feed() as again:
            self.assertEqual(next(again).index, 0)

    def test_the_feed_fails(self):
        with open_feed("fail-1") as feed:
            feed.next()
            with self.assertRaisesRegex(loaderd.FeedFailed, "sample 7 is broken"):
                feed.next()

    def test_timeouts(self):
        with open_feed("hang-0", timeout=0.05) as feed:
            start = time.monotonic()
            with self.assertRaises(loaderd.FeedTimeout):
                next(feed)
            with self.assertRaises(loaderd.FeedTimeout):
                feed.next(0.3)
            self.assertTrue(0.3 < time.monotonic() - start < PATIENCE)

    def test_waiting_is_interrupted(self):
        def interrupt(number, frame):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            with open_feed("hang-0") as feed, self.assertRaises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.15)
                next(feed)
        finally:
            signal.signal(signal.SIGALRM, before)

    def test_a_closed_feed(self):
        feed = open_feed()
        feed.close()
        feed.close()
        with self.assertRaisesRegex(loaderd.DaemonGone, "closed"):
            next(feed)
        with self.assertRaises(TypeError):
            pickle.dumps(feed)
        with self.assertRaises(TypeError):
            copy.copy(feed)


class Processes(unittest.TestCase):
    def test_a_fork_is_refused_and_harmless(self):
        with open_feed(timeout=PATIENCE) as feed:
            held = [feed.next() for _ in range(3)]
            child = os.fork()
            if child == 0:
                good = True
                try:
                    feed.next()
                    good = False
                except loaderd.WrongProcess:
                    pass
                held.clear()  # would release the parent's batches
                feed.close()
                del feed
                gc.collect()
                os._exit(0 if good else 1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            last = feed.next()
            with self.assertRaises(loaderd.NoFreeBatch):
                feed.next()
            del last
            for _ in range(8):
                feed.next()
            for batch in held:
                self.assertEqual(bytes(batch.buffer("images")), expected_bytes(batch))

    def test_a_fork_keeps_held_batches(self):
        """The batches that a child inherits keep their contents, whatever the daemon writes to the slots later."""
        with open_feed(timeout=PATIENCE) as feed:
            changed, untouched = feed.next(), feed.next()
            memoryview(changed.buffer("images"))[2, 0, 0, 0] = 123
            views = [memoryview(batch.buffer("images")) for batch in (changed, untouched)]
            expected = [bytes(view) for view in views]
            come, go = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(go)
                os.read(come, 1)
                os._exit(0 if [bytes(view) for view in views] == expected else 1)
            del changed, untouched, views
            for _ in range(3 * feed.slots):
                batch = feed.next()
                self.assertEqual(bytes(batch.buffer("images")), expected_bytes(batch))
                del batch
            os.close(come)
            os.close(go)
            self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_a_fork_opens_its_own(self):
        with open_feed() as feed:
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    with open_feed() as mine:
                        if mine.daemon.pid != feed.daemon.pid and next(mine).index == 0:
                            code = 0
                finally:
                    mine.daemon.stop()
                    os._exit(code)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            self.assertEqual(next(feed).index, 0)

    def end_of(self, last_words):
        program = (
            "import os, signal, sys, loaderd\n"
            "feed = loaderd.Feed('plain', daemon='private', batch_size=8)\n"
            "batch = next(feed)\n"
            "view = memoryview(batch.buffer('images'))\n"
            "print(feed.daemon.pid, flush=True)\n" + last_words
        )
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=2 * PATIENCE)
        pid = int(result.stdout)
        for _ in range(100 * PATIENCE):
            try:
                with open(f"/proc/{pid}/status") as status:
                    if "State:\tZ" in status.read():
                        return result
            except (FileNotFoundError, ProcessLookupError):
                return result
            time.sleep(0.01)
        self.fail("the private daemon lives on")

    def test_a_private_daemon_ends_with_us(self):
        result = self.end_of("")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(self.end_of("raise SystemExit(3)").returncode, 3)
        self.assertEqual(self.end_of("os.kill(os.getpid(), signal.SIGKILL)").returncode, -signal.SIGKILL)
        self.assertEqual(self.end_of("os.abort()").returncode, -signal.SIGABRT)

    def test_which_daemon(self):
        with loaderd.Daemon(threads=2) as daemon:
            self.assertIn("threads 2", daemon.log)
            self.assertTrue(daemon.alive)
            with loaderd.Feed("plain", socket=daemon.socket) as feed:
                self.assertIsNone(feed.daemon)
            os.environ["LOADERD_SOCKET"] = daemon.socket
            try:
                with loaderd.Feed("plain") as feed:
                    self.assertEqual(feed.socket, daemon.socket)
                with loaderd.Feed("plain", daemon="private") as feed, open_feed() as other:
                    self.assertNotEqual(feed.socket, daemon.socket)
                    self.assertIs(feed.daemon, other.daemon)
                facts = loaderd.dataset("some.pimg")
            finally:
                del os.environ["LOADERD_SOCKET"]
        self.assertFalse(daemon.alive)
        self.assertEqual((facts.samples, facts.classes[3], facts.mean[0], facts.std[2]), (320, "class 3", 123.5, 57.5))
        self.assertEqual(facts.uuid, "30313233-3435-3637-3839-616263646566")
        self.assertEqual(facts.fields, {"id": ("int64", None), "text": ("text", 77)})

    def test_nothing_leaks(self):
        open_feed().close()
        gc.collect()
        before = open_descriptors()
        for i in range(100):
            feed = open_feed()
            batch = feed.next()
            if i % 2:
                feed.close()
        del feed, batch
        gc.collect()
        self.assertEqual(open_descriptors(), before)


if __name__ == "__main__":
    unittest.main()
