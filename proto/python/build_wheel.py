"""PEP 517 back end without dependencies on PyPI (from Python 3.11 on). Meson builds; this packs the wheel, with package and programs, or the sdist."""

import base64
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sysconfig
import tarfile
import tempfile
import time
import zipfile

try:
    import tomllib
except ImportError:  # Python 3.9 and 3.10; pyproject.toml requires it there
    import tomli as tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
PACKAGE = os.path.join(HERE, "loaderd")
MODULES = sorted(
    os.path.relpath(os.path.join(folder, name), PACKAGE)
    for folder, _, names in os.walk(PACKAGE)
    for name in names
    if name.endswith((".py", ".pyi", ".typed"))
)
EXTENSION, WRITER = "proto/python/loaderd/_feed.abi3.so", "proto/python/loaderd/_packimg.abi3.so"
# Installed inside the package, so that they find each other; loaderd/_programs.py has the entry points on PATH.
PROGRAMS = ("loaderd/loaderd", "tools/loaderctl/loaderctl", "tools/packimg/packimg", "bench/loaderbench", "trainer/trainer")
PLUGINS = ("trainer/comm_mpi.so", "trainer/driver_stand_in.so")  # loaded by the trainer
OPTIONAL = (*PROGRAMS[1:], *PLUGINS, WRITER)  # parts that Meson leaves out when a library is missing
DATA = ("trainer/devices", "trainer/recipes")
# Shell completions: (template, destination)
COMPLETIONS = (
    ("loaderd", "bash-completion/completions/@PROGRAM@"),
    ("zsh.in", "zsh/site-functions/_@PROGRAM@"),
    ("fish.in", "fish/vendor_completions.d/@PROGRAM@.fish"),
)

# pip's PYTHONPATH hides the system's packages, of which Meson may be one.
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def _run(*command):
    subprocess.run(command, check=True, env=_ENVIRONMENT)


def _read(path):
    with open(path, "rb") as file:
        return file.read()


def _version():
    return re.search(r"^\tversion: '(.*)',$", _read(os.path.join(TOP, "meson.build")).decode(), re.MULTILINE).group(1)


def _build(folder, setup):
    """Builds the wheel's contents, in a new folder if there are arguments to set one up. Returns the parts that were built, and the manual pages."""
    if setup is not None:
        _run("meson", "setup", folder, TOP, "--buildtype=release", "-Dpython=enabled", "-Dtests=disabled", *setup)
    described = json.loads(subprocess.check_output(["meson", "introspect", folder, "--targets"], env=_ENVIRONMENT))
    outputs = {os.path.relpath(name, os.path.abspath(folder)) for target in described for name in target["filename"]}
    parts = [name for name in (*PROGRAMS, *PLUGINS, WRITER) if name in outputs or name not in OPTIONAL]
    # manual pages of programs, file formats and the protocol; not section 3, because a wheel has no libfeed
    custom = [name for target in described if target["type"] == "custom" for name in target["filename"]]
    pages = sorted(os.path.relpath(name, os.path.abspath(folder)) for name in custom if re.search(r"\.[157]$", name))
    _run("ninja", "-C", folder, EXTENSION, *parts, *pages)
    return parts, pages


def _metadata():
    with open(os.path.join(HERE, "pyproject.toml"), "rb") as file:
        project = tomllib.load(file)["project"]
    lines = ["Metadata-Version: 2.4", f"Name: {project['name']}", f"Version: {_version()}", f"Summary: {project['description']}"]
    lines += [f"Requires-Python: {project['requires-python']}", f"License-Expression: {project['license']}", "License-File: LICENSE"]
    for label, address in project.get("urls", {}).items():
        lines.append(f"Project-URL: {label}, {address}")
    lines += [f"Author: {', '.join(author['name'] for author in project['authors'])}", f"Keywords: {','.join(project['keywords'])}"]
    lines += [f"Classifier: {classifier}" for classifier in project["classifiers"]]
    for extra, wanted in project["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}", *(f"Requires-Dist: {package}; extra == '{extra}'" for package in wanted)]
    lines += ["Description-Content-Type: text/markdown", "", _read(os.path.join(HERE, "README.md")).decode()]
    return "\n".join(lines).encode()


def _record(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def pack(path, files, info):
    """Writes a wheel of {name: (bytes, mode)} with its RECORD: the same bytes for the same files."""
    record = "".join(_record(name, files[name][0]) for name in sorted(files)) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        # .dist-info comes last: tools that read only a wheel's end look for it there
        names = sorted(files, key=lambda name: (name.startswith(info), name))
        for name, (data, mode) in [(name, files[name]) for name in names] + [(f"{info}/RECORD", (record.encode(), 0o644))]:
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)


def _share(folder, commands, pages):
    """{path below share: bytes} of manual pages, completions, and the trainer's data files."""
    files = {f"man/man{name[-1]}/{os.path.basename(name)}": _read(os.path.join(folder, name)) for name in pages}
    for command in commands:
        for template, to in COMPLETIONS:
            text = _read(os.path.join(TOP, "tools/completions", template))
            files[to.replace("@PROGRAM@", command)] = text.replace(b"@PROGRAM@", command.encode())
    for source in DATA if "trainer" in commands else ():
        for name in os.listdir(os.path.join(TOP, source)):
            files[f"loaderd/{os.path.basename(source)}/{name}"] = _read(os.path.join(TOP, source, name))
    return files


def _files(folder, version, parts, pages, tag):
    info = f"loaderd-{version}.dist-info"
    files = {f"loaderd/{name}": (_read(os.path.join(PACKAGE, name)), 0o644) for name in MODULES}
    files["loaderd/_feed.abi3.so"] = (_read(os.path.join(folder, EXTENSION)), 0o755)
    for name in parts:
        files[f"loaderd/{'' if name == WRITER else 'bin/'}{os.path.basename(name)}"] = (_read(os.path.join(folder, name)), 0o755)
    commands = [os.path.basename(name) for name in parts if name in PROGRAMS]
    for name, data in _share(folder, commands, pages).items():
        files[f"loaderd-{version}.data/data/share/{name}"] = (data, 0o644)
    points = "[console_scripts]\n" + "".join(f"{name} = loaderd._programs:{name}\n" for name in sorted(commands))
    wheel = f"Wheel-Version: 1.0\nGenerator: loaderd\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files[f"{info}/METADATA"] = (_metadata(), 0o644)
    files[f"{info}/WHEEL"] = (wheel.encode(), 0o644)
    files[f"{info}/entry_points.txt"] = (points.encode(), 0o644)
    files[f"{info}/licenses/LICENSE"] = (_read(os.path.join(TOP, "LICENSE")), 0o644)
    return files, info


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise SystemExit("loaderd: its extension is written in the limited API, which free-threaded Python does not have: use a build with the GIL")
    settings = config_settings or {}
    folder, setup = settings.get("builddir"), settings.get("setup-args", [])
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag, version = f"cp39-abi3-{platform}", _version()
    with tempfile.TemporaryDirectory(prefix="loaderd-build-") as fresh:
        parts, pages = _build(folder or fresh, None if folder else [setup] if isinstance(setup, str) else setup)
        name = f"loaderd-{version}-{tag}.whl"
        pack(os.path.join(wheel_directory, name), *_files(folder or fresh, version, parts, pages, tag))
    return name


def _tracked_files():
    """The files that git tracks; in a tree without git, all files except build folders."""
    if os.path.exists(os.path.join(TOP, ".git")):
        return subprocess.check_output(["git", "-C", TOP, "ls-files", "-z"], text=True).split("\0")[:-1]
    names = []
    for folder, folders, files in os.walk(TOP):
        folders[:] = [name for name in folders if name != "__pycache__" and not (folder == TOP and name.startswith("build"))]
        names += [os.path.relpath(os.path.join(folder, name), TOP) for name in files]
    return names


def build_sdist(sdist_directory, config_settings=None):
    """The tree, with pyproject.toml at its top. Timestamps are $SOURCE_DATE_EPOCH, or the time of the last commit."""
    version = _version()
    base = f"loaderd-{version}"
    project = _read(os.path.join(HERE, "pyproject.toml")).decode()
    made = {
        "PKG-INFO": _metadata(),
        "pyproject.toml": project.replace('backend-path = ["."]', 'backend-path = ["proto/python"]').replace("README.md", "proto/python/README.md", 1).encode(),
    }
    day = os.environ.get("SOURCE_DATE_EPOCH")
    if not day and os.path.exists(os.path.join(TOP, ".git")):
        day = subprocess.check_output(["git", "-C", TOP, "log", "-1", "--format=%ct"], text=True)
    day = int(day or time.time())
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted({*_tracked_files(), *made}):
            entry = tarfile.TarInfo(f"{base}/{name}")
            path = os.path.join(TOP, name)
            entry.mtime = day
            if name not in made and os.path.islink(path):
                entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(path)
                archive.addfile(entry)
                continue
            data = made[name] if name in made else _read(path)
            entry.mode = 0o755 if name not in made and os.stat(path).st_mode & 0o100 else 0o644
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    with open(os.path.join(sdist_directory, f"{base}.tar.gz"), "wb") as file:
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=day) as compressed:
            compressed.write(packed.getvalue())
    return f"{base}.tar.gz"
