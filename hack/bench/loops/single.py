"""One process, nothing saved: what the others are counted against."""

import torch
from torch.nn.functional import cross_entropy

from hack.bench.loops.common import EPOCHS, Speed, build_loader, build_model

speed = Speed()
# begin
model = build_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = build_loader()
for _ in range(EPOCHS):
    for inputs, labels in loader:
        optimizer.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        speed.step()
# end
speed.say("single")
