"""JPEG: every coding that cjpeg and jpegtran make."""

from image_corpus import Row
from make import cjpeg, exif, insert, jpegtran, pixels, segment

SAMPLINGS = ["1x1", "2x1", "1x2", "2x2", "4x1", "4x2", "1x4"]


def rows():
    for sampling in SAMPLINGS:
        yield Row(f"sampling-{sampling}.jpg", cjpeg("-sample", sampling))
        yield Row(f"progressive-{sampling}.jpg", cjpeg("-sample", sampling, "-progressive"))
    yield Row("grey.jpg", cjpeg(image=pixels(channels=1)))
    yield Row("grey-progressive.jpg", cjpeg("-progressive", image=pixels(channels=1)))
    yield Row("arithmetic.jpg", cjpeg("-arithmetic"))
    yield Row("arithmetic-progressive.jpg", cjpeg("-arithmetic", "-progressive"))
    yield Row("restart-rows.jpg", cjpeg("-restart", "1"))
    yield Row("restart-blocks.jpg", cjpeg("-restart", "2B"))
    yield Row("optimised.jpg", cjpeg("-optimize", "-quality", "98"))
    yield Row("coarse.jpg", cjpeg("-quality", "3"))
    yield Row("rgb.jpg", cjpeg("-rgb"))
    yield Row("one-pixel.jpg", cjpeg(image=pixels(1, 1)))
    for order in "<>":
        for turn in range(1, 9):
            yield Row(f"exif-{'II' if order == '<' else 'MM'}-{turn}.jpg", insert(cjpeg(), segment(0xE1, b"Exif\0\0" + exif(turn, order=order))))
    yield Row("exif-9.jpg", insert(cjpeg(), segment(0xE1, b"Exif\0\0" + exif(9))))
    yield Row("exif-0.jpg", insert(cjpeg(), segment(0xE1, b"Exif\0\0" + exif(0))))
    yield Row("behind-end.jpg", cjpeg() + b"\0" * 100 + b"whatever")
    yield Row("padded.jpg", insert(cjpeg(), segment(0xFE, b"x" * 65533)))
    yield Row("half.jpg", cjpeg()[:700], refused="truncated|too early")
    yield Row("empty.jpg", b"", refused="empty")
    yield Row("widest.jpg", cjpeg(image=pixels(65500, 1, 1)))
    wide = cjpeg(image=pixels(65500, 1, 1)).replace((65500).to_bytes(2, "big"), (65501).to_bytes(2, "big"))
    yield Row("too-wide.jpg", wide, refused="more than 65500")
    plain = cjpeg()
    frame = plain.index(b"\xff\xc0") + 1
    for name, marker in ("lossless", 0xC3), ("hierarchical", 0xC5), ("lossless-arithmetic", 0xCB), ("ls", 0xF7):
        yield Row(f"{name}.jpg", plain[:frame] + bytes([marker]) + plain[frame + 1:], refused=r"SOF\d+ \(lossless or hierarchical\) is not supported; make a baseline JPEG")
    for bits in 12, 16:
        yield Row(f"bits-{bits}.jpg", plain[:frame + 3] + bytes([bits]) + plain[frame + 4:], refused="bits per sample.*make an 8-bit file")
    yield Row("late-height.jpg", plain[:frame + 4] + bytes(2) + plain[frame + 6:-2] + b"\xff\xdc\0\4\0\x1f\xff\xd9", refused="DNL.*not supported; ")
    yield Row("text.jpg", b"this is no image\n", refused="not an image")
    yield Row("transposed.jpg", jpegtran(cjpeg("-sample", "2x1"), "-transpose"))
