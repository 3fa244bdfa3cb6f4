"""fastai: a Learner over PyTorch loaders."""

import torch
import torchvision
from fastai.vision.all import CrossEntropyLossFlat, DataLoaders, Learner, accuracy
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms

normalize = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
train_set = torchvision.datasets.ImageFolder("images/train", transforms.Compose([
    transforms.RandomResizedCrop(96), transforms.RandomHorizontalFlip(), transforms.ToTensor(), normalize]))
val_set = torchvision.datasets.ImageFolder("images/val", transforms.Compose([
    transforms.Resize(110), transforms.CenterCrop(96), transforms.ToTensor(), normalize]))
train_loader = DataLoader(train_set, batch_size=32, shuffle=True, num_workers=2)
val_loader = DataLoader(val_set, batch_size=32, num_workers=2)

model = nn.Sequential(nn.Conv2d(3, 16, 8, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 1000))
learner = Learner(DataLoaders(train_loader, val_loader, device=torch.device("cpu")), model, CrossEntropyLossFlat(), metrics=accuracy)
with learner.no_bar():
    learner.fit(3)
