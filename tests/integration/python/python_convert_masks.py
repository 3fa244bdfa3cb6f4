"""python -m loaderd.convert: masks from run lengths, polygons and COCO's panoptic segments. Golden values are pycocotools' results."""

import contextlib
import io
import json
import shutil
import unittest

from images_test import ImagesTest, listed, numpy, packimg, pillow
from loaderd import convert
from loaderd.convert import _spans

WIDTH, HEIGHT = 9, 6


def drawn(spans, height=HEIGHT, width=WIDTH):
    """Returns the rows of a mask as strings of 0 and 1."""
    mask = _spans.ObjectMask(height, width, "u8")
    mask.paint(spans, 1)
    return ["".join(map(str, row)) for row in mask.pixels().tolist()]


class ConvertMasks(ImagesTest):
    def convert(self, source, *options, status=0):
        """Runs the converter in this process; returns its output."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            result = convert.main([str(self.dir / source), str(self.dir / "out.pimg"), "--force", *options])
        self.assertEqual(result, status, said.getvalue())
        return said.getvalue()

    def put(self, name, content):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))

    def image(self, name, mode="RGB", pixels=None):
        (self.dir / name).parent.mkdir(parents=True, exist_ok=True)
        (pillow.new(mode, (WIDTH, HEIGHT)) if pixels is None else pillow.fromarray(pixels)).save(self.dir / name)

    def mask(self, name, dataset="out.pimg"):
        """Returns the pixels of a mask of the only sample."""
        back = self.dir / f"back-{len(list(self.dir.iterdir()))}"
        packimg("extract", "-q", self.dir / dataset, "-o", back)
        with pillow.open(next(back.rglob(f"*.{name}.*"))) as opened:
            return numpy.asarray(opened).tolist()

    def test_shapes(self):
        """Run lengths, compressed or not, and polygons give pycocotools' pixels."""
        runs = [7, 3, 1, 2, 41]  # column by column: 7 pixels of 0, 3 of 1 ...
        wanted = ["001000000", "010000000", "010000000", "010000000", "000000000", "010000000"]
        for counts in (runs, "731OX1"):
            self.assertEqual(drawn(_spans.spans_of_runs(_spans.run_lengths([HEIGHT, WIDTH], counts))), wanted)
        self.assertEqual(drawn(_spans.spans_of_polygon([1.2, 0.7, 7.9, 1.1, 4.4, 5.6, -2, 3], HEIGHT, WIDTH)), [
            "000000000", "111111110", "111111100", "111111000", "001110000", "000000000"])
        self.assertEqual(drawn(_spans.spans_of_polygon([6, -3, 20, 3, 6, 9.5, 7.5, 3], HEIGHT, WIDTH)), ["000000011"] * 6)
        self.assertEqual(drawn(_spans.spans_of_polygon([6.7, 0.5, 7.7, 3.4, 0, 0.3], HEIGHT, WIDTH)), ["111000000", "000111100", "000000110", *["000000000"] * 3])

    def coco(self, *annotations, **image):
        """Writes a COCO dataset of one image."""
        self.image("coco/0.png")
        self.put("coco/_annotations.coco.json", {
            "images": [{"id": 5, "file_name": "0.png", **image}], "categories": [{"id": 1, "name": "car"}],
            "annotations": [{"id": 70 + i, "image_id": 5, "category_id": 1, "bbox": [0, 0, 9, 6], **item} for i, item in enumerate(annotations)]})

    @unittest.skipUnless(pillow and numpy, "needs Pillow and NumPy")
    def test_coco_instances(self):
        """Where objects overlap, a pixel has the number of the smallest one; crowds are below all others."""
        polygon, inner = {"segmentation": [[0, 0, 4, 0, 4, 3, 0, 3]]}, {"segmentation": [[1, 1, 3, 1, 3, 2, 1, 2]]}
        crowd, single = ({"segmentation": {"size": [HEIGHT, WIDTH], "counts": [0, count, HEIGHT * WIDTH - count]}, "iscrowd": crowd} for count, crowd in ((6, 1), (11, 0)))
        self.coco(inner, crowd, {}, polygon, height=HEIGHT, width=WIDTH)
        said = self.convert("coco")
        self.assertIn("instances   mask(image) u8[h,w]", said)
        self.assertIn("crowds lie below all others; objects that lost pixels to others: 2, without any pixel: 0", said)
        self.assertEqual(self.mask("instances"), [[4, 4, 4, 4] + [0] * 5, [4, 1, 1, 4] + [0] * 5, [4, 4, 4, 4] + [0] * 5] + [[2] + [0] * 8] * 3)
        fields = listed(self.dir / "out.pimg")[0]["fields"]
        self.assertEqual((fields["instance"], fields["rle"]), ([1, 2, 0, 4], {"71": crowd["segmentation"]}))
        twice = {"segmentation": [*inner["segmentation"] * 4, [0, 0, 2, 0, 2, 3, 0, 3]]}  # 7 pixels, although its polygons add up to 14
        self.coco(polygon, twice, height=HEIGHT, width=WIDTH)
        self.convert("coco", "--masks", "instances")
        self.assertEqual(self.mask("instances")[:3], [[2, 2, 1, 1] + [0] * 5, [2, 2, 2, 1] + [0] * 5, [2, 2, 1, 1] + [0] * 5])
        self.coco(single, polygon)  # the run lengths give the image's size
        self.convert("coco")
        self.assertEqual(self.mask("instances")[0], [1, 1, 2, 2] + [0] * 5)
        self.coco(polygon, height=HEIGHT, width=WIDTH)
        self.assertNotIn("instances", self.convert("coco"))
        self.convert("coco", "--masks", "instances")
        self.assertEqual(self.mask("instances")[:4], [[1] * 4 + [0] * 5] * 3 + [[0] * 9])
        self.coco(*[polygon] * 300, height=HEIGHT, width=WIDTH)
        self.assertIn("objects that lost pixels to others: 299, without any pixel: 299", self.convert("coco", "--masks", "instances"))
        self.assertEqual(self.mask("instances")[0], [300] * 4 + [0] * 5)
        self.coco(polygon, height=HEIGHT)
        self.assertIn("json: image 5, 0.png: its width is missing; it has to be a whole number, to draw polygons; --masks none", self.convert("coco", "--masks", "instances", status=2))
        self.image("masks/images/0.png")
        self.image("masks/masks/0.png", "L")
        self.assertIn("--masks none: sources of the format masks have no such choice", self.convert("masks", "--masks", "none", status=2))

    @unittest.skipUnless(pillow, "needs Pillow")
    def test_run_lengths_that_are_malformed(self):
        size = [HEIGHT, WIDTH]
        for segmentation, told in (
            ({"size": size, "counts": [7, 3, 1]}, "counts add up to 11, but a mask of height 6 and width 9 has 54 pixels; encode the mask again"),
            ({"size": size, "counts": [60, -6]}, "count 1 is -6; lengths of runs are 0 or more"),
            ({"size": size, "counts": [54.0]}, "counts is [54.0], neither a list of whole numbers nor a text"),
            ({"size": size}, "counts is None, neither"),
            ({"size": size, "counts": "73 OX1"}, "character 2 of counts is ' '; those of compressed counts are '0' to 'o'"),
            ({"size": size, "counts": "731OX"}, "counts ends within a number: the string is cut off"),
            ({"size": size, "counts": "oooooooo1"}, "the number in counts that ends after character 6 has more than 7 digits"),
            ({"size": [6], "counts": []}, "size is [6], not [height, width]"),
            ({"counts": []}, "size is None, not [height, width]"),
            ({"size": [1 << 20, 1 << 20], "counts": []}, "size is [1048576, 1048576], more than 1073741824 pixels"),
            ({"size": [9, 6], "counts": [54]}, "size is [9, 6], but the height of its image, 0.png, is 6: correct either"),
        ):
            self.coco({"segmentation": [[0, 0, 1, 0, 1, 1]]}, {"segmentation": segmentation}, height=HEIGHT, width=WIDTH)
            with self.subTest(told):
                said = self.convert("coco", status=2)
                self.assertIn(f"_annotations.coco.json: annotations[1] with id 71: its segmentation: {told.split(':')[0]}", said)
                self.assertIn(told, said)
        self.coco(*({"segmentation": {"size": size, "counts": [54]}} for size in ([9, 6], [6, 9])))
        self.assertIn("annotation 71: its segmentation: size is [6, 9], but that of annotation 70, of the same image, is another", self.convert("coco", status=2))

    def panoptic(self, segments, split="val2017", **annotation):
        """Writes COCO's panoptic annotations of one image. The segment ids in the PNG are 1 + 256 * 2 on the left, 3 + 65536 in the middle
        and 0 on the right.
        """
        ids = numpy.zeros((HEIGHT, WIDTH, 3), "uint8")
        ids[:, :3], ids[:, 3:6] = (1, 2, 0), (3, 0, 1)
        self.image(f"pan/{split}/0.png")
        self.image(f"pan/annotations/panoptic_{split}/0.png", pixels=ids)
        self.put(f"pan/annotations/panoptic_{split}.json", {
            "images": [{"id": 5, "file_name": "0.png"}], "categories": [{"id": 7, "name": "sky", "isthing": 0}, {"id": 2, "name": "car", "isthing": 1}],
            "annotations": [{"image_id": 5, "file_name": "0.png", "segments_info": segments, **annotation}]})

    @unittest.skipUnless(pillow and numpy, "needs Pillow and NumPy")
    def test_panoptic(self):
        """Pixels are numbers of segments, or of classes if requested; a folder that also has an instances file is read as COCO."""
        segments = [{"id": 65539, "category_id": 7}, {"id": 513, "category_id": 2, "iscrowd": 1, "bbox": [0, 0, 3, 5], "area": 4}]
        self.panoptic(segments)
        said = self.convert("pan")
        self.assertIn("panoptic    mask(image) u8[h,w]", said)
        self.assertNotIn("\n  mask ", said)
        self.assertEqual(listed(self.dir / "out.pimg")[0]["fields"], {
            "boxes": [[3, 0, 3, 6], [0, 0, 3, 5]], "class": [1, 0], "id": [65539, 513], "area": [18, 4], "iscrowd": [0, 1], "isthing": [0, 1], "segment": [1, 2]})
        self.assertEqual(self.mask("panoptic"), [[2, 2, 2, 1, 1, 1, 0, 0, 0]] * HEIGHT)
        self.convert("pan/annotations/panoptic_val2017.json", "--masks", "classes")
        self.assertEqual(self.mask("mask"), [[0, 0, 0, 1, 1, 1, 255, 255, 255]] * HEIGHT)
        for top, images in (("ade", "images/validation"), ("city", "leftImg8bit/val/ulm")):  # the folder layouts in which panopticapi's
                                                                                             # users keep these datasets
            there = self.dir / top / ("gtFine" if top == "city" else "")
            self.image(f"{top}/{images}/0.png")
            shutil.copytree(self.dir / "pan/annotations/panoptic_val2017", there / f"{top}_panoptic_val")
            shutil.copy(self.dir / "pan/annotations/panoptic_val2017.json", there / f"{top}_panoptic_val.json")
            self.convert(there / f"{top}_panoptic_val.json")
        self.panoptic(segments, "train2017")
        self.convert("pan")
        self.assertEqual(self.mask("panoptic", "out-train2017.pimg"), [[2, 2, 2, 1, 1, 1, 0, 0, 0]] * HEIGHT)
        self.put("pan/annotations/instances_val2017.json", {"images": [{"id": 5, "file_name": "0.png"}]})
        self.assertIn("panoptic segments are left out: --format panoptic converts them", self.convert("pan"))
        self.convert("pan", "--format", "panoptic")

    @unittest.skipUnless(pillow and numpy, "needs Pillow and NumPy")
    def test_panoptic_that_is_wrong(self):
        good = [{"id": 65539, "category_id": 7}, {"id": 513, "category_id": 2}]
        for segments, more, told in (
            (good[:1], {}, "panoptic_val2017/0.png has 18 pixels of id 513 or others that segments_info does not list"),
            ([*good, good[0]], {}, "annotations[0]: segments_info[2]: its id is 65539; ids are 1 .. 16777215"),
            ([{"id": 0, "category_id": 7}], {}, "its id is 0; ids are"),
            ([{"id": 1, "category_id": 3}], {}, "its category_id is 3, which is not in the list"),
            ([{"id": 1}], {}, "its category_id is missing; it has to be a whole number"),
            (None, {}, "annotations[0]: its segments_info is missing; it has to be a list"),
            ([{"id": 1, "category_id": 7, "bbox": [1]}], {}, "its bbox is [1], not the four numbers"),
            (good, {"image_id": 6}, "its image_id is 6, which is not in the list of images"),
            (good, {"file_name": None}, "its file_name is missing"),
        ):
            self.panoptic(segments, **more)
            with self.subTest(told):
                self.assertIn(told, self.convert("pan", "--format", "panoptic", status=2))
        self.panoptic(good)
        self.image("pan/annotations/panoptic_val2017/0.png", "L")
        self.assertIn("0.png: its pixels are L, not RGB", self.convert("pan", status=2))
        self.put("pan/annotations/panoptic_val2017/0.png", "")
        self.assertIn("0.png: Pillow cannot read it", self.convert("pan", status=1))
        (self.dir / "pan/annotations/panoptic_val2017").rename(self.dir / "moved")
        self.assertIn("unpack panoptic_val2017.zip there", self.convert("pan", status=2))

    @unittest.skipUnless(pillow and numpy, "needs Pillow and NumPy")
    def test_open_images(self):
        """A segmentation gets the number of the box with its class and corners, and the image's size; groups are below all others."""
        self.image("oi/validation/a.png")
        header = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf"
        boxes = ("/m/1,1,0,0.5,0,1,0,0,0", "/m/2,1,0.25,1,0,1,0,0,0", "/m/1,1,0.25,1,0,1,0,0,1")
        self.put("oi/validation-annotations-bbox.csv", "\n".join([header, *(f"a,xclick,{box}" for box in boxes)]))
        rows = ("one,a,/m/1,0,0.5,0,1", "group,a,/m/1,0.2504,1,0,1", "far,a,/m/2,0.5,1,0,1", "two,a,/m/2,0.25,1,0,1", "gone,a,/m/1,0,0.5,0,1")
        self.put("oi/validation-annotations-object-segmentation.csv", "\n".join(["MaskPath,ImageID,LabelName,BoxXMin,BoxXMax,BoxYMin,BoxYMax",
                                                                                *(row.replace(",a", ".png,a") for row in rows)]))
        self.assertIn("left out 5 segmentations, whose PNGs are not in validation-masks*, masks/validation,", self.convert("oi"))
        for name, columns in (("one", slice(0, 10)), ("group", slice(0, 4)), ("two", slice(8, 12)), ("far", slice(12, 18))):
            pixels = numpy.zeros((2 * HEIGHT, 2 * WIDTH), "uint8")
            pixels[:, columns] = 255
            self.image(f"oi/validation-masks-0/{name}.png", pixels=pixels)
        said = self.convert("oi")
        self.assertIn("left out 1 segmentations, whose PNGs are not in", said)
        self.assertIn("left out 1 segmentations that no box has the class and corners of", said)
        self.assertEqual(listed(self.dir / "out.pimg")[0]["fields"]["instance"], [1, 2, 3])
        self.assertEqual(self.mask("instances"), [[1, 1, 1, 1, 2, 2, 0, 0, 0]] * HEIGHT)
        self.assertIn("objects that lost pixels to others: 2, without any pixel: 1", said)
        self.put("oi/validation-masks-0/two.png", "")
        self.assertIn("two.png: Pillow cannot read it: ", self.convert("oi", status=2))
        self.assertNotIn("instances", self.convert("oi", "--masks", "none"))


if __name__ == "__main__":
    unittest.main()
