"""Packs images/ and depth/ of preparesamples.py with loaderd's Writer: JPEGs as they are, depths without loss. packdepth.py FOLDER OUT"""

import sys
from pathlib import Path

import loaderd

folder = Path(sys.argv[1])
with loaderd.Writer(sys.argv[2], {"image": "image u8[h,w,3]", "depth": "raster(image) u16[h,w]"}, overwrite=True) as writer:
    for image in sorted((folder / "images").iterdir()):
        writer.add({"image": image, "depth": folder / "depth" / f"{image.stem}.png", "key": image.name})
