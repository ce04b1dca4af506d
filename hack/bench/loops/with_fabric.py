"""With Fabric: saves at the end of epochs."""

import os

import torch
from lightning_fabric import Fabric
from torch.nn.functional import cross_entropy

from hack.bench.loops.common import EPOCHS, Speed, build_loader, build_model, folder

speed = Speed()
# begin
fabric = Fabric(accelerator="cpu", strategy="ddp", devices=int(os.environ["LOCAL_WORLD_SIZE"]))
fabric.launch()
fabric.seed_everything(0)
model = build_model()
model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
loader = fabric.setup_dataloaders(build_loader())
state = {"model": model, "optimizer": optimizer, "epoch": 0}
saved = folder() / "last.ckpt"
if saved.exists():
    fabric.load(saved, state)
for epoch in range(state["epoch"], EPOCHS):
    loader.sampler.set_epoch(epoch)
    for inputs, labels in loader:
        optimizer.zero_grad()
        fabric.backward(cross_entropy(model(inputs), labels))
        optimizer.step()
        speed.step()
    state["epoch"] = epoch + 1
    fabric.save(saved, state)
# end
speed.say("fabric")
