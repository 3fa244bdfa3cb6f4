"""Lightning: a module, two loaders, fit(). Arguments: options of Trainer as JSON, and a checkpoint to resume from."""

import json
import sys

import lightning
import torch
import torchvision
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms

normalize = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(
            nn.Conv2d(3, 16, 8, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 1000))

    def training_step(self, batch, index):
        images, labels = batch
        return nn.functional.cross_entropy(self.model(images), labels)

    def validation_step(self, batch, index):
        images, labels = batch
        self.log("val_loss", nn.functional.cross_entropy(self.model(images), labels), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


if __name__ == "__main__":
    train_set = torchvision.datasets.ImageFolder("images/train", transforms.Compose([
        transforms.RandomResizedCrop(96), transforms.RandomHorizontalFlip(), transforms.ToTensor(), normalize]))
    val_set = torchvision.datasets.ImageFolder("images/val", transforms.Compose([
        transforms.Resize(110), transforms.CenterCrop(96), transforms.ToTensor(), normalize]))
    train_loader = DataLoader(train_set, batch_size=32, shuffle=True, num_workers=2)
    val_loader = DataLoader(val_set, batch_size=32, num_workers=2)
    trainer = lightning.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[ModelCheckpoint(dirpath=".", filename="last", every_n_train_steps=5, save_on_train_epoch_end=False,
                                   enable_version_counter=False)],
        **json.loads(sys.argv[1]))
    trainer.fit(Classifier(), train_loader, val_loader, ckpt_path=sys.argv[2] if len(sys.argv) > 2 else None)
