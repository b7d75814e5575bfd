"""PyTorch on several threads: a network is trained again and again from the same seed, until a file is there. The loss
of each step and the trained weights must be, to the last bit, those of the first training, which runs before "started".

usage: pytorch.py FILE
"""
import hashlib
import os
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# Seconds that it works at least.
LEAST = 1
THREADS = 3
EPOCHS = 2

end = sys.argv[1]
torch.set_num_threads(THREADS)
torch.use_deterministic_algorithms(True)


def train():
    """Trains a network; yields each step's loss, and at last a hash of the weights."""
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 7 * 7, 64), nn.Tanh(), nn.Linear(64, 10),
    )
    images, labels = torch.randn(256, 1, 28, 28), torch.randint(10, (256,))
    optimizer = torch.optim.Adam(model.parameters())
    measure = nn.CrossEntropyLoss()
    # Another process makes the batches and hands them over in shared memory.
    samples = TensorDataset(images, labels)
    batches = DataLoader(samples, batch_size=32, shuffle=True, num_workers=1, persistent_workers=True)
    for _ in range(EPOCHS):
        for image, label in batches:
            optimizer.zero_grad()
            loss = measure(model(image), label)
            loss.backward()
            optimizer.step()
            yield loss.item().hex()
    weights = hashlib.sha256()
    for value in model.state_dict().values():
        weights.update(value.numpy().tobytes())
    yield weights.hexdigest()


right = list(train())
print("started", flush=True)
start = time.monotonic()
failures = []
trainings = 0
while not failures and (time.monotonic() - start < LEAST or not os.path.exists(end)):
    for step, (expected, found) in enumerate(zip(right, train(), strict=True)):
        if expected != found:
            failures.append(f"training {trainings}, step {step}: expected {expected}, found {found}")
    trainings += 1
if torch.get_num_threads() != THREADS:
    failures.append(f"{torch.get_num_threads()} threads")
for failure in failures[:10]:
    print(f"FAIL: {failure}", file=sys.stderr)
print("torch: wrong" if failures else "torch: right", flush=True)
sys.exit(1 if failures else 0)
