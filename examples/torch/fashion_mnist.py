"""Trains a small convolutional network on Fashion-MNIST, on any number of ranks.

The ordinary script fashion_mnist_plain.py with four lines added, those that end in "# ronde", and
the import. However many ranks there are, a step is over the same --batch-size images.

    ronde run -n 2 python fashion_mnist.py --epochs 2
"""

import argparse

import torch
from common import accuracy, digest, load_dataset, progress, write_json
from torch import nn
from torch.nn import functional

import ronde.torch as rd


class Network(nn.Module):
    def __init__(self, side):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * (side // 4) ** 2, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=128, help="images per step")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, help="use only so many training images")
    parser.add_argument("--json", help="file for results; {rank}: the rank")
    args = parser.parse_args()

    rd.init()  # ronde
    torch.manual_seed(args.seed)
    images, labels, test_images, test_labels = load_dataset(args.limit)
    model = Network(images.shape[-1])
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    optimizer = rd.DistributedOptimizer(optimizer, model.named_parameters())  # ronde
    rd.broadcast_parameters(model.state_dict(), root_rank=0)  # ronde

    accuracies = []
    for epoch in range(args.epochs):
        order = torch.randperm(len(images))
        for batch in progress(order.split(args.batch_size), f"epoch {epoch + 1}"):
            batch = batch.tensor_split(rd.size())[rd.rank()]  # ronde: this rank's share
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
        accuracies.append(accuracy(model, test_images, test_labels))
        print(f"epoch {epoch + 1}: test accuracy {100 * accuracies[-1]:.2f} %", flush=True)

    if args.json:
        write_json(args.json, accuracy=accuracies, digest=digest(model))


if __name__ == "__main__":
    main()
