# Creates small recipes under the names in the examples, initial weights, and replacements for a cluster's commands.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
shapes images --count 600 --size 32
packimg convert images/train -o train.pimg
packimg convert images/val -o val.pimg
printf '[data]\ntrain = train.pimg\nval = val.pimg\npipeline = random_crop(32, padding=2) hflip\nbatch_size = 50\n[model]\nname = resnet_cifar\ndepth = 8\n[train]\nepochs = 3\n' >cifar10.ini
for name in mine imagenet; do
	printf '[data]\ntrain = train.pimg\nval = val.pimg\npipeline = random_crop(32, padding=2) hflip\nbatch_size = 50\n[model]\nname = resnet18\n[train]\nepochs = 1\n' >$name.ini
done
trainer --output made imagenet.ini model.name=resnet50
cp made/best.safetensors best.safetensors
# the teacher
trainer --output runs/large cifar10.ini model.depth=14

# a job that is terminated and requeued
export SLURM_JOB_ID=1
mkdir -p bin
printf '#!/bin/sh\necho "scontrol $*"\n' >bin/scontrol
chmod +x bin/scontrol
PATH=$PWD/bin:$PATH

# for the examples with PyTorch: its weights of a ResNet-18, and a user's images
/usr/bin/python3 -m venv --system-site-packages venv
venv/bin/pip install --quiet safetensors
PATH=$PWD/venv/bin:$PATH
export PYTHONPATH=$PWD/bin
printf 'import builtins, torch\nbuiltins.images = torch.zeros(2, 3, 32, 32)\n' >bin/sitecustomize.py
python3 - <<'PYTHON'
from safetensors.torch import save_file
from torchvision.models import resnet18
save_file(resnet18(num_classes=10).state_dict(), "resnet18.safetensors")
PYTHON
