"""ImageDataset and DataLoader: samples, epochs, memory, transforms, worker processes. Skipped (77) without PyTorch."""

import gc
import itertools
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
import tempfile
import threading
import traceback
import unittest
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor

try:
    import numpy
    import torch
    from torch.utils import data
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)

import loaderd

FOLDER = None
RANDOM = "random_resized_crop(16) hflip(0.5)"
PLAIN = "resize(16x16)"


def setUpModule():
    global FOLDER, PACKED
    warnings.filterwarnings("ignore", category=loaderd.DatasetWarning)
    FOLDER = tempfile.TemporaryDirectory()
    PACKED = os.path.join(FOLDER.name, "train.pimg")
    images = os.path.join(FOLDER.name, "images")
    subprocess.run([os.environ["SHAPES"], images, "--count", "60", "--size", "32"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([os.environ["PACKIMG"], "convert", os.path.join(images, "train"), "-o", PACKED], check=True, stdout=subprocess.DEVNULL)


def tearDownModule():
    FOLDER.cleanup()


def dataset(pipeline=PLAIN, **options):
    return loaderd.ImageDataset(PACKED, pipeline, daemon="private", threads=2, **options)


def loader(pipeline=PLAIN, batch_size=8, shuffle=False, **options):
    return loaderd.DataLoader(dataset(pipeline, **options), batch_size=batch_size, shuffle=shuffle)


def images_of(batches):
    return torch.cat([images for images, _ in batches])


def expected(pipeline=PLAIN, epoch=0):
    with loaderd.Feed(PACKED, pipeline=pipeline, batch_size=50, epoch=epoch, rank=0, world=1) as feed:
        images, labels = next(feed).torch()
        return images.clone(), labels


# Transforms of users. They are defined at the top level, because a spawned process imports them.


def brighter(image):
    return image.float() + 1


def from_array(image):
    assert isinstance(image, numpy.ndarray) and image.shape == (16, 16, 3)
    return numpy.ascontiguousarray(image[:, ::-1])


def drawn(image, rng):
    return torch.tensor(rng.random())


def drawn_globally(image):
    return torch.tensor([random.random(), numpy.random.rand(), float(torch.rand(()))], dtype=torch.float64)


def refusing(sample):
    if sample["sample"] == 17:
        raise KeyError("seventeen")
    return sample["image"]


def halves(batch):
    images, labels = batch
    return images.float() / 2, labels


def broken(batch):
    raise ArithmeticError("no batch is good")


class Killed:
    def __call__(self, image):
        os._exit(3)


class Dataset(unittest.TestCase):
    def test_items(self):
        images, labels = expected()
        ds = dataset()
        self.assertEqual(len(ds), 50)
        for i in (0, 7, -1, numpy.int64(3), torch.tensor(4)):
            image, label = ds[i]
            self.assertTrue(torch.equal(image, images[int(i)]) and image.is_contiguous())
            self.assertEqual((type(label), label), (int, int(labels[int(i)])))
        for i in (50, -51):
            with self.assertRaises(IndexError):
                ds[i]
        with self.assertRaises(TypeError):
            ds["x"]
        several, theirs = ds[[3, -1, 3]]
        self.assertTrue(torch.equal(several, images[[3, 49, 3]]) and torch.equal(theirs, labels[[3, 49, 3]]))
        samples = ds.__getitems__([5, 6])
        self.assertEqual([label for _, label in samples], labels[5:7].tolist())
        self.assertEqual(len(list(ds)), 50)  # ends with IndexError

    def test_facts(self):
        ds = dataset()
        self.assertEqual(ds.class_to_idx, {name: i for i, name in enumerate(ds.classes)})
        self.assertEqual(ds.classes, list(loaderd.dataset(PACKED, daemon="private").classes))
        self.assertFalse(hasattr(ds, "targets"))

    def test_dictionaries(self):
        ds = dataset(as_dict=True, fields=[loaderd.KEY])
        kinds = {"image": torch.Tensor, "label": int, "sample": int, loaderd.KEY: str}
        self.assertEqual({name: type(value) for name, value in ds[3].items()}, kinds)
        batch = next(iter(loaderd.DataLoader(ds, batch_size=4)))
        self.assertEqual(batch["sample"].tolist(), [0, 1, 2, 3])
        self.assertEqual(batch[loaderd.KEY][3], ds[3][loaderd.KEY])
        named = dataset(as_dict={"image": "pixel_values", "label": "labels", "flags": "bad"})
        self.assertEqual(list(next(iter(loaderd.DataLoader(named, batch_size=4)))), ["pixel_values", "labels", "bad"])
        self.assertEqual(list(named[0]), ["pixel_values", "labels", "bad"])

    def test_refusals(self):
        for options, text in (
            (dict(fields=[loaderd.KEY]), "^fields: .*as_dict=True"),
            (dict(as_dict={"picture": "x"}), "^as_dict: 'picture' is not one of image, label"),
            (dict(bad="skip"), "^bad: .*substitute"),
            (dict(pipeline="rezise(3x3)"), "resize"),
        ):
            with self.assertRaisesRegex(loaderd.BadOption, text):
                dataset(**options)
        with self.assertRaisesRegex(TypeError, "target_transform: with as_dict=True"):
            dataset(target_transform=print)
        with self.assertRaises(loaderd.NoDataset):
            loaderd.ImageDataset(PACKED + "x", daemon="private")
        for name, text in (("transform", "give it to loaderd.ImageDataset"), ("batchsize", "did you mean batch_size")):
            with self.assertRaisesRegex(TypeError, text):
                loaderd.DataLoader(dataset(), **{name: 1})
        with self.assertRaisesRegex(TypeError, "^dataset: list is not"):
            loaderd.DataLoader([1, 2])
        with self.assertRaisesRegex(loaderd.BadOption, '^shuffle: .*"daemon"'):
            loaderd.DataLoader(dataset(), shuffle="yes")

    def test_several_threads(self):
        images, _ = expected()
        ds = dataset()
        with ThreadPoolExecutor(4) as threads:
            for i, (image, _) in enumerate(threads.map(ds.__getitem__, range(50))):
                self.assertTrue(torch.equal(image, images[i]))

    def test_epochs(self):
        ds = dataset(RANDOM)
        self.assertFalse(torch.equal(images_of([ds[[1, 2, 3, 4]]]), images_of([ds[[1, 2, 3, 4]]])))  # other augmentations in the next epoch
        ds.set_epoch(3)
        first = images_of([ds[[1, 2, 3, 4]]])
        self.assertTrue(torch.equal(first, images_of([ds[[1, 2, 3, 4]]])))
        self.assertTrue(torch.equal(first, expected(RANDOM, 3)[0][1:5]))
        ds.set_epoch(4)
        self.assertFalse(torch.equal(first, images_of([ds[[1, 2, 3, 4]]])))

    def test_occurrences(self):
        ds = dataset(RANDOM)
        ds.set_epoch(0)
        images, _ = ds[[9, 9, 9, 9]]
        self.assertGreater(len({image.numpy().tobytes() for image in images}), 1)
        self.assertTrue(torch.equal(images[0], ds[9][0]))

    def test_pickled(self):
        ds = pickle.loads(pickle.dumps(dataset()))
        self.assertTrue(torch.equal(ds[3][0], expected()[0][3]))

    def test_workers_of_torch(self):
        images, labels = expected()
        for start in ("fork", "spawn"):
            ds = dataset()
            ds[0]
            theirs = data.DataLoader(ds, batch_size=7, num_workers=2, multiprocessing_context=start)
            got = list(theirs)
            self.assertTrue(torch.equal(images_of(got), images))
            self.assertEqual(torch.cat([batch[1] for batch in got]).tolist(), labels.tolist())
        augmented = data.DataLoader(dataset(RANDOM), batch_size=10, num_workers=2)
        runs = []
        for seed in (1, 1, 2):
            torch.manual_seed(seed)
            runs.append([images_of(augmented), images_of(augmented)])
        self.assertFalse(torch.equal(*runs[0]))  # other augmentations in each epoch
        self.assertTrue(torch.equal(runs[0][0], runs[1][0]) and torch.equal(runs[0][1], runs[1][1]))
        self.assertFalse(torch.equal(runs[0][0], runs[2][0]))

    def test_workers_warn_once(self):
        code = (
            "import loaderd, sys; from torch.utils import data\n"
            f"ds = loaderd.ImageDataset({PACKED!r}, {PLAIN!r}, daemon='private', threads=1)\n"
            "print(len(list(data.DataLoader(ds, batch_size=7, num_workers=2))))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "8\n")
        self.assertEqual(done.stderr.count("DatasetWarning: "), 1, done.stderr)


class Loader(unittest.TestCase):
    def test_batches(self):
        images, labels = expected()
        got = list(loader())
        self.assertTrue(torch.equal(images_of(got), images))
        self.assertEqual([batch[1].dtype for batch in got], [torch.int64] * 7)
        self.assertTrue(got[0][0].is_contiguous(memory_format=torch.channels_last))
        floats = next(iter(loader("resize(16x16) to(f32) layout(nchw)")))[0]
        self.assertTrue(floats.dtype == torch.float32 and floats.is_contiguous())

    def test_each_epoch_is_augmented_anew(self):
        train = loader(RANDOM)
        for epoch in (0, 1):
            self.assertTrue(torch.equal(images_of(train), expected(RANDOM, epoch)[0]))
        next(iter(train))  # left early
        self.assertTrue(torch.equal(images_of(train), expected(RANDOM, 3)[0]))
        train.set_epoch(1)
        self.assertTrue(torch.equal(images_of(train), expected(RANDOM, 1)[0]))
        self.assertTrue(torch.equal(images_of(train), expected(RANDOM, 2)[0]))

    def test_keeps_any_number_of_batches(self):
        train = loader(RANDOM, slots=3)
        kept = [list(train) for _ in range(5)]
        for epoch, batches in enumerate(kept):
            self.assertTrue(torch.equal(images_of(batches), expected(RANDOM, epoch)[0]))

    def test_batches_may_be_written_to(self):
        train = loader()
        for images, _ in train:
            images.zero_()
        self.assertTrue(torch.equal(images_of(train), expected()[0]))

    def test_a_path(self):
        train = loaderd.DataLoader(PACKED, batch_size=25, pipeline=PLAIN, daemon="private")
        self.assertTrue(torch.equal(images_of(train), expected()[0]))

    def test_timeout(self):
        train = loaderd.DataLoader(dataset(), batch_size=8, timeout=30)
        self.assertEqual(iter(train)._lists.timeout, 30)
        with self.assertRaisesRegex(ValueError, "^timeout: -1"):
            loaderd.DataLoader(dataset(), timeout=-1)

    def test_collate_fn(self):
        images, labels = expected()
        seen = []

        def collate(samples):
            seen.append(type(samples))
            samples.sort(key=lambda sample: -sample[1])
            return [label for _, label in samples], torch.stack([image for image, _ in samples])

        got = list(loaderd.DataLoader(dataset(), batch_size=10, collate_fn=collate))
        self.assertEqual(set(seen), {list})
        sorted_labels = [x for at in range(0, 50, 10) for x in sorted(labels[at : at + 10].tolist())[::-1]]
        self.assertEqual([label for batch, _ in got for label in batch], sorted_labels)
        default = list(loaderd.DataLoader(dataset(), batch_size=10, collate_fn=data.default_collate))
        self.assertTrue(torch.equal(images_of(default), images))

    def test_attributes_for_frameworks(self):
        train = loaderd.DataLoader(
            dataset(), batch_size=8, shuffle=True, num_workers=4, prefetch_factor=3, persistent_workers=True, timeout=60,
            multiprocessing_context="spawn", worker_init_fn=print,
        )  # fmt: skip
        self.assertEqual((train.num_workers, train.persistent_workers, train.timeout, train.multiprocessing_context), (0, False, 0, None))
        self.assertEqual((train.batch_size, train.drop_last, type(train.sampler)), (8, False, data.RandomSampler))
        self.assertIs(type(train.batch_sampler), loaderd.BatchSampler)
        self.assertEqual(len(images_of(train)), 50)
        sampler = data.DistributedSampler(train.dataset, 2, 1, shuffle=False)
        batches = type(train.batch_sampler)(sampler, batch_size=8, drop_last=True)
        again = type(train)(dataset=train.dataset, batch_sampler=batches, collate_fn=train.collate_fn)
        self.assertTrue(torch.equal(images_of(again), expected()[0][1::2][:24]))
        plain = data.DataLoader(train.dataset, batch_sampler=again.batch_sampler, collate_fn=train.collate_fn)
        self.assertTrue(torch.equal(images_of(plain), expected()[0][1::2][:24]))

    def test_torch_is_imported_late(self):
        code = (
            "import sys, loaderd; assert 'torch' not in sys.modules; "
            "loaderd.DataLoader; assert 'torch' in sys.modules; print(loaderd.DataLoader)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "<class 'loaderd.DataLoader'>\n")


class Shard:
    """Takes every world-th list, or a part of each list, like Accelerate's BatchSamplerShard."""

    def __init__(self, batches, rank, world, split):
        self.batches, self.rank, self.world, self.split = batches, rank, world, split

    def __iter__(self):
        mine = []
        for i, batch in enumerate(self.batches):
            if self.split:
                step = len(batch) // self.world
                yield batch[self.rank * step : (self.rank + 1) * step]
            elif i % self.world == self.rank:
                mine = batch
            if not self.split and i % self.world == self.world - 1:
                yield mine


class Ahead(unittest.TestCase):
    """Batches are requested before they are needed."""

    def prefetchers(self, ds):
        return [prefetcher for prefetcher in ds._prefetchers._all if prefetcher.owner is not None]

    def test_through_frameworks(self):
        for rank, split in itertools.product((0, 1), (False, True)):
            with self.subTest(rank=rank, split=split):
                ds = dataset(slots=4, as_dict=True)
                batches = loaderd.BatchSampler(data.SequentialSampler(ds), 4, True)
                plain = data.DataLoader(ds, batch_sampler=Shard(batches, rank, 2, split), collate_fn=loaderd.DataLoader(ds).collate_fn)
                for epoch in range(3):
                    for i, batch in enumerate(plain):
                        lists = [list(range(at, at + 4)) for at in range(0, 48, 4)]
                        mine = [x[rank * 2 : rank * 2 + 2] for x in lists] if split else lists[rank::2]
                        self.assertEqual(batch["sample"].tolist(), mine[i])
                        (prefetcher,) = self.prefetchers(ds)
                        following = mine[i + 1 :]
                        if epoch + i > 0:  # after the first list, the pattern is still unknown
                            self.assertEqual([list(wanted.samples) for wanted in prefetcher._wanted], following[: prefetcher.feed.slots + 1])

    def test_handled_errors_hold_nothing(self):
        """A handled error leaves no cycle. One would keep a loop that was left alive until the garbage collector runs, with its feed."""

        class Held:
            pass

        def look(feed):
            held = Held()
            try:
                feed.next(0)
            except loaderd.FeedError as error:
                return type(error), weakref.ref(held)
            self.fail("there is a batch")

        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        with loaderd.Feed(PACKED, pipeline=PLAIN, batch_size=4, slots=2, daemon="private") as feed:
            batches = [next(feed), next(feed)]
            kind, held = look(feed)
            self.assertEqual((kind, held()), (loaderd.NoFreeBatch, None))
            del batches
        with loaderd.Feed(PACKED, pipeline=PLAIN, batch_size=4, wanted=True, daemon="private") as feed:
            self.assertIsNone(look(feed)[1]())

    def test_feeds_are_reused(self):
        ds = dataset()
        train = loaderd.DataLoader(ds, batch_size=8)
        for _ in range(3):
            list(train)
            next(iter(train))
        self.assertEqual(len(self.prefetchers(ds)), 1)
        list(zip(train, train))
        self.assertEqual(len(self.prefetchers(ds)), 2)
        list(zip(train, train))
        self.assertEqual(len(self.prefetchers(ds)), 2)

    def test_an_iterator_ends_with_its_last_reference(self):
        """An iterator dies with its last reference, so that a loop that was left early frees its feed at once, without the garbage
        collector.
        """
        for shuffle in (False, "daemon"):
            train = loaderd.DataLoader(dataset(), batch_size=8, shuffle=shuffle)
            gc.collect()
            gc.disable()
            self.addCleanup(gc.enable)
            iterator = iter(train)
            next(iterator)
            dead = [weakref.ref(x) for x in (iterator, train, train.dataset, train.dataset._prefetchers._all[0])]
            del iterator
            self.assertIsNone(dead[0]())
            del train
            self.assertEqual([reference() for reference in dead[1:]], [None] * 3)

    def test_lists_that_their_user_changes(self):
        ds = dataset(as_dict=True)

        def changed():
            for samples in loaderd.BatchSampler(data.SequentialSampler(ds), 4, False):
                samples.reverse()
                if 0 in samples:
                    samples.append(11)
                yield samples

        got = [sample for batch in changed() for sample in ds.__getitems__(batch)]
        self.assertEqual([sample["sample"] for sample in got][:9], [3, 2, 1, 0, 11, 7, 6, 5, 4])

    def test_timings(self):
        train = loader()
        list(train)
        self.assertEqual(train.timings.batches, 7)
        self.assertGreater(train.timings.daemon_s, 0)
        train.timings.reset()
        self.assertEqual((train.timings.batches, train.timings.daemon_s), (0, 0))
        self.assertIn("0 batches", repr(train.timings))


class Transform(unittest.TestCase):
    def each(self, **options):
        """Yields loaders that run transforms in threads and in processes."""
        for processes, workers in itertools.product((False, True), (1, 3)):
            with self.subTest(processes=processes, workers=workers):
                ds = dataset(transform_processes=processes, transform_workers=workers, **options)
                yield loaderd.DataLoader(ds, batch_size=8)
                ds.close()

    def test_on_images(self):
        images, labels = expected()
        for train in self.each(transform=brighter):
            for _ in range(2):
                got = list(train)
                self.assertTrue(torch.equal(images_of(got), images.float() + 1))
                self.assertEqual(torch.cat([batch[1] for batch in got]).tolist(), labels.tolist())
            self.assertTrue(torch.equal(train.dataset[5][0], images[5].float() + 1))
            self.assertGreater(train.timings.transform_cpu_s, 0)

    def test_on_arrays(self):
        images, _ = expected()
        for train in self.each(transform=from_array, numpy=True):
            self.assertTrue(torch.equal(images_of(train), images.permute(0, 2, 3, 1).flip(2)))

    def test_on_batches(self):
        images, _ = expected()
        for train in self.each(batch_transform=halves):
            self.assertTrue(torch.equal(images_of(train), images.float() / 2))
        for train in self.each(transform=brighter, batch_transform=halves):
            self.assertTrue(torch.equal(images_of(train), (images.float() + 1) / 2))

    def test_a_generator_of_its_own(self):
        runs = [torch.cat([images_of(train), images_of(train)]) for train in self.each(transform=drawn)]
        self.assertEqual(len(runs[0].unique()), 100)
        for run in runs:
            self.assertTrue(torch.equal(run, runs[0]))

    def test_the_libraries_generators_in_processes(self):
        runs = []
        for workers in (1, 3):
            ds = dataset(transform=drawn_globally, transform_processes=True, transform_workers=workers)
            runs.append(images_of(loaderd.DataLoader(ds, batch_size=8)))
            ds.close()
        self.assertTrue(torch.equal(*runs))
        self.assertEqual(len(runs[0].unique()), 150)

    def test_errors_name_the_sample(self):
        for train in self.each(transform=refusing, as_dict=True):
            iterator = iter(train)
            self.assertEqual([len(next(iterator)) for _ in range(2)], [8, 8])
            with self.assertRaises(loaderd.TransformError) as caught:
                next(iterator)
            error = caught.exception
            self.assertEqual(error.sample, 17)
            with loaderd.Feed(PACKED, pipeline=PLAIN, batch_size=50, fields=[loaderd.KEY], rank=0, world=1) as feed:
                self.assertEqual(error.source, next(feed).field(loaderd.KEY)[17])
            self.assertIn(f"sample 17 ({error.source}): KeyError: 'seventeen'", str(error))
            self.assertIsInstance(error.__cause__, KeyError)
            self.assertIn("in refusing", "".join(traceback.format_exception(type(error), error, error.__traceback__)))
        for train in self.each(batch_transform=broken):
            with self.assertRaisesRegex(loaderd.TransformError, "batch_transform failed for a batch: ArithmeticError"):
                next(iter(train))

    def test_a_worker_that_dies(self):
        ds = dataset(transform=Killed(), transform_processes=True, transform_workers=1)
        with self.assertRaisesRegex(loaderd.FeedError, "worker process of transform ended"):
            next(iter(loaderd.DataLoader(ds, batch_size=8)))

    def test_a_loop_that_was_left(self):
        """Transforms of batches that are not taken do not run, and the end of the program does not wait for them."""
        begun, go_on = threading.Event(), threading.Event()
        ran = []

        def waiting(sample):
            ran.append(sample["sample"])
            if sample["sample"] == 8:
                begun.set()
                go_on.wait(60)
            return sample

        ds = dataset(transform=waiting, transform_workers=1, as_dict=True)
        loader = loaderd.DataLoader(ds, batch_size=8)
        for _ in range(60):
            ran.clear()
            iterator = iter(loader)
            self.assertEqual(next(iterator)["sample"].tolist(), list(range(8)))
            if begun.wait(1):
                break  # otherwise the next batch had not arrived yet; its transforms would start with the next request
        (job,) = [job for prefetcher in ds._prefetchers._all for _, job in prefetcher._jobs]
        del iterator
        go_on.set()
        job.wait()
        self.assertEqual(ran, list(range(9)))
        code = (
            "import loaderd, threading\n"
            f"ds = loaderd.ImageDataset({PACKED!r}, {PLAIN!r}, daemon='private', threads=1, transform_workers=2,\n"
            "    transform=lambda image: image if len(started) < 8 and not started.append(1) else threading.Event().wait())\n"
            "started = []\n"
            "print(len(next(iter(loaderd.DataLoader(ds, batch_size=8)))[1]))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
        self.assertEqual(done.stdout, "8\n")

    def test_spawned(self):
        spawn = multiprocessing.get_context("spawn")
        ds = dataset(transform=brighter, transform_processes=True, transform_workers=1, multiprocessing_context=spawn)
        self.assertTrue(torch.equal(images_of(loaderd.DataLoader(ds, batch_size=8)), expected()[0].float() + 1))
        ds.close()

    def test_other_loaders_and_orders(self):
        images, _ = expected()
        for processes in (False, True):
            ds = dataset(transform=brighter, transform_processes=processes, transform_workers=2)
            self.assertTrue(torch.equal(images_of(data.DataLoader(ds, batch_size=8)), images.float() + 1))
            self.assertTrue(torch.equal(images_of(data.DataLoader(ds, batch_size=8, num_workers=2)), images.float() + 1))
            by_list = loaderd.DataLoader(ds, batch_size=8, collate_fn=lambda samples: (torch.stack([image for image, _ in samples]), 0))
            self.assertTrue(torch.equal(images_of(by_list), images.float() + 1))
            shuffled = images_of(loaderd.DataLoader(ds, batch_size=8, shuffle="daemon"))
            self.assertEqual({image.numpy().tobytes() for image in shuffled}, {image.numpy().tobytes() for image in images.float() + 1})
            ds.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
