"""Lance: fragments of 1000 images, taken at random by processes that its loader spawns. The server lists no folders, so the version is given."""

import os

import lance
import lance.torch.data
import peer
import pyarrow


def write(paths, folder):
    schema = pyarrow.schema([("image", pyarrow.large_binary())])
    batches = (pyarrow.record_batch([pyarrow.array(images, pyarrow.large_binary())], schema=schema) for images in peer.in_shards(peer.images(paths)))
    lance.write_dataset(pyarrow.RecordBatchReader.from_batches(schema, batches), folder, mode="overwrite", max_rows_per_file=peer.SHARD_SAMPLES)


def read(place, _):
    options = {"version": 1}
    if place.startswith("s3://"):
        options["storage_options"] = {"aws_endpoint": os.environ["AWS_ENDPOINT_URL"], "allow_http": "true"}
    data = lance.torch.data.SafeLanceDataset(place, dataset_options=options)
    return lance.torch.data.get_safe_loader(
        data, batch_size=peer.BATCH, num_workers=peer.WORKERS, shuffle=True, collate_fn=peer.crop_all, prefetch_factor=2
    )


if __name__ == "__main__":
    peer.main(write, read)
