# a small tree with ImageNet's layout, a dataset without scan indexes, WebDataset shards, and a store with a dataset
shapes images --count 240
mkdir -p imagenet
mv images/train imagenet/train
packimg convert images/val -o old.pimg --no-index
python3 - <<'PYTHON'
import io, pathlib, tarfile
images = sorted(pathlib.Path("imagenet/train").rglob("*.jpg"))
for shard in range(332):
    with tarfile.open(f"cc3m-{shard:05}.tar", "w") as tar:
        for name, data in ((f"{shard:09}.jpg", images[shard % len(images)].read_bytes()), (f"{shard:09}.txt", b"a caption")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
PYTHON
! packimg info s3://bucket/x.pimg 2>&1 | grep -q 'built without' || exit 77
python3 "$(dirname "${BASH_SOURCE[0]}")/../integration/store/object_store.py" store.env val.pimg=old.pimg >/dev/null 2>&1 </dev/null &
until [ -e store.env ]; do sleep 0.05; done
. ./store.env
