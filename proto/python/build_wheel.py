"""A PEP 517 back end that needs nothing from PyPI: Meson builds, and this packs a wheel with package and programs."""

import base64
import hashlib
import json
import os
import subprocess
import sysconfig
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
MODULES = sorted(name for name in os.listdir(os.path.join(HERE, "loaderd")) if name.endswith((".py", ".pyi", ".typed")))
EXTENSION = "proto/python/loaderd/_feed.abi3.so"
PROGRAMS = ("loaderd/loaderd", "tools/loaderctl/loaderctl", "tools/packimg/packimg")
OPTIONAL = PROGRAMS[1:]  # parts that Meson leaves out when a library is missing


# pip sets PYTHONPATH so that no package of the system's is seen; Meson may be one.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _run(*command):
    subprocess.run(command, check=True, env=_ENVIRONMENT)


def _build(folder, fresh):
    """Builds what the wheel holds; returns (version, programs)."""
    if fresh:
        _run("meson", "setup", folder, TOP, "--buildtype=release", "-Dpython=enabled", "-Dtests=disabled", "-Dman=disabled")
    described = json.loads(subprocess.check_output(["meson", "introspect", folder, "--projectinfo", "--targets"], env=_ENVIRONMENT))
    outputs = {os.path.relpath(name, os.path.abspath(folder)) for t in described["targets"] for name in t["filename"]}
    programs = [name for name in PROGRAMS if name in outputs or name not in OPTIONAL]
    _run("ninja", "-C", folder, EXTENSION, *programs)
    return described["projectinfo"]["version"], programs


def _record(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def _pack(path, folder, version, programs, tag):
    info = f"loaderd-{version}.dist-info"
    with open(os.path.join(HERE, "README.md")) as readme:
        metadata = (
            f"Metadata-Version: 2.1\nName: loaderd\nVersion: {version}\nRequires-Python: >=3.11\nLicense: MIT\n"
            "Summary: Batches of images for training, from a native daemon through shared memory\n"
            "Description-Content-Type: text/markdown\nProvides-Extra: numpy\nRequires-Dist: numpy; extra == 'numpy'\n"
            f"Provides-Extra: torch\nRequires-Dist: torch; extra == 'torch'\n\n{readme.read()}"
        )
    wheel = f"Wheel-Version: 1.0\nGenerator: loaderd\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files = [(f"loaderd/{name}", os.path.join(HERE, "loaderd", name), 0o644) for name in MODULES]
    files.append(("loaderd/_feed.abi3.so", os.path.join(folder, EXTENSION), 0o755))
    for name in programs:
        files.append((f"loaderd-{version}.data/scripts/{os.path.basename(name)}", os.path.join(folder, name), 0o755))
    record = ""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name, data, mode=0o644):
            nonlocal record
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
            record += _record(name, data)

        for name, source, mode in files:
            with open(source, "rb") as file:
                add(name, file.read(), mode)
        add(f"{info}/METADATA", metadata.encode())
        add(f"{info}/WHEEL", wheel.encode())
        record += f"{info}/RECORD,,\n"
        archive.writestr(zipfile.ZipInfo(f"{info}/RECORD", (1980, 1, 1, 0, 0, 0)), record)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    folder = (config_settings or {}).get("builddir")
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"cp311-abi3-{platform}"
    with tempfile.TemporaryDirectory(prefix="loaderd-build-") as fresh:
        version, programs = _build(folder or fresh, fresh=folder is None)
        name = f"loaderd-{version}-{tag}.whl"
        _pack(os.path.join(wheel_directory, name), folder or fresh, version, programs, tag)
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError("the package is built from the whole source tree; there is no source distribution")
