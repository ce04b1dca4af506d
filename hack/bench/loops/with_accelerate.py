"""With accelerate: saves at the end of epochs."""

import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy

from hack.bench.loops.common import EPOCHS, Speed, build_loader, build_model, folder

speed = Speed()
# begin
accelerator = Accelerator()
model = build_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer, loader = accelerator.prepare(model, optimizer, build_loader())
saved = sorted(folder().glob("epoch-*"))
if saved:
    accelerator.load_state(str(saved[-1]))
for epoch in range(len(saved), EPOCHS):
    loader.set_epoch(epoch)
    for inputs, labels in loader:
        optimizer.zero_grad()
        accelerator.backward(cross_entropy(model(inputs), labels))
        optimizer.step()
        speed.step()
    accelerator.save_state(str(folder() / f"epoch-{epoch}"))
accelerator.end_training()
# end
speed.say("accelerate")
