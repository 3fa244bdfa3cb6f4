# a dataset of several batches, and a training script that is started once per rank
shapes images --count 600
packimg convert images/train -o train.pimg
packimg convert images/val -o val.pimg
packimg convert images/val -o more.pimg
cat >train.py <<'END'
from loaderd import Feed
with Feed("train.pimg", pipeline="random_resized_crop(32)", batch_size=16, rank="auto", daemon="system") as feed:
    next(feed)
END
