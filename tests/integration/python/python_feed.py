"""Loops over a feed of the package loaderd: epochs, restarts, resuming, and the position at which delivery begins."""

import contextlib
import itertools
import os
import pickle
import random
import signal
import sys
import time
import unittest
import warnings
from unittest import mock

import loaderd

from feed_test import BATCHES, expected_bytes, number, open_feed, stopping_at_the_last, torch


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
        """epoch_end=0 ends the feed before its first epoch, epoch_end=1 after it; without epoch_end it does not end."""
        with open_feed(epoch_end=0) as feed:
            self.assertEqual(list(feed), [])
            self.assertIsNone(feed.next())
        with open_feed(epoch_end=1) as feed:
            self.assertEqual([number(batch) for _ in range(2) for batch in feed], list(range(BATCHES)))

    def test_each_loop_begins_an_epoch(self):
        """The first loop begins where the feed was opened, each later one with the first batch of an epoch, even if the previous loop was
        left early.
        """
        with open_feed(epoch=2, batch=6) as feed:
            self.assertEqual([number(b) for b in feed], [26, 27, 28, 29])
            for epoch in range(3, 8):
                taken = [number(b) for b in itertools.islice(feed, 4)]
                self.assertEqual(taken, [epoch * BATCHES + i for i in range(4)])
                self.assertEqual(feed.position, (epoch, 4))
            self.assertEqual([b.epoch for b in feed], [8] * BATCHES)
            self.assertEqual(feed.position, (9, 0))

    def test_short_validations(self):
        """Lightning's use of a validation feed: a few batches as a check, then whole epochs."""
        with open_feed() as feed:
            self.assertEqual(len([next(batches) for batches in [iter(feed)] for _ in range(2)]), 2)
            for _ in range(3):
                self.assertEqual([b.index for b in feed], list(range(BATCHES)))

    def test_an_iterator_that_takes_nothing(self):
        """Creating an iterator does not begin an epoch or change the position."""
        with open_feed(batch=3) as feed:
            iter(feed)
            self.assertEqual(list(itertools.islice(feed, 0)), [])
            self.assertEqual([b.index for b in feed], [3, 4, 5, 6, 7, 8, 9])

    def test_a_loop_after_single_batches(self):
        with open_feed() as feed:
            self.assertEqual([number(next(feed)) for _ in range(2)], [0, 1])
            self.assertEqual([number(b) for b in itertools.islice(feed, 2)], [2, 3])
            self.assertEqual([number(next(feed)) for _ in range(2)], [4, 5])
            self.assertEqual(number(next(iter(feed))), 10)

    def test_streams_are_opened_only_to_move(self):
        opened = []

        def opening(**options):
            opened.append((options["epoch"], options["batch"]))
            return stream(**options)

        stream = loaderd._feed.Stream
        with mock.patch.object(loaderd._feed, "Stream", opening), open_feed() as feed:
            for _ in range(2):
                self.assertEqual(sum(1 for _ in feed), BATCHES)
                self.assertEqual(sum(1 for _ in zip(range(BATCHES), feed)), BATCHES)
            feed.set_epoch(4)
            self.assertEqual(len(feed), BATCHES)
            self.assertEqual(sum(1 for _ in feed), BATCHES)
            self.assertEqual(opened, [(0, 0)])
            self.assertEqual(sum(1 for _ in zip(feed, range(3))), 3)
            self.assertEqual(sum(1 for _ in feed), BATCHES)
            self.assertEqual(opened, [(0, 0), (6, 0)])

    def test_set_epoch(self):
        with open_feed() as feed:
            for epoch in (3, 3, 0, 1, 7):
                feed.set_epoch(epoch)
                self.assertEqual(feed.position, (epoch, 0))
                self.assertEqual([number(b) for b in itertools.islice(feed, 5)], [epoch * BATCHES + i for i in range(5)])
            feed.set_epoch(2)
            self.assertEqual(feed.state_dict()["epoch"], 2)
            self.assertEqual(number(next(feed)), 20)  # next() also uses the new epoch
            batches = iter(feed)
            self.assertEqual(number(next(batches)), 21)
            feed.set_epoch(5)  # applies to the next loop
            self.assertEqual(number(next(batches)), 22)
            self.assertEqual(number(next(iter(feed))), 50)
            with self.assertRaisesRegex(TypeError, "epoch: 1.5"):
                feed.set_epoch(1.5)

    def test_set_epoch_after_resuming(self):
        """A loop that calls set_epoch() for each epoch keeps the batch at which it resumes."""
        with open_feed() as feed:
            feed.set_epoch(4)
            self.assertEqual(sum(1 for _ in itertools.islice(feed, 6)), 6)
            state = feed.state_dict()
        for options, load in ((dict(), True), (dict(epoch=4, batch=6), False)):
            with open_feed(**options) as feed:
                if load:
                    feed.load_state_dict(state)
                taken = []
                for epoch in range(4, 7):
                    feed.set_epoch(epoch)
                    taken += map(number, feed)
                self.assertEqual(taken, list(range(46, 70)))
                feed.set_epoch(4)
                self.assertEqual(number(next(iter(feed))), 40)  # the resumed position was used once; now set_epoch() means the first batch
        with open_feed() as feed:
            feed.load_state_dict(state)
            feed.set_epoch(5)
            self.assertEqual(number(next(iter(feed))), 50)
            feed.load_state_dict(state)
            feed.set_epoch(5)
            iter(feed)
            feed.set_epoch(4)  # the feed has moved, so the resumed position is gone
            self.assertEqual(number(next(iter(feed))), 40)

    def test_reset(self):
        with open_feed(epoch=1, batch=4) as feed:
            feed.reset()
            self.assertEqual(feed.position, (1, 0))
            for _ in range(3):  # the same epoch each time, whether it was complete or not
                self.assertEqual([number(b) for b in feed], list(range(10, 20)))
                feed.reset()
                self.assertEqual(sum(1 for _ in itertools.islice(feed, 3)), 3)
                feed.reset()
            self.assertEqual([number(feed.next()) for _ in range(3)], [10, 11, 12])

    def test_the_last_epoch(self):
        """After the last epoch the feed ends, even if a loop was left early."""
        with open_feed(epoch_end=2) as feed:
            feed.set_epoch(1)
            self.assertEqual(sum(1 for _ in itertools.islice(feed, 3)), 3)
            self.assertEqual(list(feed), [])
            self.assertIsNone(feed.next())
            feed.reset()
            self.assertEqual(sum(1 for _ in feed), BATCHES)

    def test_a_move_waits_for_the_next_daemon(self):
        with loaderd.Daemon() as daemon:
            feed = loaderd.Feed("plain", batch_size=8, socket=daemon.socket)
            held = next(iter(feed))
            os.kill(daemon.pid, signal.SIGKILL)
            self.assertEqual([b.index for b in feed], list(range(BATCHES)))
            self.assertEqual(bytes(held.buffer("images")), expected_bytes(held))
            self.assertEqual(feed.reconnects, 0)
            self.assertEqual(next(iter(feed)).epoch, 2)
            daemon.stop()
            with self.assertRaises(loaderd.NoDaemon):
                iter(feed)
            with self.assertRaisesRegex(loaderd.DaemonGone, "could not be opened again at epoch 3, batch 0"):
                next(feed)

    def test_reconnects_are_counted_across_moves(self):
        with self.assertLogs("loaderd"), open_feed("die-3") as feed:
            self.assertEqual(sum(1 for _ in itertools.islice(feed, 5)), 5)
            self.assertEqual(feed.reconnects, 1)
            self.assertEqual(sum(1 for _ in itertools.islice(feed, 2)), 2)
            self.assertEqual(feed.reconnects, 1)

    def test_a_move_registers_the_new_memory(self):
        """pin() applies to the feed, and so to each new ring."""
        calls = []

        class Runtime:
            @staticmethod
            def cudaHostRegister(address, size, flags):
                calls.append(("register", address))
                return 0

            @staticmethod
            def cudaHostUnregister(address):
                calls.append(("unregister", address))

        fake = mock.Mock(cuda=mock.Mock(cudart=lambda: Runtime))
        with mock.patch.dict(sys.modules, torch=fake), open_feed() as feed:
            feed.pin()
            next(iter(feed))
            self.assertEqual(next(iter(feed)).epoch, 1)
            feed.close()
        first, second = calls[0][1], calls[2][1]
        self.assertEqual(calls, [("register", first), ("unregister", first), ("register", second), ("unregister", second)])

    def test_a_closed_feed_stays_closed(self):
        feed = open_feed()
        next(iter(feed))
        feed.close()
        with self.assertRaisesRegex(loaderd.DaemonGone, "this feed was closed"):
            next(iter(feed))

    def test_a_loop_that_stops_at_the_last_batch(self):
        """A loop that stops at the last batch has finished its epoch, whatever construct ends it: the next loop has the next epoch."""
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
            self.assertEqual(number(next(newer)), 10)
            with self.assertRaisesRegex(loaderd.FeedError, "a newer iterator of this feed"):
                next(older)
            self.assertEqual([batch.index for batch in newer], [1, 2, 3, 4, 5, 6, 7, 8, 9])
            self.assertEqual(list(newer), [])
            newer = iter(feed)
            feed.load_state_dict(feed.state_dict())
            with self.assertRaisesRegex(loaderd.FeedError, "load_state_dict"):
                next(newer)

    def test_any_use(self):
        """Takes batches from several feeds in random ways; some feeds continue at the position of another. Each delivers the batches that a
        simple model predicts.
        """
        for seed in range(12):
            draw = random.Random(seed)
            uses = [Use(open_feed()) for _ in range(3)]
            for _ in range(40):
                use = draw.choice(uses)
                use.somehow(self, draw, draw.choice(uses))
                self.assertEqual(use.feed.position, divmod(use.position, BATCHES))
            for use in uses:
                use.feed.close()

    def test_next_crosses_epochs(self):
        with open_feed(batch=9, epoch_end=2) as feed:
            self.assertEqual([feed.next().epoch for _ in range(11)], [0] + [1] * 10)
            self.assertIsNone(feed.next())

    def test_a_short_last_batch(self):
        for options in (dict(drop_last=False), dict(drop_last=None)):
            with open_feed(batch=9, **options) as feed:
                batch = next(feed)
                self.assertEqual(len(batch), 7)
                self.assertEqual(bytes(batch.buffer("images")), expected_bytes(batch))
                self.assertIs(feed.state_dict()["drop_last"], False)

    def test_the_older_name_of_drop_last(self):
        for last, size in (("short", 7), ("drop", 8)):
            with self.assertWarnsRegex(DeprecationWarning, f"use drop_last={last == 'drop'}") as caught:
                feed = open_feed(last=last, batch=9)
            self.assertEqual(caught.filename, open_feed.__code__.co_filename)
            with feed:
                self.assertEqual(len(next(feed)), size)
                state = {**feed.state_dict(), "last": 1}
                del state["drop_last"]
                feed.load_state_dict(state)
                self.assertEqual(feed.position, (1, 0))


class Use:
    """A feed and its model: the number of the next batch, and whether a loop has taken a batch since the position was set."""

    def __init__(self, feed):
        self.feed, self.position, self.begun, self.last = feed, 0, False, None

    def somehow(self, test, draw, other):
        left = BATCHES - self.position % BATCHES
        count = draw.choice([0, 1, draw.randrange(BATCHES), left, left, BATCHES + 3])
        way = draw.randrange(8)
        if way < 2:
            taken = [number(self.feed.next() if way else next(self.feed)) for _ in range(count)]
            begin = self.position
        elif way < 5:
            if self.begun and self.position % BATCHES:
                self.position += left
            begin, self.begun = self.position, False
            count = min(count, BATCHES - begin % BATCHES)  # a loop ends with its epoch, and reads no batch beyond it
            if way == 2:
                taken = [number(batch) for batch in itertools.islice(self.feed, count)]
            elif way == 3:
                taken = [number(batch) for _, batch in zip(range(count), self.feed)]
            else:
                taken, iterator = [], iter(self.feed)
                while len(taken) < count and (batch := next(iterator, None)) is not None:
                    taken.append(number(batch))
            self.begun = count > 0
        elif way == 5:
            self.feed.load_state_dict(other.feed.state_dict())
            self.position, self.begun, self.last = other.position, False, None
            return
        else:
            epoch = draw.randrange(4) if way == 6 else (self.position if self.last is None else self.last) // BATCHES
            self.feed.set_epoch(epoch) if way == 6 else self.feed.reset()
            kept = way == 6 and self.last is None and epoch == self.position // BATCHES
            self.position = self.position if kept else epoch * BATCHES
            self.begun = False
            return
        test.assertEqual(taken, list(range(begin, begin + count)))
        self.position = begin + count
        self.last = taken[-1] if taken else self.last


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
            self.assertEqual(feed.next().index, 0)  # the failed call changed nothing

    def test_another_dataset(self):
        with open_feed() as feed:
            feed.next()
            state = feed.state_dict()
        with open_feed("other") as feed:
            self.assertNotEqual(feed.uuid, state["uuid"])
            with self.assertRaisesRegex(loaderd.BadOption, f"{state['uuid']}; .*other, {feed.uuid}, .*strict=False"):
                feed.load_state_dict(state)
            self.assertEqual(feed.next().index, 0)  # the failed call changed nothing
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
    """A process of a group: the part that its feed gets, and the warnings about it."""

    LAUNCHERS = [
        dict(RANK="1", WORLD_SIZE="3"),
        dict(RANK="1", WORLD_SIZE="3", LOCAL_RANK="1", LOCAL_WORLD_SIZE="3", GROUP_RANK="0", ROLE_RANK="1"),  # torchrun, Accelerate
        dict(RANK="1", WORLD_SIZE="3", LOCAL_RANK="1", LOCAL_SIZE="3", CROSS_RANK="0", CROSS_SIZE="1"),  # DeepSpeed
        dict(RANK="1", WORLD_SIZE="3", LOCAL_RANK="1", LOCAL_WORLD_SIZE="3", NODE_RANK="0"),  # Ray Train
        dict(LOCAL_RANK="1", NODE_RANK="0", WORLD_SIZE="3", MASTER_ADDR="127.0.0.1", MASTER_PORT="29500"),  # Lightning
        dict(LOCAL_RANK="0", NODE_RANK="1", WORLD_SIZE="3", LOCAL_WORLD_SIZE="1"),
        dict(JAX_PROCESS_ID="1", JAX_NUM_PROCESSES="3"),
        dict(HOROVOD_RANK="1", HOROVOD_SIZE="3"),
        dict(OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="3"),
        dict(MV2_COMM_WORLD_RANK="1", MV2_COMM_WORLD_SIZE="3"),
        dict(PMI_RANK="1", PMI_SIZE="3"),
        dict(JSM_NAMESPACE_RANK="1", JSM_NAMESPACE_SIZE="3"),
        dict(SLURM_PROCID="1", SLURM_STEP_NUM_TASKS="3"),
        # torchrun and Lightning, started by srun once per machine
        dict(RANK="1", WORLD_SIZE="3", SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="2"),
        dict(LOCAL_RANK="1", NODE_RANK="0", WORLD_SIZE="3", SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="1"),
    ]
    ALONE = [
        dict(), dict(RANK="0", WORLD_SIZE="1"), dict(SLURM_PROCID="0", SLURM_NTASKS="4"), dict(RANK="x", WORLD_SIZE="3"),
        dict(LOCAL_RANK="1", WORLD_SIZE="3"), dict(LOCAL_RANK="0", NODE_RANK="0", WORLD_SIZE="1"),
    ]  # fmt: skip
    # Lightning on the second of several machines: the number of ranks per machine is unknown until the process group exists.
    UNKNOWN = dict(LOCAL_RANK="1", NODE_RANK="1", WORLD_SIZE="4")

    def setUp(self):
        ranks = {name for variables in (*self.LAUNCHERS, *self.ALONE, self.UNKNOWN) for name in variables}
        clean = mock.patch.dict(os.environ, {name: value for name, value in os.environ.items() if name not in ranks}, clear=True)
        clean.start()
        self.addCleanup(clean.stop)

    @staticmethod
    def group(rank, world):
        """Simulates torch.distributed with this process group; without one if rank is None."""

        class Torch:
            is_available = staticmethod(lambda: True)
            is_initialized = staticmethod(lambda: rank is not None)
            get_rank, get_world_size = staticmethod(lambda: rank), staticmethod(lambda: world)

        return mock.patch.dict(sys.modules, {"torch.distributed": Torch})

    def part(self, **options):
        """Returns (rank, world) of a feed, and the number of its warnings."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with open_feed(**options) as feed:
                part = feed._options["rank"], feed._options["world"]
        self.assertTrue(all(issubclass(w.category, loaderd.RankWarning) for w in said))
        self.assertTrue(all(w.filename == open_feed.__code__.co_filename for w in said))
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

    def test_ranks_of_this_machine(self):
        for local, variables in (
            (1, dict(RANK="1", WORLD_SIZE="3")),
            (2, dict(LOCAL_WORLD_SIZE="2", SLURM_NODEID="1", SLURM_STEP_TASKS_PER_NODE="1(x2)")),
            (8, dict(SLURM_NODEID="0", SLURM_STEP_TASKS_PER_NODE="8")),
            (4, dict(SLURM_NODEID="1", SLURM_STEP_TASKS_PER_NODE="4(x2),3,5(x2)")),
            (3, dict(SLURM_NODEID="2", SLURM_STEP_TASKS_PER_NODE="4(x2),3,5(x2)")),
            (5, dict(SLURM_NODEID="4", SLURM_STEP_TASKS_PER_NODE="4(x2),3,5(x2)")),
            (1, dict(SLURM_NODEID="5", SLURM_STEP_TASKS_PER_NODE="4(x2),3,5(x2)")),
        ):
            with self.subTest(variables), mock.patch.dict(os.environ, variables):
                self.assertEqual(loaderd._launchers.local_ranks(), local)

    def test_texts(self):
        with mock.patch.dict(os.environ, self.LAUNCHERS[0]):
            with self.assertWarnsRegex(loaderd.RankWarning, r'rank 1 of 3 by \$RANK and \$WORLD_SIZE.*rank="auto".*rank=0, world=1'):
                open_feed().close()
        for options, kind, text in (
            (dict(world=4), loaderd.BadOption, "rank: set which of world=4 ranks"),
            (dict(rank=1, world="auto"), loaderd.BadOption, "cannot be combined"),
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

        # An initialized group takes precedence over a launcher's variables.
        for name, module, expected in (("torch.distributed", Torch, (2, 4, 1)), ("jax", Jax, (3, 5, 1))):
            with mock.patch.dict(sys.modules, {name: module}), mock.patch.dict(os.environ, self.LAUNCHERS[0]):
                self.assertEqual(self.part(), expected)

    def test_ray(self):
        class Train:
            """Raises an error outside a worker."""

            worker = True

            @classmethod
            def get_context(cls):
                if not cls.worker:
                    raise RuntimeError("no worker")
                return cls

            get_world_rank, get_world_size = staticmethod(lambda: 1), staticmethod(lambda: 2)

        with mock.patch.dict(sys.modules, {"ray.train": Train}):
            self.assertEqual(self.part(), (1, 2, 1))
            Train.worker = False
            self.assertEqual(self.part(), (0, 1, 0))

    def test_a_group_after_the_feed(self):
        """If the process group is created after the feed, the first batch uses its rank: len(), the state and the batches are those of the
        rank.
        """
        for given in ("auto", None):
            with self.group(None, None), warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                feed = open_feed(rank=given)
                self.assertEqual((feed._options["rank"], feed._options["world"]), (0, 1))
                feed.load_state_dict({**feed.state_dict(), "epoch": 3, "batch": 4})
            with feed, self.group(1, 2), warnings.catch_warnings(record=True) as later:
                warnings.simplefilter("always")
                feed.set_epoch(3)
                batch = next(iter(feed))
                self.assertEqual((batch.epoch, batch.index), (3, 2))  # 4 batches of one rank are 2 batches of two ranks
                self.assertEqual((feed._options["rank"], feed._options["world"]), (1, 2))
                self.assertEqual(feed.state_dict()["world"], 2)
                self.assertEqual([b.index for b in feed], list(range(BATCHES)))
            self.assertEqual((len(said), len(later)), (0, int(given is None)))

    def test_len_asks_the_group(self):
        with open_feed(rank="auto") as feed, self.group(1, 2):
            self.assertEqual(len(feed), BATCHES)
            self.assertEqual(feed._options["world"], 2)

    def test_a_group_after_the_first_batch(self):
        """A group created after the first batch is an error: the next batches could be those that another rank has had."""
        with self.group(None, None):
            feed = open_feed(rank="auto")
            batches = iter(feed)
            next(batches)
        with feed:
            with self.group(1, 2):
                for take in (lambda: next(batches), lambda: next(feed), lambda: next(iter(feed)), feed.next):
                    with self.assertRaisesRegex(
                        loaderd.RankChanged, r"rank 0 of 1, but torch.distributed .* rank 1 of 2.*feed\.reset\(\).*rank= and world="
                    ):
                        take()
                fresh = iter(feed)
                feed.reset()
                with self.assertRaisesRegex(loaderd.FeedError, "reset\\(\\), has replaced this iterator"):
                    next(fresh)
                self.assertEqual(number(next(iter(feed))), 0)
                self.assertEqual((feed._options["rank"], feed._options["world"]), (1, 2))
                next(feed)
            with self.group(0, 4), self.assertRaises(loaderd.RankChanged):
                next(feed)
            with self.group(1, 2):
                next(feed)
            state = feed.state_dict()
            with self.group(3, 4):
                feed.load_state_dict({**state, "batch": 4})
                self.assertEqual((next(feed).index, feed._options["rank"]), (2, 3))
        with open_feed(rank=0, world=1) as feed:
            next(feed)
            with self.group(1, 2):
                next(feed)  # explicit numbers take precedence

    def test_a_rank_that_cannot_be_known_yet(self):
        with mock.patch.dict(os.environ, self.UNKNOWN):
            with open_feed(rank="auto") as feed:
                for take in (lambda: next(feed), lambda: next(iter(feed))):
                    with self.assertRaisesRegex(loaderd.BadOption, r"rank: \$NODE_RANK, .* one of 4, .*torch.distributed .*rank= and world="):
                        take()
                with self.group(3, 4):
                    self.assertEqual(next(iter(feed)).index, 0)
                    self.assertEqual((feed._options["rank"], feed._options["world"]), (3, 4))

    def test_ranks_of_different_length(self):
        """20 samples in batches of 2 on 3 ranks: the last global batch has 2 samples for 3 ranks."""
        with self.assertWarnsRegex(loaderd.RankWarning, "ends with 2 samples for 3 ranks, so 1 of them get one batch less.*drop_last=True"):
            open_feed(batch_size=2, rank=2, world=3, drop_last=False).close()
        for options in (dict(batch_size=2, drop_last=True), dict(batch_size=8, drop_last=False), dict(batch_size=2, rank=0, world=1)):
            self.assertEqual(self.part(**{"rank": 2, "world": 3, "drop_last": False, **options})[2], 0)

    def test_the_check_of_each_batch_is_cheap(self):
        """The check is cheap compared with the 100 us or more that a batch costs. The bound is ten times the time on a slow machine."""
        with open_feed(rank="auto") as feed, self.group(0, 1):
            next(feed)
            begin = time.process_time()
            for _ in range(1000):
                feed._decide()
            self.assertLess(time.process_time() - begin, 0.1)

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
            self.assertEqual(self.part(rank=0, world=1), (0, 1, 1))  # every worker gets the same batches
            self.assertEqual(self.part(rank=3, world=8), (3, 8, 0))
            with self.assertWarnsRegex(loaderd.RankWarning, "each of the 4 workers of a PyTorch DataLoader.*needs no DataLoader"):
                open_feed().close()
        with self.worker(3, 4), mock.patch.dict(os.environ, self.LAUNCHERS[0]):
            self.assertEqual(self.part(), (7, 12, 0))  # worker 0 has already warned
        with self.worker(0, 1):
            self.assertEqual(self.part(), (0, 1, 1))  # a worker that does not persist begins with epoch 0 each time
            self.assertEqual(self.part(rank=0, world=1), (0, 1, 0))

    @unittest.skipUnless(torch, "no PyTorch")
    def test_a_feed_in_a_dataloader(self):
        class Inherited(torch.utils.data.IterableDataset):
            def __iter__(self):
                return map(len, feed)

        with open_feed() as feed, self.assertRaisesRegex(loaderd.WrongProcess, "needs no DataLoader"):
            list(torch.utils.data.DataLoader(Inherited(), batch_size=None, num_workers=1))


if __name__ == "__main__":
    unittest.main()
