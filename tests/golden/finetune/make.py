#!/usr/bin/env python3
"""Makes the reference data of fine-tuning.

    python3 -m venv venv && venv/bin/pip install torch timm && venv/bin/python make.py

    layer_decay.txt   records: network, parameter, and the factor that timm's param_groups_layer_decay(0.75) gives its learning rate;
                      every third parameter of networks with many blocks
    positions.txt     results of timm's resample_abs_pos_embed for sines
    names.txt         records: network, layout, a tensor's name and shape in that layout, and its name in timm. The pairs of names
                      come from the rules of trainer/checkpoint/name_map.h. This script checks the rules: timm's network, with the
                      weights of the layout's network under timm's names, must give the same logits
    logits.txt        lines: network, and the logits of torchvision's network for two images. The generator of
                      tests/golden/networks/make.py fills the weights by torchvision's names
"""
import math
import os
import re
import sys

import timm
import torch
import torchvision
from timm.layers import resample_abs_pos_embed
from timm.optim import param_groups_layer_decay

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import packed  # noqa: E402


def positions():
    """Resizes a grid of 4 x 4 tokens after a class token to other sides. Yields: side, token, channel, value."""
    rows = [[math.sin(0.7 * token + 0.3 * channel) for channel in range(24)] for token in range(17)]
    own = torch.tensor([rows])
    for side in (2, 3, 6, 9):
        made = resample_abs_pos_embed(own, new_size=[side, side], num_prefix_tokens=1)[0]
        for token in range(side * side + 1):
            for channel in (0, 23):
                yield f"{side} {token} {channel} {made[token, channel].item():.9g}"


NETWORKS = {"resnet18": 1, "resnet50": 3, "resnet50d": 3, "vit_tiny_patch16_224": 3, "convnext_tiny": 3}


def layer_decay(name, every):
    model = timm.create_model(name, num_classes=10)
    names = {id(p): n for n, p in model.named_parameters()}
    factors = {names[id(p)]: group["lr_scale"] for group in param_groups_layer_decay(model, layer_decay=0.75) for p in group["params"]}
    for n in list(names.values())[::every]:
        yield f"{name} {n} {factors[n]:.9g}"


def rules():
    """Returns the rows of NAMES in name_map.h as (layout, our name, the layout's name)."""
    text = open(os.path.join(HERE, "../../../trainer/checkpoint/name_map.h")).read()
    text = text.replace("\\\n", "")
    body = re.search(r"#define NAMES\(X\)(.*)", text).group(1)
    stage = re.search(r"#define NAMES_STAGE\(X, stage, place\)(.*)", text).group(1)
    body = re.sub(r'NAMES_STAGE\(X, ("\d"), ("\d")\)', lambda m: stage.replace(" stage ", m[1]).replace(" place ", m[2]), body)
    body = re.sub(r'NAMES_ENCODER\(X, "([^"]*)", "([^"]*)"\)', r'X("torchvision", "blocks.#.\1", "encoder.layers.encoder_layer_#.\2")', body)
    return [tuple(part.replace('"', "") for part in row) for row in re.findall(r'X\(("[^,]*"), ("[^,]*"), ("[^,]*")\)', body)]


def our_name(name, layout):
    """Returns our name for a layout's name, by the first rule that matches."""
    for of, ours, theirs in rules():
        pattern = re.escape(theirs).replace(r"\#", r"(\d+)").replace(r"\*", "(.+)")
        match = re.fullmatch(pattern, name)
        if of == layout and match:
            parts = iter(match.groups())
            return re.sub(r"[#*]", lambda m: next(parts), ours)
    raise SystemExit(f"no rule for {name}")


def their_name(name, layout):
    """Returns the layout's name for one of our names."""
    for of, ours, theirs in rules():
        match = re.fullmatch(re.escape(ours).replace(r"\#", r"(\d+)").replace(r"\*", "(.+)"), name)
        if of == layout and match:
            parts = iter(match.groups())
            return re.sub(r"[#*]", lambda m: next(parts), theirs)
    raise SystemExit(f"no rule for {name}")


def layouts():
    """Yields small networks: name, torchvision's, timm's."""
    vit = torchvision.models.VisionTransformer(32, 16, 2, 3, 48, 192, num_classes=7)
    blocks = [torchvision.models.convnext.CNBlockConfig(i, o, n) for i, o, n in ((8, 16, 1), (16, 24, 2), (24, 32, 1), (32, None, 2))]
    convnext = torchvision.models.ConvNeXt(blocks, num_classes=7)
    yield "vit", vit, timm.models.VisionTransformer(32, 16, num_classes=7, embed_dim=48, depth=2, num_heads=3)
    yield "convnext", convnext, timm.models.ConvNeXt(num_classes=7, depths=(1, 2, 1, 2), dims=(8, 16, 24, 32))


def names():
    torch.manual_seed(1)
    for network, theirs, ours in layouts():
        with torch.no_grad():
            for p in theirs.parameters():
                p.copy_(torch.randn_like(p) * 0.2)
        state = {our_name(n, "torchvision"): v for n, v in theirs.state_dict().items()}
        shapes = ours.state_dict()
        assert state.keys() == shapes.keys(), state.keys() ^ shapes.keys()
        ours.load_state_dict({n: v.reshape(shapes[n].shape) for n, v in state.items()})
        x = torch.randn(2, 3, 32, 32)
        apart = (theirs.eval()(x) - ours.eval()(x)).abs().max().item()
        spread = theirs(x).std().item()
        print(f"{network}: logits apart by {apart:.2g}, they spread by {spread:.2g}")
        assert apart < 1e-5 and spread > 0.01
        for n, v in theirs.state_dict().items():
            yield f"{network} torchvision {n} {'x'.join(map(str, v.shape))} {our_name(n, 'torchvision')}"
        if network == "convnext":
            for n, v in torchvision.models.ConvNeXt(published_blocks(), num_classes=7).state_dict().items():
                yield f"convnext_tiny torchvision {n} {'x'.join(map(str, v.shape))} {our_name(n, 'torchvision')}"
        if network == "convnext":  # check against timm's import of the authors' files
            first = {their_name(n, "facebookresearch"): v for n, v in ours.state_dict().items()}
            read = timm.models.convnext.checkpoint_filter_fn(dict(first), ours)
            assert read.keys() == shapes.keys() and all(torch.equal(v, shapes[n]) for n, v in read.items())
            for n, v in first.items():
                yield f"{network}_first facebookresearch {n} {'x'.join(map(str, v.shape))} {our_name(n, 'facebookresearch')}"


def published_blocks():
    return [torchvision.models.convnext.CNBlockConfig(i, o, n) for i, o, n in ((16, 24, 3), (24, 48, 3), (48, 96, 9), (96, None, 3))]


def logits():
    generator = {"__file__": os.path.join(HERE, "../networks/make.py")}
    with open(generator["__file__"]) as file:
        exec(file.read().split("\nmade = ")[0], generator)  # defines the functions, without writing files
    # depth and heads of vit_tiny, at a quarter of its width
    model = torchvision.models.VisionTransformer(32, 16, 12, 3, 48, 192, num_classes=7).double().eval()
    generator["fill"](model, 1)
    with torch.no_grad():
        yield "vit " + " ".join(f"{v:.12g}" for v in model(generator["images"](1, "images", 2, 32)).reshape(-1).tolist())
    # depths of convnext_tiny, at an eighth of its width
    model = torchvision.models.ConvNeXt(published_blocks(), num_classes=7).double().eval()
    generator["fill"](model, 1)
    with torch.no_grad():
        yield "convnext_tiny " + " ".join(f"{v:.12g}" for v in model(generator["images"](1, "images", 2, 32)).reshape(-1).tolist())


VERSIONS = f"# torch {torch.__version__}, torchvision {torchvision.__version__}, timm {timm.__version__}"
with open(os.path.join(HERE, "logits.txt"), "w") as file:
    file.write("\n".join([VERSIONS, *logits()]) + "\n")
decays = (record for name, every in NETWORKS.items() for record in layer_decay(name, every))
for name, records in (("names", names()), ("layer_decay", decays), ("positions", positions())):
    packed.write_records(os.path.join(HERE, name + ".txt"), VERSIONS, records)
