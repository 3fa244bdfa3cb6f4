"""Orders of feeds in Python: choices of samples, weights, batches of classes, and mixtures, beside a slow model, with the daemon ($LOADERD)."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from unittest import mock

import loaderd

try:
    import numpy
except ImportError:
    print("NumPy is not installed")
    sys.exit(77)
import order_model as model

SIDE = 4
SIZES = {"a": 53, "b": 11, "c": 90}
CLASSES = 5


def pixels(name, i):
    """An image that says which sample it is."""
    image = numpy.zeros((SIDE, SIDE + i % 3, 3), "u1")
    image[..., 0], image[..., 1] = ord(name), i
    return image


class Orders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.paths = {name: os.path.join(cls.folder.name, f"{name}.pimg") for name in SIZES}
        for name, size in SIZES.items():
            more = "" if name == "b" else "weight: value f32\n"
            schema = f"image: image u8[h,w,3]\nlabel: class i32\nnumber: value i64\n{more}"
            with loaderd.Writer(cls.paths[name], schema, classes=[f"class {c}" for c in range(CLASSES)]) as writer:
                for i in range(size):
                    values = {"image": pixels(name, i), "label": i * i % CLASSES, "number": i}
                    writer.add(values if name == "b" else {**values, "weight": i / 2})

    def feed(self, dataset, **options):
        given = {"batch_size": 6, "pipeline": "resize(4x4)", "shuffle": True, "seed": 77, "daemon": "private", **options}
        return loaderd.Feed(dataset, **given)

    def part(self, name, *, share=1, **options):
        return loaderd.Part(self.paths[name], share, **options)

    def drawn(self, feed, epochs=2):
        """Returns the samples of each epoch, and checks that images and labels belong to them."""
        names = [os.path.basename(part.dataset)[0] for part in feed.parts] or [os.path.basename(feed._path)[0]]
        firsts = [part.first for part in feed.parts] or [0]
        found = []
        for _ in range(epochs):
            epoch = []
            for batch in feed:
                for sample, part, image, label in zip(batch.samples, batch.parts, batch.images, batch.labels):
                    number = int(sample) - firsts[part]
                    self.assertEqual(tuple(image[0, 0, :2]), (ord(names[part]), number))
                    self.assertEqual(label, number * number % CLASSES)
                epoch += map(int, batch.samples)
            found.append(epoch)
        return found

    def labels(self, name):
        return [i * i % CLASSES for i in range(SIZES[name])]

    def check(self, dataset, order, /, epochs=2, **options):
        """Compares a feed with the model: alone, and as 2, 3 and 8 ranks whose batches have as many samples together."""
        expected = [order.epoch(e) for e in range(epochs)]
        self.assertEqual(self.drawn(self.feed(dataset, **options), epochs), expected)
        step = options.get("batch_size", 6)
        for world in (world for world in (2, 3, 8) if step % world == 0):
            feeds = [self.feed(dataset, **{**options, "batch_size": step // world, "rank": rank, "world": world}) for rank in range(world)]
            epoch = []
            for batches in zip(*feeds):
                for batch in batches:
                    epoch += map(int, batch.samples)
            whole = order.epoch_samples // step * step
            self.assertEqual(epoch[:whole], expected[0][:whole])
        # from any position
        batches = -(-order.epoch_samples // step)
        for epoch, batch in ((0, 1 % batches), (1, batches - 1), (3, 0)):
            feed = self.feed(dataset, epoch=epoch, batch=batch, **options)
            self.assertEqual(list(next(feed).samples), order.epoch(epoch)[batch * step : (batch + 1) * step])

    def test_lists_and_filters(self):
        chosen = [7, 3, 3, 50, 12, 9, 1]
        self.check(self.paths["a"], model.Order([model.Part(chosen)], 77, 6), samples=chosen)
        self.check(self.paths["a"], model.Order([model.Part(chosen)], 77, 6, shuffle=False), samples=numpy.array(chosen), shuffle=False)
        filtered = [i for i in range(53) if i % 3 == 2 and i * i % CLASSES in (1, 4)]
        self.check(self.paths["a"], model.Order([model.Part(filtered)], 77, 6), where='width >= 6 and class in ("class 1", "class 4")')
        both = [i for i in chosen if i >= 9]
        self.check(self.paths["a"], model.Order([model.Part(both)], 77, 6), where="number >= 9", samples=chosen)
        everything = self.drawn(self.feed(self.paths["a"]))
        self.assertEqual(self.drawn(self.feed(self.paths["a"], where="sample >= 0")), everything)

    def test_weights(self):
        weights = numpy.arange(53, dtype="f4") % 4
        order = model.Order([model.Part(range(53), weights=[weights.tolist()])], 77, 6)
        self.check(self.paths["a"], order, weights=weights)
        later = numpy.where(numpy.arange(53) > 50, 1, 0).astype("f4")
        staged = model.Order([model.Part(range(53), weights=[weights.tolist(), later.tolist()])], 77, 6, froms=(0, 4))
        self.check(self.paths["a"], staged, weights={0: weights, 4: later})
        self.assertLessEqual(set(staged.epoch(1)), {51, 52})
        kept = [i for i in range(53) if i % 2]
        filtered = model.Order([model.Part(kept, weights=[[float(weights[i]) for i in kept]])], 77, 6)
        self.check(self.paths["a"], filtered, weights=weights, where="sample in (" + ", ".join(map(str, kept)) + ")")

    def test_many_weights(self):
        """The daemon reads them in pieces of 2^18. Of an entry list that is longer, a stage draws only entries of the first, another only of the last."""
        listed, first, last = numpy.zeros(300000, "u8"), numpy.zeros(300000, "f4"), numpy.zeros(300000, "f4")
        for number, weights, entry in ((7, first, 2**18 - 1), (9, last, 2**18), (11, last, 299999)):
            listed[entry], weights[entry] = number, 1
        feed = self.feed(self.paths["a"], samples=listed, weights={0: first, 4: last}, epoch_samples=48)
        (drawn,) = self.drawn(feed, 1)
        self.assertEqual((set(drawn[:24]), set(drawn[24:])), ({7}, {9, 11}))

    def test_classes(self):
        drawn = Counter(i * i % CLASSES for epoch in self.drawn(self.feed(self.paths["c"], class_weights="balanced"), 20) for i in epoch)
        self.assertEqual(set(drawn), {0, 1, 4})  # squares
        for count in drawn.values():
            self.assertLess(abs(count - 600), 5 * 20)  # five standard deviations
        named = Counter(i * i % CLASSES for epoch in self.drawn(self.feed(self.paths["c"], class_weights={"class 0": 3, "class 1": 0}), 20) for i in epoch)
        self.assertEqual(set(named), {0, 4})
        self.assertLess(abs(named[0] - 1800 * 3 / 5), 5 * 21)
        part = model.Part(range(90), classes=self.labels("c"), per_batch=2)
        self.check(self.paths["c"], model.Order([part], 77, 6), classes_per_batch=2)
        for batch in self.feed(self.paths["c"], classes_per_batch=3):
            self.assertEqual(sorted(Counter(batch.labels.tolist()).values()), [2, 2, 2])

    def test_mixtures(self):
        firsts = {"a": 0, "b": 53, "c": 64}
        parts = [model.Part(range(SIZES[name]), firsts[name]) for name in SIZES]
        given = [self.part("a", share=3), self.part("b"), self.part("c", share=2)]
        for ends in ("first", "last"):
            for shuffle in (True, False):
                order = model.Order(parts, 77, 6, shuffle, shares=[[3, 1, 2]], ends=ends)
                self.check(given, order, ends=ends, shuffle=shuffle)
        self.check(given, model.Order(parts, 77, 6, shares=[[3, 1, 2]], ends="last", by_batch=True), ends="last", mix="batch")
        scaled = [self.part("a", share=0.3), self.part("b", share=0.1), self.part("c", share=0.2)]
        self.check(scaled, model.Order(parts, 77, 6, shares=[[3, 1, 2]], epoch_samples=40), epoch_samples=40)

    def test_shares_that_change(self):
        parts = [model.Part(range(53)), model.Part(range(11), 53)]
        order = model.Order(parts, 77, 6, shares=[[5, 1], [1, 1], [0, 1]], froms=(0, 3, 9), epoch_samples=30)
        given = [self.part("a", share={0: 5, 3: 1, 9: 0}), self.part("b")]
        self.check(given, order, epochs=3, epoch_samples=30)

    def test_eight_ranks(self):
        """Batches of 24 samples, of which each rank has three."""
        mixed = [model.Part(range(53)), model.Part(range(90), 53)]
        order = model.Order(mixed, 77, 24, shares=[[3, 1], [1, 2]], froms=(0, 2), epoch_samples=96)
        self.check([self.part("a", share={0: 3, 2: 1}), self.part("c", share={0: 1, 2: 2})], order, epoch_samples=96, batch_size=24)
        order = model.Order(mixed, 77, 24, shares=[[1, 2]], by_batch=True)
        self.check([self.part("a"), self.part("c", share=2)], order, mix="batch", batch_size=24)
        kept = [i for i in range(90) if i % 5]
        self.check(self.paths["c"], model.Order([model.Part(kept)], 77, 24), where="label != 0", batch_size=24)
        classes = model.Part(range(90), classes=self.labels("c"), per_batch=2)
        self.check(self.paths["c"], model.Order([classes], 77, 24), classes_per_batch=2, batch_size=24)

    def test_choices_in_a_mixture(self):
        kept = [i for i in range(90) if i * i % CLASSES == 4]
        parts = [model.Part([5, 6, 7]), model.Part(kept, 53)]
        given = [self.part("a", samples=[5, 6, 7]), self.part("c", where="label == 4", share=2)]
        self.check(given, model.Order(parts, 77, 6, shares=[[1, 2]], ends="last"), ends="last")

    def blocks(self, entries, sizes, **options):
        return model.Order([model.Part(entries, blocks=sizes)], 77, 6, **options)

    def test_blocks(self):
        """Also where the last block and the last group are short; with lists, filters and epochs of their own length, too."""
        for samples, groups in ((8, 3), (9, 2), (7, 100), (200, 1), (1, 1), (1, 4)):
            given = {"order": "blocks", "block_samples": samples, "group_blocks": groups}
            with self.subTest(**given):
                self.check(self.paths["c"], self.blocks(range(90), (samples, groups)), **given)
        given = {"order": "blocks", "block_samples": 4, "group_blocks": 3}
        self.check(self.paths["a"], self.blocks([i for i in range(53) if i >= 9], (4, 3)), where="number >= 9", **given)
        chosen = [50, 3, 3, 7, 12, 9, 1, 1, 30, 31, 32]
        self.check(self.paths["a"], self.blocks(chosen, (4, 3)), samples=chosen, **given)
        self.check(self.paths["a"], self.blocks(range(53), (4, 3), epoch_samples=70), epoch_samples=70, **given)
        repeated = [list(batch.samples) for batch in self.feed(self.paths["a"], batch_size=12, repeats=2, **given)]
        epoch = self.blocks(range(53), (4, 3)).epoch(0)
        self.assertEqual(repeated, [epoch[i : i + 6] * 2 for i in range(0, 53, 6)])

    def test_blocks_of_a_mixture(self):
        given = {"order": "blocks", "block_samples": 4, "group_blocks": 3}
        kept = [i for i in range(53) if i >= 9]
        for mixed in ({}, {"mix": "batch"}, {"epoch_samples": 120}):
            parts = [model.Part(kept, blocks=(4, 3)), model.Part(range(SIZES["c"]), first=53, blocks=(4, 3))]
            options = {"by_batch": True} if "mix" in mixed else mixed
            self.check([self.part("a", share=2, where="number >= 9"), self.part("c", share=1)],
                       model.Order(parts, 77, 6, shares=[[2, 1]], **options), **given, **mixed)

    def test_blocks_by_the_size_of_the_dataset(self):
        each = os.path.getsize(self.paths["c"]) // 90
        samples = (1 << 20) // each
        blocks = samples, min((256 << 20) // (samples * each), 16384 // samples)
        self.assertEqual(loaderd.dataset(self.paths["c"], daemon="private").blocks, blocks)
        feed = self.feed(self.paths["c"], order="blocks")
        self.assertEqual(feed.state_dict()["order"]["blocks"], list(blocks))
        mixed = self.feed([self.part("c"), self.part("a")], order="blocks", block_samples=blocks[0] // 8)
        self.assertEqual(mixed.state_dict()["order"]["blocks"], [blocks[0] // 8, blocks[0] * blocks[1] // (blocks[0] // 8 * 2)])
        given = self.feed(self.paths["c"], order="blocks", block_samples=2 * blocks[0])
        self.assertEqual(given.state_dict()["order"]["blocks"], [2 * blocks[0], blocks[0] * blocks[1] // (2 * blocks[0])])

    def test_blocks_of_a_state(self):
        """A feed that was not told the sizes takes them from the state; one that was has the same, or is refused."""
        given = {"order": "blocks", "block_samples": 8, "group_blocks": 3}
        order, feed = self.blocks(range(90), (8, 3)), self.feed(self.paths["c"], **given)
        for _ in range(4):
            next(feed)
        state = feed.state_dict()
        for options in ({"order": "blocks"}, {"order": "blocks", "group_blocks": 3, "batch_size": 3}, {**given, "batch_size": 2, "world": 3, "rank": 0}):
            resumed = self.feed(self.paths["c"], **options)
            resumed.load_state_dict(state)
            self.assertEqual(list(next(resumed).samples), order.epoch(0)[24 : 24 + options.get("batch_size", 6)])
            self.assertEqual(resumed.state_dict()["order"], state["order"])
        for options, words in (
            ({**given, "group_blocks": 4}, r"block_samples and group_blocks was \[8, 3\] and is \[8, 4\]"),
            ({"epoch_samples": 90}, r"block_samples and group_blocks was \[8, 3\] and is nothing"),
            ({}, "saved by a feed with parts or chosen samples"),
        ):
            with self.assertRaisesRegex(loaderd.BadOption, words):
                self.feed(self.paths["c"], **options).load_state_dict(state)

    def test_copies_of_a_sample_differ(self):
        """A sample that comes again in an epoch is augmented anew; the first copies are those of a plain feed."""
        options = {"pipeline": "random_resized_crop(3, scale=0.1:1) color_jitter(0.9, 0.9)", "batch_size": 4}
        plain = {}
        for batch in self.feed(self.paths["b"], **options):
            plain.update(zip(batch.samples.tolist(), (image.tobytes() for image in batch.images.copy())))
        again = self.feed(self.paths["b"], samples=[4, 4, 4, 4], **options)
        images = {image.tobytes() for image in next(again).images.copy()}
        self.assertGreater(len(images), 1)
        listed = self.feed(self.paths["b"], where="sample < 8", **options)
        for batch in listed:
            for sample, image in zip(batch.samples.tolist(), batch.images.copy()):
                self.assertEqual(image.tobytes(), plain[sample])

    def test_repeats(self):
        order = model.Order([model.Part([2, 4, 6, 8, 10])], 77, 2)
        feed = self.feed(self.paths["a"], samples=[2, 4, 6, 8, 10], repeats=3)
        epoch = order.epoch(0)
        batches = [list(batch.samples) for batch in feed]
        self.assertEqual(batches, [epoch[:2] * 3, epoch[2:4] * 3, epoch[4:] * 3])

    def test_a_state_resumes_exactly(self):
        def mixed(**options):
            return self.feed([self.part("a", share=2, where="sample < 50"), self.part("c")], epoch_samples=48, **options)

        feed = mixed()
        expected = [list(next(feed).samples) for _ in range(20)]
        for taken in (0, 1, 7, 8, 13):
            begun = mixed()
            for _ in range(taken):
                next(begun)
            resumed = mixed(batch_size=3)
            resumed.load_state_dict(begun.state_dict())
            self.assertEqual([list(next(resumed).samples) + list(next(resumed).samples) for _ in range(3)], expected[taken : taken + 3])

    def test_another_order_is_refused_in_words(self):
        given = dict(where="sample < 20", epoch_samples=12)
        state = self.feed(self.paths["a"], **given).state_dict()
        for options, words in (
            ({**given, "where": "sample < 21"}, "where was 'sample < 20' and is 'sample < 21'"),
            ({**given, "samples": range(20)}, "samples was not given"),
            ({**given, "weights": [1.0] * 53}, "weights was not given"),
            ({**given, "epoch_samples": 18}, "epoch_samples was 12 and is 18"),
            ({}, "saved by a feed with parts or chosen samples"),
        ):
            with self.assertRaises(loaderd.BadOption) as caught:
                self.feed(self.paths["a"], **options).load_state_dict(state)
            self.assertIn(words, str(caught.exception))
        with self.assertRaisesRegex(loaderd.BadOption, "saved by a feed of a whole dataset"):
            self.feed(self.paths["a"], **given).load_state_dict(self.feed(self.paths["a"]).state_dict())
        state = self.feed([self.part("a"), self.part("c")], mix="batch", epoch_samples=12).state_dict()
        with self.assertRaisesRegex(loaderd.BadOption, "batch_size times world must stay the same"):
            self.feed([self.part("a"), self.part("c")], mix="batch", epoch_samples=12, batch_size=3).load_state_dict(state)

    def test_it_goes_on_after_the_daemon_was_killed(self):
        daemon = loaderd.Daemon(threads=1)
        options = {"socket": daemon.socket, "daemon": "auto", "reconnect": 30}
        parts = [self.part("a", share={0: 2, 5: 1}, samples=range(40)), self.part("c", weights=numpy.arange(90))]
        whole = [list(batch.samples) for batch in self.feed(parts, epoch_samples=120)]
        feed = self.feed(parts, epoch_samples=120, slots=2, **{key: value for key, value in options.items()})
        found = []
        for i, batch in enumerate(feed):
            found.append(list(batch.samples))
            del batch
            if i in (3, 9):
                os.kill(daemon.pid, signal.SIGKILL)
        self.assertEqual(found, whole)
        self.assertGreaterEqual(feed.reconnects, 1)  # a dying worker may have published the rest

    def test_a_long_opening_tells_how_far_it_is(self):
        slow = " or ".join(["number == -1"] * 9000 + ["number >= 0"])
        chosen = numpy.arange(1 << 12, dtype="u8") % 53
        said = []
        with mock.patch("loaderd._stream._PROGRESS_S", 0):
            while not said:  # the daemon tells it once a second: until the list takes as long
                with mock.patch("loaderd._stream._logger.warning", side_effect=lambda *text: said.append(text)):
                    self.feed(self.paths["a"], where=slow, samples=chosen).close()
                chosen = numpy.tile(chosen, 3)
            self.assertIn("samples are examined", said[0][0])
            self.assertEqual(said[0][2], f"{len(chosen) // 3:,}")
            with mock.patch("loaderd._stream._logger.warning", side_effect=KeyboardInterrupt):
                with self.assertRaises(KeyboardInterrupt):
                    self.feed(self.paths["a"], where=slow, samples=numpy.tile(chosen, 100))
        # the daemon has given up, too
        self.feed(self.paths["a"]).close()

    @unittest.skipUnless("LOADERCTL" in os.environ, "loaderctl was not built")
    def test_status_tells_of_orders(self):
        daemon = loaderd.Daemon(threads=1)
        given = {"socket": daemon.socket, "daemon": "auto"}

        def status(*arguments):
            command = [os.environ["LOADERCTL"], "-s", daemon.socket, *arguments]
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout

        def order():
            (feed,) = json.loads(status("--json"))["feeds"]
            return feed["order"]

        weights = numpy.arange(90)
        parts = [self.part("a", share={0: 6, 4: 1}, where="sample < 40"), self.part("c", share={0: 2, 4: 0}, weights=weights)]
        with self.feed(parts, epoch_samples=60, slots=2, **given) as feed:
            found = order()
            self.assertEqual([found[key] for key in ("part_count", "period", "stage", "stages", "epoch_samples")], [2, 4, 0, 2, 60])
            self.assertEqual([part["share"] for part in found["parts"]], [3, 1])
            self.assertEqual([(part["samples"], part["chosen"]) for part in found["parts"]], [(53, 40), (90, 90)])
            self.assertEqual([(part["choice"]["where"], part["choice"]["weighted"]) for part in found["parts"]], [("sample < 40", False), ("", True)])
            self.assertIn("  order     3 of every 4 samples from " + self.paths["a"] + ": 40 of 53 samples, chosen by a filter\n", status())
            for _ in range(5):
                next(feed)
            while (found := order())["stage"] == 0:
                pass
            self.assertEqual((found["period"], [part["share"] for part in found["parts"]]), (1, [1, 0]))
        with self.feed([self.part("b", where="number >= 0 or " * 200 + "number < 0")] + [self.part("b")] * 19, **given):
            found = order()
            self.assertEqual((found["part_count"], len(found["parts"]), len(found["parts"][0]["choice"]["where"])), (20, 16, 1023))
        with self.feed(self.paths["a"], buckets=[(4, 4), (6, 4)], pipeline="bucket_resize", **given):
            found = order()
            self.assertEqual([bucket["width"] for bucket in found["buckets"]], [4, 6])
            self.assertEqual((sum(found["bucket_samples"]), found["buckets"][0]["batch_size"]), (53, 6))
        with self.feed(self.paths["a"], batch_tokens=10, pipeline="patch_resize(2, max_tokens=4)", **given):
            found = order()  # two samples of four patches in each of 27 packs
            self.assertEqual((found["batch_tokens"], found["epoch_batches"]), (10, 27))
        with self.feed(self.paths["a"], **given):
            self.assertIsNone(order())

        def interrupt(*_):
            opening.append(json.loads(status("--json"))["feeds"][0])
            raise KeyboardInterrupt

        opening = []
        slow = " or ".join(["number == -1"] * 9000 + ["number >= 0"])
        chosen = numpy.arange(1 << 21, dtype="u8") % 53
        with mock.patch("loaderd._stream._PROGRESS_S", 0), mock.patch("loaderd._stream._logger.warning", side_effect=interrupt):
            with self.assertRaises(KeyboardInterrupt):
                self.feed(self.paths["a"], where=slow, samples=chosen, name="slow", **given)
        self.assertEqual((opening[0]["name"], opening[0]["dataset"], opening[0]["opening"]["total"]), ("slow", self.paths["a"], 1 << 21))
        self.assertGreater(opening[0]["opening"]["done"], 0)
        daemon.stop()

    def test_wrong_orders_are_refused(self):
        a = self.paths["a"]
        for dataset, options, words in (
            (a, {"where": "widht > 3"}, 'no value "widht"; did you mean width'),
            (a, {"where": "width >"}, "where: at byte 7: expected"),
            (a, {"where": "width > 99"}, "the filter holds for none of the samples"),
            (a, {"samples": [1, 53]}, "entry 1 is sample 53, but the dataset has 53"),
            (a, {"samples": []}, "samples: the list is empty"),
            (a, {"samples": numpy.array([True, False])}, "numpy.flatnonzero"),
            (a, {"samples": numpy.array([-1])}, "samples: -1 is negative"),
            (a, {"samples": [0.5]}, "samples: is not a list of sample numbers"),
            (a, {"weights": [1.0, 2.0]}, "there are 2 weights for 53 samples"),
            (a, {"weights": [-1.0] + [1.0] * 52}, "weight 0 is -1"),
            (a, {"weights": [float("nan")] * 53}, "weight 0 is"),
            (a, {"weights": [0.0] * 53}, "the weights of all 53 samples are 0"),
            (a, {"class_weights": [1.0]}, "there are 1 weights for 5 classes"),
            (a, {"class_weights": {"dog": 1}}, "the dataset has no class 'dog'"),
            (a, {"class_weights": "even"}, "'even' is not one of balanced"),
            (a, {"class_weights": [0, 0, 1, 1, 0]}, "all classes that have samples have the weight 0"),
            (a, {"class_weights": "balanced", "weights": [1.0] * 53}, "exclude each other"),
            (a, {"classes_per_batch": 4}, "a batch cannot have 4 classes: 3 have samples"),
            (a, {"classes_per_batch": 2, "batch_size": 5}, "do not divide the 5 samples"),
            (a, {"weights": {1: [1.0] * 53}}, "says nothing of batch 0"),
            (a, {"where": "sample < 5", "wanted": True, "shuffle": False}, "a wanted feed"),
            ([self.part("a"), self.part("b", share=30)], {}, "b.pimg: it has 11 samples, fewer than the 30"),
            ([self.part("a"), self.part("b", share=0)], {"ends": "never"}, "'never' is not one of first, last"),
            ([self.part("a", share=-1)], {"epoch_samples": 6}, None),
            ([self.part("a", share=-1), self.part("b")], {}, "share: -1 is not a number of at least 0"),
            ([self.part("a", share={0: 1, 5: 2}), self.part("b")], {}, "need the number of samples of an epoch"),
            ([self.part("a"), self.part("b")], {"where": "sample < 5"}, "where: belongs to the Parts"),
            ([self.part("a"), self.part("b")], {"values": ["weight"]}, "b.pimg"),
            ([self.part("a", classes_per_batch=2), self.part("b")], {}, "cannot be parts of a mixture"),
            ([self.part("a"), loaderd.Part("/nowhere.pimg")], {}, "/nowhere.pimg"),
            ([], {}, "the list of Parts is empty"),
            (a, {"block_samples": 3}, 'need order="blocks"'),
            (a, {"order": "block"}, "'block' is not one of samples, blocks"),
            (a, {"order": "blocks", "shuffle": False}, "blocks are shuffled: set shuffle"),
            (a, {"order": "blocks", "weights": [1.0] * 53}, "draw samples one by one"),
            (a, {"order": "blocks", "class_weights": "balanced"}, "draw samples one by one"),
            (a, {"order": "blocks", "classes_per_batch": 2}, "draw samples one by one"),
            (a, {"order": "blocks", "buckets": [(8, 8)], "pipeline": "bucket_resize"}, "either blocks or buckets"),
            (a, {"order": "blocks", "wanted": True, "shuffle": False}, "order: 'blocks' has no meaning in a wanted feed"),
            ([self.part("a"), self.part("b", class_weights="balanced")], {"order": "blocks"}, "draw samples one by one"),
            ("/nowhere.pimg", {"order": "blocks"}, "/nowhere.pimg"),
        ):  # fmt: skip
            with self.subTest(options=options, words=words):
                if words is None:
                    self.feed(dataset, **options).close()
                    continue
                with self.assertRaises((loaderd.FeedError, TypeError)) as caught:
                    self.feed(dataset, **options)
                self.assertIn(words, str(caught.exception))
        with self.assertRaisesRegex(TypeError, "is no Part"):
            self.feed([a])

    def test_bad_samples_are_replaced_by_chosen_ones(self):
        path = os.path.join(self.folder.name, "damaged.pimg")
        with loaderd.Writer(path) as writer:
            for i in range(12):
                writer.add({"image": pixels("a", i)})
        data = bytearray(pathlib.Path(path).read_bytes())
        data[data.index(b"\x28\xb5\x2f\xfd") + 5] ^= 1  # in the first frame of zstd, which is the first sample
        pathlib.Path(path).write_bytes(data)
        replaced = set()
        for batch in self.feed([loaderd.Part(path, where="sample < 3"), self.part("c")], epoch_samples=60):
            replaced.update(zip(batch.parts[batch.flags & loaderd.SUBSTITUTED != 0], batch.samples[batch.flags & loaderd.SUBSTITUTED != 0]))
        self.assertTrue(replaced)
        self.assertLessEqual(replaced, {(0, 1), (0, 2)})


if __name__ == "__main__":
    unittest.main()
