"""Datasets in stores where something is hostile, full or broken: stores that lie, disks without room, caches that others change, and what the fetcher gives away."""

import contextlib
import json
import os
import pathlib
import resource
import shutil
import signal
import ssl
import subprocess
import sys
import unittest
from unittest import mock

import loaderd
from loaderd import _stream
from store_case import ADDRESS, SMALL_CACHE, StoreCase, numpy  # before the store, whose folder it adds
import object_store

FETCH = os.environ["LOADERD_FETCH"]
MOUNTS = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--mount"]


def status():
    """What the fetcher of this process's environment does."""
    done = subprocess.run([os.environ["LOADERCTL"], "--json", "remote"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


class Case(StoreCase):
    def on_disk(self):
        found = 0
        for path in self.cache.rglob("*"):
            try:
                found += path.stat().st_blocks * 512
            except FileNotFoundError:  # a temporary file
                pass
        return found

    def in_the_middle(self, change, at=3):
        calls = []

        def each():
            calls.append(1)
            if len(calls) == at:
                change()

        return each


class Caches(Case):
    def test_small_samples_keep_to_the_limit(self):
        """Several samples share a page: it is given back with the last of them."""
        draw = numpy.random.default_rng(3)
        with loaderd.Writer(self.dir / "small.pimg", "image: image u8[h,w,3]") as writer:
            for _ in range(6000):
                writer.add({"image": draw.integers(0, 256, (12, 16, 3), "u1")})
        self.store.put("data", "small.pimg", (self.dir / "small.pimg").read_bytes())
        options = {"pipeline": "resize(8x8)", "batch_size": 32, "shuffle": False}
        local, most, calls = self.hash_of(self.open(self.dir / "small.pimg", **options), epochs=1), [], []

        def each():
            calls.append(1)
            if len(calls) % 8 == 0:
                most.append(self.on_disk())

        with mock.patch.dict(os.environ, {"LOADERD_CACHE_SIZE": "2M"}):
            self.assertEqual(self.hash_of(self.open("s3://data/small.pimg", **options), each, epochs=1), local)
        self.assertLess(max(most), (2 << 20) + (1 << 19), "two batches may be there beyond the limit")
        self.assertGreater(max(most), 3 << 19)

    def test_two_datasets_share_the_limit(self):
        """The first one, which has filled the cache, gives back half of its room when the second one is opened, not as its feed goes on."""

        def cached():
            return [row["cached"] for row in status()["datasets"] if row["url"] == ADDRESS][0]

        self.store.put("data", "other.pimg", self.path.read_bytes())
        with mock.patch.dict(os.environ, {"LOADERD_CACHE_SIZE": SMALL_CACHE}), self.open(ADDRESS) as first:
            one = [batch.images.sum() for batch in first]
            while (before := cached()) < 4 << 20:  # samples are under way
                pass
            with self.open("s3://data/other.pimg") as second:
                self.assertLess(cached(), 0.7 * before)
                self.assertEqual([batch.images.sum() for batch in second], one)

    def test_holes_in_files_of_the_cache(self):
        def punch():
            for path in self.cache.rglob("*.pimg"):
                subprocess.run(["fallocate", "--punch-hole", "--offset", str(1 << 20), "--length", str(12 << 20), path], check=True)

        local = self.hash_of(self.open(self.path), epochs=1)  # bytes are checked when they are used first, as those of local files are
        self.store.delay_s = 0.01
        self.assertEqual(self.hash_of(self.open(ADDRESS), self.in_the_middle(punch), epochs=1), local)

    def test_files_of_the_cache_become_shorter(self):
        """The index goes, too: the feed says so or goes on, and its daemon and the next feed are none the worse."""

        def truncate():
            for path in self.cache.rglob("*.pimg"):
                os.truncate(path, 100)

        self.store.delay_s = 0.01
        with self.open(self.path) as local:
            try:
                self.hash_of(self.open(ADDRESS), self.in_the_middle(truncate))
            except loaderd.FeedError as error:
                self.assertIn("a.pimg", str(error))
            self.assertEqual(sum(batch.bad for batch in local), 0)
        self.assertEqual(self.hash_of(self.open(ADDRESS)), self.expected)


class Sandbox(Case):
    def test_it_is_shown(self):
        self.open(ADDRESS).close()
        self.assertRegex(status()["sandbox"], "^seccomp(, Landlock [0-9]+$|; no Landlock)")

    def test_the_cache_is_removed_between_two_feeds(self):
        self.open(ADDRESS).close()
        before = self.fetchers()
        while status()["datasets"]:  # it still writes to the cache
            pass
        shutil.rmtree(self.cache)
        self.assertEqual(self.hash_of(self.open(ADDRESS)), self.expected)
        self.assertEqual(len(before), 1)

    def test_credentials_are_replaced_while_a_feed_reads(self):
        credentials, token = self.dir / "credentials", []

        def write(value):
            new = self.dir / "credentials.new"
            new.write_text(f"[default]\naws_access_key_id={object_store.KEY}\naws_secret_access_key={object_store.SECRET}\n"
                           f"aws_session_token={value}\n")
            new.rename(credentials)
            self.store.keys[object_store.KEY] = (object_store.SECRET, value)
            token.append(value)

        write("old")
        files = {"AWS_SHARED_CREDENTIALS_FILE": str(credentials), "LOADERD_CACHE_SIZE": "6M"}
        with mock.patch.dict(os.environ, files):
            del os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
            self.assertEqual(self.hash_of(self.open(ADDRESS), self.in_the_middle(lambda: write("new"))), self.expected)
        self.assertEqual(token, ["old", "new"])
        self.assertEqual(self.store.requests[-1][2]["x-amz-security-token"], "new")

    def test_certificates_and_names_are_still_read(self):
        """Both are read when a connection begins, long after the start; certificates that are replaced, too."""
        if not shutil.which("openssl"):
            self.skipTest("openssl is not installed")

        def certify():
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=localhost", "-addext",
                            "subjectAltName=DNS:localhost", "-keyout", self.dir / "key", "-out", self.dir / "new"], check=True, capture_output=True)
            (self.dir / "new").rename(self.dir / "ca.pem")
            context.load_cert_chain(self.dir / "ca.pem", self.dir / "key")

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certify()
        self.store.server.socket = context.wrap_socket(self.store.server.socket, server_side=True)
        variables = {"AWS_ENDPOINT_URL_S3": self.store.url.replace("http://127.0.0.1", "https://localhost"), "AWS_CA_BUNDLE": str(self.dir / "ca.pem"),
                     "no_proxy": "localhost", "LOADERD_CACHE_SIZE": SMALL_CACHE}

        def replace():
            certify()
            self.store.server.hang_up()

        with mock.patch.dict(os.environ, variables):
            self.assertEqual(self.hash_of(self.open(ADDRESS), self.in_the_middle(replace)), self.expected)

    def test_a_crash_leaves_no_core(self):
        def prepare():
            resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
            signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # a shell's background jobs inherit that it is ignored

        def crash():
            self.cache.mkdir()  # where Landlock would let it write a core
            process = subprocess.Popen([FETCH, "--socket", self.dir / "socket"], cwd=self.cache, stderr=subprocess.PIPE, text=True, preexec_fn=prepare)
            self.assertIn("sandbox", process.stderr.readline())
            process.send_signal(signal.SIGQUIT)  # no sanitizer catches it
            status = os.waitpid(process.pid, 0)[1]
            process.stderr.close()
            process.returncode = status
            return status

        hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
        if hard == 0:
            self.skipTest("core dumps are off")
        status = crash()
        self.assertTrue(os.WIFSIGNALED(status))
        self.assertFalse(os.WCOREDUMP(status))


GARBAGE = b"x" * 65536


def partial(size=None, given=None, headers=b"", body=None):
    """Answers 206 with the range that was asked for, but with other lengths, headers and bytes. Without a body: without an end."""

    def act(handler):
        first, last = map(int, handler.headers["Range"].removeprefix("bytes=").split("-"))
        data = next(iter(handler.store.objects.values()))
        handler.close_connection = True
        begin, end = given or (first, last)
        length = b"" if size is None else b"Content-Length: %d\r\n" % size
        with contextlib.suppress(OSError):
            handler.wfile.write(b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes %d-%d/%d\r\n" % (begin, end, len(data))
                                + length + headers + b"\r\n" + (body or b""))
            while body is None:
                handler.wfile.write(GARBAGE)
        return True

    return act


class HostileStores(Case):
    def fails(self, address, says, **where):
        """Reads until the feed ends with an error; the next feed, of an honest store, is none the worse."""
        start = self.in_the_middle(lambda: self.store.fail(where["act"], times=1 << 30), at=2)
        self.store.delay_s = 0.005
        with mock.patch.dict(os.environ, {"LOADERD_CACHE_SIZE": SMALL_CACHE, "LOADERD_FETCH_PATIENCE": "1"}):
            try:
                with self.assertRaisesRegex(loaderd.FeedError, says) as caught:
                    self.hash_of(self.open(address), start, epochs=50)
            finally:
                self.store.faults.clear()
            self.assertLess(len(str(caught.exception)), 700)
            self.open(address).close()
        self.assertEqual(len(self.fetchers()), 1, "the same fetcher goes on")
        return str(caught.exception)

    def test_replies_that_lie(self):
        whole = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << 40)
        for says, act in (("more than it has announced", partial()),
                          ("another range", partial(10, given=(0, 9), body=GARBAGE[:10])),
                          ("ignores requests for a part", object_store.raw(whole + GARBAGE)),
                          ("after [0-9]+ attempts", partial(1, body=b"x")),
                          ("after [0-9]+ attempts", partial(1 << 40, body=b"")),
                          ("headers are too long", partial(headers=b"X: " + b"y" * (1 << 20) + b"\r\n")),
                          ("have no end", partial(headers=b"X: y\r\n" * 1000000)),
                          ("Content-Encoding", partial(9, headers=b"Content-Encoding: gzip\r\n", body=b"123456789")),
                          ("was replaced", partial(9, headers=b'ETag: "other"\r\n', body=b"123456789"))):
            with self.subTest(says):
                self.fails(ADDRESS, says, act=act)

    def test_redirects(self):
        """Nothing that was signed is sent elsewhere, and nothing else than HTTP is read."""
        other = object_store.Store()
        self.addCleanup(other.close)
        other.put("data", "sets/a.pimg", self.path.read_bytes())

        def to(location):
            return object_store.status(302, headers=[("Location", location)])

        elsewhere = f"{other.url}/plain/data/sets/a.pimg"
        self.fails(ADDRESS, "redirects to another endpoint", act=to(elsewhere))
        self.assertEqual(other.requests, [])
        signed = f"{self.store.url}/plain/data/sets/a.pimg?X-Amz-Signature=secretsignature"
        for location in ("file:///etc/passwd", "ftp://127.0.0.1/a", "gopher://127.0.0.1/a", signed):
            with self.subTest(location):
                self.assertNotIn("secretsignature", self.fails(signed, "a.pimg[?][.]+: ", act=to(location)))
        self.store.fail(to(elsewhere), times=1 << 30)
        self.assertEqual(self.hash_of(self.open(signed)), self.expected)
        for _, path, headers in other.requests:
            self.assertNotIn("secretsignature", path + str(headers))
        self.assertNotEqual(other.requests, [])


class Secrets(Case):
    def test_signatures_are_not_shown(self):
        """Whoever has an address with a signature can read the dataset."""
        secret = "secretsignature"
        address = f"{self.store.url}/plain/data/sets/a.pimg?X-Amz-Signature={secret}"
        shown = []
        with mock.patch.object(_stream, "_FETCHING_S", 0), self.assertLogs("loaderd", "WARNING") as logs:
            _stream._Progress([address])(0, 1, True)
        with self.open(address) as feed:
            next(iter(feed))
            for arguments in (["remote"], ["--json", "remote"], ["--socket", feed.socket, "status"], ["--socket", feed.socket, "--json", "status"]):
                done = subprocess.run([os.environ["LOADERCTL"], *arguments], capture_output=True, text=True)
                shown.append(done.stdout + done.stderr)
            arguments = [pathlib.Path(f"/proc/{pid}/cmdline").read_bytes() for pid in self.fetchers()]
        for text in shown + logs.output:
            self.assertIn("a.pimg", text)
            self.assertNotIn(secret, text)
        self.assertNotIn(secret.encode(), b"".join(arguments))
        for path in self.cache.rglob("*"):
            self.assertFalse(path.is_file() and secret.encode() in path.read_bytes(), path)
        with self.assertRaises(loaderd.FeedError) as caught:
            self.open(address.replace("a.pimg", "none.pimg"))
        self.assertNotIn(secret, str(caught.exception))

    def test_passwords_of_proxies_are_not_shown(self):
        proxy = {"http_proxy": "http://user:secretpassword@[::1:80", "no_proxy": ""}
        with mock.patch.dict(os.environ, proxy), self.assertRaises(loaderd.FeedError) as caught:
            self.open(ADDRESS)
        self.assertNotIn("secretpassword", str(caught.exception))


class FullDisk(unittest.TestCase):
    """Runs the class below where its cache may be a file system of its own."""

    def test_in_a_mount_namespace(self):
        if subprocess.run([*MOUNTS, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode:
            self.skipTest("no file system can be mounted here")
        done = subprocess.run([*MOUNTS, sys.executable, __file__, "OnAFullDisk"], env={**os.environ, "STORE_FULL_DISK": "1"},
                              stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)


@unittest.skipUnless("STORE_FULL_DISK" in os.environ, "FullDisk runs it")
class OnAFullDisk(Case):
    def mount(self, size):
        self.cache.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", self.cache], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", self.cache], check=True)
        limit = mock.patch.dict(os.environ, {"LOADERD_CACHE_SIZE": "1G"})  # which the disk has not
        limit.start()
        self.addCleanup(limit.stop)

    def test_a_dataset_passes_through(self):
        self.mount("8m")
        self.assertEqual(self.hash_of(self.open(ADDRESS)), self.expected)

    def test_others_fill_the_disk_meanwhile(self):
        self.mount("20m")

        def fill():
            with contextlib.suppress(OSError), open(self.cache / "other", "wb") as file:
                file.write(bytes((20 << 20) - self.on_disk() - (1 << 20)))  # or all that is left

        self.store.delay_s = 0.01
        self.assertEqual(self.hash_of(self.open(ADDRESS), self.in_the_middle(fill, at=2)), self.expected)

    def test_a_set_of_several_files(self):
        draw = numpy.random.default_rng(2)
        with loaderd.Writer(self.dir / "s.pimg", "image: image u8[h,w,3]", shard_size=1 << 20) as writer:
            for _ in range(400):
                writer.add({"image": draw.integers(0, 256, (60, 60, 3), "u1")})
        shards = sorted(self.dir.glob("s-*.pimg"))
        self.assertGreater(len(shards), 2)
        for shard in shards:
            self.store.put("data", shard.name, shard.read_bytes())
        self.mount("2m")
        self.assertEqual(self.hash_of(self.open(f"s3://data/{shards[0].name}")), self.hash_of(self.open(shards[0])))

    def test_indexes_do_not_fit(self):
        self.mount("16k")
        with self.assertRaisesRegex(loaderd.FeedError, "a.pimg: no space is left on the disk of the cache, .*LOADERD_CACHE"):
            self.open(ADDRESS)

    def test_nothing_passes(self):
        self.mount("80k")
        with self.assertRaisesRegex(loaderd.FeedError, "no space is left on the disk of the cache, .*LOADERD_CACHE"):
            self.hash_of(self.open(ADDRESS))


if __name__ == "__main__":
    unittest.main()
