"""A link of limited rate: a network namespace behind a pair of virtual interfaces and a token bucket. Needs root, iproute2 and tbf in the kernel."""

import contextlib
import os
import subprocess

HERE, THERE = "198.18.0.1", "198.18.0.2"  # of the range for benchmarks, RFC 2544
PAYLOAD = 1448 / 1514  # of an Ethernet frame: headers of Ethernet, IP and TCP with time stamps


def ip(*words):
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def limited(mbit):
    """Gives the words that run a program behind the link, and its address there."""
    name = f"loaderd-{os.getpid()}"
    near, far = f"ld{os.getpid()}a", f"ld{os.getpid()}b"
    within = ["ip", "netns", "exec", name]
    ip("netns", "add", name)
    try:
        ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", name)
        ip("address", "add", f"{HERE}/30", "dev", near)
        ip("link", "set", near, "up")
        ip("-n", name, "address", "add", f"{THERE}/30", "dev", far)
        ip("-n", name, "link", "set", far, "up")
        subprocess.run([*within, "tc", "qdisc", "add", "dev", far, "root", "tbf", "rate", f"{mbit}mbit", "burst", "256kb", "latency", "50ms"], check=True)
        yield within, THERE
    finally:
        ip("netns", "delete", name)
