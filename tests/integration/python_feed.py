"""Package loaderd against the fake daemon of tests/unit/proto, named in $LOADERD. NumPy and PyTorch where they are installed."""

import contextlib
import copy
import ctypes
import errno
import gc
import itertools
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
import unittest
import warnings
import weakref
from unittest import mock

import loaderd

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None

PATIENCE = 30  # s, for what takes no time but on a busy machine
PIXELS = 4 * 6 * 3
BATCHES = 10


def pixel(epoch, sample):
    return (epoch * 31 + sample * 7) & 255


def open_feed(script="plain", **options):
    options.setdefault("batch_size", 8)
    return loaderd.Feed(script, daemon="private", **options)


def expected_bytes(batch, size=8):
    return b"".join(
        bytes([pixel(batch.epoch, batch.index * size + i)]) * PIXELS for i in range(batch.count)
    )


def number(batch):
    """Of a batch, counted through all epochs."""
    return batch.epoch * BATCHES + batch.index


def stopping_at_the_last(feed):
    taken = []
    for i, batch in enumerate(feed):
        taken.append(number(batch))
        if i == len(feed) - 1:
            break
    return taken


def open_descriptors():
    return len(os.listdir("/proc/self/fd"))


class Iteration(unittest.TestCase):
    def test_a_loop_is_an_epoch(self):
        with open_feed(epoch_end=3) as feed:
            self.assertEqual(len(feed), BATCHES)
            self.assertEqual((feed.samples, feed.classes, feed.slots), (80, 10, 4))
            for epoch in range(3):
                self.assertEqual([(b.epoch, b.index) for b in feed], [(epoch, i) for i in range(BATCHES)])
            self.assertEqual(list(feed), [])
            self.assertEqual(list(feed), [])

    def test_no_epochs(self):
        """epoch_end=0 ends the feed before its first epoch, as epoch_end=1 does after it; None never does."""
        with open_feed(epoch_end=0) as feed:
            self.assertEqual(list(feed), [])
            self.assertIsNone(feed.next())
        with open_feed(epoch_end=1) as feed:
            self.assertEqual([number(batch) for _ in range(2) for batch in feed], list(range(BATCHES)))

    def test_a_broken_loop_goes_on(self):
        with open_feed() as feed:
            for batch in feed:
                if batch.index == 3:
                    break
            self.assertEqual(feed.position, (0, 4))
            self.assertEqual([b.index for b in feed], [4, 5, 6, 7, 8, 9])
            self.assertEqual(feed.position, (1, 0))
            self.assertEqual(next(iter(feed)).epoch, 1)

    def test_a_loop_that_stops_at_the_last_batch(self):
        """Whatever stops it, the next one has the next epoch."""
        loops = [
            lambda feed: [number(batch) for _, batch in zip(range(len(feed)), feed)],
            lambda feed: [number(batch) for batch in itertools.islice(feed, len(feed))],
            stopping_at_the_last,
            lambda feed: [number(batch) for batch in feed],
        ]
        with open_feed() as feed:
            for epoch, loop in enumerate(loops * 2):
                self.assertEqual(loop(feed), list(range(epoch * BATCHES, (epoch + 1) * BATCHES)))

    def test_one_position(self):
        with open_feed() as feed:
            older = iter(feed)
            next(older)
            newer = iter(feed)
            self.assertEqual(next(newer).index, 1)
            with self.assertRaisesRegex(loaderd.FeedError, "older than another one of the same feed"):
                next(older)
            self.assertEqual([batch.index for batch in newer], [2, 3, 4, 5, 6, 7, 8, 9])
            self.assertEqual(list(newer), [])
            newer = iter(feed)
            feed.load_state_dict(feed.state_dict())
            with self.assertRaisesRegex(loaderd.FeedError, "load_state_dict"):
                next(newer)

    def test_any_use(self):
        """Random ways of taking batches, of several feeds, some of which take over where another is: each has what a plain count says."""
        for seed in range(12):
            draw = random.Random(seed)
            feeds = [[open_feed(), 0] for _ in range(3)]  # with the number of batches that lie behind it
            for _ in range(40):
                use = feeds[draw.randrange(len(feeds))]
                self.use_somehow(draw, use, feeds[draw.randrange(len(feeds))][0])
                self.assertEqual(use[0].position, divmod(use[1], BATCHES))
            for feed, _ in feeds:
                feed.close()

    def use_somehow(self, draw, use, other):
        feed, begin = use
        left = BATCHES - begin % BATCHES
        count = draw.choice([0, 1, draw.randrange(BATCHES), left, left, BATCHES + 3])
        way = draw.randrange(6)
        if way == 0:
            taken = [number(feed.next()) for _ in range(count)]
        elif way == 1:
            taken = [number(next(feed)) for _ in range(count)]
        elif way == 2:
            taken = [number(batch) for batch in itertools.islice(feed, count)]
        elif way == 3:
            taken = [number(batch) for _, batch in zip(range(count), feed)]
        elif way == 4:
            taken, iterator = [], iter(feed)
            while len(taken) < count and (batch := next(iterator, None)) is not None:
                taken.append(number(batch))
        else:
            feed.load_state_dict(other.state_dict())
            epoch, index = other.position
            use[1] = epoch * BATCHES + index
            return
        # A loop ends with its epoch, and reads no batch that it does not give.
        wanted = count if way < 2 else min(count, left)
        self.assertEqual(taken, list(range(begin, begin + wanted)))
        use[1] += wanted

    def test_next_crosses_epochs(self):
        with open_feed(batch=9, epoch_end=2) as feed:
            self.assertEqual([feed.next().epoch for _ in range(11)], [0] + [1] * 10)
            self.assertIsNone(feed.next())

    def test_a_short_last_batch(self):
        with open_feed(last="short", batch=9) as feed:
            batch = next(feed)
            self.assertEqual(len(batch), 7)
            self.assertEqual(bytes(batch.buffer("images")), expected_bytes(batch))


class Buffers(unittest.TestCase):
    def test_bytes_are_right(self):
        with open_feed() as feed:
            for _ in range(25):
                batch = feed.next()
                images = memoryview(batch.buffer("images"))
                self.assertEqual((images.shape, images.format, images.readonly), ((8, 4, 6, 3), "B", False))
                self.assertTrue(images.c_contiguous)
                self.assertEqual(images.tobytes(), expected_bytes(batch))
                samples = memoryview(batch.buffer("samples"))
                self.assertEqual(samples.tolist(), [batch.index * 8 + i for i in range(8)])
                self.assertEqual(memoryview(batch.buffer("labels")).tolist(), [s % 10 for s in samples])
                flags = memoryview(batch.buffer("flags")).tolist()
                self.assertEqual(flags, [int(s == 3) * loaderd.SUBSTITUTED for s in samples])
                self.assertEqual(batch.bad, int(3 in samples.tolist()))

    def test_a_writable_feed_is_the_same(self):
        with open_feed(writable=True) as feed:
            for batch in feed:
                self.assertEqual(bytes(batch.buffer("images")), expected_bytes(batch))
        with self.assertRaisesRegex(loaderd.FeedError, "update it"):
            open_feed("old", writable=True)

    def test_what_is_written(self):
        """Stays in this process, and is gone with its batch: the ones behind it in the same slots are as they should be."""
        writers = [
            lambda batch: memoryview(batch.buffer("images")).cast("B").__setitem__(slice(None), b"x" * 8 * PIXELS),
            lambda batch: (ctypes.c_char * 8).from_buffer(batch.buffer("images"))[:].__len__(),
            lambda batch: memoryview(batch.buffer("samples")).__setitem__(3, 99),
        ]
        if numpy:
            writers += [
                lambda batch: batch.images.__iadd__(1),
                lambda batch: batch.labels.fill(-5),
                lambda batch: batch.field("id").fill(7),
            ]
        if torch:
            writers += [
                lambda batch: batch.torch().images.add_(1),
                lambda batch: batch.torch().images[3].zero_(),
                lambda batch: torch.from_dlpack(batch.buffer("flags")).fill_(9),
                lambda batch: torch.from_dlpack(batch).mul_(2),
            ]
        if torch and numpy:
            writers.append(lambda batch: torch.from_numpy(batch.images).neg_())
        for writable in (False, True):
            with open_feed(writable=writable, fields=["id"]) as feed:
                for i in range(6 * len(writers)):
                    batch = feed.next()
                    self.assertEqual(bytes(batch.buffer("images")), expected_bytes(batch))
                    samples = memoryview(batch.buffer("samples")).tolist()
                    self.assertEqual(samples, [batch.index * 8 + i for i in range(8)])
                    self.assertEqual(memoryview(batch.buffer("labels")).tolist(), [s % 10 for s in samples])
                    self.assertEqual(memoryview(batch.buffer("flags")).tolist(), [int(s == 3) for s in samples])
                    if numpy:
                        self.assertEqual(batch.field("id").tolist(), [-2 * s for s in samples])
                    writers[i % len(writers)](batch)
                    self.assertEqual(batch._slot.shared_images().address == batch.buffer("images").address, writable)
                    if not writable:
                        self.assertEqual(bytes(batch._slot.shared_images()), expected_bytes(batch))
            with self.assertRaises(ValueError):
                batch.buffer("pixels")

    @unittest.skipUnless(numpy, "no NumPy")
    def test_what_is_written_is_seen_by_all_views(self):
        with open_feed() as feed:
            batch = next(feed)
            batch.images[2] = 77
            self.assertEqual(memoryview(batch.buffer("images"))[2, 0, 0, 0], 77)
            if torch:
                self.assertEqual(batch.to("cpu").images[2, 0, 0, 0], 77)
                self.assertEqual(batch.to("meta").images.shape, (8, 3, 4, 6))
                self.assertEqual(next(feed).to("meta").images.shape, (8, 3, 4, 6))

    def test_fields(self):
        with open_feed(fields=["id", "float", "bytes", "json"]) as feed:
            next(feed)
            batch = next(feed)
            self.assertEqual(batch.field("bytes"), [b"sample %d" % i for i in range(8, 16)])
            self.assertEqual(batch.field("json"), [{"s": i} for i in range(8, 16)])
            with self.assertRaisesRegex(KeyError, "not 'size'"):
                batch.field("size")
            if numpy:
                self.assertEqual(batch.field("id").tolist(), [-2 * i for i in range(8, 16)])
                self.assertEqual(batch.field("float").tolist(), [i / 4 for i in range(8, 16)])
        with open_feed(fields=["text"]) as feed:
            self.assertEqual(next(feed).field("text"), [f"sample {i}" for i in range(8)])
        with open_feed(fields=["json", "text"], field_bytes=3, cut_values=True) as feed:
            batch = next(feed)
            self.assertEqual(batch.field("json"), [None] * 8)
            self.assertEqual(batch.field("text"), ["sam"] * 8)
        with open_feed(fields=["json"], field_bytes=3) as feed:
            with self.assertRaisesRegex(loaderd.FeedFailed, "sample 0 has a value that is longer than field_bytes, 3"):
                next(feed)


class Holding(unittest.TestCase):
    """A slot goes back when the last thing that looks into it dies, not before and not later."""

    def hold_all(self, keep):
        with open_feed(timeout=PATIENCE) as feed:
            kept = []
            for _ in range(feed.slots):
                kept.append(keep(feed.next()))
            with self.assertRaisesRegex(loaderd.NoFreeBatch, "All 4 batches"):
                feed.next()
            kept.pop(1)
            for _ in range(20):  # through the one slot that is free
                batch = feed.next()
                self.assertEqual(bytes(batch.buffer("images")), expected_bytes(batch))
                del batch
            self.assertEqual(feed.position, (2, 4))
            with feed.next():
                with self.assertRaises(loaderd.NoFreeBatch):
                    feed.next()
            feed.next()
            return kept

    def test_batches(self):
        kept = self.hold_all(lambda batch: batch)
        for batch in kept:  # after close() they still read
            self.assertEqual(bytes(batch.buffer("images")), expected_bytes(batch))

    def test_views(self):
        kept = self.hold_all(lambda batch: memoryview(batch.buffer("images"))[2:3])
        self.assertEqual([view[0, 0, 0, 0] for view in kept], [pixel(0, 2), pixel(0, 18), pixel(0, 26)])

    def test_released_batches_with_views(self):
        def keep(batch):
            with batch:
                view = memoryview(batch.buffer("labels"))
            with self.assertRaisesRegex(ValueError, "released"):
                batch.buffer("labels")
            batch.release()
            return view

        self.assertEqual(self.hold_all(keep)[2].tolist(), [i % 10 for i in range(24, 32)])

    @unittest.skipUnless(numpy, "no NumPy")
    def test_derived_arrays(self):
        kept = self.hold_all(lambda batch: batch.images[1:3].reshape(2, -1).T[5])
        self.assertEqual(kept[0].tolist(), [pixel(0, 1), pixel(0, 2)])

    @unittest.skipUnless(torch, "no PyTorch")
    def test_tensors(self):
        kept = self.hold_all(lambda batch: batch.torch().images[1])
        self.assertTrue((kept[0] == pixel(0, 1)).all())

    def test_capsules_that_nobody_takes(self):
        for version in (None, (1, 0)):
            self.hold_all(lambda batch: batch.__dlpack__(max_version=version))

    def test_cycles_are_collected(self):
        class Node:
            pass

        with open_feed(timeout=PATIENCE) as feed:
            for _ in range(3 * feed.slots):
                node = Node()
                node.self = node
                node.batch = feed.next()
                del node

    def test_batches_die(self):
        with open_feed() as feed:
            batch = next(feed)
            seen = weakref.ref(batch)
            view = memoryview(batch.buffer("images"))
            del batch
            self.assertIsNone(seen())
            self.assertEqual(view[0, 0, 0, 0], 0)

    def test_another_thread_gives_back(self):
        import queue

        filled = queue.Queue()
        got = []

        def work():
            while (batch := filled.get()) is not None:
                time.sleep(0.001)
                got.append(bytes(batch.buffer("images")) == expected_bytes(batch))

        with open_feed(timeout=PATIENCE) as feed:
            thread = threading.Thread(target=work)
            thread.start()
            for _ in range(200):
                filled.put(feed.next())  # the queue takes more than there are slots
            filled.put(None)
            thread.join()
        self.assertEqual(got, [True] * 200)

    def test_two_threads_may_not_wait(self):
        def wait():
            while True:
                try:
                    feed.next(PATIENCE)
                except RuntimeError:
                    pass  # the other thread was first
                except loaderd.DaemonGone:
                    return

        with loaderd.Daemon() as daemon, loaderd.Feed("hang-0", batch_size=8, socket=daemon.socket,
                                                    reconnect=False) as feed:
            thread = threading.Thread(target=wait)
            thread.start()
            with self.assertRaisesRegex(RuntimeError, "another thread"):
                while True:  # until it waits
                    with contextlib.suppress(loaderd.FeedTimeout):
                        feed.next(0)
                    time.sleep(0.001)
            os.kill(daemon.pid, signal.SIGKILL)
            thread.join()


class Failures(unittest.TestCase):
    def test_names_and_texts(self):
        cases = [
            (dict(dataset="missing"), loaderd.NoDataset, "dataset: there is no file"),
            (dict(pipeline="resize(9) blur(3)"), loaderd.BadPipeline, r"\n  resize\(9\) blur\(3\)\n            \^"),
            (dict(batch_size=0), loaderd.BadOption, "batch_size: 0"),
            (dict(batch_size=-1), loaderd.BadOption, "batch_size: -1 is not in"),
            (dict(seed=1 << 64), loaderd.BadOption, "seed: .* is not in"),
            (dict(rank=2, world=2), loaderd.BadOption, "rank: 2 is not below world, 2"),
            (dict(last="maybe"), loaderd.BadOption, "last: 'maybe' is none of drop, short"),
            (dict(fields="size"), loaderd.BadOption, "a list of names"),
            (dict(slots=300), loaderd.BadOption, "no ring of that size"),
            (dict(pipeline="a\0b"), ValueError, "pipeline: .* has a zero byte"),
            (dict(timeout=-1), ValueError, "timeout: -1 is no number of seconds"),
            (dict(timeout=float("nan")), ValueError, "timeout: nan"),
            (dict(settings={"mode": 1}), ValueError, "settings: 'mode' is no \"SECTION.KEY\""),
        ]
        for options, kind, text in cases:
            script = options.pop("dataset", "plain")
            with self.subTest(text), self.assertRaisesRegex(kind, text) as caught:
                open_feed(script, **options)
            self.assertIsInstance(caught.exception, loaderd.FeedError)
            self.assertGreater(caught.exception.code, 0)

    def test_no_whole_numbers(self):
        for name in ("batch_size", "seed", "epoch", "epoch_end", "slots"):
            with self.assertRaisesRegex(TypeError, f"{name}: 2.5 is no whole number"):
                open_feed(**{name: 2.5})

    def test_other_kinds(self):
        for options in (dict(pipeline=5), dict(name=b"x"), dict(shuffle="no"), dict(writable=None), dict(timeout="1"), dict(dataset=5),
                        dict(reconnect="yes"), dict(threads=1.5), dict(settings={"io.mode": None}), dict(settings={5: 5}),
                        dict(fields=[5])):  # fmt: skip
            with self.subTest(options), self.assertRaises(TypeError):
                open_feed(options.pop("dataset", "plain"), **options)

    def test_errors_travel(self):
        """To another process, and as the errors of the system do."""
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
        with self.assertRaisesRegex(loaderd.DaemonGone, "said last: loaderd: ready"):
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


class Resuming(unittest.TestCase):
    def test_state(self):
        with open_feed(seed=5, shuffle=True) as feed:
            for _ in range(13):
                feed.next()
            state = pickle.loads(pickle.dumps(feed.state_dict()))
            self.assertEqual((state["epoch"], state["batch"]), (1, 3))
            follows = feed.next()
            feed.load_state_dict(state)
            again = feed.next()
            self.assertEqual((again.epoch, again.index), (follows.epoch, follows.index))
            self.assertEqual(bytes(again.buffer("images")), bytes(follows.buffer("images")))

    def test_another_batch_size_or_world(self):
        state = {"epoch": 2, "batch": 6, "batch_size": 8, "shuffle": False, "seed": 0, "world": 1}
        for size, world, expected in ((16, 1, 3), (8, 2, 3), (4, 4, 3), (2, 8, 3), (4, 1, 12)):
            with open_feed(batch_size=size, world=world, rank=0) as feed:
                feed.load_state_dict(state)
                self.assertEqual(feed.position, (2, expected))
        with open_feed(batch_size=32) as feed:
            with self.assertRaisesRegex(loaderd.BadOption, "48 samples .* steps of 32"):
                feed.load_state_dict(state)
            with self.assertRaisesRegex(loaderd.BadOption, "seed: .* 3"):
                feed.load_state_dict({**state, "seed": 3})
            self.assertEqual(feed.next().index, 0)  # nothing was touched

    def test_another_dataset(self):
        with open_feed() as feed:
            feed.next()
            state = feed.state_dict()
        with open_feed("other") as feed:
            self.assertNotEqual(feed.uuid, state["uuid"])
            with self.assertRaisesRegex(loaderd.BadOption, f"{state['uuid']}; .*other, {feed.uuid}, .*strict=False"):
                feed.load_state_dict(state)
            self.assertEqual(feed.next().index, 0)  # nothing was touched
            feed.load_state_dict(state, strict=False)
            self.assertEqual(feed.next().index, 1)
        with open_feed("old") as feed:
            self.assertIsNone(feed.uuid)
            feed.load_state_dict(state)
            old = feed.state_dict()
        with open_feed() as feed:
            feed.load_state_dict(old)
            self.assertEqual(feed.position, (0, 1))


class Places(unittest.TestCase):
    """One process of several: what a feed gives it, and that nothing happens unsaid."""

    LAUNCHERS = [
        dict(RANK="1", WORLD_SIZE="3"),
        dict(OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="3"),
        dict(PMI_RANK="1", PMI_SIZE="3"),
        dict(SLURM_PROCID="1", SLURM_STEP_NUM_TASKS="3"),
        # torchrun under srun, one for each machine
        dict(RANK="1", WORLD_SIZE="3", SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="2"),
    ]
    ALONE = [dict(), dict(RANK="0", WORLD_SIZE="1"), dict(SLURM_PROCID="0", SLURM_NTASKS="4"), dict(RANK="x", WORLD_SIZE="3")]

    def part(self, **options):
        """(rank, world) of a feed, and how often it warns."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with open_feed(**options) as feed:
                part = feed._options["rank"], feed._options["world"]
        self.assertTrue(all(issubclass(w.category, loaderd.RankWarning) for w in said))
        self.assertTrue(all(w.filename == __file__ for w in said))
        return *part, len(said)

    def test_launchers(self):
        for variables in self.LAUNCHERS:
            with self.subTest(variables), mock.patch.dict(os.environ, variables):
                self.assertEqual(self.part(), (1, 3, 1))
                self.assertEqual(self.part(rank="auto"), (1, 3, 0))
                self.assertEqual(self.part(world="auto"), (1, 3, 0))
                self.assertEqual(self.part(world=3), (1, 3, 0))
                self.assertEqual(self.part(rank=2), (2, 3, 1))
                self.assertEqual(self.part(rank=0, world=1), (0, 1, 0))
        for variables in self.ALONE:
            with self.subTest(variables), mock.patch.dict(os.environ, variables):
                self.assertEqual(self.part(), (0, 1, 0))
                self.assertEqual(self.part(rank="auto", world="auto"), (0, 1, 0))

    def test_texts(self):
        with mock.patch.dict(os.environ, self.LAUNCHERS[0]):
            with self.assertWarnsRegex(loaderd.RankWarning, r'rank 1 of 3 by \$RANK and \$WORLD_SIZE.*rank="auto".*rank=0, world=1'):
                open_feed().close()
        for options, kind, text in (
            (dict(world=4), loaderd.BadOption, "rank: which one of world=4"),
            (dict(rank=1, world="auto"), loaderd.BadOption, "do not go together"),
            (dict(rank="all"), loaderd.BadOption, "rank: 'all' is neither"),
            (dict(rank=0.5), TypeError, "rank: 0.5 is neither"),
            (dict(rank=0, world=None), None, ""),
        ):
            with self.assertRaisesRegex(kind, text) if kind else contextlib.nullcontext():
                open_feed(**options).close()

    def test_frameworks(self):
        class Torch:
            is_available = is_initialized = staticmethod(lambda: True)
            get_rank, get_world_size = (lambda: 2), (lambda: 4)

        class Jax:
            class distributed:
                is_initialized = staticmethod(lambda: True)

            process_index, process_count = (lambda: 3), (lambda: 5)

        # What has been initialized knows better than what a launcher has set.
        for name, module, expected in (("torch.distributed", Torch, (2, 4, 1)), ("jax", Jax, (3, 5, 1))):
            with mock.patch.dict(sys.modules, {name: module}), mock.patch.dict(os.environ, self.LAUNCHERS[0]):
                self.assertEqual(self.part(), expected)

    @staticmethod
    def worker(number, count):
        class Data:
            class info:
                id, num_workers = number, count

            get_worker_info = staticmethod(lambda: Data.info)

        return mock.patch.dict(sys.modules, {"torch.utils.data": Data})

    def test_workers(self):
        with self.worker(0, 4):
            self.assertEqual(self.part(), (0, 4, 1))
            self.assertEqual(self.part(rank="auto"), (0, 4, 0))
            self.assertEqual(self.part(rank=0, world=1), (0, 1, 1))  # the same for all
            self.assertEqual(self.part(rank=3, world=8), (3, 8, 0))
            with self.assertWarnsRegex(loaderd.RankWarning, "each of the 4 workers of a PyTorch DataLoader.*needs no DataLoader"):
                open_feed().close()
        with self.worker(3, 4), mock.patch.dict(os.environ, self.LAUNCHERS[0]):
            self.assertEqual(self.part(), (7, 12, 0))  # worker 0 has told it
        with self.worker(0, 1):
            self.assertEqual(self.part(), (0, 1, 1))  # begins with epoch 0 each time, unless its worker persists
            self.assertEqual(self.part(rank=0, world=1), (0, 1, 0))

    @unittest.skipUnless(torch, "no PyTorch")
    def test_a_feed_in_a_dataloader(self):
        class Inherited(torch.utils.data.IterableDataset):
            def __iter__(self):
                return map(len, feed)

        with open_feed() as feed, self.assertRaisesRegex(loaderd.WrongProcess, "needs no DataLoader"):
            list(torch.utils.data.DataLoader(Inherited(), batch_size=None, num_workers=1))


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
                held.clear()  # would give the parent's batches back
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

    def test_a_fork_keeps_what_is_at_hand(self):
        """Whatever the daemon writes to the slots afterwards."""
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


@unittest.skipUnless(numpy, "no NumPy")
class NumPy(unittest.TestCase):
    def test_arrays(self):
        with open_feed() as feed:
            batch = next(feed)
            images = batch.images
            self.assertEqual((images.shape, images.dtype, images.flags.writeable), ((8, 4, 6, 3), numpy.uint8, True))
            self.assertEqual(images.ctypes.data, batch.buffer("images").address)
            self.assertEqual(images.ctypes.data % 64, 0)
            self.assertEqual(batch.labels.dtype, numpy.int32)
            self.assertEqual(batch.samples.dtype, numpy.uint64)
            self.assertEqual(batch.flags.tolist(), [0, 0, 0, 1, 0, 0, 0, 0])
            self.assertEqual(numpy.from_dlpack(batch).ctypes.data, images.ctypes.data)

    def test_elements(self):
        for name, kind in (("f16", numpy.float16), ("f32 nchw", numpy.float32)):
            with open_feed(pipeline=name) as feed:
                images = next(feed).images
                self.assertEqual(images.dtype, kind)
                self.assertEqual(images.shape, (8, 3, 4, 6) if "nchw" in name else (8, 4, 6, 3))
                self.assertEqual(images[5].max(), pixel(0, 5))


@unittest.skipUnless(torch, "no PyTorch")
class Torch(unittest.TestCase):
    def test_tensors(self):
        with open_feed() as feed:
            batch = next(feed)
            images, labels = batch.torch()
            self.assertEqual((images.shape, images.dtype), ((8, 3, 4, 6), torch.uint8))
            self.assertTrue(images.is_contiguous(memory_format=torch.channels_last))
            self.assertEqual(images.data_ptr(), batch.buffer("images").address)
            self.assertEqual((labels.dtype, labels.tolist()), (torch.int64, list(range(8))))
            self.assertEqual(batch.torch(layout="stored").images.shape, (8, 4, 6, 3))
            self.assertEqual(torch.from_dlpack(batch.buffer("samples")).tolist(), list(range(8)))
            self.assertEqual(batch.to("cpu").images.data_ptr(), images.data_ptr())

    def test_elements(self):
        for name, kind in (("f16", torch.float16), ("bf16", torch.bfloat16), ("f32", torch.float32)):
            with open_feed(pipeline=name) as feed:
                images = next(feed).torch().images
                self.assertEqual(images.dtype, kind)
                self.assertEqual(images[5].float().max().item(), pixel(0, 5))


if __name__ == "__main__":
    unittest.main()
