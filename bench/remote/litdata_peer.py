"""litData: chunks of 64 MB, copied to the cache; a folder of this machine is read in place."""

import os

import litdata
import litdata.streaming.downloader
import peer

litdata.streaming.downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = "true"  # no option of the package allows it


def write(paths, folder):
    cache = litdata.streaming.Cache(folder, chunk_bytes="64MB")
    for number, image in enumerate(peer.images(paths)):
        cache[number] = {"image": image}
    cache.done()
    cache.merge()


class Images(litdata.StreamingDataset):
    def __getitem__(self, index):
        return peer.crop(super().__getitem__(index)["image"])


def read(place, cache):
    access = {"storage_options": {"endpoint_url": os.environ["AWS_ENDPOINT_URL"]}} if place.startswith("s3://") else {}
    data = Images(place, cache_dir=cache, shuffle=True, drop_last=False, max_cache_size="100GB", **access)
    return litdata.StreamingDataLoader(data, batch_size=peer.BATCH, num_workers=peer.WORKERS, shuffle=True)


if __name__ == "__main__":
    peer.main(write, read)
