"""DALI's pipeline on the CPU: decodes the cropped region, antialiased triangular resize, flip."""

import peer
import numpy
import nvidia.dali as dali
import nvidia.dali.fn as fn
import nvidia.dali.math as math
import nvidia.dali.types as types

config = peer.config()
form, side = config["form"], config["side"]
AREA, RATIO = [0.08, 1.0], [3 / 4, 4 / 3]


def resized(pixels, mirror, **how):
    return fn.flip(fn.resize(pixels, size=(side, side), **how), horizontal=mirror)


def cropped(files, start, shape, mirror, interp_type=types.INTERP_TRIANGULAR, **how):
    pixels = fn.decoders.image_slice(files, device="cpu", start=start, shape=shape, axes=[0, 1], **how)
    return resized(pixels, mirror, interp_type=interp_type)


def read(paths):
    """Returns the files of one folder, in an order that is the same for all that have as many."""
    return fn.readers.file(files=paths, random_shuffle=True, initial_fill=4096, seed=1)[0]


def classes(folder):
    files, _ = fn.readers.file(file_root=folder, random_shuffle=True, initial_fill=4096)
    images = fn.decoders.image_random_crop(files, device="cpu", random_area=AREA, random_aspect_ratio=RATIO)
    return resized(images, fn.random.coin_flip(), interp_type=types.INTERP_TRIANGULAR)


def views(folder):
    """Decodes the whole image once, which is faster than each crop by itself."""
    images = fn.decoders.image(read(peer.images({**config, "data": folder})), device="cpu")
    made = [
        fn.random_resized_crop(images, size=(size, size), random_area=list(area), random_aspect_ratio=RATIO, interp_type=types.INTERP_TRIANGULAR)
        for size, area in peer.copies(config)
    ]
    return tuple(fn.flip(pixels, horizontal=fn.random.coin_flip()) for pixels in made)


def window(files):
    return fn.random_crop_generator(fn.peek_image_shape(files), random_area=AREA, random_aspect_ratio=RATIO)


def images_and(name, folder, **how):
    """Returns images and what lies over them: masks, depths."""
    columns = peer.samples(folder, form)
    files, others = read(columns["image"]), read(columns[name])
    place, mirror = window(files), fn.random.coin_flip()
    return cropped(files, *place, mirror), cropped(others, *place, mirror, **how)


def masks(folder):
    return images_and("mask", folder, output_type=types.GRAY, interp_type=types.INTERP_NN)


def depths(folder):
    return images_and("depth", folder, output_type=types.ANY_DATA, dtype=types.UINT16)


def boxes(folder):
    files, rows, kinds = fn.readers.coco(
        file_root=f"{folder}/train", annotations_file=peer.coco_file(folder), ltrb=True, random_shuffle=True, initial_fill=4096
    )
    start, shape = window(files)
    mirror = fn.random.coin_flip()
    # Rows of left, top, right, bottom, as fractions of the window; start and shape are of y and x.
    origin, size = (fn.stack(pair[1], pair[0], pair[1], pair[0]) for pair in (start, shape))
    rows = math.clamp((rows - fn.cast(origin, dtype=types.FLOAT)) / fn.cast(size, dtype=types.FLOAT), 0.0, 1.0)
    return cropped(files, start, shape, mirror), fn.bb_flip(rows, ltrb=True, horizontal=mirror) * float(side), kinds


def sanitized(rows, kinds):
    """Drops boxes without area, as torchvision's SanitizeBoundingBoxes; DALI has no operator for that."""
    kept_rows, kept_kinds = [], []
    for i in range(len(rows)):
        own = rows.at(i)
        kept = ((own[:, 2:] - own[:, :2]) >= 1).all(1)
        kept_rows.append(own[kept])
        kept_kinds.append(kinds.at(i).reshape(-1)[kept] - 1)
    return {"boxes": kept_rows, "class": kept_kinds}


# What each form makes, and the names of further outputs.
FORMS = {"mask512": (masks, "mask"), "mask2048": (masks, "mask"), "depth16": (depths, "depth"), "boxes": (boxes, None)}


def dense(tensors):
    return numpy.asarray(tensors.as_tensor())


def batches(folder):
    make, name = (views, None) if "views" in config else FORMS.get(form, (classes, None))

    @dali.pipeline_def(batch_size=config["batch"], num_threads=config["workers"], device_id=None, prefetch_queue_depth=2)
    def pipeline():
        return make(folder)

    built = pipeline()
    built.build()
    while True:
        images, *more = built.run()
        if "views" in config:
            yield [dense(images), *map(dense, more)]
        elif not more:
            yield dense(images)
        elif name:
            yield {"image": dense(images), name: dense(more[0])}
        else:
            yield {"image": dense(images), **sanitized(*more)}


WHAT = "decoders.image, random_resized_crop" if "views" in config else "decoders.image_slice in the window of random_crop_generator" if form in FORMS else "decoders.image_random_crop"
peer.serve(
    peer.checked(batches),
    f"readers, {WHAT} and resize on the CPU; {config['workers']} threads, prefetch queue of 2",
    dali=dali.__version__,
)
