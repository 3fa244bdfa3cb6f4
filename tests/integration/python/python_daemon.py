"""Package loaderd with the real daemon ($LOADERD), on images drawn by $SHAPES and packed by $PACKIMG."""

import array
import contextlib
import errno
import glob
import hashlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import warnings

import loaderd

try:
    import torch
except ImportError:
    torch = None

PIPELINE = "random_resized_crop(32) hflip(0.5)"


def running(pid):
    try:
        with open(f"/proc/{pid}/status") as status:
            return "State:\tZ" not in status.read()
    except (FileNotFoundError, ProcessLookupError):
        return False


def kill_family(pid):
    """Kills a daemon and its worker, which might otherwise continue for a while."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        children = [int(child) for child in file.read().split()]
    for process in (pid, *children):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


class Fields(unittest.TestCase):
    """Fields from a table to the batch."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        images = os.path.join(self.folder.name, "images")
        subprocess.run([os.environ["SHAPES"], images, "--count", "40"], check=True, capture_output=True)
        names = sorted(os.path.relpath(os.path.join(folder, file), images)
                       for folder, _, files in os.walk(images) for file in files)[:16]
        odd = os.fsdecode(b"odd \xff name") + os.path.splitext(names[3])[1]
        os.rename(os.path.join(images, names[3]), os.path.join(images, odd))
        names[3] = odd
        self.names = names
        self.captions = ["grüße " * (i % 5) + str(i) for i in range(16)]
        with open(os.path.join(images, "table.csv"), "w", errors="surrogateescape") as file:
            file.write("path,caption,size\n")
            file.writelines(f'"{n}",{c},{i / 2}\n' for i, (n, c) in enumerate(zip(names, self.captions)))
        self.path = os.path.join(self.folder.name, "fields.pimg")
        subprocess.run([os.environ["PACKIMG"], "convert", os.path.join(images, "table.csv"), "-o", self.path],
                       check=True, capture_output=True)

    def open(self, **options):
        return loaderd.Feed(self.path, pipeline=PIPELINE, batch_size=16, daemon="private", epoch_end=1, **options)

    def test_text_and_keys(self):
        with self.open(fields=["caption", loaderd.KEY]) as feed:
            batch = next(feed)
            self.assertEqual(batch.field("caption"), self.captions)
            self.assertEqual(batch.field(loaderd.KEY), self.names)

    def test_listed(self):
        longest = max(len(c.encode()) for c in self.captions)
        self.assertEqual(loaderd.dataset(self.path, daemon="private").fields,
                         {"caption": loaderd.Field("text", longest), "size": loaderd.Field("float64", None)})

    def test_room(self):
        longest = max(len(c.encode()) for c in self.captions)
        with self.assertRaisesRegex(loaderd.BadOption, f'"caption": the longest value has {longest} bytes, but field_bytes is 7'):
            self.open(fields=["caption"], field_bytes=7)
        with self.open(fields=["caption"], field_bytes=8, cut_values=True) as feed:
            batch = next(feed)
            self.assertEqual(batch.field("caption"), [c.encode()[:8].decode(errors="ignore") for c in self.captions])
            flags = [flag & loaderd.FIELD_CUT for flag in memoryview(batch.buffer("flags"))]
            self.assertEqual(flags, [loaderd.FIELD_CUT * (len(c.encode()) > 8) for c in self.captions])


class MissingLabels(unittest.TestCase):
    """Samples without a label in a dataset with classes give one warning per feed, attributed to the line of the loop."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.images = os.path.join(self.folder.name, "images")
        subprocess.run([os.environ["SHAPES"], self.images, "--count", "40"], check=True, capture_output=True)
        self.paths = sorted(glob.glob(os.path.join(self.images, "train", "*", "*")))

    def pack(self, labels):
        with open(os.path.join(self.images, "table.csv"), "w") as table:
            table.write("path,label\n")
            for path, label in zip(self.paths, labels):
                table.write(f"{os.path.relpath(path, self.images)},{label}\n")
        packed = os.path.join(self.folder.name, "labels.pimg")
        subprocess.run(
            [os.environ["PACKIMG"], "convert", table.name, "-o", packed, "--force"], check=True, capture_output=True
        )
        return packed

    def warned(self, labels, epochs=2):
        packed = self.pack(labels)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with loaderd.Feed(packed, pipeline=PIPELINE, batch_size=4, daemon="private", epoch_end=epochs) as feed:
                for _ in range(epochs):
                    for batch in feed:
                        pass
                self.assertIsNone(feed.next())
        self.assertTrue(all(w.category is loaderd.LabelWarning and w.filename == __file__ for w in said))
        return [str(w.message) for w in said]

    def test_one_warning(self):
        labels = [str(i % 3) for i in range(len(self.paths))]
        self.assertEqual(self.warned(labels), [])
        labels[6] = labels[13] = ""
        (text,) = self.warned(labels)
        self.assertRegex(text, r"labels\.pimg: sample 6 has no label.*ignore_index=-1.*packimg info")

    def test_no_classes(self):
        """Without classes, missing labels give no warning."""
        self.assertEqual(self.warned([""] * len(self.paths)), [])


class RealDaemon(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        images = os.path.join(cls.folder.name, "images")
        subprocess.run([os.environ["SHAPES"], images, "--count", "400"], check=True, capture_output=True)
        cls.dataset, cls.other = (cls.pack(images, part) for part in ("train", "val"))
        cls.facts = loaderd.dataset(cls.dataset, daemon="private")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def pack(cls, images, part):
        path = os.path.join(cls.folder.name, part + ".pimg")
        subprocess.run(
            [os.environ["PACKIMG"], "convert", os.path.join(images, part), "-o", path], check=True, capture_output=True
        )
        return path

    def open(self, dataset=None, **options):
        for name, value in dict(pipeline=PIPELINE, batch_size=16, shuffle=True, seed=3, timeout=60, drop_last=True).items():
            options.setdefault(name, value)
        return loaderd.Feed(dataset or self.dataset, daemon="private", **options)

    @staticmethod
    def digest(batch):
        sections = (bytes(batch.buffer(name)) for name in ("images", "labels", "samples", "flags"))
        return hashlib.sha256(b"".join(sections)).hexdigest()

    def collect(self, count, **options):
        """Returns the samples of each batch, and the bytes of each image."""
        samples, images = [], []
        with self.open(**options) as feed:
            for _ in range(count):
                with next(feed) as batch:
                    samples.append(list(memoryview(batch.buffer("samples")).cast("B").cast("Q")))
                    size = len(bytes(batch.buffer("images"))) // batch.count
                    pixels = bytes(batch.buffer("images"))
                    images.append([pixels[i * size : (i + 1) * size] for i in range(batch.count)])
        return samples, images

    def test_repeats(self):
        """With repeats, each sample occurs that often in its batch. Its first copy equals that of a feed without repeats, the others
        differ. Positions have the same meaning, also on several ranks.
        """
        with self.open(batch_size=4) as plain, self.open(batch_size=12, repeats=3) as feed:
            self.assertEqual(len(plain), len(feed))
            batches = len(feed) + 2  # continues into the next epoch
        samples, images = self.collect(batches, batch_size=4)
        thrice, copies = self.collect(batches, batch_size=12, repeats=3)
        self.assertEqual(thrice, [batch * 3 for batch in samples])
        self.assertEqual([batch[:4] for batch in copies], images)
        differ = [len({batch[i], batch[4 + i], batch[8 + i]}) for batch in copies for i in range(4)]
        self.assertGreater(differ.count(3), len(differ) * 0.9)
        resumed = self.collect(3, batch_size=12, repeats=3, epoch=0, batch=7)
        self.assertEqual(resumed, (thrice[7:10], copies[7:10]))
        ranks = [self.collect(5, batch_size=6, repeats=3, rank=rank, world=2) for rank in range(2)]
        for kind, whole in enumerate((thrice, copies)):
            self.assertEqual([ranks[0][kind][i] + ranks[1][kind][i] for i in range(5)], whole[:5])
        short, _ = self.collect(len(samples) - 1, batch_size=12, repeats=3, drop_last=False)
        with self.open(batch_size=4, drop_last=False) as plain:
            epoch = len(plain)
        self.assertEqual([len(batch) for batch in short[:epoch]].count(12), self.facts.samples // 4)
        self.assertEqual(sorted(sample for batch in short[:epoch] for sample in batch),
                         sorted(3 * list(range(self.facts.samples))))  # fmt: skip

    def test_repeats_that_are_refused(self):
        with self.assertRaisesRegex(loaderd.BadOption, "repeats 3 does not divide batch_size 16 times world 1"):
            self.open(repeats=3)
        with self.assertRaisesRegex(loaderd.BadOption, "repeats 1000: a batch can contain a sample at most 256 times"):
            self.open(batch_size=1000, repeats=1000)
        with self.open(batch_size=12, repeats=3) as feed, self.open(batch_size=12) as plain:
            with self.assertRaisesRegex(loaderd.BadOption, "repeats: the state was saved with 3, but this feed has 1"):
                plain.load_state_dict(feed.state_dict())

    def test_a_killed_daemon_changes_nothing(self):
        with self.open() as feed:
            undisturbed = [self.digest(feed.next()) for _ in range(60)]
        with loaderd.Daemon() as daemon, self.assertLogs("loaderd") as logs:
            # Few slots, so that the batches finished before the kill do not make a reconnect unnecessary.
            feed = loaderd.Feed(
                self.dataset, pipeline=PIPELINE, batch_size=16, shuffle=True, seed=3, timeout=60, socket=daemon.socket, slots=8,
                drop_last=True,
            )
            held = []
            for index, digest in enumerate(undisturbed):
                batch = feed.next()
                self.assertEqual((batch.number, self.digest(batch), batch.bad), (index + 1, digest, 0))
                if index % 20 == 5:
                    held.append((batch, digest))
                    kill_family(daemon.pid)
            for batch, digest in held:
                self.assertEqual(self.digest(batch), digest)
            self.assertEqual(feed.reconnects, 3)
        self.assertEqual(len(logs.output), 3)

    def test_facts(self):
        self.assertEqual(len(self.facts.classes), 10)
        self.assertGreater(self.facts.samples, 300)
        self.assertTrue(all(0 < value < 255 for value in self.facts.mean + self.facts.std))

    def test_epochs_and_labels(self):
        with self.open(epoch_end=2, drop_last=False) as feed:
            orders = []
            for _ in range(2):
                samples = []
                for batch in feed:
                    samples += memoryview(batch.buffer("samples")).tolist()
                    self.assertTrue(all(0 <= label < 10 for label in memoryview(batch.buffer("labels"))))
                    self.assertEqual((batch.height, batch.width, batch.channels, batch.bad), (32, 32, 3, 0))
                orders.append(samples)
            self.assertEqual(sorted(orders[0]), list(range(self.facts.samples)))
            self.assertEqual(sorted(orders[1]), list(range(self.facts.samples)))
            self.assertNotEqual(orders[0], orders[1])
            self.assertIsNone(feed.next())

    def test_resume_is_exact(self):
        with self.open() as feed:
            steps = len(feed) + 5
            digests = []
            for step in range(steps):
                if step == 7:
                    state = feed.state_dict()
                digests.append(self.digest(feed.next()))
        with self.open() as feed:
            feed.load_state_dict(state)
            self.assertEqual([self.digest(feed.next()) for _ in range(steps - 7)], digests[7:])

    def test_another_dataset_is_refused(self):
        path = shutil.copy(self.dataset, os.path.join(self.folder.name, "moved.pimg"))
        with self.open() as feed:
            self.assertEqual(feed.uuid, self.facts.uuid)
            state = feed.state_dict()
        with self.open(path) as feed:
            feed.load_state_dict(state)
            os.rename(shutil.copy(self.other, path + ".next"), path)
            with self.assertRaisesRegex(loaderd.BadOption, self.facts.uuid):
                feed.load_state_dict(state)

    def test_ranks_divide_the_epoch(self):
        seen = []
        for rank in range(3):
            with self.open(rank=rank, world=3, drop_last=False, epoch_end=1, batch_size=5) as feed:
                for batch in feed:
                    seen += memoryview(batch.buffer("samples")).tolist()
        self.assertEqual(sorted(seen), list(range(self.facts.samples)))

    @unittest.skipUnless(torch, "no PyTorch")
    def test_workers_divide_the_epoch(self):
        test = self

        class Stream(torch.utils.data.IterableDataset):
            def __init__(self, **options):
                self.options = options

            def __iter__(self):
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    with test.open(epoch_end=1, drop_last=False, **self.options) as feed:
                        for batch in feed:
                            yield len(said), memoryview(batch.buffer("samples")).tolist()

        for options, times, warned in ((dict(), 1, 1), (dict(rank="auto"), 1, 0), (dict(rank=0, world=1), 2, 1)):
            taken = list(torch.utils.data.DataLoader(Stream(**options), batch_size=None, num_workers=2))
            seen = sorted(sample for _, samples in taken for sample in samples)
            self.assertEqual(seen, sorted(times * list(range(self.facts.samples))))
            self.assertEqual(max(said for said, _ in taken), warned)

    def test_an_evaluation_sees_every_sample(self):
        """By default, an epoch has every sample, also if the batch size does not divide the dataset, and after a loop that takes two
        batches only.
        """
        with loaderd.Feed(self.dataset, pipeline="resize(32x32)", batch_size=60, daemon="private") as feed:
            for epoch in range(2):
                self.assertEqual([len(batch) for batch in itertools.islice(feed, 2)], [60, 60])
                self.assertEqual([int(s) for batch in feed for s in memoryview(batch.buffer("samples"))], list(range(self.facts.samples)))

    def test_a_loop_left_early_changes_no_byte(self):
        """After a loop that was left early, the reopened stream delivers the bytes of the first one."""
        with self.open(drop_last=False) as whole, self.open(drop_last=False) as feed:
            expected = [[self.digest(batch) for batch in whole] for _ in range(3)]
            for epoch, count in enumerate((5, 1, len(feed))):
                self.assertEqual([self.digest(batch) for batch in itertools.islice(feed, count)], expected[epoch][:count])
            feed.set_epoch(1)
            self.assertEqual([self.digest(batch) for batch in feed], expected[1])

    def open_wanted(self, **options):
        return loaderd.Feed(self.dataset, pipeline=PIPELINE, batch_size=16, seed=3, timeout=60, daemon="private", wanted=True, **options)

    def test_wanted(self):
        """Delivers the requested samples in that order, with the bytes that they have in an ordered feed."""
        with self.open(epoch=2) as ordered:
            batch = next(ordered)
            samples, digest = memoryview(batch.buffer("samples")).tolist(), self.digest(batch)
        with self.open_wanted() as feed:
            self.assertEqual(len(feed), 0)
            lists = [samples, [7], [5, 3, 5], samples[::-1]]
            for asked in lists:
                feed.want(2, asked)
            self.assertEqual(len(feed), 4)
            taken = [next(feed) for _ in range(2)]
            self.assertEqual(self.digest(taken[0]), digest)
            self.assertEqual([memoryview(b.buffer("samples")).tolist() for b in (*taken, *feed)], lists)
            self.assertEqual((len(feed), list(feed)), (0, []))
            del taken
            feed.want(0, [1, 2])
            feed.want(0, [3])
            feed.forget()
            self.assertEqual(len(feed), 0)
            feed.want(1, array.array("Q", [9, 8]))
            self.assertEqual([memoryview(b.buffer("samples")).tolist() for b in feed], [[9, 8]])

    @unittest.skipUnless(torch, "no PyTorch")
    def test_wanted_tensors(self):
        with self.open_wanted() as feed:
            feed.want(0, torch.tensor([4, 2]))
            self.assertEqual(memoryview(next(feed).buffer("samples")).tolist(), [4, 2])

    def test_wanted_mistakes(self):
        for options, name in (
            (dict(shuffle=True), "shuffle"), (dict(epoch=1), "epoch"), (dict(batch=1), "batch"), (dict(epoch_end=3), "epoch_end"),
            (dict(rank=0), "rank"), (dict(rank="auto"), "rank"), (dict(world=1), "world"), (dict(drop_last=True), "drop_last"),
            (dict(last="drop"), "last"), (dict(repeats=2), "repeats"),
        ):  # fmt: skip
            with self.assertRaisesRegex(loaderd.BadOption, f"^{name}: .* has no meaning in a wanted feed.*feed.want"):
                self.open_wanted(**options)
        with self.open_wanted() as feed:
            for use in (feed.reset, feed.state_dict, lambda: feed.set_epoch(1), lambda: feed.load_state_dict({})):
                with self.assertRaisesRegex(loaderd.BadOption, "a wanted feed has no position"):
                    use()
            for samples in ([], list(range(17)), [self.facts.samples], [-1], [1 << 64]):
                with self.assertRaises(loaderd.BadOption):
                    feed.want(0, samples)
            for samples in ([1.5], "12", 3):
                with self.assertRaises(TypeError):
                    feed.want(0, samples)
            with self.assertRaises(loaderd.BadOption):
                next(feed)
            with self.assertRaises(loaderd.FeedError) as caught:
                while True:
                    feed.want(0, [1])
            self.assertEqual((caught.exception.code, len(feed)), (errno.EAGAIN, feed.slots + 16))
            self.assertEqual(len([batch.count for batch in feed]), feed.slots + 16)
        with self.open() as feed:
            for use in (feed.forget, lambda: feed.want(0, [1])):
                with self.assertRaisesRegex(loaderd.BadOption, "open it with wanted=True"):
                    use()

    def test_the_daemon_ends_with_its_client(self):
        program = (
            "import os, signal, sys, loaderd\n"
            f"feed = loaderd.Feed({self.dataset!r}, pipeline={PIPELINE!r}, batch_size=16, daemon='private')\n"
            "batch = feed.next()\n"
            "print(feed.daemon.pid, flush=True)\n"
            "if os.fork() == 0:\n"
            "    signal.pause()\n"  # the child inherits all descriptors and stays alive
            "print(os.getpid(), flush=True)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True) as client:
            pid = int(client.stdout.readline())
            client.wait(60)
            start = time.monotonic()
            try:
                while running(pid):
                    self.assertLess(time.monotonic() - start, 60)
                    time.sleep(0.01)
            finally:
                os.killpg(client.pid, signal.SIGKILL)

    def test_settings(self):
        with self.open(settings={"limits.slots": 5}) as feed:
            feed.next()
        with self.assertRaisesRegex(loaderd.LimitExceeded, "slots.* 5"):
            self.open(settings={"limits.slots": 5}, slots=6)
        with self.assertRaisesRegex(ValueError, r"settings: .*\[limits\] slot: no such key; did you mean \[limits\] slots"):
            self.open(settings={"limits.slot": 5})
        with loaderd.Daemon(settings={"io.mode": "mmap", "pool.threads": 1}) as daemon:
            with loaderd.Feed(self.dataset, pipeline=PIPELINE, socket=daemon.socket, batch_size=4) as feed:
                feed.next()

    def test_a_name_of_any_bytes(self):
        path = os.path.join(os.fsencode(self.folder.name), b"caf\xe9.pimg")
        shutil.copy(self.dataset, path)
        for name in (path, os.fsdecode(path)):
            with self.open(name) as feed:
                self.assertEqual(feed.samples, self.facts.samples)
                self.assertEqual(feed.state_dict()["dataset"], os.fsdecode(path))
            self.assertEqual(loaderd.dataset(name, daemon="private").samples, self.facts.samples)

    def test_mistakes(self):
        with self.assertRaises(loaderd.BadPipeline) as caught:
            self.open(pipeline="random_resized_crop(32) blur(3)")
        lines = str(caught.exception).splitlines()
        self.assertEqual(lines[-2][lines[-1].index("^"):].split("(")[0], "blur")
        with self.assertRaises(loaderd.NoDataset):
            loaderd.Feed("/nonexistent/train.pimg", daemon="private")
        with self.assertRaises(FileNotFoundError):
            loaderd.dataset("/nonexistent/train.pimg", daemon="private")
        if os.geteuid() != 0:
            with tempfile.NamedTemporaryFile(suffix=".pimg") as file:
                os.chmod(file.name, 0)
                with self.assertRaises(PermissionError):
                    loaderd.Feed(file.name, daemon="private")
        with self.assertRaises(loaderd.FeedError):
            loaderd.Feed(__file__, daemon="private")
        with self.assertRaises(loaderd.FeedError):
            self.open(batch_size=1 << 30)
        with self.assertRaisesRegex(loaderd.FeedError, "nosuch"):
            self.open(fields=["nosuch"])


if __name__ == "__main__":
    unittest.main()
