# a data set of some batches, and a training to be started for each rank
shapes images --count 600
packimg convert images/train -o train.pimg
packimg convert images/val -o val.pimg
cat >train.py <<'END'
from loaderd import Feed
with Feed("train.pimg", pipeline="random_resized_crop(32)", batch_size=16, rank="auto", daemon="system") as feed:
    next(feed)
END
