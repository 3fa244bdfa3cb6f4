"""The rows: a script, how to start it, the changed lines, and the checks."""

import json
from typing import Callable, NamedTuple, Optional

import records
from edits import Edit

TRAIN_SAMPLES = 600
VAL_SAMPLES = 120
EPOCHS = 3

Ranks = "list[list[records.Step]]"
PYTHON = ("{python}",)
TORCHRUN = ("{python}", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")

# The pipelines of the scripts.
TRAIN = 'ImageDataset("train.pimg", "random_resized_crop({}) hflip to(f32) normalize(imagenet)")'
VAL = 'ImageDataset("val.pimg", "resize({}) center_crop({}) to(f32) normalize(imagenet)")'
IMPORT = Edit("from torch.utils.data import DataLoader", "from loaderd import DataLoader, ImageDataset")
TRAIN_SET = Edit("train_set = ", "train_set = " + TRAIN.format(96))
VAL_SET = Edit("val_set = ", "val_set = " + VAL.format(110, 96))


class Row(NamedTuple):
    """One row of the table.

    script       a file in scripts/, or a published script
    edits        the user's changes
    launch       the command that starts the script
    arguments    of the script
    world        number of processes
    validations  number of evaluations
    more         further runs of the script with loaderd, and their checks: more(run), where run(*arguments) returns the records; returns
                 a result for the table
    origin       where a published script comes from
    """

    name: str
    script: str
    edits: "tuple[Edit, ...]"
    launch: "tuple[str, ...]" = PYTHON
    arguments: "tuple[str, ...]" = ()
    world: int = 1
    validations: int = EPOCHS
    more: "Optional[Callable[[Callable[..., Ranks]], str]]" = None
    origin: str = ""


def _seen(ranks: Ranks) -> "list[int]":
    return [label for steps in records.train(ranks) for label in records.labels(steps)]


def _lightning(**options: object) -> str:
    return json.dumps({"max_epochs": EPOCHS, "devices": 1, **options})


LIGHTNING_DDP = {"devices": 2, "strategy": "ddp"}


def _lightning_limits(run: "Callable[..., Ranks]", **options: object) -> None:
    """Checks epochs of five batches: no sample occurs twice in an epoch, and all evaluations have the same samples."""
    world = options.get("devices", 1)
    ranks = run(_lightning(limit_train_batches=5, limit_val_batches=1, num_sanity_val_steps=1, **options))
    for number, parts in enumerate(zip(*(records.passes(steps, True) for steps in ranks))):
        seen = [label for steps in parts for label in records.labels(steps)]
        assert len(seen) == len(set(seen)) == 5 * 32 * world, f"epoch {number} with limit_train_batches=5: {len(seen)} samples, {len(set(seen))} different ones"
    for steps in ranks:
        validations = [records.labels(part) for part in records.passes(steps, False)]
        assert len(validations) == EPOCHS + 1, f"{len(validations)} validations with a sanity check, not {EPOCHS + 1}"
        assert all(part == validations[0] for part in validations), "validations with limit_val_batches=1 differ"


def _lightning_resume(run: "Callable[..., Ranks]", **options: object) -> None:
    """Stops after an epoch and a half, and resumes: over both runs, the second epoch has each sample once."""
    world = options.get("devices", 1)
    steps_per_epoch = -(-TRAIN_SAMPLES // (32 * world))
    stop = (steps_per_epoch + 8) // 5 * 5  # a step at which the callback saves
    before = run(_lightning(max_steps=stop, limit_val_batches=0, **options))
    after = run(_lightning(limit_val_batches=0, **options), "last.ckpt")
    joined = [first + second for first, second in zip(records.train(before), records.train(after))]
    records.check_epochs(joined, world, TRAIN_SAMPLES, EPOCHS)


def lightning_more(run: "Callable[..., Ranks]") -> str:
    _lightning_limits(run)
    _lightning_resume(run)
    return "sanity check, limit_*_batches, resume in mid-epoch"


def lightning_ddp_more(run: "Callable[..., Ranks]") -> str:
    _lightning_limits(run, **LIGHTNING_DDP)
    _lightning_resume(run, **LIGHTNING_DDP)
    return "sanity check, limit_*_batches, resume in mid-epoch"


def accelerate_more(run: "Callable[..., Ranks]") -> str:
    before, after = run("save"), run("resume")
    joined = [first + second for first, second in zip(records.train(before), records.train(after))]
    records.check_epochs(joined, len(before), TRAIN_SAMPLES, EPOCHS)
    return "save_state, skip_first_batches"


HF_OPTIONS = {"num_train_epochs": EPOCHS, "save_strategy": "no", "eval_strategy": "epoch"}


def hf_more(run: "Callable[..., Ranks]") -> str:
    """Saves after an epoch and a half, and resumes from the checkpoint."""
    saving = {**HF_OPTIONS, "save_strategy": "steps", "save_steps": 25, "eval_strategy": "no"}
    before = records.train(run(json.dumps({**saving, "max_steps": 25})))
    after = records.train(run(json.dumps(saving), "resume"))
    records.check_epochs([before[0] + after[0]], 1, TRAIN_SAMPLES, EPOCHS)
    return "resume_from_checkpoint in mid-epoch"


def epoch_resume(*arguments: str, shuffled: bool = True) -> "Callable[[Callable[..., Ranks]], str]":
    """For scripts that save after each epoch: trains one epoch, then two more from the checkpoint."""

    def more(run: "Callable[..., Ranks]") -> str:
        split = arguments.index("--resume")
        before = records.train(run(*arguments[:split], "--epochs", "1"))
        after = records.train(run(*arguments, "--epochs", str(EPOCHS)))
        records.check_epochs([first + second for first, second in zip(before, after)], len(before), TRAIN_SAMPLES, EPOCHS, shuffled)
        return "resume after an epoch"

    return more


VISION = ("--data-path", "images", "--model", "tiny", "--device", "cpu", "--batch-size", "32", "--workers", "2", "--output-dir", "out",
          "--train-crop-size", "96", "--val-resize-size", "110", "--val-crop-size", "96")
IMAGENET = ("images", "--arch", "tiny", "--workers", "2", "--batch-size", "32", "--no-accel")
TIMM = ("--data-dir", "images", "--train-split", "train", "--val-split", "val", "--model", "tiny", "--num-classes", "1000",
        "--device", "cpu", "--batch-size", "30", "--workers", "2", "--smoothing", "0", "--output", "out", "--experiment", "run",
        "--warmup-epochs", "0", "--cooldown-epochs", "0", "--sched", "step", "--color-jitter", "0", "--train-interpolation", "bilinear")

# timm's PrefetchLoader normalizes, on a GPU if there is one.
TIMM_TRAIN = 'ImageDataset("train.pimg", "random_resized_crop(96) hflip")'
TIMM_VAL = 'ImageDataset("val.pimg", "resize(110) center_crop(96)")'

HF_DICT = 'as_dict={"image": "pixel_values", "label": "labels"})'
HF_TRAIN = TRAIN.format(96)[:-1] + ", " + HF_DICT
HF_VAL = VAL.format(110, 96)[:-1] + ", " + HF_DICT

IMAGENET_EDITS = (
    Edit("import torchvision.transforms as transforms", "from loaderd import DataLoader, ImageDataset", keep=True),
    Edit("train_loader = ", f"train_loader = DataLoader({TRAIN.format(224)}, args.batch_size, train_sampler is None, train_sampler)"),
    Edit("val_loader = ", f"val_loader = DataLoader({VAL.format(256, 224)}, args.batch_size, sampler=val_sampler)"),
)

ROWS = (
    Row("torch loop", "torch_loop.py", (IMPORT, TRAIN_SET, VAL_SET)),
    Row("torchrun, 2 processes", "torch_loop.py", (IMPORT, TRAIN_SET, VAL_SET), TORCHRUN, world=2),
    Row("torchrun, 2 processes, loader before the group", "torch_early.py", (IMPORT, TRAIN_SET), TORCHRUN, world=2, validations=0),
    Row("torchrun, 2 processes, the daemon's order", "torch_early.py", (
        IMPORT, TRAIN_SET, Edit("loader = ", 'loader = DataLoader(train_set, batch_size=32, shuffle="daemon")')), TORCHRUN, world=2, validations=0),
    Row("PyTorch's ImageNet example", "imagenet/main.py", IMAGENET_EDITS, arguments=(*IMAGENET, "--epochs", str(EPOCHS)),
        more=epoch_resume(*IMAGENET, "--resume", "checkpoint.pth.tar"), origin="github.com/pytorch/examples"),
    Row("PyTorch's ImageNet example, 2 processes", "imagenet/main.py", IMAGENET_EDITS, TORCHRUN, world=2,
        arguments=(*IMAGENET, "--dist-url", "env://", "--dist-backend", "gloo", "--epochs", str(EPOCHS)), origin="github.com/pytorch/examples"),
    Row("timm's train.py", "timm/train.py", (
        Edit("import torchvision.utils", "from loaderd import DataLoader, ImageDataset", keep=True),
        Edit("loader_train = create_loader(", f"loader_train.loader = DataLoader({TIMM_TRAIN}, args.batch_size, sampler=loader_train.sampler, drop_last=True)", keep=True),
        Edit("loader_eval = create_loader(", f"loader_eval.loader = DataLoader({TIMM_VAL}, args.batch_size, sampler=loader_eval.sampler)", keep=True)),
        # this script seeds PyTorch identically at each start, so a process's first epoch always has the same order
        arguments=(*TIMM, "--epochs", str(EPOCHS)), more=epoch_resume(*TIMM, "--resume", "out/run/last.pth.tar", shuffled=False), origin="github.com/huggingface/pytorch-image-models"),
    Row("torchvision's reference script", "references/classification/train.py", (
        Edit("import utils", "from loaderd import DataLoader, ImageDataset", keep=True),
        Edit("data_loader = ", f"data_loader = DataLoader({TRAIN.format(96)}, args.batch_size, sampler=train_sampler, collate_fn=collate_fn)"),
        Edit("data_loader_test = ", f"data_loader_test = DataLoader({VAL.format(110, 96)}, args.batch_size, sampler=test_sampler)")),
        # the script's own --resume fails: it calls torch.load() with weights_only, but its checkpoints contain other objects
        arguments=(*VISION, "--epochs", str(EPOCHS)), origin="the source of Debian's pytorch-vision"),
    Row("Lightning", "lightning_fit.py", (IMPORT, TRAIN_SET, VAL_SET), arguments=(_lightning(num_sanity_val_steps=0),), more=lightning_more),
    Row("Lightning, ddp, 2 processes", "lightning_fit.py", (IMPORT, TRAIN_SET, VAL_SET), world=2,
        arguments=(_lightning(num_sanity_val_steps=0, **LIGHTNING_DDP),), more=lightning_ddp_more),
    Row("Accelerate", "accelerate_loop.py", (IMPORT, TRAIN_SET), validations=0, more=accelerate_more),
    Row("Accelerate, 2 processes", "accelerate_loop.py", (IMPORT, TRAIN_SET), TORCHRUN, world=2, validations=0, more=accelerate_more),
    Row("Hugging Face Trainer", "hf_trainer.py", (
        Edit("import torchvision", "from loaderd import DataLoader, ImageDataset", keep=True),
        Edit("trainer = ", "\n".join((
            f"trainer.get_train_dataloader = lambda: trainer.accelerator.prepare(DataLoader({HF_TRAIN}, 32, shuffle=True))",
            f"trainer.get_eval_dataloader = lambda dataset=None: trainer.accelerator.prepare(DataLoader({HF_VAL}, 32))")), keep=True)), arguments=(json.dumps(HF_OPTIONS),), more=hf_more),
    Row("Ignite", "ignite_engine.py", (IMPORT, TRAIN_SET, VAL_SET)),
    Row("Keras 3", "keras_fit.py", (IMPORT, TRAIN_SET, VAL_SET)),
    Row("fastai", "fastai_fit.py", (IMPORT, TRAIN_SET, VAL_SET)),
    Row("JAX", "jax_loop.py", (
        Edit("from torch.utils.data import DataLoader", "from loaderd import Feed"),
        Edit("train_set = ", ""),
        Edit("loader = ", 'loader = Feed("train.pimg", pipeline="random_resized_crop(96) hflip to(f32) normalize(imagenet)", batch_size=32, shuffle=True)')),
        validations=0),
)
