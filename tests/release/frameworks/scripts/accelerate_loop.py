"""Accelerate: a training loop with a loader that prepare() divides among processes. Argument: save | resume, in the
middle of the second epoch.
"""

import sys

import torch
import torchvision
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms

SAVED_AT = 4
action = sys.argv[1] if len(sys.argv) > 1 else ""
# makes the order of an epoch depend on the seed and set_epoch(), so that a resumed run repeats it
accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
torch.manual_seed(0)
train_set = torchvision.datasets.ImageFolder("images/train", transforms.Compose([
    transforms.RandomResizedCrop(96), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
    transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]))
loader = DataLoader(train_set, batch_size=30, shuffle=True, num_workers=2)
model = nn.Sequential(nn.Conv2d(3, 16, 8, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 1000))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
first, skipped = 0, 0
if action == "resume":
    accelerator.load_state("state")
    first, skipped = 1, SAVED_AT
for epoch in range(first, 3):
    model.train()
    loader.set_epoch(epoch)
    rest = accelerator.skip_first_batches(loader, skipped) if skipped else loader
    for number, (images, labels) in enumerate(rest, start=skipped):
        if action == "save" and (epoch, number) == (1, SAVED_AT):
            accelerator.save_state("state")
            sys.exit()
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    skipped = 0
    accelerator.print(f"epoch {epoch}: loss {loss.item():.3f}")
