"""AVIF, which Pillow 9.4 does not read: avifdec's result is the truth."""

import struct

import numpy

from image_corpus import Row
from make import needs, pixels, run_on_files, pillow_file

needs("libavif-bin", "avifenc", "avifdec")
UNREAD = "Pillow 9.4 does not read AVIF; the truth is avifdec's"


def avifenc(image, *options):
    return run_on_files(["avifenc", "--speed", "9", *options, "IN0.png", "OUT"], pillow_file(image, "PNG"))


def decoded(avif):
    return run_on_files(["avifdec", "IN0", "OUT.png"], avif)


# Returns the image after irot (quarter turns anticlockwise) and then imir (0 exchanges top and bottom, 1 left and right).
def rotated(image, angle, mirror):
    image = numpy.rot90(image, angle)
    return image[::-1] if mirror == 0 else image[:, ::-1] if mirror == 1 else image


def grid_of_tiles(options, places):
    """Returns an image of 2x2 tiles, and its file, whose grid refers to the tiles in this order."""
    image = pixels(128, 192)
    tiles = [numpy.ascontiguousarray(image[y:y + 96, x:x + 64]) for y in (0, 96) for x in (0, 64)]
    file = run_on_files(["avifenc", "--speed", "9", "--lossless", "--grid", "2x2", *options, *[f"IN{i}.png" for i in range(4)], "OUT"],
                        *[pillow_file(tile, "PNG") for tile in tiles])
    at = file.index(b"dimg") + 8
    items = struct.unpack(">4H", file[at:at + 8])
    shown = [tiles[place] for place in places]
    return numpy.vstack([numpy.hstack(shown[:2]), numpy.hstack(shown[2:])]), file[:at] + struct.pack(">4H", *[items[place] for place in places]) + file[at + 8:]


def open_ended_mdat(avif):
    """Moves the pixels before the metadata, in a box of size 0, which extends to the end of the file."""
    meta, mdat = avif.index(b"meta") - 4, avif.index(b"mdat") - 4
    place = struct.pack(">I", mdat + 8)
    assert avif.count(place) == 1
    moved = avif[meta:mdat].replace(place, struct.pack(">I", meta + 8))
    return avif[:meta] + avif[mdat:] + bytes(4) + moved[4:]


def sequence_with_sound(rgb, grey):
    """Returns a sequence whose second track, of alpha, is declared as sound, which has no dimensions."""
    frames = [pillow_file(numpy.dstack([image, grey]), "PNG") for image in (rgb, rgb[::-1])]
    avif = run_on_files(["avifenc", "--speed", "9", "--lossless", "IN0.png", "IN1.png", "OUT"], *frames)
    track = avif.rindex(b"tkhd")
    end = track + int.from_bytes(avif[track - 4:track], "big") - 4
    return avif[:end - 8] + bytes(8) + avif[end:].replace(b"auxv", b"soun")


def shared_tile(image):
    """Returns a colour grid in which a tile of the alpha grid replaces the last tile."""
    tiles = [image[y:y + 96, x:x + 64] for y in (0, 96) for x in (0, 64)]
    file = run_on_files(["avifenc", "--speed", "9", "--lossless", "--grid", "2x2", *[f"IN{i}.png" for i in range(4)], "OUT"],
                        *[pillow_file(numpy.dstack([tile, tile[:, :, 0]]), "PNG") for tile in tiles])
    first = file.index(b"dimg") + 8
    last = file.rindex(b"dimg") + 8
    assert first != last
    return file[:first + 6] + file[last + 6:last + 8] + file[first + 8:]


def rows():
    rgb, grey = pixels(), pixels(channels=1)
    made = {
        "lossless": avifenc(rgb, "--lossless"),
        "444": avifenc(rgb, "-y", "444"),
        "422": avifenc(rgb, "-y", "422"),
        "420": avifenc(rgb, "-y", "420"),
        "grey": avifenc(grey, "-y", "400"),
        "ten": avifenc(rgb, "-d", "10", "-y", "444"),
        "twelve": avifenc(rgb, "-d", "12", "-y", "444"),
        "narrow": avifenc(rgb, "-r", "limited"),
    }
    for name, data in made.items():
        yield Row(f"{name}.avif", data, UNREAD, truth=decoded(data), within=1, part="avif")
    for bits in "10", "12":
        yield Row(f"exact-{bits}.avif", avifenc(rgb, "-d", bits, "-y", "444", "--min", "0", "--max", "0"), "Pillow 9.4 does not read AVIF, later ones are up to 8 away",
                  truth=rgb, part="avif")
    yield Row("alpha.avif", avifenc(numpy.dstack([rgb, grey]), "--lossless"), UNREAD, truth=rgb, part="avif")
    for angle in None, 1, 2, 3:
        for mirror in None, 0, 1:
            options = (["--irot", angle] if angle else []) + (["--imir", mirror] if mirror is not None else [])
            if options:
                yield Row(f"turned-{angle or 0}-{'none' if mirror is None else mirror}.avif", avifenc(rgb, "--lossless", *options), UNREAD,
                          truth=rotated(rgb, angle or 0, mirror), part="avif")
    for places in (0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2):
        truth, data = grid_of_tiles([], places)
        yield Row(f"grid-{''.join(map(str, places))}.avif", data, UNREAD, truth=truth, part="avif")
    yield Row("grid-twice.avif", grid_of_tiles([], (0, 1, 2, 2))[1], refused="^not supported: AVIF of a grid", part="avif")
    yield Row("grid-shared.avif", shared_tile(pixels(128, 192)), refused="^not supported: AVIF of a grid that shares", part="avif")
    yield Row("no-last-size.avif", open_ended_mdat(made["lossless"]), UNREAD, truth=rgb, part="avif")
    yield Row("sound.avif", sequence_with_sound(rgb, grey), UNREAD, truth=rgb, part="avif")
    whole = made["lossless"]
    nclx = made["444"].index(b"nclx") + 8
    yield Row("matrix.avif", made["444"][:nclx] + b"\0\x0a" + made["444"][nclx + 2:], refused="^not supported: AVIF", part="avif")
    yield Row("no-av1.avif", made["444"].replace(b"av01", b"hvc1"), refused="^not supported: AVIF", part="avif")
    ispe = made["444"].index(b"ispe")
    yield Row("wide.avif", made["444"][:ispe + 8] + struct.pack(">II", 60000, 60000) + made["444"][ispe + 16:], refused="^not supported: AVIF", part="avif")
    yield Row("box-too-large.avif", made["444"][:ispe - 4] + struct.pack(">I", 60000) + made["444"][ispe:], refused="^damaged AVIF", part="avif")
    yield Row("cut.avif", whole[:len(whole) * 2 // 3], refused="damaged", part="avif")
    yield Row("cut-header.avif", whole[:100], refused="damaged", part="avif")
    yield Row("no-avif.heic", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40), refused="HEIF image; what is read is JPEG, ")
