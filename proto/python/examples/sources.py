"""Small datasets of drawn shapes in the formats of real ones, for examples without data. Each function fills a folder and returns the path to convert."""

import csv
import json
import random

import numpy as np
from PIL import Image, ImageDraw

SIZE = WIDTH, HEIGHT = 96, 72
COUNT = 32
CLASSES = ("rectangle", "ellipse")
COLOURS = {"red": (220, 40, 40), "green": (40, 200, 60), "blue": (50, 80, 230)}
POINTS = ("left", "right", "top", "bottom")


def scene(number):
    """An image, and its shapes: class, colour, and a box (left, top, right, bottom) in whole pixels; right and bottom are exclusive."""
    draw = random.Random(number)
    image = Image.new("RGB", SIZE, tuple(draw.choices(range(100, 160), k=3)))
    shapes = []
    for column in range(draw.randint(1, 3)):
        width, height = draw.randint(20, 30), draw.randint(20, 40)
        left, top = 32 * column + draw.randint(0, 32 - width), draw.randint(0, HEIGHT - height)
        shape = {"class": draw.randrange(2), "colour": draw.choice(list(COLOURS)), "box": (left, top, left + width, top + height)}
        paint(image, shape, COLOURS[shape["colour"]])
        shapes.append(shape)
    return image, shapes


def paint(image, shape, value):
    left, top, right, bottom = shape["box"]
    draw = ImageDraw.Draw(image)
    (draw.ellipse if shape["class"] else draw.rectangle)((left, top, right - 1, bottom - 1), fill=value)


def mask(shapes, value):
    """An image with value(i, shape) in the pixels of shape i, and 0 elsewhere."""
    painted = Image.new("L", SIZE)
    for i, shape in enumerate(shapes):
        paint(painted, shape, value(i, shape))
    return painted


def class_mask(shapes):
    return mask(shapes, lambda i, shape: shape["class"] + 1)


def number_mask(shapes):
    return mask(shapes, lambda i, shape: i + 1)


def depth_mask(shapes):
    depths = [0, *(5000 + 40 * shape["box"][3] for shape in shapes)]
    return Image.fromarray(np.array(depths, np.uint16)[np.array(number_mask(shapes))])


def points(shape):
    """The midpoints of a shape's sides, in the order of POINTS."""
    left, top, right, bottom = shape["box"]
    x, y = (left + right - 1) / 2, (top + bottom - 1) / 2
    return (left, y), (right - 1, y), (x, top), (x, bottom - 1)


def caption(shapes):
    return " and ".join(f"a {shape['colour']} {CLASSES[shape['class']]}" for shape in shapes)


def colours(shapes):
    """For each colour, whether it occurs: 0 or 1."""
    return {name: int(any(shape["colour"] == name for shape in shapes)) for name in COLOURS}


def measures(shapes):
    """The share of the image that boxes of shapes cover, and the number of shapes."""
    area = sum((right - left) * (bottom - top) for left, top, right, bottom in (shape["box"] for shape in shapes))
    return {"covered": area / (WIDTH * HEIGHT), "shapes": len(shapes)}


def folders(folder, *names):
    for name in names:
        (folder / name).mkdir(parents=True)
    return [folder / name for name in names]


def coco(folder, kind):
    """COCO's images and one of its files of annotations: instances, person_keypoints or captions. Returns that file."""
    images, annotations = folders(folder, "train2017", "annotations")
    listed, found = [], []
    for number in range(COUNT):
        image, shapes = scene(number)
        image.save(images / f"{number:012}.jpg", quality=95)
        listed.append({"id": number, "file_name": f"{number:012}.jpg", "width": WIDTH, "height": HEIGHT})
        if kind == "captions":
            found.append({"id": len(found), "image_id": number, "caption": caption(shapes)})
            continue
        for shape in shapes:
            left, top, right, bottom = shape["box"]
            found.append({
                "id": len(found), "image_id": number, "category_id": 10 * shape["class"] + 1, "bbox": [left, top, right - left, bottom - top],
                "area": (right - left) * (bottom - top), "iscrowd": 0, "segmentation": [[left, top, right, top, right, bottom, left, bottom]],
            })  # fmt: skip
            if kind == "person_keypoints":
                found[-1].update(keypoints=[value for point in points(shape) for value in (*point, 2)], num_keypoints=len(POINTS), category_id=1)
    categories = [{"id": 10 * i + 1, "name": name} for i, name in enumerate(CLASSES)]
    if kind == "person_keypoints":
        categories = [{"id": 1, "name": "shape", "keypoints": POINTS, "skeleton": []}]
    path = annotations / f"{kind}_train2017.json"
    path.write_text(json.dumps({"images": listed, "annotations": found, **({} if kind == "captions" else {"categories": categories})}))
    return path


def ade20k(folder):
    """Images, and masks of classes, 0 for none. Returns the folder."""
    images, masks = folders(folder, "images/training", "annotations/training")
    for number in range(COUNT):
        image, shapes = scene(number)
        image.save(images / f"ADE_train_{number:08}.jpg", quality=95)
        class_mask(shapes).save(masks / f"ADE_train_{number:08}.png")
    return folder


def penn_fudan(folder):
    """Images, and masks in which each object has a different number. Returns the folder."""
    images, masks = folders(folder, "PNGImages", "PedMasks")
    for number in range(COUNT):
        image, shapes = scene(number)
        image.save(images / f"FudanPed{number:05}.png")
        number_mask(shapes).save(masks / f"FudanPed{number:05}_mask.png")
    return folder


def rgbd(folder):
    """Images, and 16-bit PNGs with the depth in units of 1/5000 m, 0 where it is unknown, as in TUM's RGB-D benchmark. Returns the folder."""
    colours, depths = folders(folder, "rgb", "depth")
    for number in range(COUNT):
        image, shapes = scene(number)
        image.save(colours / f"{number:06}.png")
        depth_mask(shapes).save(depths / f"{number:06}.png")
    return folder


def images(folder):
    """Images without labels. Returns the folder."""
    folders(folder, ".")
    for number in range(COUNT):
        scene(number)[0].save(folder / f"{number:06}.jpg", quality=95)
    return folder


def size_of_image(number):
    """Width and height of an image of images_in_several_sizes(): landscape, portrait or square."""
    return (SIZE, SIZE[::-1], (HEIGHT, HEIGHT))[number % 3]


def images_in_several_sizes(folder):
    """As images(), landscapes, portraits and squares. Returns the folder."""
    folders(folder, ".")
    for number in range(COUNT):
        image, size = scene(number)[0], size_of_image(number)
        image = image.crop((0, 0, *size)) if size[0] >= size[1] else image.rotate(90, expand=True)
        image.save(folder / f"{number:06}.jpg", quality=95)
    return folder


def table(folder, columns):
    """Images, and a CSV table with a row for each: its path, and the dictionary columns(shapes). Returns the table."""
    (images,) = folders(folder, "images")
    rows = []
    for number in range(COUNT):
        image, shapes = scene(number)
        image.save(images / f"{number:06}.jpg", quality=95)
        rows.append({"path": f"images/{number:06}.jpg", **columns(shapes)})
    with open(folder / "train.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return folder / "train.csv"


def multi_label(folder):
    return table(folder, colours)


def regression(folder):
    return table(folder, measures)
