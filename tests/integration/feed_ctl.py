"""loaderctl ($LOADERCTL): every command against the fake daemon ($FAKE_LOADERD), and stop against the real one ($LOADERD)."""

import json
import os
import shutil
import signal
import socket as sockets
import subprocess
import tempfile
import time
import unittest

import loaderd

LOADERCTL = os.environ["LOADERCTL"]


def ctl(daemon, *arguments, **options):
    return subprocess.run(
        [LOADERCTL, "-s", daemon.socket, *arguments], capture_output=True, text=True, timeout=120, **options
    )


class Fake(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = loaderd.Daemon(binary=os.environ["FAKE_LOADERD"])

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()

    def expect_success(self, *arguments, **options):
        result = ctl(self.daemon, *arguments, **options)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return result.stdout

    def test_status(self):
        text = self.expect_success()
        self.assertEqual(text, self.expect_success("status"))
        for line in (
            f"loaderd 0.1.0-fake, pid {self.daemon.pid}, up 1 h 2 min, 2 threads 25 % idle, c, 11.8 MiB shared\n",
            "  dataset   /data/train.pimg\n",
            "  position  epoch 3, batch 41, batch size 256\n",
            "  images    1,234,567 delivered, 2 bad\n",
            "  slots     4: 2 ready, 1 held; 11.8 MiB\n",
            "  waited    client 1.5 s, daemon 1 min 0 s: the client is the limit\n",
            "  work      read 10 %, decode 60 %, resize 20 %, augment 3 %, store 5 %, other 2 % of 10.0 s CPU time\n",
            "  threads   waited 0.2 s for stored bytes, 1 min 30 s for a CPU\n",
            "\n1 bad sample, see loaderctl bad\n",
        ):
            self.assertIn(line, text)

    def test_output_is_safe_for_terminals(self):
        text = self.expect_success()
        for evil in "\x1b\x9b\x7f\u202e":
            self.assertNotIn(evil, text)
            self.assertNotIn(evil, self.expect_success("--json"))
        self.assertIn("feed 17  train \\x1b[31mred\\u009b\\x7f\\u202e\\x0afeed  pid ", text)

    def test_json(self):
        status = json.loads(self.expect_success("--json"))
        self.assertEqual((status["pid"], status["uptime_ns"]), (self.daemon.pid, 3723 * 10**9))
        feed = status["feeds"][0]
        self.assertEqual((feed["feed_id"], feed["name"], feed["decode_ns"]), (17, "train \x1b[31mred\x9b\x7f\u202e\nfeed", 6 * 10**9))
        self.assertEqual((feed["store_ns"], feed["wait_ns"], feed["queued_ns"]), (5 * 10**8, 25 * 10**7, 90 * 10**9))
        self.assertEqual(status["idle_ns"], 1861500 * 10**6)
        self.assertEqual(json.loads(self.expect_success("bad", "--json")), status["bad"])
        facts = json.loads(self.expect_success("dataset", "some.pimg", "--json"))
        self.assertEqual((facts["samples"], facts["class_names"][9]), (320, "class 9"))
        self.assertEqual((facts["mean"], facts["metadata"]), ([123.5, 116.25, 103.75], {"made": "by hand", "note": "a=b"}))
        self.assertEqual(facts["path"], os.path.join(os.getcwd(), "some.pimg"))

    def test_bad_and_dataset(self):
        self.assertEqual(
            self.expect_success("bad"), "/data/train.pimg: sample 99 (n01440764/x.JPEG): truncated after row 12 (3 times)\n"
        )
        text = self.expect_success("dataset", "/some.pimg")
        self.assertIn("/some.pimg\n  samples   320\n", text)
        self.assertIn("mean 123.50 116.25 103.75, standard deviation 58.00 57.00 57.50", text)
        self.assertIn("classes   10: class 0, class 1,", text)
        self.assertIn("\n  metadata  made=by hand\n            note=a=b\n", text)

    def test_watch(self):
        command = [LOADERCTL, "-s", self.daemon.socket, "--watch=0.05", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            lines = [json.loads(process.stdout.readline()) for _ in range(4)]
            process.terminate()
        self.assertEqual([line["pid"] for line in lines], [self.daemon.pid] * 4)

    def test_watched_differences(self):
        """From the second status on, shows the interval since the previous one, not since the start."""
        os.environ["FAKE_STATUS"] = "advancing"
        try:
            daemon = loaderd.Daemon(binary=os.environ["FAKE_LOADERD"])
        finally:
            del os.environ["FAKE_STATUS"]
        with daemon:
            command = [LOADERCTL, "-s", daemon.socket, "--watch=0.05"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                text = ""
                for line in process.stdout:
                    text += line
                    if text.count("see loaderctl bad\n") == 3:
                        break
                process.terminate()
        first, *later = text.split("see loaderctl bad\n")[:3]
        self.assertNotIn("/s\n", first)
        for status in later:
            for line in (
                "2 threads 45 % idle",
                " delivered, 2 bad, 2500/s\n",
                "  waited    client 1.0 s, daemon 2.0 s: ",
                "  work      read 10 %, decode 40 %, resize 20 %, augment 3 %, store 7 %, other 20 % of 2.0 s CPU time\n",
                "  threads   waited 3.0 s for stored bytes, 4.0 s for a CPU\n",
            ):
                self.assertIn(line, status)

    def test_mistakes(self):
        for arguments, code, text in (
            (["dataset"], 2, "the path of a dataset is required"),
            (["nonsense"], 2, "unknown command nonsense; use status, bad, dataset, remote, clear or stop"),
            (["status", "x"], 2, "x: unexpected argument"),
            (["--watch=0"], 2, "a number of seconds"),
            (["bad", "--watch"], 2, "--watch requires status"),
            (["dataset", "missing"], 1, "loaderctl: dataset: there is no file of that name"),
            (["-s", "@nobody"], 1, "loaderctl: No daemon listens on @nobody."),
        ):
            result = ctl(self.daemon, *arguments)
            self.assertEqual((result.returncode, result.stdout), (code, ""))
            self.assertIn(text, result.stderr)

    def test_the_socket_from_the_environment(self):
        result = subprocess.run(
            [LOADERCTL], env={**os.environ, "LOADERD_SOCKET": self.daemon.socket}, capture_output=True, text=True
        )
        self.assertEqual(result.stdout, self.expect_success())

    def test_version(self):
        self.assertRegex(self.expect_success("--version"), r"^loaderctl \d+\.\d+\.\d+\n$")

    def test_a_full_disk_is_noticed(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([LOADERCTL, "-s", self.daemon.socket], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(result.returncode, 1)


class OwnSocket(unittest.TestCase):
    """A daemon and clients without --socket, without root privileges."""

    UID = os.geteuid() or 54331

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="loaderd-own-")
        self.addCleanup(shutil.rmtree, self.folder)
        os.chmod(self.folder, 0o755)
        self.lasting = f"/tmp/loaderd-{self.UID}"
        if os.path.lexists(self.lasting):
            self.skipTest(f"{self.lasting} is somebody's")
        self.session = os.path.join(self.folder, "session")
        os.mkdir(self.session, 0o700)
        os.chown(self.session, self.UID, -1)
        self.environment = {k: v for k, v in os.environ.items() if k not in ("LOADERD_SOCKET", "XDG_RUNTIME_DIR")}
        for program in (os.environ["LOADERD"], LOADERCTL):
            shutil.copy(program, self.folder)

    def command(self, program, *arguments, session=None, **options):
        how = {"user": self.UID, "group": self.UID, "extra_groups": []} if os.geteuid() == 0 else {}
        environment = self.environment | ({"XDG_RUNTIME_DIR": session} if session else {})
        return subprocess.Popen(
            [os.path.join(self.folder, program), *arguments],
            env=environment, cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how, **options,
        )  # fmt: skip

    def run_command(self, *arguments, **options):
        process = self.command(*arguments, **options)
        output, errors = process.communicate(timeout=120)
        return process.returncode, output + errors

    def serve(self, session, expected, *clients):
        daemon = self.command("loaderd", "--config", "/dev/null", session=session)
        try:
            while not os.path.exists(expected) and daemon.poll() is None:
                time.sleep(0.01)
            self.assertTrue(os.path.exists(expected), expected)
            for client in clients:
                code, text = self.run_command("loaderctl", session=client)
                self.assertEqual(code, 0, text)
                self.assertIn("loaderd", text)
            self.assertEqual(self.run_command("loaderctl", "stop", session=clients[0]), (0, ""))
            self.assertEqual(daemon.wait(60), 0)
        finally:
            daemon.kill()
            daemon.communicate()
        self.assertFalse(os.path.exists(expected))

    def test_session(self):
        self.serve(self.session, self.session + "/loaderd.sock", self.session)

    def test_without_a_session(self):
        self.addCleanup(shutil.rmtree, self.lasting, True)
        self.serve(None, self.lasting + "/loaderd.sock", None, self.session)
        self.assertEqual(os.stat(self.lasting).st_mode & 0o777, 0o700)
        # a folder left by a process that changed its user, one that others can write, and one with a path too long for a socket
        for folder, mode, owner in (("other", 0o700, self.UID + 1), ("open", 0o777, self.UID), ("x" * 200, 0o700, self.UID)):
            path = os.path.join(self.folder, folder)
            os.mkdir(path)
            os.chmod(path, mode)
            if os.geteuid() == 0:
                os.chown(path, owner, -1)
            if os.geteuid() == 0 or owner == self.UID:
                self.serve(path, self.lasting + "/loaderd.sock", path)

    def test_link_to_ones_own_folder(self):
        """The owner of a symbolic link can redirect it between two lookups."""
        self.addCleanup(shutil.rmtree, self.lasting, True)
        link = os.path.join(self.folder, "link")
        os.symlink(self.session, link)
        self.serve(link, self.lasting + "/loaderd.sock", link)

    def test_somebody_elses_folder(self):
        self.addCleanup(shutil.rmtree, self.lasting, True)
        os.mkdir(self.lasting)
        os.chmod(self.lasting, 0o777)  # as an attacker would, who wants to pose as the daemon
        code, text = self.run_command("loaderd", "--config", "/dev/null")
        self.assertEqual(code, 1)
        self.assertIn(f"{self.lasting}/loaderd.sock: its folder does not belong to this user alone; choose another socket with --socket", text)
        with sockets.socket(sockets.AF_UNIX) as listener:
            listener.bind(self.lasting + "/loaderd.sock")
            listener.listen()
            if os.geteuid() == 0:
                os.chown(self.lasting + "/loaderd.sock", self.UID, -1)  # even if the user owned the socket
            _, text = self.run_command("loaderctl")
            self.assertNotIn(self.lasting, text)
            self.assertIn("/run/loaderd/loaderd.sock", text)

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be two users")
    def test_nobody(self):
        """In a user namespace without a mapping of the uid, all other users' folders appear to belong to the user."""
        with open("/proc/sys/kernel/overflowuid") as file:
            nobody = int(file.read())
        lasting = f"/tmp/loaderd-{nobody}"
        if os.path.lexists(lasting):
            self.skipTest(f"{lasting} is somebody's")
        os.mkdir(lasting, 0o755)
        self.addCleanup(shutil.rmtree, lasting)
        os.chown(lasting, self.UID + 1, -1)
        with sockets.socket(sockets.AF_UNIX) as listener:
            listener.bind(lasting + "/loaderd.sock")
            listener.listen()
            os.chown(lasting + "/loaderd.sock", self.UID + 1, -1)
            os.chmod(lasting + "/loaderd.sock", 0o777)
            client = subprocess.run(
                ["setpriv", f"--reuid={self.UID}", f"--regid={self.UID}", "--clear-groups", "unshare", "--user", os.path.join(self.folder, "loaderctl")],
                env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
            )  # fmt: skip
        if "unshare" in client.stdout:
            self.skipTest(client.stdout)
        self.assertNotIn(lasting, client.stdout)
        self.assertIn("/run/loaderd/loaderd.sock", client.stdout)


def ask(how, *arguments):
    """Asks a fake daemon for a status of its own."""
    os.environ["FAKE_STATUS"] = how
    try:
        daemon = loaderd.Daemon(binary=os.environ["FAKE_LOADERD"])
    finally:
        del os.environ["FAKE_STATUS"]
    try:
        return ctl(daemon, *arguments)
    finally:
        daemon.stop()


class Orders(unittest.TestCase):
    def test_text(self):
        text = ask("orders").stdout
        self.assertIn(
            "  order     3 of every 4 samples from /data/\\x1b[31mred.pimg: 42,000 of 1,281,167 samples, chosen by a filter, classes equally likely\n"
            "            no samples from /data/whole.pimg: all 1 sample\n"
            "            and 5 more datasets\n"
            "            stage 2 of 3\n"
            "  buckets   1: 512x2048 (1 sample)\n"
            "  packs     batches of at most 4,096 tokens, 1,000 in an epoch over all ranks\n"
            "  position  epoch 3,",
            text,
        )
        self.assertIn("  opening   1,000 of 4,000 samples examined\n\n1 bad sample", text)

    def test_json(self):
        first, second = json.loads(ask("orders", "--json").stdout)["feeds"]
        order = first["order"]
        self.assertEqual([part["chosen"] for part in order["parts"]], [42000, 1])
        self.assertEqual((order["parts"][0]["choice"]["where"], order["parts"][1]["choice"]), ("label < 5", None))
        self.assertEqual((order["batch_tokens"], order["epoch_batches"]), (4096, 1000))
        self.assertEqual((order["stage"], order["buckets"]), (1, [{"width": 512, "height": 2048, "batch_size": 0}]))
        self.assertEqual((first["opening"], second["order"], second["opening"]), (None, None, {"done": 1000, "total": 4000}))


class CompromisedDaemon(unittest.TestCase):
    """A compromised daemon."""

    def test_feeds_without_end(self):
        for arguments in ((), ("--json",), ("bad",)):
            result = ask("many", *arguments)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn("lists 200000 feeds and 1 bad samples: no daemon has more than 1024.", result.stderr)

    def test_numbers_without_end(self):
        text = ask("wild").stdout
        self.assertIn("  images    18,446,744,073,709,551,615 delivered", text)
        status = json.loads(ask("wild", "--json").stdout)
        self.assertEqual(status["feeds"][0]["images"], 2.0**64)
        facts = json.loads(ask("wild", "dataset", "some.pimg", "--json").stdout)
        self.assertEqual(facts["mean"], [123.5, None, 103.75])


    def test_a_sentence_that_is_cut(self):
        daemon = loaderd.Daemon(binary=os.environ["FAKE_LOADERD"])
        for script in ("verbose-2", "verbose-3"):
            with loaderd.Feed(script, batch_size=8, socket=daemon.socket) as feed:
                with self.assertRaises(loaderd.BadOption) as caught:
                    while True:
                        feed.next()
            self.assertIn("\u00e9\u00e9\u00e9", str(caught.exception))
        daemon.stop()

    def test_a_value_that_nests_without_end(self):
        from loaderd._batch import _parsed

        self.assertIsNone(_parsed(b"[" * 60000))


class Real(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.socket = os.path.join(self.folder.name, "s")
        self.process = subprocess.Popen([os.environ["LOADERD"], "--config", "/dev/null", "--socket", self.socket])
        while self.ctl().returncode != 0:
            time.sleep(0.01)

    def tearDown(self):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def ctl(self, *arguments):
        return subprocess.run([LOADERCTL, "-s", self.socket, *arguments], capture_output=True, text=True, timeout=120)

    def test_all_tells_of_the_service(self):
        own = json.loads(self.ctl("--json").stdout)
        self.assertNotEqual(own["pid"], self.process.pid)
        os.kill(own["pid"], signal.SIGKILL)
        while (everybody := json.loads(self.ctl("--all", "--json").stdout))["threads"] > 0:
            time.sleep(0.01)
        self.assertEqual(everybody["pid"], self.process.pid)
        self.assertGreater(everybody["uptime_ns"], own["uptime_ns"])
        self.assertRegex(self.ctl("--all").stdout, rf"^loaderd \S+, pid {self.process.pid}, up [^,]+, \w+, 0 bytes shared\nno feeds\n$")

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be two users")
    def test_the_administrators_socket_is_closed(self):
        os.chmod(self.folder.name, 0o755)
        program = shutil.copy(LOADERCTL, self.folder.name)
        for arguments, remedy in (
            (("--all",), "Without --all, loaderctl shows this user's own feeds."),
            (("stop",), "One of them has to stop the daemon."),
        ):
            result = subprocess.run([program, "-s", self.socket, *arguments], user=54331, group=54331, extra_groups=[],
                                    cwd="/", capture_output=True, text=True, timeout=120)  # fmt: skip
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertEqual(
                result.stderr,
                f"loaderctl: Only root and the daemon's own user may use "
                f"the administrator's socket {self.socket}.admin. {remedy}\n",
            )
        os.unlink(program)

    def test_stop(self):
        self.assertIn("no feeds\n", self.ctl().stdout)
        self.assertEqual(self.ctl("bad").stdout, "no bad samples\n")
        result = self.ctl("stop")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "", ""))
        self.assertEqual(self.process.wait(10), 0)
        self.assertEqual(self.ctl().returncode, 1)
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_all(self):
        status = json.loads(self.ctl("--all", "--json").stdout)
        self.assertEqual((status["pid"], status["feeds"]), (self.process.pid, []))
        self.assertNotEqual(json.loads(self.ctl("--json").stdout)["pid"], self.process.pid)

    def test_private_daemons_end_with_their_clients_alone(self):
        with loaderd.Daemon() as daemon:
            result = ctl(daemon, "stop")
            self.assertEqual((result.returncode, ctl(daemon).returncode), (1, 0))


if __name__ == "__main__":
    unittest.main()
