"""The Event on devices that look like accelerators, but are not known."""

import pytest
from world import World, spec_of

from ddpjob_core.api.accelerators import unknown_accelerators


@pytest.mark.parametrize(
    ("resources", "fields", "said"),
    [
        ({"example.com/npu": 4, "cpu": 8}, {}, "does not count: example.com/npu; spec.procsPerNode is 8, spec.backend"),
        ({"example.com/npu": 4}, {"procsPerNode": 4}, "does not count: example.com/npu; spec.backend is gloo (auto)"),
        ({"habana.ai/gaudi": 8}, {}, "does not count: habana.ai/gaudi"),
        ({"aws.amazon.com/neuroncore": 8}, {}, "does not count: aws.amazon.com/neuroncore"),
        ({"huawei.com/Ascend910": 8}, {}, "does not count: huawei.com/Ascend910"),
        ({"google.com/tpu": 4}, {}, "does not count: google.com/tpu"),
        ({"alibabacloud.com/gpu-mem": 8}, {}, "does not count: alibabacloud.com/gpu-mem"),
        ({"nvidia.com/a100": 8}, {}, "does not count: nvidia.com/a100"),
        ({f"example.com/npu-{k}": 1 for k in range(9)}, {}, "npu-0, example.com/npu-1, example.com/npu-2, and 6 more;"),
        ({"example.com/gpu": 4}, {}, "taken for GPUs: example.com/gpu; spec.procsPerNode is 4, spec.backend is nccl"),
        ({"example.com/npu": 4}, {"procsPerNode": 4, "backend": "gloo"}, ""),
        ({"example.com/npu": 0}, {}, ""),
        ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000}, {}, ""),
        ({"gpu.intel.com/xe": 1, "gpu.intel.com/memory.max": 3000}, {}, ""),
        ({"rdma/hca": 1, "nvidia.com/hostdev": 1, "smarter-devices/fuse": 1, "hugepages-2Mi": "4Mi"}, {}, ""),
        ({"vpc.amazonaws.com/efa": 1, "intel.com/sriov": 1, "example.com/input": 1, "example.com/cpus": 1}, {}, ""),
    ],
)
def test_an_accelerator_that_is_not_known_is_reported_once(
    resources: dict[str, object], fields: dict[str, object], said: str
) -> None:
    trainer = {"image": "i", "script": "t.py", "resources": {"limits": resources}}
    world = World(spec=spec_of(**{"procsPerNode": "auto", **fields}, trainer=trainer))
    world.restart()
    told = [event.message for event in world.events if event.reason == "UnknownAccelerator"]
    assert len(told) == (1 if said else 0)
    assert said in "".join(told)


def test_names_of_resources_take_time_in_proportion_to_their_length() -> None:
    # A pattern that goes back over such a name would take minutes.
    assert unknown_accelerators(["x/" + "neuron-" * 30_000 + "/"] * 2) != []
