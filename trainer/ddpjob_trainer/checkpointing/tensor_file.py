"""Writes tensors in the safetensors format without blocking other threads.

`safetensors.torch.save_file` holds Python's lock while it copies and writes, which would pause the training, whichever
thread calls it. The format is 8 bytes with the header's length, the header as JSON, then the
tensors (https://github.com/huggingface/safetensors#format).
"""

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch

_ALIGNMENT: Final = 8
_TYPES: Final = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}


def write_tensors(tensors: Mapping[str, torch.Tensor], file: Path) -> None:
    """Write tensors by name into a file that `safetensors.torch.load_file` reads.

    Args:
        tensors: contiguous, in the host's memory.
        file: is created or replaced.

    Raises:
        TypeError: the format does not have a tensor's type; the message names the tensor.
        OSError: the file cannot be written.
    """
    # The largest elements first, so that each tensor begins at a multiple of its element size, as readers expect.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header: dict[str, object] = {}
    end = 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _type_of(name, tensor), "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with file.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for _, tensor in ordered:
            if tensor.numel():
                # As bytes, since NumPy does not have every type of torch.
                stream.write(memoryview(tensor.reshape(-1).view(torch.uint8).numpy()))


def _type_of(name: str, tensor: torch.Tensor) -> str:
    own = str(tensor.dtype).removeprefix("torch.")
    found = _TYPES.get(own)
    if found is None:
        raise TypeError(f"{name} is a tensor of {own}, which the safetensors format cannot hold")
    return found
