"""tf.data: reads, decodes and crops in one op, resizes, flips."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import peer
import tensorflow as tf

config = peer.config()
workers, side = config["workers"], config["side"]
antialias = config["variant"] == "antialias"
raw = config["form"] == "raw"
tf.config.threading.set_intra_op_parallelism_threads(workers)
tf.config.threading.set_inter_op_parallelism_threads(workers)


def window(shape):
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        shape,
        bounding_boxes=tf.zeros([0, 0, 4]),
        area_range=(0.08, 1.0),
        aspect_ratio_range=(3 / 4, 4 / 3),
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    return tf.stack([begin[0], begin[1], size[0], size[1]])


def load(path, label):
    data = tf.io.read_file(path)
    if raw:
        # prepare.py: height and width as little-endian uint32, then the pixels.
        shape = tf.concat([tf.io.decode_raw(tf.strings.substr(data, 0, 8), tf.int32), [3]], 0)
        y, x, height, width = tf.unstack(window(shape))
        image = tf.reshape(tf.io.decode_raw(tf.strings.substr(data, 8, -1), tf.uint8), shape)
        image = image[y : y + height, x : x + width]
        image.set_shape([None, None, 3])
    else:
        # The fast inverse transform is the op's default, and the fastest; named to make that explicit.
        image = tf.io.decode_and_crop_jpeg(
            data, window(tf.io.extract_jpeg_shape(data)), channels=3, dct_method="INTEGER_FAST"
        )
    image = tf.image.resize(image, (side, side), method="bilinear", antialias=antialias)
    image = tf.image.random_flip_left_right(image)
    return tf.cast(tf.round(image) if antialias else image, tf.uint8), label


paths, labels = peer.files(config["data"])
options = tf.data.Options()
options.threading.private_threadpool_size = workers
options.threading.max_intra_op_parallelism = 1
options.deterministic = False
data = tf.data.Dataset.from_tensor_slices((paths, labels))
data = data.shuffle(len(paths), reshuffle_each_iteration=True).repeat()
data = data.map(load, num_parallel_calls=workers)
data = data.batch(config["batch"], drop_remainder=True).prefetch(2).with_options(options)

peer.serve(
    (images for images, _ in data),
    "files; decode_and_crop_jpeg (INTEGER_FAST)" + " and antialiased" * antialias + " bilinear resize; "
    f"map with {workers} parallel calls in a private pool of {workers} threads, not deterministic, prefetch 2",
    tensorflow=tf.__version__,
)
