"""tf.data: reads, decodes and crops in one op, resizes, flips."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import peer
import tensorflow as tf

config = peer.config()
workers, side, form = config["workers"], config["side"], config["form"]
antialias = config["variant"] == "antialias"
tf.config.threading.set_intra_op_parallelism_threads(workers)
tf.config.threading.set_inter_op_parallelism_threads(workers)


def window(shape, area=(0.08, 1.0)):
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        shape,
        bounding_boxes=tf.zeros([0, 0, 4]),
        area_range=area,
        aspect_ratio_range=(3 / 4, 4 / 3),
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.stack([begin[0], begin[1], size[0], size[1]])


def cut(pixels, place):
    y, x, height, width = tf.unstack(place)
    return pixels[y : y + height, x : x + width]


def decoded(data, place):
    # The fast inverse transform is the op's default, and the fastest; named to make that explicit.
    return tf.io.decode_and_crop_jpeg(data, place, channels=3, dct_method="INTEGER_FAST")


def resized(pixels, mirror, dtype=tf.uint8, method="bilinear", to=side):
    pixels = tf.image.resize(pixels, to if isinstance(to, tuple) else (to, to), method=method, antialias=antialias and method == "bilinear")
    if pixels.dtype != dtype:
        pixels = tf.cast(tf.round(pixels) if antialias else pixels, dtype)
    return tf.cond(mirror, lambda: tf.reverse(pixels, [1]), lambda: pixels)


def coin():
    return tf.random.uniform([]) < 0.5


def load_class(path, label):
    data = tf.io.read_file(path)
    if form == "raw":
        # prepare.py: height and width as little-endian uint32, then the pixels.
        shape = tf.concat([tf.io.decode_raw(tf.strings.substr(data, 0, 8), tf.int32), [3]], 0)
        image = cut(tf.reshape(tf.io.decode_raw(tf.strings.substr(data, 8, -1), tf.uint8), shape), window(shape))
        image.set_shape([None, None, 3])
    else:
        image = decoded(data, window(tf.io.extract_jpeg_shape(data)))
    return resized(image, coin()), label


def load_views(path):
    """Decodes the whole image once, which is faster than each crop by itself."""
    image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3, dct_method="INTEGER_FAST")
    made = [cut(image, window(tf.shape(image), area)) for _, area in peer.copies(config)]
    return tuple(resized(pixels, coin(), to=size) for pixels, (size, _) in zip(made, peer.copies(config)))


def load_sample(sample):
    """Loads image and mask, depth, or boxes with classes; moves all of them alike."""
    data = tf.io.read_file(sample["image"])
    place, mirror = window(tf.io.extract_jpeg_shape(data)), coin()
    made = {"image": resized(decoded(data, place), mirror)}
    for name, dtype, method in (("mask", tf.uint8, "nearest"), ("depth", tf.uint16, "bilinear")):
        if name in sample:
            pixels = cut(tf.io.decode_png(tf.io.read_file(sample[name]), channels=1, dtype=dtype), place)
            pixels.set_shape([None, None, 1])
            made[name] = resized(pixels, mirror, dtype, method)
    if "boxes" in sample:
        made["boxes"], made["class"] = move_boxes(sample["boxes"], sample["class"], tf.cast(place, tf.float32), mirror)
    return made


def load_mixed(sample):
    return {"image": load_class(sample["image"], 0)[0], "part": sample["part"]}


def load_bucket(sample):
    """Decodes the part of the image that covers the bucket, and resizes it."""
    data = tf.io.read_file(sample["image"])
    rows, columns = tf.unstack(tf.cast(tf.io.extract_jpeg_shape(data)[:2], tf.float32))
    width, height = tf.unstack(tf.gather(tf.constant(peer.BUCKETS), sample["bucket"]))
    scale = tf.maximum(tf.cast(width, tf.float32) / columns, tf.cast(height, tf.float32) / rows)
    whole = tf.cast(tf.stack([rows, columns]), tf.int32)
    size = tf.minimum(whole, tf.cast(tf.round(tf.cast(tf.stack([height, width]), tf.float32) / scale), tf.int32))
    corner = tf.cast(tf.random.uniform([2]) * tf.cast(whole - size + 1, tf.float32), tf.int32)
    return {"image": resized(decoded(data, tf.concat([corner, size], 0)), coin(), to=(height, width)), "bucket": sample["bucket"]}


def move_boxes(boxes, kinds, place, mirror):
    y, x, height, width = tf.unstack(place)
    boxes = (boxes - tf.stack([x, y, x, y])) * (side / tf.stack([width, height, width, height]))
    boxes = tf.clip_by_value(boxes, 0, side)
    left, top, right, bottom = tf.unstack(boxes, axis=1)
    left, right = tf.where(mirror, side - right, left), tf.where(mirror, side - left, right)
    kept = (right - left >= 1) & (bottom - top >= 1)
    return tf.boolean_mask(tf.stack([left, top, right, bottom], 1), kept), tf.boolean_mask(kinds, kept)


def columns(folder):
    """Returns tensors of all samples, and what loads one."""
    if form in peer.ORDERED:
        (paths, numbers), name = (peer.parts if form == "mix" else peer.bucket_files)(folder), {"mix": "part", "buckets": "bucket"}[form]
        return {"image": paths, name: numbers}, load_mixed if form == "mix" else load_bucket
    if "views" in config:
        return peer.images({**config, "data": folder}), load_views
    if form not in peer.STRUCTURED:
        return peer.files(folder), load_class
    found = peer.samples(folder, form)
    if form == "boxes":
        found["boxes"] = tf.ragged.constant(found["boxes"], tf.float32, ragged_rank=1, inner_shape=(4,))
        found["class"] = tf.ragged.constant(found["class"], tf.int32)
    return found, load_sample


def shuffled(found):
    data = tf.data.Dataset.from_tensor_slices(found)
    return data.shuffle(len(data), reshuffle_each_iteration=True).repeat()


def mixture(found):
    parts = [
        shuffled({name: [value for value, number in zip(column, found["part"]) if number == part] for name, column in found.items()})
        for part in range(len(peer.SHARES))
    ]
    return tf.data.Dataset.sample_from_datasets(parts, [share / sum(peer.SHARES) for share in peer.SHARES])


def batched(data):
    if form == "buckets":
        return data.group_by_window(lambda sample: tf.cast(sample["bucket"], tf.int64), lambda _, window: window.batch(config["batch"]), config["batch"])
    batch = data.ragged_batch if peer.is_structured(config) and form == "boxes" else data.batch
    return batch(config["batch"], drop_remainder=True)


def batches(folder):
    options = tf.data.Options()
    options.threading.private_threadpool_size = workers
    options.threading.max_intra_op_parallelism = 1
    options.deterministic = False
    found, load = columns(folder)
    data = mixture(found) if form == "mix" else shuffled(found)
    data = batched(data.map(load, num_parallel_calls=workers)).prefetch(2).with_options(options)
    for values in data:
        yield list(values) if "views" in config else values if isinstance(values, dict) else values[0]


peer.serve(
    peer.checked(batches),
    ("files; decode_jpeg" if "views" in config else "files; decode_and_crop_jpeg") + " (INTEGER_FAST)" + " and antialiased" * antialias + " bilinear resize; "
    + {"mix": "sample_from_datasets; ", "buckets": "group_by_window; "}.get(form, "")
    + f"map with {workers} parallel calls in a private pool of {workers} threads, not deterministic, prefetch 2",
    tensorflow=tf.__version__,
)
