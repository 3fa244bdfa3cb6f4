"""Describes the machine of a measurement, its CPU and memory, and the commit measured."""

import os
import pathlib
import platform
import re
import subprocess

TREE = pathlib.Path(__file__).resolve().parent.parent.parent


def machine(cpus):
    model, flags = platform.processor(), set()
    for line in open("/proc/cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            model = value.strip()
        elif key.strip() == "flags":
            flags = set(value.split())
    isa = "avx512bw" if "avx512bw" in flags else "avx2" if "avx2" in flags else "c"
    if {"avx512bw", "avx512vbmi", "avx512_vnni"} <= flags:
        isa = "avx512"
    memory = int(re.search(r"MemTotal:\s+(\d+)", open("/proc/meminfo").read()).group(1)) >> 20
    return {
        "cpu": model, "isa": isa, "cores": len(os.sched_getaffinity(0)), "cores_used": len(cpus),
        "memory_gib": memory, "system": platform.platform(),
    }  # fmt: skip


def host_kind(host):
    name = re.sub(r"[^a-z0-9]+", "-", host["cpu"].lower()).strip("-") or platform.machine()
    return f"{host['cores']}-core-{name}-{host['isa']}"


def git(*words):
    return subprocess.run(["git", "-C", TREE, *words], check=True, capture_output=True, text=True).stdout.strip()


def revision():
    """The commit, and whether files other than results differ from it."""
    try:
        name = git("describe", "--always", "--abbrev=12")
        return name + ("-dirty" if git("status", "--porcelain", "-uno", "--", ".", ":!bench/results") else "")
    except (subprocess.CalledProcessError, OSError):
        return "unknown"
