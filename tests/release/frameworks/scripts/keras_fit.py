"""Keras 3 on PyTorch: fit() over a PyTorch loader."""

import os

os.environ["KERAS_BACKEND"] = "torch"
import keras
import torchvision
from torch.utils.data import DataLoader
from torchvision import transforms

keras.config.set_image_data_format("channels_first")
normalize = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
train_set = torchvision.datasets.ImageFolder("images/train", transforms.Compose([
    transforms.RandomResizedCrop(96), transforms.RandomHorizontalFlip(), transforms.ToTensor(), normalize]))
val_set = torchvision.datasets.ImageFolder("images/val", transforms.Compose([
    transforms.Resize(110), transforms.CenterCrop(96), transforms.ToTensor(), normalize]))
train_loader = DataLoader(train_set, batch_size=32, shuffle=True, num_workers=2)
val_loader = DataLoader(val_set, batch_size=32, num_workers=2)

model = keras.Sequential([
    keras.Input((3, 96, 96)), keras.layers.Conv2D(16, 8, 8, activation="relu"), keras.layers.GlobalAveragePooling2D(),
    keras.layers.Dense(1000)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(train_loader, validation_data=val_loader, epochs=3, verbose=2)
