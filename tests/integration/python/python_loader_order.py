"""DataLoader compared with torch's: the same sequences of sample numbers from the same generators. Skipped (77) without PyTorch."""

import itertools
import os
import random
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
    from torch.utils import data
except ImportError:
    print("PyTorch is not installed")
    sys.exit(77)

import loaderd

FOLDER = tempfile.TemporaryDirectory()
PACKED = os.path.join(FOLDER.name, "train.pimg")
PIPELINE = "resize(8x8)"  # no random step, so that the pixels identify the sample
DRAWS = 6  # positions to stop or resume at, for each case


def setUpModule():
    global SAMPLES, DATASET, PIXELS
    images = os.path.join(FOLDER.name, "images")
    subprocess.run([os.environ["SHAPES"], images, "--count", "50", "--size", "32"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([os.environ["PACKIMG"], "convert", os.path.join(images, "train"), "-o", PACKED], check=True, stdout=subprocess.DEVNULL)
    DATASET = loaderd.ImageDataset(PACKED, PIPELINE, as_dict={"image": "image", "sample": "sample"}, daemon="private", threads=2)
    SAMPLES = len(DATASET)
    with loaderd.Feed(PACKED, pipeline=PIPELINE, batch_size=SAMPLES, rank=0, world=1) as feed:
        batch = next(feed)
        PIXELS = {image.tobytes(): int(sample) for image, sample in zip(batch.images, batch.samples)}
    assert len(PIXELS) == SAMPLES


def tearDownModule():
    DATASET.close()
    FOLDER.cleanup()


class Numbers(data.Dataset):
    """A dataset of its sample numbers, for torch's loader."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, i):
        return i


class Endless:
    """A sampler without a length."""

    def __init__(self, generator):
        self.generator = generator

    def __iter__(self):
        while True:
            yield from torch.randperm(SAMPLES, generator=self.generator)[:30]  # tensors, which some samplers yield


def numbers(batch):
    """Returns the sample numbers of a batch of either loader as a list; a single number as itself."""
    if isinstance(batch, dict):
        images, samples = batch["image"], batch["sample"]
        if images.dim() == 3:
            assert PIXELS[images.permute(1, 2, 0).numpy().tobytes()] == samples
            return int(samples)
        assert [PIXELS[image.permute(1, 2, 0).numpy().tobytes()] for image in images] == samples.tolist()
        return samples.tolist()
    return batch.tolist() if isinstance(batch, torch.Tensor) else batch


def subset(dataset):
    return data.Subset(data.Subset(dataset, range(3, SAMPLES)), torch.randperm(20, generator=torch.Generator().manual_seed(4)).tolist())


# Cases: each makes the arguments of a loader from a dataset and a generator.
CASES = {
    "plain": lambda d, g: dict(batch_size=4),
    "default size": lambda d, g: dict(),
    "even": lambda d, g: dict(batch_size=7, drop_last=True),
    "one batch": lambda d, g: dict(batch_size=SAMPLES),
    "larger than the data": lambda d, g: dict(batch_size=SAMPLES + 5),
    "none, all dropped": lambda d, g: dict(batch_size=SAMPLES + 5, drop_last=True),
    "shuffle": lambda d, g: dict(batch_size=4, shuffle=True, generator=g),
    "shuffle, drop_last": lambda d, g: dict(batch_size=4, shuffle=True, drop_last=True, generator=g),
    "shuffle, even": lambda d, g: dict(batch_size=SAMPLES // 3, shuffle=True, drop_last=True, generator=g),
    "shuffle, global": lambda d, g: dict(batch_size=4, shuffle=True),
    "list": lambda d, g: dict(batch_size=5, sampler=[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]),
    "distributed": lambda d, g: dict(batch_size=3, sampler=data.DistributedSampler(d, 2, 1, seed=3)),
    "random": lambda d, g: dict(batch_size=3, sampler=data.RandomSampler(d, generator=g)),
    "random, own generator": lambda d, g: dict(batch_size=3, sampler=data.RandomSampler(d, generator=g), generator=torch.Generator()),
    "random, global": lambda d, g: dict(batch_size=3, sampler=data.RandomSampler(d), generator=g),
    "replacement": lambda d, g: dict(batch_size=3, sampler=data.RandomSampler(d, True, 70, generator=g)),
    "many": lambda d, g: dict(batch_size=8, sampler=data.RandomSampler(d, False, 100, generator=g)),
    "subset sampler": lambda d, g: dict(batch_size=4, sampler=data.SubsetRandomSampler(range(5, 25), generator=g)),
    "weighted": lambda d, g: dict(batch_size=4, sampler=data.WeightedRandomSampler(torch.arange(SAMPLES) + 1.0, 33, generator=g)),
    "torch's batches": lambda d, g: dict(batch_sampler=data.BatchSampler(data.RandomSampler(d, generator=g), 6, False)),
    "own batches": lambda d, g: dict(batch_sampler=loaderd.BatchSampler(data.RandomSampler(d, generator=g), 6, True)),
    "lists": lambda d, g: dict(batch_sampler=[[0, 1], [2], [3, 4, 5, 6, 7], [8, 8, 8], [0, 9]]),
    "no batches": lambda d, g: dict(batch_size=None, shuffle=True, generator=g),
    "lists from a sampler": lambda d, g: dict(batch_size=None, sampler=[[1, 2], [3, 4, 5]]),
}
# Samplers that draw while they are read. We read them ahead, so after a loop that was left early, the generator has another state than with
# torch's loader without workers; torch's loader with workers reads ahead too.
DRAWS_AHEAD = {"replacement", "many"}


def mine(case, generator, dataset=None):
    dataset = DATASET if dataset is None else dataset
    return loaderd.DataLoader(dataset, **CASES[case](dataset, generator))


def theirs(case, generator, dataset=None):
    dataset = Numbers() if dataset is None else dataset
    return data.DataLoader(dataset, **CASES[case](dataset, generator))


def taken(batches):
    return [numbers(batch) for batch in batches]


def whole(loader):
    return [taken(loader) for _ in range(3)]


def breaks(at):
    """Returns a function that runs a whole loop, one that is left after `at` batches, and another whole one."""

    def run(loader):
        result = [taken(loader)]
        left = []
        for i, batch in enumerate(loader):
            left.append(numbers(batch))
            if i + 1 >= at:
                break
        return [*result, left, taken(loader)]

    return run


def sliced(loader):
    return [taken(itertools.islice(loader, 3)), taken(itertools.islice(loader, len(loader))), taken(loader)]


def zipped(loader):
    return [[(numbers(a), numbers(b)) for a, b in zip(loader, loader)] for _ in range(2)]


def alternating(loader):
    one, result = iter(loader), []
    result.append(numbers(next(one)))
    two = iter(loader)
    for i, batch in enumerate(two):
        result.append(numbers(batch))
        if i % 3 == 0:
            result.append(numbers(next(one, torch.zeros(0))))
    return [result, taken(one), taken(loader)]


def nested(loader):
    return [[numbers(a), taken(loader)] for a in itertools.islice(loader, 3)]


class Order(unittest.TestCase):
    def same(self, run, ahead=True, cases=CASES):
        for case in cases:
            if not ahead and case in DRAWS_AHEAD:
                continue
            with self.subTest(case):
                results = []
                for maker in (theirs, mine):
                    torch.manual_seed(7)
                    generator = torch.Generator().manual_seed(11)
                    loader = maker(case, generator)
                    try:
                        got = run(loader)
                    except StopIteration:
                        got = "ended"
                    results.append((got, len(loader), generator.get_state().tolist(), torch.get_rng_state().tolist()))
                self.assertEqual(results[0], results[1])

    def test_whole_epochs(self):
        self.same(whole)

    def test_left_early(self):
        draw = random.Random(1)
        for at in [1, 2] + [draw.randrange(1, 13) for _ in range(DRAWS)]:
            self.same(breaks(at), ahead=False)

    def test_islice(self):
        self.same(sliced, ahead=False)

    def test_zip(self):
        self.same(zipped, ahead=False)

    def test_two_iterators(self):
        self.same(alternating, ahead=False)

    def test_nested_loops(self):
        self.same(nested, ahead=False)

    def test_set_epoch(self):
        def run(loader):
            result = []
            for epoch in (3, 1, 1):
                loader.sampler.set_epoch(epoch)
                result.append(taken(loader))
            return result

        self.same(run, cases=["distributed"])
        loader, reference = mine("distributed", None), theirs("distributed", None)
        for epoch in (5, 2):
            loader.set_epoch(epoch)
            reference.sampler.set_epoch(epoch)
            self.assertEqual(taken(loader), taken(reference))

    def test_subset(self):
        for case in ("plain", "shuffle", "random", "no batches"):
            with self.subTest(case):
                results = []
                for maker, dataset in ((theirs, Numbers()), (mine, DATASET)):
                    generator = torch.Generator().manual_seed(3)
                    results.append(whole(maker(case, generator, subset(dataset))))
                self.assertEqual(*results)

    def test_a_sampler_without_an_end(self):
        loaders = [
            kind(dataset, batch_size=4, sampler=Endless(torch.Generator().manual_seed(2)))
            for kind, dataset in ((data.DataLoader, Numbers()), (loaderd.DataLoader, DATASET))
        ]
        self.assertEqual(*[taken(itertools.islice(loader, 20)) for loader in loaders])

    def test_a_loader_of_torch_over_the_dataset(self):
        for case in ("plain", "shuffle, drop_last", "random", "lists", "own batches", "no batches"):
            with self.subTest(case):
                results = []
                for dataset in (Numbers(), DATASET):
                    generator = torch.Generator().manual_seed(3)
                    results.append(whole(data.DataLoader(dataset, **CASES[case](dataset, generator))))
                self.assertEqual(*results)


class Resume(unittest.TestCase):
    def test_anywhere(self):
        draw = random.Random(2)
        for case in CASES:
            if case == "none, all dropped":
                continue
            for _ in range(DRAWS):
                with self.subTest(case):
                    torch.manual_seed(7)
                    generator = torch.Generator().manual_seed(11)
                    loader = mine(case, generator)
                    epochs, at = draw.randrange(3), draw.randrange(1, len(loader) + 1)
                    for _ in range(epochs):
                        taken(loader)
                    iterator = iter(loader)
                    for _ in range(at):
                        next(iterator)
                    state, of_torch = loader.state_dict(), torch.get_rng_state()
                    self.assertEqual((state["epoch"], state["batches"]), (epochs, at))
                    follows = [taken(iterator), taken(loader), taken(loader)]
                    follows = follows if follows[0] else follows[1:]

                    torch.manual_seed(8)
                    other = mine(case, torch.Generator().manual_seed(12))
                    other.load_state_dict(state)
                    self.assertEqual(other.state_dict()["batches"], at)
                    torch.set_rng_state(of_torch)
                    self.assertEqual([taken(other) for _ in follows], follows)

    def test_before_the_first_and_between_epochs(self):
        for epochs in (0, 2):
            loader = mine("shuffle", torch.Generator().manual_seed(1))
            for _ in range(epochs):
                taken(loader)
            other = mine("shuffle", torch.Generator().manual_seed(2))
            other.load_state_dict(loader.state_dict())
            self.assertEqual(whole(other), whole(loader))

    def test_set_epoch_after_loading(self):
        def started():
            return mine("distributed", None)

        loader = started()
        loader.set_epoch(4)
        iterator = iter(loader)
        begin = taken(itertools.islice(iterator, 3))
        state = loader.state_dict()
        rest = taken(iterator)
        other = started()
        other.load_state_dict(state)
        other.set_epoch(4)  # as training loops do after resuming
        self.assertEqual(taken(other), rest)
        other.load_state_dict(state)
        other.set_epoch(5)
        loader.set_epoch(5)
        self.assertEqual(taken(other), taken(loader))
        other.load_state_dict(loader.state_dict())
        other.set_epoch(5)  # an epoch that is already complete
        self.assertEqual(taken(other), [])
        other.set_epoch(4)
        self.assertEqual(taken(other), begin + rest)

    def test_refuses_what_gives_other_batches(self):
        state = mine("plain", None).state_dict()
        with self.assertRaisesRegex(loaderd.BadOption, "batch_size: the state was saved with 4, but this loader has 7"):
            mine("even", None).load_state_dict(state)
        daemon = loaderd.DataLoader(DATASET, batch_size=4, shuffle="daemon")
        with self.assertRaisesRegex(loaderd.BadOption, "shuffle: "):
            daemon.load_state_dict(state)
        with self.assertRaisesRegex(loaderd.BadOption, "shuffle: "):
            mine("plain", None).load_state_dict(daemon.state_dict())


class DaemonOrder(unittest.TestCase):
    def loader(self, **options):
        return loaderd.DataLoader(DATASET, batch_size=4, shuffle="daemon", **options)

    def test_is_that_of_a_feed(self):
        loader = self.loader()
        with loaderd.Feed(PACKED, pipeline=PIPELINE, batch_size=4, shuffle=True, rank=0, world=1) as feed:
            expected = [[batch.samples.tolist() for batch in feed] for _ in range(3)]
        self.assertEqual(len(loader), len(expected[0]))
        self.assertEqual(taken(loader), expected[0])
        taken(itertools.islice(loader, 3))  # left early; the next loop still begins a new epoch
        self.assertEqual(taken(loader), expected[2])
        loader.set_epoch(1)
        self.assertEqual([(numbers(a), numbers(b)) for a, b in zip(loader, loader)], list(zip(expected[1], expected[2])))

    def test_resumes(self):
        for at in (1, 5, len(self.loader())):
            loader = self.loader()
            taken(loader)
            iterator = iter(loader)
            for _ in range(at):
                next(iterator)
            state = loader.state_dict()
            rest = taken(iterator)
            follows = ([rest] if rest else []) + [taken(loader)]
            other = self.loader()
            other.load_state_dict(state)
            self.assertEqual([taken(other) for _ in follows], follows)
            other.load_state_dict(state)
            other.set_epoch(state["epoch"])
            self.assertEqual(taken(other), rest)

    def test_refuses_what_frameworks_would_break(self):
        with self.assertRaisesRegex(loaderd.BadOption, "needs shuffle=True"):
            list(data.DataLoader(DATASET, batch_sampler=self.loader().batch_sampler))
        for name, value in (("sampler", [1]), ("generator", torch.Generator())):
            with self.assertRaisesRegex(loaderd.BadOption, f"^{name}: "):
                self.loader(**{name: value})
        with self.assertRaisesRegex(loaderd.BadOption, "^dataset: "):
            loaderd.DataLoader(data.Subset(DATASET, [1]), batch_size=4, shuffle="daemon")


if __name__ == "__main__":
    unittest.main(verbosity=2)
