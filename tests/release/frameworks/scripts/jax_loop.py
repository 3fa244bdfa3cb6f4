"""JAX: a loop over batches of NumPy arrays, [batch, height, width, channel]."""

import jax
import jax.numpy as jnp
import numpy as np
import torchvision
from torch.utils.data import DataLoader
from torchvision import transforms


def collate(samples):
    images, labels = zip(*samples)
    return np.stack([image.permute(1, 2, 0).numpy() for image in images]), np.array(labels, np.int32)


train_set = torchvision.datasets.ImageFolder("images/train", transforms.Compose([
    transforms.RandomResizedCrop(96), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
    transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]))
loader = DataLoader(train_set, batch_size=32, shuffle=True, num_workers=2, collate_fn=collate)


def loss_of(weights, images, labels):
    patches = images.reshape(len(images), 12, 8, 12, 8, 3).mean((2, 4)).reshape(len(images), -1)
    logits = jax.nn.log_softmax(patches @ weights)
    return -jnp.take_along_axis(logits, labels[:, None], axis=1).mean()


@jax.jit
def step(weights, images, labels):
    loss, gradient = jax.value_and_grad(loss_of)(weights, images, labels)
    return loss, weights - 0.1 * gradient


weights = jnp.zeros((12 * 12 * 3, 1000))
for epoch in range(3):
    for images, labels in loader:
        loss, weights = step(weights, jnp.asarray(images), jnp.asarray(labels))
    print(f"epoch {epoch}: loss {loss:.3f}")
