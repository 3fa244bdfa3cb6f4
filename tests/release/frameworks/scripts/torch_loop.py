"""A training loop in PyTorch, on one process or, with torchrun, on several."""

import os

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms

distributed = "RANK" in os.environ
if distributed:
    torch.distributed.init_process_group("gloo")

normalize = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
train_set = torchvision.datasets.ImageFolder("images/train", transforms.Compose([
    transforms.RandomResizedCrop(96), transforms.RandomHorizontalFlip(), transforms.ToTensor(), normalize]))
val_set = torchvision.datasets.ImageFolder("images/val", transforms.Compose([
    transforms.Resize(110), transforms.CenterCrop(96), transforms.ToTensor(), normalize]))
sampler = DistributedSampler(train_set) if distributed else None
loader = DataLoader(train_set, batch_size=32, shuffle=sampler is None, sampler=sampler, num_workers=2, pin_memory=True)
val_sampler = DistributedSampler(val_set, shuffle=False) if distributed else None
val_loader = DataLoader(val_set, batch_size=32, sampler=val_sampler, num_workers=2)

model = nn.Sequential(nn.Conv2d(3, 16, 8, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 1000))
if distributed:
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
criterion = nn.CrossEntropyLoss()
for epoch in range(3):
    if distributed:
        sampler.set_epoch(epoch)
    model.train()
    for images, labels in loader:
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        losses = [criterion(model(images), labels).item() for images, labels in val_loader]
    print(f"epoch {epoch}: loss {loss.item():.3f}, validation {sum(losses) / len(losses):.3f}")
