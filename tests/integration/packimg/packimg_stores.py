"""Datasets in stores: reading, fetching and writing by S3 and HTTP; faults, refusals and hostile servers."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest
import unittest.mock

sys.path.append(str(pathlib.Path(__file__).parent.parent / "store"))
import object_store
from object_store import Store, raw, reset, short, status
from packimg_test import PACKIMG, PackimgTest

ADDRESS = "s3://data/sets/a b+c.pimg"
GARBAGE = b"x" * 65536


def endless(handler):
    """A body without an end, until the client hangs up."""
    try:
        handler.wfile.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        while True:
            handler.wfile.write(GARBAGE)
    except OSError:
        handler.close_connection = True
    return True


def endless_range(handler):
    """More than was announced and asked for."""
    try:
        handler.wfile.write(b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-1023/4096\r\n\r\n")
        while True:
            handler.wfile.write(GARBAGE)
    except OSError:
        handler.close_connection = True
    return True


def ranged(text, size=1024):
    return raw(f"HTTP/1.1 206 Partial\r\nContent-Length: {size}\r\nContent-Range: {text}\r\n\r\n".encode() + b"x" * size)


def hang_up(handler):
    handler.close_connection = True
    return True


class PackimgStores(PackimgTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.path = cls.images / "local.pimg"
        subprocess.run([PACKIMG, "convert", "-q", cls.tree, "-o", cls.path], check=True, stdout=subprocess.DEVNULL)
        noise = cls.images / "noise"
        noise.mkdir()
        for i in range(3):  # more than one part of an upload each
            (noise / f"{i}.ppm").write_bytes(b"P6 2000 1600 255\n" + os.urandom(2000 * 1600 * 3))
        cls.noise = noise

    def setUp(self):
        super().setUp()
        self.store = Store()
        self.addCleanup(self.store.close)
        self.store.put("data", "sets/a b+c.pimg", self.path.read_bytes())
        self.temporary = self.dir / "temporary"
        self.temporary.mkdir()

    def run_packimg(self, *args, rc=0, **variables):
        environment = {**os.environ, **self.store.environment(TMPDIR=str(self.temporary)), **variables}
        environment = {name: value for name, value in environment.items() if value is not None}
        out = self.packimg(*args, rc=rc, env=environment)
        self.assertEqual(list(self.temporary.iterdir()), [], "temporary files are left")
        return out

    def fails(self, *args, says, rc=2, **variables):
        self.run_packimg(*args, rc=rc, **variables)
        for text in [says] if isinstance(says, str) else says:
            self.assertIn(text, self.stderr)

    def left(self):
        return [p.name for p in self.dir.iterdir() if p != self.temporary]

    def test_reading_is_as_local(self):
        for address in (ADDRESS, f"{self.store.url}/plain/data/sets/a%20b+c.pimg"):
            local = json.loads(self.run_packimg("info", "--json", self.path))
            there = json.loads(self.run_packimg("info", "--json", address))
            local.pop("files"), there.pop("files")
            self.assertEqual(local, there)
            self.assertEqual(self.run_packimg("list", self.path), self.run_packimg("list", address))
            self.assertIn("all good", self.run_packimg("verify", "-q", address))
            self.run_packimg("extract", "-q", "--force", address, "-o", "back")
            self.same_images(self.dir / "back", self.tree)
            self.run_packimg("view", "-f", "-n", "3", address)

    def test_extract_fetches_what_it_needs(self):
        self.store.requests.clear()
        self.run_packimg("extract", "-q", "-i", "2", ADDRESS, "-o", "one")
        fetched = 0
        for _, _, headers in self.store.requests:
            first, last = map(int, headers["Range"].removeprefix("bytes=").split("-"))
            fetched += last - first + 1
        self.assertLess(fetched, self.path.stat().st_size)

    def test_fetch(self):
        self.run_packimg("fetch", ADDRESS)
        self.assertEqual((self.dir / "a b+c.pimg").read_bytes(), self.path.read_bytes())
        self.fails("fetch", ADDRESS, says="a b+c.pimg exists; --force replaces it")
        self.run_packimg("fetch", "-f", "-q", ADDRESS)
        self.run_packimg("fetch", ADDRESS, "-o", "other.pimg")
        self.assertEqual((self.dir / "other.pimg").read_bytes(), self.path.read_bytes())

    def test_fetch_of_a_set(self):
        self.convert(self.tree, "-o", "set.pimg", "--shard-size", "64K")
        shards = sorted(self.dir.glob("set-*.pimg"))
        self.assertGreater(len(shards), 1)
        for shard in shards:
            self.store.put("data", "s/" + shard.name, shard.read_bytes())
        self.run_packimg("fetch", f"s3://data/s/{shards[1].name}", "-o", "copy.pimg")
        for shard in shards:
            self.assertEqual((self.dir / shard.name.replace("set", "copy")).read_bytes(), shard.read_bytes())
        self.assertEqual(self.run_packimg("list", "set.pimg"), self.run_packimg("list", f"s3://data/s/{shards[0].name}"))
        del self.store.objects["data", "s/" + shards[1].name]
        self.fails("fetch", f"s3://data/s/{shards[0].name}", "-o", "half.pimg", says=[shards[1].name, "no such object"])
        self.assertEqual([name for name in self.left() if "half" in name], [])

    def put_set(self):
        """Makes a set of more than two shards of random pixels, always of the same sizes, and puts it into the store. Returns its paths."""
        source = self.dir / "pixels"
        source.mkdir(exist_ok=True)
        for i in range(9):
            (source / f"{i}.ppm").write_bytes(b"P6 90 90 255\n" + os.urandom(90 * 90 * 3))
        self.convert("--force", "--raw", source, "-o", "set.pimg", "--shard-size", "64K")
        shards = sorted(self.dir.glob("set-*.pimg"))
        self.assertGreater(len(shards), 2)
        for shard in shards:
            self.store.put("data", "s/" + shard.name, shard.read_bytes())
        return shards

    def gets(self, *arguments, **options):
        """Runs packimg, and returns its GETs: the objects' names."""
        before = len(self.store.requests)
        self.out = self.run_packimg(*arguments, **options)
        return [path.rpartition("/")[2] for method, path, _ in self.store.requests[before:] if method == "GET"]

    def test_sets_open_by_their_set_file(self):
        shards = self.put_set()
        one = f"s3://data/s/{shards[1].name}"
        names = [shard.name for shard in shards]
        self.assertEqual(sorted(self.gets("info", one)), sorted(["set.pimg.set"] + 2 * names), "header and sections of each")
        expected = self.out
        self.assertIn(f"s3://data/s/set.pimg.set: the headers of {len(shards)} shards", self.run_packimg("seal", "-q", one))
        self.assertEqual(len(self.store.objects["data", "s/set.pimg.set"]), 16 + 1032 * len(shards) + 8)
        for address in (one, "s3://data/s/set.pimg.set"):
            gets = self.gets("info", address)
            self.assertEqual((gets[0], sorted(gets[1:])), ("set.pimg.set", names))
            self.assertEqual(self.out.splitlines()[1:], expected.splitlines()[1:])
        self.run_packimg("verify", "-q", one)
        self.run_packimg("fetch", "-q", "s3://data/s/set.pimg.set", "-o", "copy.pimg")
        for shard in shards:
            self.assertEqual((self.dir / shard.name.replace("set", "copy")).read_bytes(), shard.read_bytes())
        self.packimg("seal", "set.pimg")
        self.assertEqual((self.dir / "set.pimg.set").read_bytes(), self.store.objects["data", "s/set.pimg.set"])

    def test_requests_for_shards_are_made_at_once(self):
        shards = self.put_set()
        self.store.delay_s = 0.1
        for sealed in (False, True):
            self.store.most_busy = 0
            self.run_packimg("info", f"s3://data/s/{shards[0].name}")
            self.assertEqual(self.store.most_busy, min(len(shards), 32), sealed)
            self.run_packimg("seal", "-q", f"s3://data/s/{shards[0].name}")

    def test_shards_that_are_not_those_of_the_set_file(self):
        shards = self.put_set()
        first, second = (f"s3://data/s/{shard.name}" for shard in shards[:2])
        self.run_packimg("seal", "-q", first)
        self.packimg("seal", "set.pimg")
        self.assertIn("all good", self.packimg("verify", "-q", "set.pimg"))
        old = self.store.objects["data", "s/" + shards[1].name]
        self.put_set()
        self.assertEqual(len(old), len(self.store.objects["data", "s/" + shards[1].name]))
        self.assertIn("set.pimg.set: shard 0 is not the one that it describes", self.packimg("verify", "-q", "set.pimg", rc=1))
        self.fails("info", first, says=["set.pimg.set describes", "with packimg seal"])
        self.run_packimg("seal", "-q", first)
        self.run_packimg("info", first)
        self.store.put("data", "s/" + shards[1].name, old + bytes(64))
        self.fails("info", first, says=[f"{shards[1].name} is not the shard that", "set.pimg.set describes", "with packimg seal"])
        self.fails("seal", second, says=shards[0].name)
        self.store.put("data", "s/set-00000-of-00003.pimg", old)
        self.fails("info", "s3://data/s/set-00000-of-00003.pimg", says=["set.pimg.set: has", "and that of 3 shards has 3120"])

    def test_set_files_that_are_damaged(self):
        shards = self.put_set()
        address = f"s3://data/s/{shards[0].name}"
        self.run_packimg("seal", "-q", address)
        good = self.store.objects["data", "s/set.pimg.set"]
        for data, says in ((good[:-1] + bytes([good[-1] ^ 1]), "its checksum does not match"), (b"x" + good[1:], "not a set file"),
                           (good[:8] + b"\2" + good[9:], "use a newer loaderd"), (good + b"x", "write it again with packimg seal")):
            self.store.put("data", "s/set.pimg.set", data)
            self.fails("info", address, says=["s/set.pimg.set", says])
        self.store.put("data", "s/set.pimg.set", good)
        self.store.fail(status(403, "AccessDenied"), part="set.pimg.set")  # of those who may not list
        self.run_packimg("info", address)
        self.fails("seal", ADDRESS, says="is not a set of shards")
        self.fails("seal", self.path, says="is not a set of shards")
        self.fails("seal", f"{self.store.url}/plain/data/s/{shards[0].name}", says="only s3:// addresses can be written")

    def test_names_of_sets_that_are_not_there(self):
        self.fails("info", "s3://data/s/none-00000-of-99999.pimg", says="s/none-00000-of-99999.pimg: no such object")
        self.fails("info", "s3://data/s/none.pimg.set", says="s/none.pimg.set: no such object")
        environment = self.store.environment(MALLOC_PERTURB_="0")  # which writes to all that is allocated
        with unittest.mock.patch.dict(os.environ, environment):
            self.assertLess(self.peak("info", "s3://data/s/none-00000-of-99999.pimg", rc=2), 64)

    def test_faults_that_pass(self):
        slow_down = status(503, "SlowDown")
        for acts in ([slow_down] * 4, [status(429, headers=[("Retry-After", "0")])] * 3, [reset] * 3, [short()] * 3, [short(0)] * 2,
                     [status(500), reset, short(0.9), status(504), status(400, "RequestTimeout")]):
            for act in acts:
                self.store.fail(act)
            out = self.run_packimg("fetch", "-f", "-q", ADDRESS, "-o", "copy.pimg")
            repeated = int(out.split(" repeated")[0].split()[-1])
            self.assertLessEqual(repeated, len(acts))  # libcurl repeats some by itself, on connections that it has used before
            self.assertGreater(repeated, 0)
            self.assertEqual((self.dir / "copy.pimg").read_bytes(), self.path.read_bytes())

    def test_faults_that_stay(self):
        self.store.fail(status(503, "SlowDown"), times=5)
        self.store.fail(reset, times=1000)
        self.fails("fetch", ADDRESS, "-o", "no.pimg", says=["reset by peer", "after 10 attempts", ADDRESS])
        self.assertEqual(self.left(), [])

    def test_refusals(self):
        self.fails("info", "s3://data/none.pimg", says="s3://data/none.pimg: no such object (NoSuchKey")
        self.fails("info", ADDRESS, says="access denied (SignatureDoesNotMatch", AWS_SECRET_ACCESS_KEY="wrong")
        self.fails("info", ADDRESS, says="access denied (InvalidAccessKeyId", AWS_ACCESS_KEY_ID="WRONG")
        self.fails("info", ADDRESS, says=["without credentials", "looked for some in"], AWS_ACCESS_KEY_ID=None,
                   AWS_SECRET_ACCESS_KEY=None)
        self.store.anonymous.add("data")
        self.run_packimg("info", ADDRESS, AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None)
        self.store.put("data", "empty.pimg", b"")
        self.fails("info", "s3://data/empty.pimg", says="s3://data/empty.pimg is empty")
        self.store.put("data", "text.pimg", b"hello " * 1000)
        self.fails("info", "s3://data/text.pimg", says="s3://data/text.pimg")

    def test_addresses(self):
        for address, says in (("gs://data/a.pimg", "AWS_ENDPOINT_URL_S3=https://storage.googleapis.com"),
                              ("az://data/a.pimg", "SAS token"), ("ftp://data/a.pimg", "s3://, https:// or http://"),
                              ("s3://data", "has no key"), ("s3:///a.pimg", "not the name of a bucket"),
                              ("s3://da ta/a.pimg", "not the name of a bucket"), ("s3://data/x/../a.pimg", "cannot be requested"),
                              ("https://user:pw@host/a.pimg", "every user of the machine can read"),
                              ("https://host/a b.pimg", "%20"), ("https://host/a.pimg#b", "%23"), ("https:///a.pimg", "has no host")):
            self.fails("info", address, says=says)
            self.assertNotIn("pw@", self.stderr)
        for name, value, says in (("AWS_ENDPOINT_URL_S3", "localhost:9000", "does not begin with https://"),
                                  ("AWS_REGION", "eu_1/x", "is not a name such as"),
                                  ("LOADERD_S3_ADDRESSING", "dns", "it is path or virtual"),
                                  ("AWS_SECRET_ACCESS_KEY", None, "set both or neither")):
            self.fails("info", ADDRESS, says=says, **{name: value})

    def test_no_secret_is_shown(self):
        address = f"{self.store.url}/plain/data/none.pimg?X-Amz-Signature=secretsignature"
        self.fails("info", address, says="none.pimg?...: no such object")
        self.assertNotIn("secretsignature", self.stderr)
        self.store.keys[object_store.KEY] = ("other", "")
        self.fails("info", ADDRESS, says="access denied")
        self.assertNotIn(object_store.SECRET, self.stderr)

    def test_profiles(self):
        credentials, config = self.dir / "credentials", self.dir / "config"
        credentials.write_text(f"[default]\naws_access_key_id = x\naws_secret_access_key = y\n[work]\n"
                               f"aws_access_key_id={object_store.KEY}\naws_secret_access_key = {object_store.SECRET}\n")
        config.write_text(f"[default]\nregion = nowhere-1\n[profile work]\nregion = {object_store.REGION}\n"
                          f"endpoint_url = {self.store.url}/\n[profile role]\nrole_arn = arn:x\n")
        files = {"AWS_CONFIG_FILE": str(config), "AWS_SHARED_CREDENTIALS_FILE": str(credentials), "AWS_ACCESS_KEY_ID": None,
                 "AWS_SECRET_ACCESS_KEY": None, "AWS_REGION": None, "AWS_ENDPOINT_URL_S3": None}
        self.run_packimg("info", ADDRESS, AWS_PROFILE="work", **files)
        self.fails("info", ADDRESS, says="profile role assumes a role (role_arn)", AWS_PROFILE="role", **files)
        self.fails("info", ADDRESS, says="AWS_PROFILE is none", AWS_PROFILE="none", **files)
        config.write_text("[profile work]\nthis is no setting\n")
        self.fails("info", ADDRESS, says=f"{config}: line 2", AWS_PROFILE="work", **files)

    def test_expired_credentials_are_read_again(self):
        credentials = self.dir / "credentials"

        def write(token):
            credentials.write_text(f"[default]\naws_access_key_id={object_store.KEY}\n"
                                   f"aws_secret_access_key={object_store.SECRET}\naws_session_token={token}\n")

        def expire(handler):
            write("new")
            self.store.keys[object_store.KEY] = (object_store.SECRET, "new")

        files = {"AWS_SHARED_CREDENTIALS_FILE": str(credentials), "AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None}
        write("old")
        self.store.keys[object_store.KEY] = (object_store.SECRET, "old")
        self.store.fail(lambda handler: None)
        self.store.fail(expire)  # before the second request
        self.run_packimg("verify", "-q", ADDRESS, **files)
        write("old")
        self.fails("info", ADDRESS, says="ExpiredToken", **files)

    def test_replaced_while_it_is_read(self):
        other = self.path.read_bytes()[:-64] + b"\1" * 64

        def replace(handler):
            self.store.put("data", "sets/a b+c.pimg", other)

        def replace_without_precondition(handler):
            replace(handler)
            self.store.preconditions = False

        for act in (replace, replace_without_precondition):
            self.store.put("data", "sets/a b+c.pimg", self.path.read_bytes())
            self.store.fail(lambda handler: None)
            self.store.fail(act)
            self.fails("fetch", ADDRESS, "-o", "no.pimg", says="was replaced while it was read")
        self.assertEqual(self.left(), [])

    def test_damaged_objects_get_no_name(self):
        data = bytearray(self.path.read_bytes())
        data[4096] ^= 1
        self.store.put("data", "bad.pimg", data)
        self.fails("fetch", "s3://data/bad.pimg", says="does not match its checksum")
        self.assertEqual(self.left(), [])

    def test_hostile_servers(self):
        size = self.path.stat().st_size
        bomb = "<!DOCTYPE a [<!ENTITY b 'bbbbbbbb'>]><Error><Code>&b;</Code></Error>"
        for act, says in ((endless, "have no end"), (endless_range, "more than it has announced"),
                          (raw("HTTP/1.1 200 OK\r\nX: " + "y" * (1 << 20) + "\r\n\r\n"), "headers are too long"),
                          (raw("HTTP/1.1 206 OK\r\n" + "".join(f"X{i}: {'y' * 9000}\r\n" for i in range(40)) + "\r\n"), "have no end"),
                          (ranged(f"bytes 1-1024/{size}"), "another range"), (ranged("bytes 0-2047/4096", 2048), "another range"),
                          (ranged("bytes 0-1023/*"), "does not say its size"), (ranged("bytes 0-1023/12"), "another range"),
                          (ranged("bytes 0-99999999999999999999/99999999999999999999"), "another range"),
                          (ranged("lines 0-1023/4096"), "another range"), (ranged(f"bytes 0-1023/{1 << 62}"), "bytes are too many"),
                          (raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nwholefile"), "ignores requests for a part"),
                          (raw(f"HTTP/1.1 403 No\r\nContent-Length: {len(bomb)}\r\n\r\n{bomb}"), "access denied with"),
                          (raw("HTTP/1.1 206 OK\r\nContent-Encoding: gzip\r\nContent-Range: bytes 0-9/10\r\nContent-Length: 10\r\n\r\n"
                               "0123456789"), "Content-Encoding"),
                          (raw("SMTP hello\r\n\r\n"), "HTTP/0.9")):
            self.store.fail(act, times=20)
            with self.subTest(says):
                self.fails("info", ADDRESS, says=says)
                self.assertLess(len(self.stderr), 700)
            self.store.faults.clear()

    def test_redirects(self):
        other = Store()
        self.addCleanup(other.close)
        other.put("data", "sets/a b+c.pimg", self.path.read_bytes())
        elsewhere = [("Location", f"{other.url}/plain/data/sets/a%20b+c.pimg")]
        self.store.fail(status(302, headers=elsewhere), times=1000)
        self.fails("info", ADDRESS, says="redirects to another endpoint")
        self.assertEqual(other.requests, [], "credentials went elsewhere")
        self.run_packimg("verify", "-q", f"{self.store.url}/plain/data/sets/a%20b+c.pimg")
        self.store.faults.clear()
        self.store.fail(status(302, headers=[("Location", "file:///etc/passwd")]), times=1000)
        self.fails("info", f"{self.store.url}/plain/x.pimg", says="x.pimg")
        self.store.faults.clear()
        self.store.fail(lambda handler: status(302, headers=[("Location", self.store.url + handler.path)])(handler), times=1000)
        self.fails("info", f"{self.store.url}/plain/x.pimg", says="redirects")

    def test_hostile_replies_to_uploads(self):
        """Nothing is sent to where they point, and no upload is left."""
        other = Store()
        self.addCleanup(other.close)
        upload_id = "<R><UploadId>" + "u" * (10 << 20) + "</UploadId></R>"
        bomb = "<!DOCTYPE a [<!ENTITY b '" + "b" * 1000 + "'><!ENTITY c '" + "&b;" * 1000 + "'>]><R><UploadId>" + "&c;" * 100 + "</UploadId></R>"
        deep = "<R>" * 100000

        def ok(body, headers=""):
            return raw(f"HTTP/1.1 200 OK\r\n{headers}Content-Length: {len(body)}\r\n\r\n{body}")

        moved = status(307, "TemporaryRedirect", headers=[("Location", other.url + "/data/noise.pimg")])
        for method, part, act, says in (("POST", "uploads", ok(upload_id), "have no end"), ("POST", "uploads", ok(bomb), "does not begin an upload"),
                                        ("POST", "uploads", ok(deep), "does not begin an upload"), ("POST", "uploads", endless, "have no end"),
                                        ("POST", "uploads", ok("<R><UploadId/></R>"), "does not begin an upload"),
                                        ("POST", "uploads", moved, "redirects to another endpoint"),
                                        ("PUT", "partNumber=2", moved, "redirects to another endpoint"),
                                        ("PUT", "partNumber=2", ok("", 'ETag: "<a>"\r\n'), "names a part by"),
                                        ("PUT", "partNumber=2", ok("", "X: " + "y" * (1 << 20) + "\r\n"), "headers are too long"),
                                        ("POST", "uploadId", endless, "have no end"), ("POST", "uploadId", moved, "redirects to another endpoint")):
            self.store.fail(act, method=method, part=part, times=1 << 30)
            with self.subTest(says, method=method):
                self.fails("convert", "-q", "--raw", self.noise, "-o", "s3://data/noise.pimg", says=says)
                self.assertLess(len(self.stderr), 700)
            self.store.faults.clear()
            self.assertEqual(self.store.uploads, {})
        self.assertEqual(other.requests, [])
        self.assertEqual(list(self.store.objects), [("data", "sets/a b+c.pimg")])

    def test_region_is_corrected(self):
        self.store.fail(status(301, "PermanentRedirect", headers=[("x-amz-bucket-region", object_store.REGION)]))
        self.run_packimg("info", ADDRESS, AWS_REGION="us-east-1")
        self.fails("info", ADDRESS, says="SignatureDoesNotMatch", AWS_REGION="us-east-1")

    def test_convert_into_a_store(self):
        self.run_packimg("convert", "-q", self.tree, "-o", "s3://data/new/small.pimg")
        self.convert(self.tree, "-o", "small.pimg")
        self.assertEqual(self.store.objects["data", "new/small.pimg"], (self.dir / "small.pimg").read_bytes())
        self.fails("convert", "-q", self.tree, "-o", "s3://data/new/small.pimg", says="s3://data/new/small.pimg exists; --force")
        self.run_packimg("convert", "-q", "--force", self.tree, "-o", "s3://data/new/small.pimg")
        self.fails("convert", "-q", self.tree, "-o", "https://host/small.pimg", says="only s3:// addresses can be written")
        self.fails("convert", "-q", self.tree, "-o", "s3://data/small", says="ends in .pimg")

    def test_large_objects_are_sent_in_parts(self):
        self.store.fail(status(503, "SlowDown"), method="PUT", times=2)
        self.store.fail(reset, method="PUT")
        self.run_packimg("convert", "-q", "--raw", self.noise, "-o", "s3://data/noise.pimg")
        self.convert("--raw", self.noise, "-o", "noise.pimg")
        self.assertEqual(self.store.objects["data", "noise.pimg"], (self.dir / "noise.pimg").read_bytes())
        self.assertEqual(sum("partNumber=" in path for method, path, _ in self.store.requests if method == "PUT"), 4 + 3)
        self.assertEqual(self.store.uploads, {})

    def test_nothing_is_left_of_a_failed_upload(self):
        self.store.fail(status(403, "AccessDenied"), method="PUT", part="partNumber=2")
        self.fails("convert", "-q", "--raw", self.noise, "-o", "s3://data/noise.pimg", says="access denied (AccessDenied")
        self.store.fail(status(200, "InvalidPart"), method="POST", part="uploadId")
        self.fails("convert", "-q", "--raw", self.noise, "-o", "s3://data/noise.pimg", says="InvalidPart")
        self.store.faults.clear()
        self.store.fail(status(403, "AccessDenied"), method="PUT", part="00000-of")
        self.fails("convert", "-q", self.tree, "--shard-size", "64K", "-o", "s3://data/set.pimg", says="access denied")
        self.assertEqual(list(self.store.objects), [("data", "sets/a b+c.pimg")])
        self.assertEqual(self.store.uploads, {})

    def test_a_set_is_complete_when_its_set_file_appears(self):
        self.run_packimg("convert", "-q", self.tree, "--shard-size", "64K", "-o", "s3://data/set.pimg")
        *sent, last = [path for method, path, _ in self.store.requests if method == "PUT"]
        self.assertGreater(len(sent), 1)
        self.assertEqual(sent, sorted(sent, reverse=True))
        self.assertEqual(last, "/data/set.pimg.set")
        self.assertIn("all good", self.run_packimg("verify", "-q", "s3://data" + sent[-1].removeprefix("/data")))
        sealed = self.store.objects["data", "set.pimg.set"]
        self.run_packimg("seal", "-q", "s3://data" + sent[-1].removeprefix("/data"))
        self.assertEqual(self.store.objects["data", "set.pimg.set"], sealed)
        self.fails("convert", "-q", self.tree, "--shard-size", "64K", "-o", "s3://data/set.pimg", says="set.pimg.set exists; --force")
        self.store.fail(status(403, "AccessDenied"), method="PUT", part="00000-of")
        self.fails("convert", "-q", "--force", self.tree, "--shard-size", "64K", "-o", "s3://data/set.pimg", says="access denied")
        self.assertNotIn(("data", "set.pimg.set"), self.store.objects, "it would describe shards that are gone")

    def test_interrupts_leave_nothing(self):
        for arguments, method in ((["convert", "-q", "--raw", self.noise, "-o", "s3://data/noise.pimg"], "PUT"),
                                  (["fetch", ADDRESS, "-o", "no.pimg"], "GET")):
            environment = {**os.environ, **self.store.environment(TMPDIR=str(self.temporary))}
            process = subprocess.Popen([PACKIMG, *map(str, arguments)], cwd=self.dir, env=environment, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE)

            def interrupt(handler):
                process.send_signal(signal.SIGINT)
                return hang_up(handler)

            self.store.fail(interrupt, method=method)  # a second signal would end packimg at once
            self.store.fail(hang_up, method=method, times=1000)
            _, stderr = process.communicate()
            self.assertEqual(process.returncode, -signal.SIGINT, stderr)
            self.store.faults.clear()
            self.assertEqual((self.left(), list(self.temporary.iterdir()), self.store.uploads), ([], [], {}))


if __name__ == "__main__":
    unittest.main()
