"""Helpers of the rows: pixels, command-line tools, and segments of files."""

import io
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

import numpy
from PIL import Image


def needs(package, *tools):
    """Skips the test unless these tools of a Debian package are installed."""
    for tool in tools:
        if not shutil.which(tool):
            print(f"skipped: {tool} is not there (Debian: {package})")
            sys.exit(77)


needs("libjpeg-turbo-progs", "cjpeg", "jpegtran")


def pixels(width=45, height=31, channels=3, seed=1):
    """Returns ramps, edges and some noise, with four different corners: height x width x channels, or height x width
    for one channel.
    """
    y, x = numpy.mgrid[0:height, 0:width]
    noise = numpy.random.RandomState(seed)
    planes = [40 + 130 * x / width + 50 * y / height + ((x // 5 + y // 7 + c + seed) % 4) * 8 + noise.randint(0, 6, x.shape)
              for c in range(channels)]
    made = numpy.clip(numpy.stack(planes, -1), 0, 255).astype(numpy.uint8)
    return made[:, :, 0] if channels == 1 else made


def pillow_file(image, kind, **options):
    """Returns the file that Pillow writes for an image or an array."""
    out = io.BytesIO()
    (Image.fromarray(image) if isinstance(image, numpy.ndarray) else image).save(out, kind, **options)
    return out.getvalue()


def run(*command, data=b""):
    """Returns a tool's output for this standard input."""
    return subprocess.run([str(word) for word in command], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True).stdout


def run_on_files(command, *inputs):
    """Returns the file OUT that a tool writes. IN0, IN1 and so on are files with the given bytes. Each may have a suffix."""
    words = [str(word) for word in command]
    with tempfile.TemporaryDirectory(prefix="image_corpus-") as folder:
        for i, word in enumerate(words):
            name = word.partition(".")[0]
            if name == "OUT" or name[:2] == "IN" and name[2:].isdigit():
                words[i] = f"{folder}/{word}"
            if name == "OUT":
                made = words[i]
            elif words[i] != word:
                with open(words[i], "wb") as file:
                    file.write(inputs[int(name[2:])])
        subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
        with open(made, "rb") as file:
            return file.read()


def ppm(image):
    return (b"P5" if image.ndim == 2 else b"P6") + b" %d %d 255\n" % (image.shape[1], image.shape[0]) + image.tobytes()


def cjpeg(*options, image=None, data=None):
    return run("cjpeg", *options, data=data or ppm(pixels() if image is None else image))


def jpegtran(data, *options):
    return run("jpegtran", *options, data=data)


def segment(marker, content):
    """Returns a marker segment of a JPEG."""
    return bytes([0xFF, marker]) + struct.pack(">H", len(content) + 2) + content


def insert(jpeg, *segments):
    """Returns the JPEG with segments inserted after its SOI."""
    return jpeg[:2] + b"".join(segments) + jpeg[2:]


def chunks(jpeg):
    """Yields (marker, offset, end) of the segments before the first scan's data."""
    at = 2
    while True:
        marker, end = jpeg[at + 1], at + 2 + struct.unpack(">H", jpeg[at + 2:at + 4])[0]
        yield marker, at, end
        if marker == 0xDA:
            return
        at = end


def without_segments(jpeg, marker):
    """Returns the JPEG without its segments with that marker."""
    for found, start, end in reversed(list(chunks(jpeg))):
        if found == marker:
            jpeg = jpeg[:start] + jpeg[end:]
    return jpeg


TYPES = {"BYTE": (1, "B"), "ASCII": (2, "s"), "SHORT": (3, "H"), "LONG": (4, "I"), "RATIONAL": (5, "II"), "SBYTE": (6, "b"), "UNDEFINED": (7, "s"),
         "SSHORT": (8, "h"), "SLONG": (9, "i"), "SRATIONAL": (10, "ii"), "FLOAT": (11, "f"), "DOUBLE": (12, "d")}


def exif(orientation, kind="SHORT", count=None, order="<", tags=()):
    """Returns a TIFF whose only IFD has an orientation tag of that type; tags are (number, value) of SHORT tags before it."""
    number, code = TYPES[kind]
    values = orientation if isinstance(orientation, (tuple, bytes)) else (orientation,)
    if isinstance(values, bytes):
        payload, length = values, len(values)
    else:
        payload = b"".join(struct.pack(order + code, *(value if isinstance(value, tuple) else (value,))) for value in values)
        length = len(values)
    entries = [struct.pack(order + "HHIHH", tag, 3, 1, value, 0) for tag, value in tags]
    behind = 8 + 2 + 12 * (len(entries) + 1) + 4
    head = struct.pack(order + "HHI", 0x0112, number, length if count is None else count)
    entries.append(head + (payload.ljust(4, b"\0") if len(payload) <= 4 else struct.pack(order + "I", behind)))
    file = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IH", 8, len(entries)) + b"".join(entries) + bytes(4)
    return file + (payload if len(payload) > 4 else b"")


def xmp(orientation, attribute=True):
    inner = f'tiff:Orientation="{orientation}"/>' if attribute else f"><tiff:Orientation>{orientation}</tiff:Orientation></rdf:Description>"
    return ('<?xpacket begin="" id="W5M0MpCehiHzreSzNTczkc9d"?><x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF '
            'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description rdf:about="" '
            'xmlns:tiff="http://ns.adobe.com/tiff/1.0/" ' + inner + '</rdf:RDF></x:xmpmeta><?xpacket end="w"?>').encode()


def raw_profile(content, name=b"exif"):
    """Returns a PNG with the profile in a text chunk, as ImageMagick writes it."""
    digits = content.hex().encode()
    return b"\n" + name + b"\n%8d\n" % len(content) + b"\n".join(digits[i:i + 72] for i in range(0, len(digits), 72)) + b"\n"


def png_chunk(name, content):
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def png_insert(png, *added, before=b"IDAT"):
    at = png.index(before) - 4
    return png[:at] + b"".join(added) + png[at:]
