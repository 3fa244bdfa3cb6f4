"""Writes the images of a list (CSV with paths) as MDS shards: mds.py LIST FOLDER."""

import csv
import sys

from streaming import MDSWriter

with open(sys.argv[1], newline="") as file, MDSWriter(out=sys.argv[2], columns={"image": "bytes"}) as writer:
    for row in csv.DictReader(file):
        with open(row["path"], "rb") as image:
            writer.write({"image": image.read()})
