"""Contents and lifetime of batches in the package loaderd: buffers, arrays, tensors."""

import contextlib
import ctypes
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import weakref

import loaderd

from feed_test import PATIENCE, PIXELS, expected_bytes, jax, numpy, open_feed, pixel, torch


class Buffers(unittest.TestCase):
    def test_bytes_are_right(self):
        with open_feed() as feed:
            for _ in range(25):
                batch = feed.next()
                images = memoryview(batch.buffer("images"))
                self.assertEqual((images.shape, images.format, images.readonly), ((8, 4, 6, 3), "B", False))
                self.assertTrue(images.c_contiguous)
                self.assertEqual(images.tobytes(), expected_bytes(batch))
                samples = memoryview(batch.buffer("samples"))
                self.assertEqual(samples.tolist(), [batch.index * 8 + i for i in range(8)])
                self.assertEqual(memoryview(batch.buffer("labels")).tolist(), [s % 10 for s in samples])
                flags = memoryview(batch.buffer("flags")).tolist()
                self.assertEqual(flags, [int(s == 3) * loaderd.SUBSTITUTED for s in samples])
                self.assertEqual(batch.bad, int(3 in samples.tolist()))

    def test_a_writable_feed_is_the_same(self):
        with open_feed(writable=True) as feed:
            for batch in feed:
                self.assertEqual(bytes(batch.buffer("images")), expected_bytes(batch))
        with self.assertRaisesRegex(loaderd.FeedError, "update it"):
            open_feed("old", writable=True)

    def test_writes_are_private(self):
        """Writes to a batch are visible in this process only until the batch is released: later batches in the same slots are correct."""
        writers = [
            lambda batch: memoryview(batch.buffer("images")).cast("B").__setitem__(slice(None), b"x" * 8 * PIXELS),
            lambda batch: (ctypes.c_char * 8).from_buffer(batch.buffer("images"))[:].__len__(),
            lambda batch: memoryview(batch.buffer("samples")).__setitem__(3, 99),
        ]
        if numpy:
            writers += [
                lambda batch: batch.images.__iadd__(1),
                lambda batch: batch.labels.fill(-5),
                lambda batch: numpy.asarray(batch.buffer("labels")).fill(-5),
                lambda batch: batch.field("id").fill(7),
            ]
        if torch:
            writers += [
                lambda batch: batch.torch().images.add_(1),
                lambda batch: batch.torch().images[3].zero_(),
                lambda batch: torch.from_dlpack(batch.buffer("flags")).fill_(9),
                lambda batch: torch.from_dlpack(batch).mul_(2),
            ]
        if torch and numpy:
            writers.append(lambda batch: torch.from_numpy(batch.images).neg_())
        for writable in (False, True):
            with open_feed(writable=writable, fields=["id"]) as feed:
                for i in range(6 * len(writers)):
                    batch = feed.next()
                    self.assertEqual(bytes(batch.buffer("images")), expected_bytes(batch))
                    samples = memoryview(batch.buffer("samples")).tolist()
                    self.assertEqual(samples, [batch.index * 8 + i for i in range(8)])
                    self.assertEqual(memoryview(batch.buffer("labels")).tolist(), [s % 10 for s in samples])
                    self.assertEqual(memoryview(batch.buffer("flags")).tolist(), [int(s == 3) for s in samples])
                    if numpy:
                        self.assertEqual(batch.field("id").tolist(), [-2 * s for s in samples])
                    writers[i % len(writers)](batch)
                    self.assertEqual(batch._slot.shared_images().address == batch.buffer("images").address, writable)
                    if not writable:
                        self.assertEqual(bytes(batch._slot.shared_images()), expected_bytes(batch))
            with self.assertRaises(ValueError):
                batch.buffer("pixels")

    @unittest.skipUnless(numpy, "no NumPy")
    def test_writes_are_seen_by_all_views(self):
        with open_feed() as feed:
            batch = next(feed)
            batch.images[2] = 77
            self.assertEqual(memoryview(batch.buffer("images"))[2, 0, 0, 0], 77)
            if torch:
                self.assertEqual(batch.to("cpu").images[2, 0, 0, 0], 77)
                self.assertEqual(batch.to("meta").images.shape, (8, 3, 4, 6))
                self.assertEqual(next(feed).to("meta").images.shape, (8, 3, 4, 6))

    def test_fields(self):
        with open_feed(fields=["id", "float", "bytes", "json"]) as feed:
            next(feed)
            batch = next(feed)
            self.assertEqual(batch.field("bytes"), [b"sample %d" % i for i in range(8, 16)])
            self.assertEqual(batch.field("json"), [{"s": i} for i in range(8, 16)])
            with self.assertRaisesRegex(KeyError, "not 'size'"):
                batch.field("size")
            if numpy:
                self.assertEqual(batch.field("id").tolist(), [-2 * i for i in range(8, 16)])
                self.assertEqual(batch.field("float").tolist(), [i / 4 for i in range(8, 16)])
        with open_feed(fields=["text"]) as feed:
            self.assertEqual(next(feed).field("text"), [f"sample {i}" for i in range(8)])
        with open_feed(fields=["json", "text"], field_bytes=3, cut_values=True) as feed:
            batch = next(feed)
            self.assertEqual(batch.field("json"), [None] * 8)
            self.assertEqual(batch.field("text"), ["sam"] * 8)
        with open_feed(fields=["json"], field_bytes=3) as feed:
            with self.assertRaisesRegex(loaderd.FeedFailed, "sample 0 has a value that is longer than field_bytes, 3"):
                next(feed)


class Holding(unittest.TestCase):
    """A slot is released exactly when the last object that refers to it dies."""

    def hold_all(self, keep):
        with open_feed(timeout=PATIENCE) as feed:
            kept = []
            for _ in range(feed.slots):
                kept.append(keep(feed.next()))
            with self.assertRaisesRegex(loaderd.NoFreeBatch, r"All 4 batches.*batch\.images, .* hold a batch.*labels, samples, .* hold none"):
                feed.next()
            kept.pop(1)
            for _ in range(20):  # all of them use the one free slot
                batch = feed.next()
                self.assertEqual(bytes(batch.buffer("images")), expected_bytes(batch))
                del batch
            self.assertEqual(feed.position, (2, 4))
            with feed.next():
                with self.assertRaises(loaderd.NoFreeBatch):
                    feed.next()
            feed.next()
            return kept

    def test_batches(self):
        kept = self.hold_all(lambda batch: batch)
        for batch in kept:  # they stay readable after close()
            self.assertEqual(bytes(batch.buffer("images")), expected_bytes(batch))

    def test_views(self):
        kept = self.hold_all(lambda batch: memoryview(batch.buffer("images"))[2:3])
        self.assertEqual([view[0, 0, 0, 0] for view in kept], [pixel(0, 2), pixel(0, 18), pixel(0, 26)])

    def test_released_batches_with_views(self):
        def keep(batch):
            with batch:
                view = memoryview(batch.buffer("labels"))
            with self.assertRaisesRegex(ValueError, "released"):
                batch.buffer("labels")
            batch.release()
            return view

        self.assertEqual(self.hold_all(keep)[2].tolist(), [i % 10 for i in range(24, 32)])

    @unittest.skipUnless(numpy, "no NumPy")
    def test_derived_arrays(self):
        kept = self.hold_all(lambda batch: batch.images[1:3].reshape(2, -1).T[5])
        self.assertEqual(kept[0].tolist(), [pixel(0, 1), pixel(0, 2)])

    @unittest.skipUnless(numpy, "no NumPy")
    def test_copies_hold_nothing(self):
        """Labels, samples, flags and fields, of more batches than there are slots."""
        with open_feed(timeout=PATIENCE, fields=["id", "text"]) as feed:
            kept = []
            for _ in range(3 * feed.slots):
                batch = feed.next()
                kept.append((batch.labels, batch.samples, batch.flags, batch["id"], batch["text"]))
                if torch:
                    self.assertEqual(batch.torch().labels.tolist(), batch.labels.tolist())
        for i, (labels, samples, flags, ids, texts) in enumerate(kept):
            first = i % 10 * 8
            self.assertEqual(samples.tolist(), list(range(first, first + 8)))
            self.assertEqual(labels.tolist(), [s % 10 for s in samples])
            self.assertEqual(flags.tolist(), [int(s == 3) for s in samples])
            self.assertEqual(ids.tolist(), [-2 * int(s) for s in samples])
            self.assertEqual(texts, [f"sample {s}" for s in samples])

    @unittest.skipUnless(torch, "no PyTorch")
    def test_label_tensors_hold_nothing(self):
        with open_feed(timeout=PATIENCE) as feed:
            kept = [feed.next().torch().labels for _ in range(3 * feed.slots)]
        self.assertEqual([labels[0].item() for labels in kept], [i % 10 * 8 % 10 for i in range(len(kept))])

    @unittest.skipUnless(torch, "no PyTorch")
    def test_tensors(self):
        kept = self.hold_all(lambda batch: batch.torch().images[1])
        self.assertTrue((kept[0] == pixel(0, 1)).all())

    def test_capsules_that_nobody_takes(self):
        for version in (None, (1, 0)):
            self.hold_all(lambda batch: batch.__dlpack__(max_version=version))

    def test_cycles_are_collected(self):
        class Node:
            pass

        with open_feed(timeout=PATIENCE) as feed:
            for _ in range(3 * feed.slots):
                node = Node()
                node.self = node
                node.batch = feed.next()
                del node

    def test_batches_die(self):
        with open_feed() as feed:
            batch = next(feed)
            seen = weakref.ref(batch)
            view = memoryview(batch.buffer("images"))
            del batch
            self.assertIsNone(seen())
            self.assertEqual(view[0, 0, 0, 0], 0)

    def test_another_thread_gives_back(self):
        import queue

        filled = queue.Queue()
        got = []

        def work():
            while (batch := filled.get()) is not None:
                time.sleep(0.001)
                got.append(bytes(batch.buffer("images")) == expected_bytes(batch))

        with open_feed(timeout=PATIENCE) as feed:
            thread = threading.Thread(target=work)
            thread.start()
            for _ in range(200):
                filled.put(feed.next())  # the queue could take more batches than there are slots
            filled.put(None)
            thread.join()
        self.assertEqual(got, [True] * 200)

    def test_two_threads_may_not_wait(self):
        def wait():
            while True:
                try:
                    feed.next(PATIENCE)
                except RuntimeError:
                    pass  # the other thread already waits
                except loaderd.DaemonGone:
                    return

        with loaderd.Daemon() as daemon, loaderd.Feed("hang-0", batch_size=8, socket=daemon.socket,
                                                    reconnect=False) as feed:
            thread = threading.Thread(target=wait)
            thread.start()
            with self.assertRaisesRegex(RuntimeError, "another thread"):
                while True:  # until the other thread waits
                    with contextlib.suppress(loaderd.FeedTimeout):
                        feed.next(0)
                    time.sleep(0.001)
            os.kill(daemon.pid, signal.SIGKILL)
            thread.join()


@unittest.skipUnless(numpy, "no NumPy")
class Unpacking(unittest.TestCase):
    def test_images_and_labels(self):
        with open_feed() as feed:
            for images, labels in itertools.islice(feed, 6):
                self.assertEqual((images.shape, images.dtype), ((8, 4, 6, 3), numpy.uint8))
                self.assertEqual((labels.shape, labels.dtype), ((8,), numpy.int32))
            batch = next(feed)
            images, labels = batch
            self.assertEqual(images.ctypes.data, batch.buffer("images").address)
            self.assertIs(labels, batch.labels)
            self.assertEqual(len(batch), 8)

    def test_names(self):
        with open_feed(fields=["id", "text"]) as feed:
            batch = next(feed)
            self.assertEqual(batch.keys(), ("images", "labels", "samples", "flags", "id", "text"))
            self.assertTrue("id" in batch and "labels" in batch and "size" not in batch)
            self.assertEqual({name: len(value) for name, value in dict(batch).items()}, dict.fromkeys(batch.keys(), 8))
            for name in ("labels", "samples", "flags"):
                self.assertIs(batch[name], getattr(batch, name))
            self.assertEqual(batch["images"].ctypes.data, batch.images.ctypes.data)
            self.assertIs(batch["text"], batch.field("text"))
            for name in ("size", 0):
                with self.assertRaisesRegex(KeyError, f"{name!r} is none of images, labels, samples, flags, id, text"):
                    batch[name]

    def test_writes_to_copies_stay(self):
        with open_feed(fields=["id"]) as feed:
            batch = next(feed)
            batch.labels[:] = 5
            batch.field("id")[2] = 9
            self.assertEqual((batch["labels"].tolist(), batch["id"][2]), ([5] * 8, 9))
            if torch:
                self.assertEqual(batch.torch().labels.tolist(), [5] * 8)
            self.assertEqual(memoryview(batch.buffer("labels")).tolist(), list(range(8)))
            labels = batch.labels
            batch.release()
            self.assertEqual(labels.tolist(), [5] * 8)
            with self.assertRaisesRegex(ValueError, "released"):
                batch.labels

    def test_as_an_array(self):
        with open_feed() as feed:
            batch = next(feed)
            self.assertEqual(numpy.asarray(batch).ctypes.data, batch.images.ctypes.data)
            self.assertNotEqual(numpy.array(batch).ctypes.data, batch.images.ctypes.data)
            self.assertEqual(numpy.asarray(batch, dtype=numpy.float32)[5].max(), pixel(0, 5))


@unittest.skipUnless(jax and numpy, "no JAX")
class Jax(unittest.TestCase):
    def test_a_pytree(self):
        with open_feed() as feed:
            batch = next(feed)
            leaves, structure = jax.tree_util.tree_flatten(batch)
            self.assertEqual([leaf.shape for leaf in leaves], [(8, 4, 6, 3), (8,)])
            names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(batch)[0]]
            self.assertEqual(names, [".images", ".labels"])
            shapes = jax.tree_util.tree_map(lambda leaf: leaf.shape, batch)
            self.assertEqual((shapes.images, shapes.labels), ((8, 4, 6, 3), (8,)))

            @jax.jit
            def total(batch):
                images, labels = batch
                return images.astype("int32").sum() + batch.labels.sum()

            for batch in itertools.islice(feed, 6):
                self.assertEqual(int(total(batch)), int(batch.images.astype("int32").sum() + batch.labels.sum()))

    def test_arrays(self):
        with open_feed(timeout=PATIENCE) as feed:
            for batch in feed:
                for array in (jax.numpy.asarray(batch), jax.numpy.array(batch), jax.dlpack.from_dlpack(batch), jax.device_put(batch).images):
                    self.assertEqual((array.shape, str(array.dtype)), ((8, 4, 6, 3), "uint8"))
                    self.assertEqual(numpy.asarray(array).tobytes(), expected_bytes(batch))

    def test_arrays_outlive_their_batch(self):
        """JAX copies the batch or holds it: later batches do not overwrite an array that was made from an earlier one."""
        with open_feed(timeout=PATIENCE) as feed:
            for make in (jax.numpy.asarray, jax.device_put, lambda batch: jax.numpy.asarray(batch.images), jax.dlpack.from_dlpack):
                batch = next(feed)
                array, expected = jax.tree_util.tree_leaves(make(batch))[0], expected_bytes(batch)
                del batch
                for _ in range(3 * feed.slots):
                    next(feed)
                self.assertEqual(numpy.asarray(array).tobytes(), expected)

    def test_a_batch_made_before_jax(self):
        """JAX may be imported after the first batch: the next batch registers with it."""
        program = (
            "import sys, loaderd\n"
            "feed = loaderd.Feed('plain', daemon='private', batch_size=8)\n"
            "next(feed)\n"
            "assert 'jax' not in sys.modules\n"
            "import jax\n"
            "print(len(jax.tree_util.tree_leaves(next(feed))))\n"
        )
        result = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=10 * PATIENCE)
        self.assertEqual(result.stdout, "2\n")


@unittest.skipUnless(numpy, "no NumPy")
class NumPy(unittest.TestCase):
    def test_arrays(self):
        with open_feed() as feed:
            batch = next(feed)
            images = batch.images
            self.assertEqual((images.shape, images.dtype, images.flags.writeable), ((8, 4, 6, 3), numpy.uint8, True))
            self.assertEqual(images.ctypes.data, batch.buffer("images").address)
            self.assertEqual(images.ctypes.data % 64, 0)
            self.assertEqual(batch.labels.dtype, numpy.int32)
            self.assertEqual(batch.samples.dtype, numpy.uint64)
            self.assertEqual(batch.flags.tolist(), [0, 0, 0, 1, 0, 0, 0, 0])
            self.assertEqual(numpy.from_dlpack(batch).ctypes.data, images.ctypes.data)

    def test_elements(self):
        for name, kind in (("f16", numpy.float16), ("f32 nchw", numpy.float32)):
            with open_feed(pipeline=name) as feed:
                images = next(feed).images
                self.assertEqual(images.dtype, kind)
                self.assertEqual(images.shape, (8, 3, 4, 6) if "nchw" in name else (8, 4, 6, 3))
                self.assertEqual(images[5].max(), pixel(0, 5))


@unittest.skipUnless(torch, "no PyTorch")
class Torch(unittest.TestCase):
    def test_tensors(self):
        with open_feed() as feed:
            batch = next(feed)
            images, labels = batch.torch()
            self.assertEqual((images.shape, images.dtype), ((8, 3, 4, 6), torch.uint8))
            self.assertTrue(images.is_contiguous(memory_format=torch.channels_last))
            self.assertEqual(images.data_ptr(), batch.buffer("images").address)
            self.assertEqual((labels.dtype, labels.tolist()), (torch.int64, list(range(8))))
            self.assertEqual(batch.torch(layout="stored").images.shape, (8, 4, 6, 3))
            self.assertEqual(torch.from_dlpack(batch.buffer("samples")).tolist(), list(range(8)))
            self.assertEqual(batch.to("cpu").images.data_ptr(), images.data_ptr())

    def test_elements(self):
        for name, kind in (("f16", torch.float16), ("bf16", torch.bfloat16), ("f32", torch.float32)):
            with open_feed(pipeline=name) as feed:
                images = next(feed).torch().images
                self.assertEqual(images.dtype, kind)
                self.assertEqual(images[5].float().max().item(), pixel(0, 5))


if __name__ == "__main__":
    unittest.main()
