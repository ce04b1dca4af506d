"""With a Session: also saves in the middle of epochs, stops on SIGTERM, and shows progress and metrics."""

import torch
from torch.nn.functional import cross_entropy

from ddpjob_trainer import Session
from hack.bench.loops.common import EPOCHS, Speed, build_loader, build_model, folder

speed = Speed()
# begin
with Session(checkpoint_dir=str(folder())) as session:
    model = session.model(build_model())
    optimizer = session.keep("optimizer", torch.optim.AdamW(model.parameters(), lr=1e-3))
    for step in session.steps(build_loader(), epochs=EPOCHS):
        with step as (inputs, labels):
            session.backward(cross_entropy(model(inputs), labels))
            session.step()
            speed.step()
# end
speed.say("session")
