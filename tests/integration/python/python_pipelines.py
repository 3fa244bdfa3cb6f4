"""loaderd.pipelines() compared with the daemon ($LOADERD): the daemon accepts what the list allows, and refuses numbers beyond its bounds."""

import os
import subprocess
import sys
import tempfile
import unittest
from math import nan

import loaderd

SAMPLES = {"N": "3", "N or WxH": "3", "N, WxH or a schedule": "8", "N or LOW:HIGH": "0.2:0.3"}


# steps that must follow these
_NEEDED_AFTER = {"normalize": " to(f32)", "random_zoom_out": " resize(16x16)", "random_iou_crop": " resize(16x16)"}


# values that must be requested with these steps
_VALUES = {"clamp_boxes": "boxes", "sanitize_boxes": "boxes", "random_iou_crop": "boxes", "copy_paste": "polygons", "fill": "depth", "filter": "depth"}
# value to which these steps must apply
_NAMED = {"fill": "depth: ", "filter": "depth: "}
# elements of masks that images cannot have
_ELEMENTS = ("u16", "i16", "i32", "i64")

_SCHEMA = """
    image: image u8[h,w,3]
    boxes: boxes(image) f32[*,4] xyxy
    mask: mask(image) u8[h,w] sparse
    depth: raster(image) f32[h,w] sparse
    polygons: polygons(boxes) f32[*,2]
"""


def call(step, **given):
    """Returns the step with these arguments, and everything else that it requires."""
    for argument in step.arguments:
        if argument.required and argument.name not in given:
            given[argument.name] = SAMPLES[argument.form] if argument.form else argument.words[0]
    if step.name == "normalize" and not {"statistics", "mean"} & set(given):
        given["statistics"] = "imagenet"
    text = f"{step.name}({', '.join(f'{name}={value}' for name, value in given.items())})"
    named = "mask: " if given.get("type") in _ELEMENTS else _NAMED.get(step.name, "")
    return named + text + _NEEDED_AFTER.get(step.name, "")


class Pipelines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        images, cls.path = os.path.join(cls.folder.name, "images"), os.path.join(cls.folder.name, "data.pimg")
        subprocess.run([os.environ["SHAPES"], images, "--count", "40"], check=True, capture_output=True)
        subprocess.run([os.environ["PACKIMG"], "convert", os.path.join(images, "train"), "-o", cls.path], check=True, capture_output=True)

        cls.typed = os.path.join(cls.folder.name, "typed.pimg")
        with loaderd.Writer(cls.typed, _SCHEMA) as writer:
            writer.add({"image": memoryview(bytes(1200)).cast("B", (20, 20, 3)), "boxes": [[0, 0, 9, 9]], "mask": None, "depth": None, "polygons": [[nan, nan]]})

    def open(self, step, text):
        values = ["mask"] if text.startswith("mask: ") else [_VALUES[step.name]] if step.name in _VALUES else []
        buckets = [(16, 16), (24, 16)] if step.name == "bucket_resize" else None
        pipeline = text if buckets or step.name in ("mosaic", "patch_resize") else f"resize(16x16) {text}"
        with loaderd.Feed(self.typed if values else self.path, pipeline=pipeline, batch_size=2, values=values, buckets=buckets, daemon="private"):
            pass

    def test_defaults_are_taken(self):
        for step in loaderd.pipelines():
            with self.subTest(step.name):
                defaults = {one.name: one.default for one in step.arguments if one.default not in (None, "none")}
                self.open(step, call(step, **defaults))

    def test_words_are_taken(self):
        for step in loaderd.pipelines():
            for argument in step.arguments:
                for word in argument.words:
                    with self.subTest(step.name, argument=argument.name, word=word):
                        self.open(step, call(step, **{argument.name: word}))

    def test_bounds_are_refused(self):
        count = 0
        for step in loaderd.pipelines():
            for argument in step.arguments:
                if not argument.form:
                    continue
                with self.subTest(step.name, argument=argument.name):
                    beyond = f"{2 * argument.maximum + 2:.0f}"
                    value = f"{beyond}:{beyond}" if argument.form == "LOW:HIGH" else beyond
                    with self.assertRaisesRegex(loaderd.BadPipeline, "^pipeline: at byte") as refused:
                        self.open(step, call(step, **{argument.name: value}))
                    self.assertIn(f"{argument.maximum:.7g}", str(refused.exception))
                    count += 1
        self.assertGreater(count, 55)

    def test_printed(self):
        def run(*words):
            return subprocess.run([sys.executable, "-m", "loaderd", *words], capture_output=True, text=True, check=False)

        printed = run("steps").stdout
        for step in loaderd.pipelines():
            self.assertIn(f"{step.signature}\n    {step.text}\n", printed)
        one = run("steps", "hflip").stdout
        self.assertEqual(one, "hflip(p=0.5)\n    Mirrors left to right with probability p.\n        p                   N, from 0 to 1, or alternate\n\n")
        unknown = run("steps", "hfilp")
        self.assertEqual((unknown.returncode, unknown.stdout), (1, ""))
        self.assertIn("there is no step 'hfilp'", unknown.stderr)
        self.assertIn(loaderd.__version__, run("--version").stdout)


if __name__ == "__main__":
    unittest.main()
