"""Makes the data of the rows mix-512 and buckets-512 from the images of mask512: folders of links, and shards of WebDataset.

Of mix, dataset 0 has every second photograph, with all its copies, and dataset 1 the others.
"""

import os
import tarfile

SHARDS = 16  # of a WebDataset, so that its workers and its order have several


def linked(source, folder, keep, copies=1):
    """Links the images of `source` whose number keep() accepts to folder/photo; preparesamples.py names them NUMBER-COPY.jpg."""
    photos = folder / "photo"
    photos.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        for copy in range(copies) if keep(int(path.name.split("-")[0])) else ():
            os.link(path, photos / f"{path.stem}-{copy}.jpg")


def link_mix(source, folder):
    for part in range(2):
        linked(source, folder / str(part), lambda number, part=part: number % 2 == part)


def link_buckets(source, folder, copies):
    linked(source, folder, lambda number: True, copies)


def write_tars(source, folder):
    """Writes the shards of a WebDataset for each dataset of link_mix(): KEY.jpg, nothing else."""
    for part in sorted(source.iterdir()):
        (folder / part.name).mkdir(parents=True)
        paths = sorted(part.glob("photo/*.jpg"))
        for shard in range(SHARDS):
            with tarfile.open(folder / part.name / f"{shard:03}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
                for path in paths[shard::SHARDS]:
                    tar.add(path, path.name)
