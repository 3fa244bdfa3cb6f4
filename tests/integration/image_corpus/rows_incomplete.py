"""JPEGs with missing or extra data in each coding (format/SPEC.md, "Complete JPEGs"). Pillow accepts all files for
which libjpeg-turbo only warns.
"""

from image_corpus import Row, read_with_pillow
from make import cjpeg, pixels, segment

CODINGS = {
    "baseline": [],
    "restarts": ["-restart", "1"],
    "progressive": ["-progressive"],
    "arithmetic": ["-arithmetic"],
    "arithmetic-progressive": ["-arithmetic", "-progressive"],
}
EOI = b"\xff\xd9"


def scans(data):
    """Returns the offset of each SOS, and of EOI at the end."""
    found, at = [], 2
    while data[at + 1] != 0xD9:
        if data[at + 1] == 0xDA:
            found.append(at)
        at += 2 + int.from_bytes(data[at + 2:at + 4], "big")
        while data[at] != 0xFF or data[at + 1] == 0 or 0xD0 <= data[at + 1] <= 0xD7:
            at += 1
    return [*found, at]


def rows_of(coding, options):
    good = cjpeg("-quality", "95", "-sample", "2x2", *options, image=pixels(120, 90))
    places = scans(good)
    end = len(good) - 2
    coded = places[0] + 2 + int.from_bytes(good[places[0] + 2:places[0] + 4], "big")

    def incomplete_row(name, data):
        reason = "nothing else is missing; Pillow waits for the end" if isinstance(read_with_pillow(data), str) else ""
        return Row(f"{name}-{coding}.jpg", data, reason, truth=good)

    def bad(name, data, refused="truncated"):
        reason = "" if isinstance(read_with_pillow(data), str) else "Pillow shows something where data are missing, or misread"
        return Row(f"{name}-{coding}.jpg", data, reason, refused=refused)

    junk = good[:end] + b"belongs to nothing" + EOI
    yield bad("junk-before-end", junk, "extraneous") if "arithmetic" in coding else incomplete_row("junk-before-end", junk)
    yield incomplete_row("zeros-before-end", good[:end] + bytes(40) + EOI)
    yield incomplete_row("junk-in-header", good[:places[0]] + b"junk" + good[places[0]:])
    yield incomplete_row("zeros-in-header", good[:places[0]] + bytes(9) + good[places[0]:])
    yield incomplete_row("restart-before-end", good[:end] + b"\xff\xd1" + EOI)
    jfif = good.index(b"\xff\xe0")
    yield incomplete_row("adobe-7", good[:jfif] + segment(0xEE, b"Adobe\0d\0\0\0\0\7") + good[jfif + 18:])
    yield (bad if "arithmetic" in coding else incomplete_row)("no-end", good[:end])
    if "progressive" in coding:
        yield bad("first-scan-alone", good[:places[1]] + EOI, "lacks scans")
        yield bad("last-scan-lost", good[:places[-2]] + EOI, "lacks scans")
    else:
        yield incomplete_row("scan-parameters", good[:coded - 3] + bytes(3) + good[coded:])
    half = (coded + len(good)) // 2
    yield bad("cut", good[:half], "truncated|cut short")
    yield bad("cut-and-ended", good[:half] + EOI, "truncated|cut short|lacks scans")
    middle = (coded + places[1]) // 2
    yield bad("bogus-marker", good[:middle] + b"\xff\x47" + good[middle + 2:], "truncated|marker|[Cc]orrupt")


def rows():
    for coding, options in CODINGS.items():
        yield from rows_of(coding, options)
