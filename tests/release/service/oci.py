#!/usr/bin/env python3
"""Checks that OCI archives conform to the specification and are complete: schemas, digests, sizes; order, owners, modes and times in the layer, and that all libraries are present.

    tests/release/service/oci.py ARCHIVE...
"""
import fnmatch
import gzip
import hashlib
import io
import json
import pathlib
import posixpath
import re
import subprocess
import sys
import tarfile
import tempfile

import jsonschema

# golang-github-opencontainers-image-spec-dev
SCHEMAS = pathlib.Path("/usr/share/gocode/src/github.com/opencontainers/image-spec/schema")
OWNED = {"run/loaderd": 60600}


def read(files, name):
    return files.extractfile(name).read()


class LocalResolver(jsonschema.RefResolver):
    """Schemas refer to neighbouring files, whatever URLs their ids would give."""

    def resolve_remote(self, uri):
        return json.loads((SCHEMAS / posixpath.basename(uri)).read_text())


def conforms(value, schema):
    schema = json.loads((SCHEMAS / schema).read_text())
    jsonschema.Draft4Validator(schema, resolver=LocalResolver.from_schema(schema)).validate(value)


def blob(files, descriptor):
    data = read(files, f"blobs/sha256/{descriptor['digest'].split(':')[1]}")
    assert f"sha256:{hashlib.sha256(data).hexdigest()}" == descriptor["digest"], descriptor
    assert len(data) == descriptor["size"], descriptor
    return data


def objects(folder):
    """Yields programs and libraries: path, name, and needed libraries."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF":
            text = subprocess.run(["readelf", "--dynamic", "--wide", path], check=True, stdout=subprocess.PIPE, text=True).stdout
            yield path, re.findall(r"\(NEEDED\).*\[(.*)\]", text)


def faults(layer):
    epoch = max(entry.mtime for entry in layer)
    names = [entry.name for entry in layer if not entry.islnk()]
    if names != sorted(names):
        yield "is not sorted"
    for entry in layer:
        if (entry.uid, entry.gid) != 2 * (OWNED.get(entry.name, 0),) or entry.uname or entry.gname:
            yield f"{entry.name} is owned by {entry.uid}:{entry.gid} ({entry.uname}:{entry.gname})"
        if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()) or entry.mode & 0o6000:
            yield f"{entry.name} is a device, or gives rights"
        if entry.mode & 0o002 and not entry.issym() and not entry.mode & 0o1000:
            yield f"{entry.name} may be written by everybody"
        if posixpath.dirname(entry.name) and posixpath.dirname(entry.name) not in names:
            yield f"{entry.name} has no folder"
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        layer.extractall(root)
        found = list(objects(root))
        there = {path.name for path in root.rglob("*.so*")}
        for path, needed in found:
            for name in needed:
                if name not in there and not fnmatch.fnmatch(name, "ld-linux*"):
                    yield f"/{path.relative_to(root)} needs {name}, which is not there"
        programs = [path for path, _ in found if path.parent.name == "bin"]
        if not programs:
            yield "has no program"
        known = subprocess.run(["dpkg-query", f"--admindir={root}/var/lib/dpkg", "--show", "--showformat=${db:Status-Abbrev}${Package} ${Version}\n"],
                               check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
        for line in known:
            package = line.split()[1].split(":")[0]
            if not line.startswith("ii ") or not (root / "usr/share/doc" / package / "copyright").exists():
                yield f"of the package {package} there is no licence, or it is not installed: {line}"
        print(f"  {len(names)} files, {len(found)} programs and libraries, {len(known)} packages, none newer than {epoch}")


def check(archive):
    with tarfile.open(archive) as files:
        conforms(json.loads(read(files, "oci-layout")), "image-layout-schema.json")
        index = json.loads(read(files, "index.json"))
        conforms(index, "image-index-schema.json")
        (descriptor,) = index["manifests"]
        manifest = json.loads(blob(files, descriptor))
        conforms(manifest, "image-manifest-schema.json")
        config = json.loads(blob(files, manifest["config"]))
        conforms(config, "config-schema.json")
        (layer,) = (gzip.decompress(blob(files, layer)) for layer in manifest["layers"])
        assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"], config
        blobs = {name for name in files.getnames() if re.fullmatch(r"blobs/sha256/[0-9a-f]{64}", name)}
        assert len(blobs) == 3, blobs
        assert not config["config"]["User"].startswith("0"), config
        with tarfile.open(fileobj=io.BytesIO(layer)) as layer_files:
            found = list(faults(layer_files))
            (entrypoint, *_) = config["config"]["Entrypoint"]
            if entrypoint[1:] not in layer_files.getnames():
                found.append(f"does not have its entrypoint {entrypoint}")
    print(*(f"{archive}: {fault}" for fault in found), f"{archive}: {len(found)} faults", sep="\n")
    return not found


sys.exit(not all([check(archive) for archive in sys.argv[1:]]) or len(sys.argv) == 1)
