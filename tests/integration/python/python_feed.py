"""Loops over a feed of package loaderd: epochs, restarts, resuming, where batches are delivered."""

import contextlib
import itertools
import os
import pickle
import random
import sys
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
            with self.assertRaisesRegex(loaderd.FeedError, "a newer iterator of this feed"):
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


if __name__ == "__main__":
    unittest.main()
