"""The factors of recipes and their levels, with the settings of each level. A factor's first level is off or plain.

A new method is a level of a factor, or a new factor if it can be combined with all others. Only rows of trainer/recipe/recipe_pairs.inc define which levels exclude
each other. METHOD_PAIRS_STEPS is the number of steps of a recipe.
"""

import os

STEPS = int(os.environ.get("METHOD_PAIRS_STEPS", "5"))

# Settings that all runs share, small enough for an emulated GPU.
BASE = [
    "data.pipeline=random_crop(48)",
    "data.val_pipeline=center_crop(48)",
    "data.batch_size=8",
    "data.threads=1",
    "train.seed=3",
    "train.threads=1",
    "train.precision=fp32",
    f"train.epochs={STEPS / 2}",
    "optim.lr=0.002",
    "optim.weight_decay=0.01",
    "log.interval=1",
    "log.progress=off",
    "checkpoint.every=0",
    "checkpoint.best=no",
]
IMAGES = 22  # two steps per epoch
RESUMED = 3  # step of the checkpoint, in the middle of an epoch

DIVIDED = "vit in two parts"  # of two ranks (method_pairs.py)

FACTORS = {
    "network": {
        "resnet18": ["model.name=resnet18", "model.width=0.125"],
        "resnet50": ["model.name=resnet50", "model.width=0.125"],
        "resnext50": ["model.name=resnext50_32x4d", "model.width=0.25"],
        "resnet_cifar": ["model.name=resnet_cifar", "model.depth=8"],
        "vit": ["model.name=vit_tiny_patch16", "model.width=0.25", "model.patch=16", "model.image_size=48"],
        "vit of means": ["model.name=vit_tiny_patch16", "model.width=0.25", "model.patch=16", "model.image_size=48", "model.pool=average", "model.layer_scale=0.1"],
        "vit of dropped keys": ["model.name=vit_tiny_patch16", "model.width=0.25", "model.patch=16", "model.image_size=48", "model.attention_dropout=0.2"],
        DIVIDED: ["model.name=vit_small_patch16", "model.width=0.125", "model.patch=16", "model.image_size=48", "train.tensor=2"],
        "convnext": ["model.name=convnext_tiny", "model.width=0.125"],
        "speednet": ["model.name=speednet", "model.width=0.25"],
        "speednet in gelu": ["model.name=speednet", "model.width=0.25", "model.activation=gelu"],
    },
    "stem": {"auto": [], "deep": ["model.stem=deep"]},
    "stride": {"3x3": [], "1x1": ["model.stride_in=1x1"]},
    "shortcut": {"conv": [], "average": ["model.downsample=average"]},
    "blur": {"none": [], "convs": ["model.blur=convs"], "all": ["model.blur=all"]},
    "excite": {"no": [], "yes": ["model.squeeze_excite=yes"]},
    "drop path": {"none": [], "some": ["model.drop_path=0.2"]},
    "dropout": {"none": [], "some": ["model.dropout=0.2"]},
    "statistics": {"of batches": [], "of groups": ["model.ghost_batch=3"]},
    "start": {"zeros": [], "ones": ["model.zero_init=no"]},
    "logits": {"plain": [], "scaled": ["model.logit_scale=0.5"]},
    "optimizer": {
        "sgd": [],
        "heavy ball": ["optim.nesterov=no"],
        "no momentum": ["optim.nesterov=no", "optim.momentum=0"],
        # Low rates: optimizers that divide by the gradient's magnitude amplify rounding errors in small gradients.
        "adam": ["optim.name=adam", "optim.lr=0.0003"],
        "adamw": ["optim.name=adamw", "optim.lr=0.0003"],
        "lars": ["optim.name=lars", "optim.lr=0.1"],
        "lamb": ["optim.name=lamb", "optim.lr=0.001"],
        "muon": ["optim.name=muon", "optim.lr=0.002", "optim.adamw_lr=0.15"],
        "muon as adamw": ["optim.name=muon", "optim.lr=0.0003", "optim.match_rms=yes", "optim.adamw_lr=1", "optim.ns_steps=3"],
    },
    "decay": {"coupled": [], "decoupled": ["optim.decay=decoupled"]},
    "decayed": {"weights": [], "all": ["optim.decay_all=yes"]},
    "biases": {"plain": [], "faster": ["optim.bias_lr=4"]},
    "gradients": {"plain": [], "centralized": ["optim.centralize=yes"]},
    "norm": {"any": [], "clipped": ["optim.clip_norm=0.2"]},
    "values": {"any": [], "clipped": ["optim.clip_value=0.002"]},
    "rate": {
        "any batch": [],
        "linear": ["optim.lr_base_size=16"],
        "sqrt": ["optim.lr_base_size=16", "optim.lr_base_scale=sqrt"],
    },
    "schedule": {
        "cosine": ["schedule.name=cosine"],
        "restarts": ["schedule.name=cosine", "schedule.period=1", "schedule.cycle_mul=1.5", "schedule.cycle_decay=0.5"],
        "constant": ["schedule.name=constant"],
        "linear": ["schedule.name=linear", "schedule.final=0.1"],
        "step": ["schedule.name=step", "schedule.step=1"],
        "multi_step": ["schedule.name=multi_step", "schedule.milestones=1"],
        "exponential": ["schedule.name=exponential"],
        "polynomial": ["schedule.name=polynomial", "schedule.power=2"],
        "one_cycle": ["schedule.name=one_cycle"],
        "cycled momentum": ["schedule.name=one_cycle", "schedule.anneal=cosine", "schedule.base_momentum=0.7"],
        "triangular": ["schedule.name=triangular", "schedule.period=2"],
        "triangular2": ["schedule.name=triangular2", "schedule.period=2"],
        "exp_range": ["schedule.name=exp_range", "schedule.period=2"],
        "trapezoid": ["schedule.name=trapezoid", "schedule.decay=0.5"],
        "plateau": [
            "schedule.name=plateau",
            "schedule.patience=0",
            "schedule.threshold=1",
            "train.eval_every=0.5",
        ],
    },
    "warm-up": {"none": [], "linear": ["schedule.warmup=1"]},
    "changes": {"by step": [], "by epoch": ["schedule.by_epoch=yes"]},
    "layers": {"alike": [], "decayed": ["optim.layer_decay=0.7"]},
    "frozen": {
        "none": [],
        "biases": ["train.freeze=*.bias"],
        "biases at first": ["train.freeze=*.bias:1"],
        # some blocks or stages of any network, with the running statistics of their norms
        "parts": ["train.freeze=*1.*"],
        "parts at first": ["train.freeze=*1.*:1"],
        "layer by layer": ["train.freeze_level=1", "train.freeze_start=0.1"],
    },
    "micro-batches": {"one": [], "two": ["train.accumulate=2"], "found": ["train.accumulate=auto"]},
    "activations": {"kept": [], "computed anew": ["train.recompute=1"], "in pairs": ["train.recompute=2"]},
    # over two ranks, or two groups of ranks
    "shards": {"none": [], "optimizer": ["train.shard=optimizer"], "gradients": ["train.shard=gradients"], "parameters": ["train.shard=parameters"]},
    "sharpness": {"any": [], "sam": ["train.sam=0.05"], "sam at times": ["train.sam=0.05", "train.sam_every=2"]},
    "copies": {"one": [], "two": ["data.repeats=2", "data.batch_size=16"]},
    "images": {"finished": [], "finished by the device": ["data.augment=device"]},
    "samples": {
        "all": [],
        "hard ones": ["train.selective_backprop=0.5", "train.selective_start=0", "train.selective_end=1"],
    },
    "labels": {"hard": [], "smoothed": ["train.label_smoothing=0.1"]},
    "rows and columns": {"all": [], "left out": ["data.colout=0.15"]},
    "mixing": {
        "none": [],
        "mixup": ["train.mixup=0.4", "train.mix_by=sample"],
        "cutmix": ["train.cutmix=1", "train.mix_by=pair"],
        "both": ["train.mixup=0.8", "train.cutmix=1", "train.mix_prob=0.9"],
    },
    "loss": {
        "softmax": [],
        "sigmoid": ["train.loss=sigmoid"],
        # equal to cross-entropy for hard labels
        "divergence": ["train.loss=kl", "train.label_smoothing=0.2"],
        "weighted": ["train.class_weights=1, 3, 0.5, 2, 1, 1, 0.25, 1, 1, 2"],
        "balanced": ["train.class_weights=balanced"],
    },
    "teacher": {
        "none": [],
        "of all": ["train.teacher={folder}/teacher/model.safetensors", "train.teacher_recipe={folder}/teacher/recipe.ini", "train.temperature=2"],
    },
    "average": {
        "none": [],
        "ema": ["train.ema=0.5"],
        "ema that rises": ["train.ema=0.5", "train.ema_rise=2", "train.ema_every=2"],
        "ema gone on from": ["train.ema=0.5", "train.ema_every=2", "train.ema_lookahead=yes"],
        "swa": ["train.swa=1", "train.swa_every=0"],
    },
    "slow weights": {"none": [], "lookahead": ["train.lookahead=2"]},
    "sizes": {
        "one": [],
        "growing": ["data.pipeline=random_resized_crop(40@0;48@1)"],
        "growing by step": ["data.initial_scale=0.75", "data.delay_fraction=0.2", "data.finetune_fraction=0.3"],
    },
    "evaluation": {"plain": [], "flipped": ["train.eval_flip=yes"], "shifted": ["train.eval_shift=1"]},
    "fusion": {"none": ["train.fusion=none"], "b": ["train.fusion=b"]},
}

# Levels that do not change the losses of the first steps, with the reason. Only their evaluation differs from that of
# the plain recipe, or nothing.
UNSEEN = {
    ("average", "swa"): "the mean of the weights is evaluated; training does not see it",
    ("average", "ema"): "an average of the weights is evaluated; training does not see it",
    ("average", "ema that rises"): "an average of the weights is evaluated; training does not see it",
    ("micro-batches", "found"): "all of the batch fits; where it does not, it is as with the number that is found",
    ("evaluation", "flipped"): "evaluation only",
    ("evaluation", "shifted"): "evaluation only",
    ("activations", "computed anew"): "the same losses, bit for bit, in less memory",
    ("activations", "in pairs"): "the same losses, bit for bit, in less memory",
    ("images", "finished by the device"): "the same pixels, and so the same losses, bit for bit",
    ("fusion", "b"): "the same arithmetic in fewer passes over memory",
}

# Levels without an effect on the plain recipe, and the levels to combine them with for the comparison.
WITHIN = {("stride", "1x1"): {"network": "resnet50"}}  # has bottlenecks
