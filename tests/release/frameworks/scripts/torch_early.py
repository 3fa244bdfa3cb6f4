"""A training loop on several processes that creates its loader before it joins the process group."""

import os

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms

train_set = torchvision.datasets.ImageFolder("images/train", transforms.Compose([
    transforms.RandomResizedCrop(96), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
    transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]))
sampler = DistributedSampler(train_set, num_replicas=int(os.environ["WORLD_SIZE"]), rank=int(os.environ["RANK"]))
loader = DataLoader(train_set, batch_size=32, sampler=sampler, num_workers=2)

torch.distributed.init_process_group("gloo")
model = nn.Sequential(nn.Conv2d(3, 16, 8, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 1000))
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
