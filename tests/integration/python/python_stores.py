"""Feeds of datasets in a store: the same bytes as of a local file, whatever fails, and the errors that end them. With loaderd ($LOADERD),
loaderd-fetch ($LOADERD_FETCH) and a store of the test's own."""

import contextlib
import json
import logging
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import threading
import unittest
from unittest import mock

import loaderd
from store_case import ADDRESS, SAMPLES, SMALL_CACHE, StoreCase, numpy, processes  # before the store, whose folder it adds
import object_store
from object_store import hang, reset

KILLS = int(os.environ.get("LOADERD_TEST_KILLS", 2))
DELAY_S = float(os.environ.get("LOADERD_TEST_DELAY", 0.01))  # of the store's replies while something is killed
CHAOS = "LOADERD_TEST_CHAOS" in os.environ  # whether 5 % of requests fail meanwhile


class Stores(StoreCase):
    def gets(self):
        return sum(method == "GET" for method, _, _ in self.store.requests)

    def test_the_same_bytes(self):
        self.assertEqual(self.hash_of(self.open(ADDRESS)), self.expected)
        before = self.gets()
        self.assertEqual(self.hash_of(self.open(ADDRESS)), self.expected)
        self.assertLessEqual(self.gets() - before, 2, "the second time, all is in the cache")

    def put_blocks(self):
        """Puts 46 MB of samples, more than is under way at a time; returns their images."""
        image = numpy.random.default_rng(5).integers(0, 256, (160, 160, 3), "u1")
        images = [numpy.roll(image, i) for i in range(600)]
        with loaderd.Writer(self.dir / "b.pimg", "image: image u8[h,w,3]") as writer:
            for image in images:
                writer.add({"image": image})
        self.store.put("data", "b.pimg", (self.dir / "b.pimg").read_bytes())
        return images

    BLOCKS = {"order": "blocks", "block_samples": 12, "group_blocks": 50}

    def test_neighbours_come_together(self):
        """Samples of a block make one request, beyond the first two batches."""
        self.put_blocks()
        local = self.hash_of(self.open(self.dir / "b.pimg", **self.BLOCKS, batch_size=4), epochs=1)
        self.assertEqual(self.hash_of(self.open("s3://data/b.pimg", **self.BLOCKS, batch_size=4), epochs=1), local)
        self.assertLess(self.gets(), 150)

    def test_the_batch_that_is_due_comes_first(self):
        image, stored = self.put_blocks()[0], (self.dir / "b.pimg").read_bytes()
        first = stored.index(image.tobytes())
        self.store.delay_s = 0.02
        with self.open("s3://data/b.pimg", **self.BLOCKS, batch_size=24) as feed:
            wanted = [first + i * image.nbytes for i in next(iter(feed)).samples]
        ranges = [[int(end) for end in headers["Range"][6:].split("-")] for _, _, headers in self.store.requests]
        places = [next(place for place, (begin, last) in enumerate(ranges) if begin <= at <= last and last - begin < 1 << 20) for at in wanted]
        self.assertLess(statistics.median(places), 24)  # without an order 31 and more

    def test_by_http(self):
        self.assertEqual(self.hash_of(self.open(f"{self.store.url}/plain/data/sets/a.pimg")), self.expected)

    def put_set(self, seed=2):
        """Puts a set of shards of one size into the store. Returns their paths."""
        random_bytes = numpy.random.default_rng(seed)
        with loaderd.Writer(self.dir / "s.pimg", "image: image u8[h,w,3]", shard_size=1 << 19, overwrite=True) as writer:
            for i in range(SAMPLES):
                writer.add({"image": random_bytes.integers(0, 256, (40, 60, 3), "u1")})
        shards = sorted(self.dir.glob("s-*.pimg"))
        self.assertGreater(len(shards), 2)
        for shard in shards:
            self.store.put("data", shard.name, shard.read_bytes())
        return shards

    def seal(self, shards):
        subprocess.run([os.environ["PACKIMG"], "seal", shards[0]], check=True, stdout=subprocess.DEVNULL)
        self.store.put("data", "s.pimg.set", (self.dir / "s.pimg.set").read_bytes())

    def test_a_set(self):
        shards = self.put_set()
        local = self.hash_of(self.open(shards[0]))
        self.assertEqual(self.hash_of(self.open(f"s3://data/{shards[1].name}")), local)

    def test_a_set_with_a_set_file(self):
        shards = self.put_set()
        local = self.hash_of(self.open(shards[0]))
        self.seal(shards)
        for address in (f"s3://data/{shards[1].name}", "s3://data/s.pimg.set"):
            self.end_fetchers()
            self.store.requests.clear()
            feed = self.open(address, shuffle=False)
            first = [path.rpartition("/")[2] for _, path, _ in self.store.requests[:1 + len(shards)]]
            feed.close()
            self.assertEqual((first[0], sorted(first[1:])), ("s.pimg.set", [shard.name for shard in shards]), "also from the cache")
            self.assertEqual(self.hash_of(self.open(address)), local)

    def test_shards_that_are_not_those_of_the_set_file(self):
        shards = self.put_set()
        self.seal(shards)
        address = f"s3://data/{shards[0].name}"
        self.open(address).close()
        self.end_fetchers()
        self.put_set(seed=3)
        for _ in range(2):
            with self.assertRaisesRegex(loaderd.FeedError, "s.pimg.set describes.*packimg seal"):
                self.open(address)  # its sections are in the cache
            self.end_fetchers()
            shutil.rmtree(self.cache)
        self.seal(shards)
        self.assertEqual(self.hash_of(self.open(address)), self.hash_of(self.open(shards[0])))

    def test_names_of_sets_that_are_not_there(self):
        unwritten = mock.patch.dict(os.environ, {"MALLOC_PERTURB_": "0"})  # else memory is written to when it is allocated
        with unwritten, self.open(ADDRESS), self.assertRaisesRegex(loaderd.NoDataset, "none-00000-of-99999.pimg: no such object"):
            self.open("s3://data/none-00000-of-99999.pimg")
        for pid in self.fetchers():
            peak = re.search(r"VmHWM:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())
            self.assertLess(int(peak[1]), 256 << 10)

    def mixture(self, where="", **options):
        """Opens a mixture of the dataset in the store, a local one and another one in the store; and the same of local files."""
        paths = [self.path, self.dir / "local2.pimg", self.dir / "there2.pimg"]
        for i, path in enumerate(paths[1:]):
            random_bytes = numpy.random.default_rng(10 + i)
            with loaderd.Writer(path, "image: image u8[h,w,3]\nlabel: class i32", classes=["a", "b"], overwrite=True) as writer:
                for k in range(SAMPLES // 2):
                    writer.add({"image": random_bytes.integers(0, 256, (120 + k % 7, 130, 3), "u1"), "label": k % 2})
        self.store.put("data", "sets/there2.pimg", paths[2].read_bytes())
        shares = (3, 1, 2)
        made = []
        for datasets in ((ADDRESS, paths[1], "s3://data/sets/there2.pimg"), paths):
            parts = [loaderd.Part(str(dataset), share=share, where=where) for dataset, share in zip(datasets, shares)]
            made.append(self.open(parts, **options))
        return made

    def test_a_mixture(self):
        blocks = {"order": "blocks", "block_samples": 5, "group_blocks": 3}
        for options in ({}, {"where": "label = 1", **blocks}, {"epoch_samples": 150}, {"mix": "batch", **blocks}):
            with self.subTest(options):
                remote, local = self.mixture(**options)
                self.assertEqual(self.hash_of(remote), self.hash_of(local))

    def test_a_mixture_whose_fetchers_and_workers_are_killed(self):
        self.survives(lambda: self.kill_all(self.fetchers()), self.mixture)
        self.survives(lambda: self.kill_all(self.daemons(workers=True)), self.mixture)

    def test_a_mixture_whose_cache_is_removed(self):
        calls = []

        def remove():
            calls.append(1)
            if len(calls) == 3:
                shutil.rmtree(self.cache)
                self.kill_all(self.fetchers())

        self.store.delay_s = 0.02
        with mock.patch.dict(os.environ, {"LOADERD_CACHE_SIZE": SMALL_CACHE}):
            remote, local = self.mixture()
        self.assertEqual(self.hash_of(remote, remove), self.hash_of(local))

    def test_a_damaged_local_part_of_a_mixture(self):
        wrong = bytearray(self.path.read_bytes())
        wrong[9050] ^= 255
        (self.dir / "bad.pimg").write_bytes(wrong)
        parts = [loaderd.Part(ADDRESS), loaderd.Part(str(self.dir / "bad.pimg"))]
        with self.open(parts) as feed:
            self.assertEqual(sum(batch.bad for batch in feed), 1)
        with self.assertRaisesRegex(loaderd.FeedError, "checksum; the file is damaged"):
            self.hash_of(self.open(parts, bad="fail"))

    def test_latency_and_faults(self):
        self.store.delay_s = 0.05
        self.store.chaos = random.Random(3)
        self.assertEqual(self.hash_of(self.open(ADDRESS)), self.expected)

    def daemons(self, workers):
        """Workers, or supervisors, of the private daemons of this process."""
        found = []
        for pid in processes("loaderd"):
            try:
                arguments = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                parent = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
                if workers and b"--worker" in arguments:
                    parent = int(pathlib.Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
                elif workers or b"--worker" in arguments:
                    continue
            except (OSError, IndexError):
                continue
            if parent == os.getpid():
                found.append(pid)
        return found

    def survives(self, kill, make=None):
        """Reads epochs beside a local feed until something has been killed KILLS times."""
        self.store.delay_s = DELAY_S
        self.store.chaos = random.Random(5) if CHAOS else None
        choice, killed = random.Random(4), 0
        with mock.patch.dict(os.environ, {"LOADERD_CACHE_SIZE": SMALL_CACHE}):  # so that there is always something to fetch
            remote, local = make() if make else (self.open(ADDRESS), self.open(self.path))
        with remote, local:
            while killed < KILLS:
                for one, other in zip(remote, local):
                    self.assertEqual((one.epoch, one.index, one.bad), (other.epoch, other.index, 0))
                    self.assertTrue(numpy.array_equal(one.images, other.images), (one.epoch, one.index))
                    self.assertTrue(numpy.array_equal(one.samples, other.samples), (one.epoch, one.index))
                    if killed < KILLS and choice.random() < 0.4:
                        killed += kill()

    def kill_all(self, pids):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(pids)

    def test_fetchers_are_killed(self):
        self.survives(lambda: self.kill_all(self.fetchers()))

    def test_workers_are_killed(self):
        self.survives(lambda: self.kill_all(self.daemons(workers=True)))

    def test_services_are_killed(self):
        self.survives(lambda: self.kill_all(self.daemons(workers=False)))

    def test_the_store_is_killed(self):
        """Connections end, and for a while nobody listens."""

        def kill():
            self.store.restart(after_s=0.2)
            return True

        self.survives(kill)

    def test_the_store_is_away_for_a_while(self):
        self.store.delay_s = 0.02
        calls = []

        def fail():
            calls.append(1)
            if len(calls) == 4:
                self.store.fail(reset, times=20)

        self.assertEqual(self.hash_of(self.open(ADDRESS), fail), self.expected)

    def test_a_slow_first_batch_is_explained(self):
        said = threading.Event()

        class Listener(logging.Handler):
            def emit(self, record):
                if re.fullmatch(rf"{ADDRESS}: waiting for the first batch: 0\.0 of 1\.2 MB at [0-9.]+ MB/s, [0-9]+ ms a request\.", record.getMessage()):
                    said.set()

        def hold(handler):
            first, last = map(int, handler.headers["Range"].removeprefix("bytes=").split("-"))
            if last - first > 60000:  # a sample
                said.wait(60)
            return False

        listener = Listener()
        logging.getLogger("loaderd").addHandler(listener)
        self.addCleanup(logging.getLogger("loaderd").removeHandler, listener)
        self.store.fail(hold, times=1 << 30)
        self.assertEqual(self.hash_of(self.open(ADDRESS)), self.expected)
        self.assertTrue(said.is_set())

    @unittest.skipUnless("LOADERBENCH" in os.environ, "loaderbench was not built")
    def test_the_network_is_named_as_the_limit(self):
        self.store.delay_s = 0.1
        with mock.patch.dict(os.environ, {"LOADERD_CACHE_SIZE": SMALL_CACHE}):
            shown = subprocess.run([os.environ["LOADERBENCH"], "--explain", "--batch", "16", "--seconds", "1", "--warmup", "0.1", ADDRESS], stdout=subprocess.PIPE, text=True, check=True).stdout
        self.assertIn("The network is the limit: ", shown)
        self.assertRegex(shown, r"rate +[0-9.]+ [KM]iB/s by [0-9,]+ requests of [0-9.]+ KiB each\n  latency +[0-9.]+ ms from a request to its first byte")
        self.assertIn("Shuffled in blocks", shown)

    @unittest.skipUnless("LOADERCTL" in os.environ, "loaderctl was not built")
    def test_requests_that_hang_are_sent_twice(self):
        calls, counts, hung = [], {}, set()

        def hang_once(handler):
            if handler.headers["Range"] in hung or len(hung) == 3:
                return False
            hung.add(handler.headers["Range"])
            return hang(handler)

        def each():
            calls.append(1)
            if len(calls) == SAMPLES // 16:  # what requests take is known by now
                self.store.fail(hang_once, times=1 << 30)
            while len(calls) == 2 * SAMPLES // 16 and counts.get("hedges", 0) < 3 and counts.get("retries", 0) == 0:
                shown = subprocess.run([os.environ["LOADERCTL"], "remote", "--json"], stdout=subprocess.PIPE, check=True).stdout
                counts.update(json.loads(shown)["datasets"][0])

        with mock.patch.dict(os.environ, {"LOADERD_CACHE_SIZE": SMALL_CACHE}):  # so that there is always something to fetch
            self.assertEqual(self.hash_of(self.open(ADDRESS), each), self.expected)
        self.assertEqual(counts["retries"], 0)
        self.assertGreaterEqual(counts["hedges"], 3)
        self.assertLessEqual(20 * counts["hedges"], counts["requests"])

    def test_a_cache_that_is_too_small(self):
        with mock.patch.dict(os.environ, {"LOADERD_CACHE_SIZE": SMALL_CACHE}):
            self.assertEqual(self.hash_of(self.open(ADDRESS)), self.expected)
            used = sum(p.stat().st_blocks * 512 for p in self.cache.rglob("*") if p.is_file())
        self.assertLess(used, 0.7 * self.path.stat().st_size)

    def test_samples_that_are_not_announced_pass_through_a_full_cache(self):
        """The others of a mosaic, and what takes the place of a bad sample."""
        options = {"pipeline": "mosaic(64) hflip"}
        wrong = bytearray(self.path.read_bytes())
        wrong[9050] ^= 255
        with open(self.dir / "bad.pimg", "wb") as file:
            file.write(wrong)
        self.store.put("data", "sets/bad.pimg", wrong)
        with mock.patch.dict(os.environ, {"LOADERD_CACHE_SIZE": SMALL_CACHE}):
            self.assertEqual(*(self.hash_of(self.open(one, **options), epochs=1) for one in (ADDRESS, self.path)))
            self.assertEqual(self.hash_of(self.open("s3://data/sets/bad.pimg")), self.hash_of(self.open(self.dir / "bad.pimg")))

    def test_the_cache_is_removed(self):
        self.store.delay_s = 0.02
        calls = []

        def remove():
            calls.append(1)
            if len(calls) == 3:
                shutil.rmtree(self.cache)

        self.assertEqual(self.hash_of(self.open(ADDRESS), remove), self.expected)

    def test_caches_are_removed_and_fetchers_die(self):
        def remove():
            shutil.rmtree(self.cache, ignore_errors=True)  # while a fetcher may make files in it
            return self.kill_all(self.fetchers())

        self.survives(remove)

    def test_several_feeds_share_requests(self):
        hashes = []
        feeds = [self.open(ADDRESS) for _ in range(3)]
        threads = [threading.Thread(target=lambda f=feed: hashes.append(self.hash_of(f))) for feed in feeds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(hashes, [self.expected] * 3)
        self.assertEqual(len(self.fetchers()), 1)
        fetched = 0
        for method, path, headers in self.store.requests:
            first, last = map(int, headers["Range"].removeprefix("bytes=").split("-"))
            fetched += last - first + 1
        self.assertLess(fetched, 1.5 * self.path.stat().st_size)

    def test_another_dataset_opens_slowly(self):
        asked, go_on = threading.Event(), threading.Event()

        def hold(handler):
            asked.set()
            go_on.wait()
            return False

        self.store.put("data", "slow.pimg", self.path.read_bytes())
        with mock.patch.dict(os.environ, {"LOADERD_CACHE_SIZE": SMALL_CACHE}):
            feed = self.open(ADDRESS)
            self.store.fail(hold, part="slow")
            slow = threading.Thread(target=lambda: self.open("s3://data/slow.pimg").close())
            slow.start()
            self.assertTrue(asked.wait(60))
            try:
                self.assertEqual(self.hash_of(feed), self.expected)
            finally:
                go_on.set()
                slow.join()

    def test_refusals(self):
        for address, kind, says in (("s3://data/none.pimg", loaderd.NoDataset, "s3://data/none.pimg: no such object"),
                                    ("gs://data/a.pimg", loaderd.FeedError, "AWS_ENDPOINT_URL_S3"),
                                    ("s3://data", loaderd.FeedError, "has no key")):
            with self.subTest(address), self.assertRaisesRegex(kind, re.escape(says)):
                self.open(address)
        self.store.put("data", "text.pimg", b"hello " * 1000)
        with self.assertRaisesRegex(loaderd.FeedError, "s3://data/text.pimg"):
            self.open("s3://data/text.pimg")
        with mock.patch.dict(os.environ, {"AWS_SECRET_ACCESS_KEY": "wrong"}), self.assertRaisesRegex(loaderd.FeedError, "access denied"):
            self.open(ADDRESS)

    def fails_in_the_middle(self, change, says):
        self.store.delay_s = 0.02
        calls = []

        def act():
            calls.append(1)
            if len(calls) == 2:
                change()

        with mock.patch.dict(os.environ, {"LOADERD_CACHE_SIZE": SMALL_CACHE}), self.assertRaisesRegex(loaderd.FeedError, says):
            self.hash_of(self.open(ADDRESS), act, epochs=50)

    def test_the_object_is_replaced(self):
        other = self.path.read_bytes()[:-64] + b"\1" * 64
        self.fails_in_the_middle(lambda: self.store.put("data", "sets/a.pimg", other), "was replaced while it was read")

    def test_access_is_taken_away(self):
        self.fails_in_the_middle(lambda: self.store.keys.clear(), "access denied")

    def test_the_store_stays_away(self):
        with mock.patch.dict(os.environ, {"LOADERD_FETCH_PATIENCE": "0"}):
            self.fails_in_the_middle(lambda: self.store.fail(reset, times=1 << 30), "after 10 attempts")

    def test_indexes_larger_than_the_cache(self):
        with mock.patch.dict(os.environ, {"LOADERD_CACHE_SIZE": "1K"}), self.assertRaisesRegex(loaderd.FeedError, "its sections have"):
            self.open(ADDRESS)

    def test_files_of_the_cache_that_are_none(self):
        self.open(ADDRESS).close()
        self.end_fetchers()
        for name in ("entry", "present"):
            for path in self.cache.glob(f"*/{name}"):
                path.unlink()
            os.mkfifo(next(self.cache.iterdir()) / name)  # which would block a reader
        self.assertEqual(self.hash_of(self.open(ADDRESS)), self.expected)

    def test_wrong_bytes(self):
        wrong = bytearray(self.path.read_bytes())
        wrong[wrong.index(self.path.read_bytes()[9000:9100]) + 50] ^= 255
        self.store.put("data", "sets/bad.pimg", wrong)
        with self.open("s3://data/sets/bad.pimg") as feed:
            self.assertEqual(sum(batch.bad for batch in feed), 1)
        with self.assertRaisesRegex(loaderd.FeedError, "checksum"):
            self.hash_of(self.open("s3://data/sets/bad.pimg", bad="fail"))

    def test_nothing_secret_is_left(self):
        self.hash_of(self.open(ADDRESS))
        for path in self.dir.rglob("*"):
            if path.is_file():
                self.assertNotIn(object_store.SECRET.encode(), path.read_bytes(), path)
        for pid in self.fetchers():
            self.assertNotIn(object_store.SECRET.encode(), pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())


if __name__ == "__main__":
    unittest.main()
