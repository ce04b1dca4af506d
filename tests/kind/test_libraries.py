"""Programs of other libraries, and of their shape, train one model as they are, under torchrun."""

import json
import re
from typing import Any

import pytest
from jobs import EXAMPLES_IMAGE, ddpjob, program, scripted
from kubectl import Kubectl

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

# As in the small GPT of PyTorch's examples: characters, a Trainer with snapshots, and torchrun's restart in place.
GPT = """
import os, torch, torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

class Characters(Dataset):
    def __init__(self, text, block):
        self.known = sorted(set(text))
        self.data, self.block = torch.tensor([self.known.index(character) for character in text]), block

    def __len__(self):
        return len(self.data) - self.block

    def __getitem__(self, index):
        chunk = self.data[index : index + self.block + 1]
        return chunk[:-1], chunk[1:]

class GPT(torch.nn.Module):
    def __init__(self, known, block, width=16):
        super().__init__()
        self.token, self.position = torch.nn.Embedding(known, width), torch.nn.Embedding(block, width)
        layer = torch.nn.TransformerEncoderLayer(width, 2, 4 * width, dropout=0.0, batch_first=True)
        self.blocks, self.head = torch.nn.TransformerEncoder(layer, 1), torch.nn.Linear(width, known)
        self.register_buffer("mask", torch.nn.Transformer.generate_square_subsequent_mask(block))

    def forward(self, x, y):
        x = self.blocks(self.token(x) + self.position(torch.arange(x.shape[1])), mask=self.mask)
        return functional.cross_entropy(self.head(x).flatten(0, 1), y.flatten())

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
data = Characters("the quick brown fox jumps over the lazy dog. " * 6, 16)
loader = DataLoader(data, 8, sampler=DistributedSampler(data))
model = GPT(len(data.known), 16)
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
snapshot = [None]
if rank == 0 and os.path.exists("/tmp/snapshot.pt"):
    snapshot = [torch.load("/tmp/snapshot.pt")]
dist.broadcast_object_list(snapshot)
first = 0
if snapshot[0]:
    first = snapshot[0]["epoch"]
    model.load_state_dict(snapshot[0]["model"])
    optimizer.load_state_dict(snapshot[0]["optimizer"])
model = DistributedDataParallel(model)
for epoch in range(first, 4):
    loader.sampler.set_epoch(epoch)
    losses = []
    for x, y in loader:
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    print(f"[{rank}] epoch {epoch} steps {len(losses)} loss {sum(losses) / len(losses):.4f}\\n", end="", flush=True)
    if rank == 0:
        state = {"epoch": epoch + 1, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, "/tmp/snapshot.pt")
    dist.barrier()
    if rank == 1 and epoch == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise RuntimeError("a bad moment")
weights = sum(parameter.double().abs().sum() for parameter in model.parameters()).item()
print(f"[{rank}] weights {weights!r}\\n", end="", flush=True)
dist.destroy_process_group()
"""

LIGHTNING = """
import json, os, sys, torch, lightning
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=4)
each, nodes = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["DDPJOB_NODES"])

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        return self.layer(batch[0]).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

if sys.argv[1] == "fabric":
    fabric = lightning.Fabric(accelerator="cpu", devices=each, num_nodes=nodes)
    fabric.launch()
    module = torch.nn.Linear(4, 1)
    model, optimizer = fabric.setup(module, torch.optim.SGD(module.parameters(), 0.1))
    steps, world, rank = 0, fabric.world_size, fabric.global_rank
    for (batch,) in fabric.setup_dataloaders(loader):
        optimizer.zero_grad()
        fabric.backward(model(batch).pow(2).mean())
        optimizer.step()
        steps += 1
    weights = module.weight.tolist()
else:
    places = {"devices": each, "num_nodes": nodes, "accelerator": "cpu"} if sys.argv[1] == "trainer" else {}
    trainer = lightning.Trainer(
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, **places
    )
    module = Module()
    trainer.fit(module, loader)
    steps, world, rank = trainer.global_step, trainer.world_size, trainer.global_rank
    weights = module.layer.weight.tolist()
print(json.dumps({"rank": rank, "world": world, "steps": steps, "weights": weights}) + "\\n", end="", flush=True)
"""


# Of accelerate's fourth program, what can pass on CPUs. The others join uneven inputs, which accelerate does on GPUs
# alone: elsewhere `join_uneven_inputs` only warns, and the program then waits for ever, rank 0 in the forward pass of
# its second batch, and rank 1, which has no second one, in a barrier. The last ones need torchdata.
DATA_LOADERS = """
import torch
from accelerate.test_utils.scripts import test_distributed_data_loop as own
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, default_collate

def sampler():
    return BatchSampler(RandomSampler(data), batch_size=own.BATCH_SIZE, drop_last=False)

own.test_default_ensures_even_batch_sizes()
own.test_can_disable_even_batches()
own.test_pickle_accelerator()
accelerator = own.create_accelerator()
torch.manual_seed(accelerator.process_index)
data = own.DummyDataset()
for options in (
    {"shuffle": False, "batch_size": own.BATCH_SIZE},
    {"shuffle": True, "batch_size": own.BATCH_SIZE},
    {"batch_sampler": sampler()},
    {"sampler": sampler(), "batch_size": None, "collate_fn": default_collate},
):
    own.test_data_loader(DataLoader(data, num_workers=own.NUM_WORKERS, **options), accelerator)
accelerator.end_training()
"""


def separate(job: dict[str, Any]) -> bool:
    return any(condition["type"] == "SeparateGroups" for condition in job["status"]["conditions"])


# The programs with which accelerate tests itself: each compares several processes with one.
# test_script compares them by a file that all processes have.
@pytest.mark.parametrize(("name", "nodes"), [("test_ops", 2), ("test_sync", 2), ("test_script", 1)])
def test_accelerate_finds_its_processes_connected(kubectl: Kubectl, name: str, nodes: int) -> None:
    trainer = {"image": EXAMPLES_IMAGE, "module": f"accelerate.test_utils.scripts.{name}"}
    kubectl.apply(ddpjob("accelerates-own", nodes=nodes, procs=2 // nodes, trainer=trainer))
    job = kubectl.wait_for_phase("accelerates-own", "Succeeded", timeout=600)
    assert job["status"]["attempt"] == 0, kubectl.story("accelerates-own")
    assert not separate(job)


def test_accelerates_data_loaders_read_each_sample_once(kubectl: Kubectl) -> None:
    job = scripted("loaders", config_map="loaders")
    job["spec"]["trainer"]["image"] = EXAMPLES_IMAGE
    kubectl.apply(program("loaders", DATA_LOADERS), job)
    ended = kubectl.wait_for_phase("loaders", "Succeeded", timeout=300)
    assert ended["status"]["attempt"] == 0, kubectl.story("loaders")
    assert not separate(ended)


def test_a_small_gpt_goes_on_from_its_snapshot_after_a_restart_in_place(kubectl: Kubectl) -> None:
    kubectl.apply(program("gpt", GPT), scripted("gpt", config_map="gpt"))
    job = kubectl.wait_for_phase("gpt", "Succeeded", timeout=300)
    assert (job["status"]["attempt"], job["status"]["restarts"]["process"]) == (0, 1), kubectl.story("gpt")
    assert not separate(job)
    said = [kubectl.logs(f"gpt-a0-{ordinal}") for ordinal in (0, 1)]
    for rank, each in enumerate(said):
        epochs = re.findall(rf"^\[{rank}\] epoch (\d) steps (\d+) loss ([\d.]+)$", each, re.MULTILINE)
        assert [(epoch, steps) for epoch, steps, _ in epochs] == [(str(epoch), "16") for epoch in range(4)]
        assert float(epochs[3][2]) < float(epochs[0][2])
    assert len(set(re.findall(r"weights (\S+)", "".join(said)))) == 1


@pytest.mark.parametrize("kind", ["trainer", "fabric", "default"])
def test_lightning_trains_one_model_or_the_job_says_that_it_has_not(kubectl: Kubectl, kind: str) -> None:
    job = scripted("lightning", config_map="lightning")
    job["spec"]["trainer"].update(image=EXAMPLES_IMAGE, args=[kind])
    kubectl.apply(program("lightning", LIGHTNING), job)
    ended = kubectl.wait_for_phase("lightning", "Succeeded", timeout=300)
    said = "".join(kubectl.logs(f"lightning-a0-{ordinal}") for ordinal in (0, 1))
    found = [json.loads(line) for line in said.splitlines() if line.startswith('{"rank"')]
    # Lightning's default on CPUs is one process that knows of no other.
    alone = kind == "default"
    assert [(each["world"], each["steps"]) for each in found] == [(1, 16) if alone else (2, 8)] * 2
    assert found[0]["weights"] == found[1]["weights"] or alone
    assert separate(ended) is alone
