"""Hugging Face's Trainer with a model in its format, which takes pixel_values and labels. Arguments: options of
TrainingArguments as JSON, and resume.
"""

import json
import sys

import torch
import torchvision
from torch import nn
from torchvision import transforms
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments
from transformers.modeling_outputs import ImageClassifierOutput

normalize = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


class Classifier(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.model = nn.Sequential(
            nn.Conv2d(3, 16, 8, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 1000))
        self.post_init()

    def forward(self, pixel_values, labels=None):
        logits = self.model(pixel_values)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return ImageClassifierOutput(loss=loss, logits=logits)


def collate(samples):
    images, labels = zip(*samples)
    return {"pixel_values": torch.stack(images), "labels": torch.tensor(labels)}


train_set = torchvision.datasets.ImageFolder("images/train", transforms.Compose([
    transforms.RandomResizedCrop(96), transforms.RandomHorizontalFlip(), transforms.ToTensor(), normalize]))
val_set = torchvision.datasets.ImageFolder("images/val", transforms.Compose([
    transforms.Resize(110), transforms.CenterCrop(96), transforms.ToTensor(), normalize]))
arguments = TrainingArguments(
    output_dir="out", per_device_train_batch_size=32, per_device_eval_batch_size=32, dataloader_num_workers=2, use_cpu=True,
    report_to=[], disable_tqdm=True, **json.loads(sys.argv[1]))
trainer = Trainer(Classifier(PretrainedConfig()), arguments, data_collator=collate, train_dataset=train_set, eval_dataset=val_set)
trainer.train(resume_from_checkpoint="resume" in sys.argv[2:])
