"""Exchanges bytes, JSON and tensors between ranks, without the pickle of torch's object collectives."""

import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
import torch.distributed as dist

from ddpjob_trainer.process.lifetime import keep_forever

_HELD: Final = 64
_GATHERED: Final = 4
"""Each holds a tensor per rank."""
_LENGTH: Final = 8
"""Bytes that encode a length."""
_SOON: Final = 100
"""How often to ask within a second."""


class StreamError(RuntimeError):
    """Rank 0 could not read what all ranks need."""


class Gathering:
    """What rank 0 will receive from every rank. Any of its threads may ask."""

    def __init__(self, work: dist.Work, parts: list[torch.Tensor]) -> None:
        """Args:
        work: of the collective.
        parts: where it receives each rank's length, followed by its bytes.
        """
        self._work = work
        self._parts = parts

    def result(self) -> list[bytes]:
        """Wait, and return every rank's data, in the order of ranks.

        Raises:
            RuntimeError: a rank is gone.
        """
        self._work.wait()
        gathered = [_bytes(part) for part in self._parts]
        return [each[_LENGTH : _LENGTH + int.from_bytes(each[:_LENGTH])] for each in gathered]


class Mean:
    """What the means over all ranks will be."""

    def __init__(self, work: dist.Work, total: torch.Tensor, rows: torch.Tensor | None = None) -> None:
        """Args:
        work: of the collective.
        total: becomes the sum.
        rows: part of the same memory; becomes what each rank has given.
        """
        self._work = work
        self._total = total
        self._rows = rows

    def done_soon(self, pause: Callable[[float], object] = time.sleep) -> bool:
        """Whether `result` will not wait; waits a second at most to find out.

        Even a single process gets its result a moment after the call, from the group's thread.

        Raises:
            RuntimeError: a rank or the device is gone.
        """
        # Not the work's own wait with a timeout: with nccl it ends the process group when it expires.
        for _ in range(_SOON):
            if self._work.is_completed():
                return True
            pause(1 / _SOON)
        return False

    def result(self) -> list[float]:
        """Wait for the means, one for each of the numbers.

        Raises:
            RuntimeError: a rank is gone.
        """
        self._work.wait()
        means: list[float] = (self._total / dist.get_world_size()).tolist()
        return means

    def rows(self) -> list[list[float]]:
        """What each rank has given in addition, in the order of ranks; after `result`."""
        rows: list[list[float]] = [] if self._rows is None else self._rows.tolist()
        return rows


class Total:
    """What the sum over all ranks will be."""

    def __init__(self, work: dist.Work, total: torch.Tensor) -> None:
        """Args:
        work: of the collective.
        total: becomes the sum.
        """
        self._work = work
        self._total = total

    def result(self) -> torch.Tensor:
        """The sum, on the device of the exchange; on a GPU only its stream waits for it.

        Raises:
            RuntimeError: a rank is gone.
        """
        self._work.wait()
        return self._total


class Exchange:
    """Moves small values between all ranks; every rank calls the same methods in the same order."""

    def __init__(self, device: torch.device) -> None:
        """Args:
        device: where the backend expects tensors: the GPU for nccl, else the CPU.
        """
        self._device = device
        # The group's threads release a tensor some time after the collective; see keep_forever.
        self._held: deque[torch.Tensor] = deque(maxlen=_HELD)
        self._gathered: deque[list[torch.Tensor]] = deque(maxlen=_GATHERED)
        keep_forever(self._held)
        keep_forever(self._gathered)

    def broadcast_json(self, value: Any, source: int = 0) -> Any:  # noqa: ANN401 anything JSON can hold
        """The value of rank 0, or of the source, on every rank; the others' values are ignored."""
        data = json.dumps(value).encode() if dist.get_rank() == source else b""
        length = torch.tensor([len(data)], dtype=torch.int64, device=self._device)
        dist.broadcast(self._hold(length), src=source)
        buffer = self._tensor(data) if dist.get_rank() == source else self._empty(int(length))
        if len(buffer):
            dist.broadcast(self._hold(buffer), src=source)
        return json.loads(_bytes(buffer))

    def stream(
        self, sizes: Sequence[int], read: Callable[[int, memoryview], None] | None, source: int = 0
    ) -> Iterator[torch.Tensor]:
        """Rank 0's bytes, or those of the source, on every rank, in pieces, without ever holding more than one of them.

        Args:
            sizes: bytes of each piece, the same on all ranks.
            read: given a piece's number, fills a buffer with it; only called on the source.
            source: rank that has them.

        Yields:
            Each piece as bytes on the device of the exchange, valid until the next one.

        Raises:
            StreamError: the source could not read a piece; on every rank.
        """
        most = max(sizes, default=0)
        host = torch.empty(most + 1, dtype=torch.uint8)
        moved = host if self._device.type == "cpu" else self._empty(most + 1)
        for index, size in enumerate(sizes):
            failure: OSError | None = None
            if dist.get_rank() == source and read is not None:
                try:
                    read(index, memoryview(host[:size].numpy()))
                except OSError as reason:
                    failure = reason
                # The others wait for the piece in any case, and learn from its last byte what it is worth.
                host[size] = failure is not None
            piece = moved[: size + 1]
            if moved is not host:
                piece.copy_(host[: size + 1])
            dist.broadcast(self._hold(piece), src=source)
            if int(piece[size]):
                raise StreamError(self.broadcast_json(str(failure), source)) from failure
            yield piece[:size]

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Every rank's data, in the order of ranks, on every rank."""
        size = dist.get_world_size()
        length = torch.tensor([len(data)], dtype=torch.int64, device=self._device)
        lengths = self._hold_all([torch.zeros_like(length) for _ in range(size)])
        dist.all_gather(lengths, self._hold(length))
        longest = max(int(each) for each in lengths)
        padded = self._empty(longest)
        padded[: len(data)] = self._tensor(data)
        parts = self._hold_all([self._empty(longest) for _ in range(size)])
        dist.all_gather(parts, self._hold(padded))
        return [_bytes(part[: int(each)]) for part, each in zip(parts, lengths, strict=True)]

    def begin_to_gather(self, data: bytes, capacity: int) -> Gathering:
        """Send data to rank 0 without waiting for any other rank.

        With gloo the next collective does not wait for it either; nccl and mpi run one after the other.

        Args:
            data: of this rank.
            capacity: maximum number of bytes per rank; the same on all ranks.

        Returns:
            What will have been gathered; only useful on rank 0.

        Raises:
            ValueError: the data exceeds the capacity.
        """
        if len(data) > capacity:
            raise ValueError(f"cannot gather {len(data)} bytes: at most {capacity} are allowed")
        # One collective of a size known to all ranks: agreeing on a size would mean waiting.
        padded = self._empty(_LENGTH + capacity)
        framed = len(data).to_bytes(_LENGTH) + data
        padded[: len(framed)] = self._tensor(framed)
        first = dist.get_rank() == 0
        parts = self._hold_all([self._empty(len(padded)) for _ in range(dist.get_world_size())]) if first else None
        return Gathering(dist.gather(self._hold(padded), parts, dst=0, async_op=True), parts or [])

    def copy_of_first(self, tensor: torch.Tensor) -> None:
        """Give a tensor the values that rank 0 has; one that is not plain memory stays as it is."""
        whole = tensor.detach()
        if whole.layout is not torch.strided or whole.is_meta or whole.is_quantized or not whole.numel():
            return
        values = whole.resolve_conj().resolve_neg().contiguous()
        moved = values.to(self._device)
        # As bytes: not every backend knows every type.
        dist.broadcast(self._hold(moved.view(-1).view(torch.uint8)), src=0)
        if dist.get_rank() != 0 and moved is not whole and 0 not in whole.stride():
            whole.copy_(moved)

    def gather_tensors(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's tensor, in the order of ranks, on every rank and on the device of this one's.

        They may have different lengths, the first dimension.

        Raises:
            ValueError: they differ in anything else; on every rank.
        """
        own = tensor.detach()
        form = json.dumps([str(own.dtype), list(own.shape)]).encode()
        forms = [json.loads(each) for each in self.gather_bytes(form)]
        kinds = [(dtype, tuple(shape[1:])) for dtype, shape in forms if shape and shape[0]]
        scalar = next((rank for rank, (_, shape) in enumerate(forms) if not shape), None)
        if scalar is not None:
            raise ValueError(f"the tensor of rank {scalar} has no dimensions: its first one counts samples")
        if len(set(kinds)) > 1:
            said = ", ".join(f"{dtype} {tuple(shape)} on rank {rank}" for rank, (dtype, shape) in enumerate(forms))
            raise ValueError(f"the ranks' tensors differ in more than their length: {said}")
        dtype, rest = kinds[0] if kinds else (forms[0][0], tuple(forms[0][1][1:]))
        kind = getattr(torch, dtype.removeprefix("torch."))
        shapes = [(shape[0], *rest) for _, shape in forms]
        sizes = [math.prod(shape) * kind.itemsize for shape in shapes]
        if not kinds:
            return [own.new_empty(shape, dtype=kind) for shape in shapes]
        padded = self._empty(max(sizes))
        if own.numel():
            values = own.resolve_conj().resolve_neg().contiguous().view(-1).view(torch.uint8)
            padded[: len(values)] = values
        parts = self._hold_all([torch.empty_like(padded) for _ in sizes])
        dist.all_gather(parts, self._hold(padded))
        whole = zip(parts, sizes, shapes, strict=True)
        return [part[:size].view(kind).view(shape).to(own.device).clone() for part, size, shape in whole]

    def first(self, *values: float) -> list[float]:
        """Rank 0's numbers on every rank."""
        numbers = torch.tensor(values, dtype=torch.float64, device=self._device)
        dist.broadcast(self._hold(numbers), src=0)
        return [float(each) for each in numbers]

    def begin_mean(self, *values: torch.Tensor | float, row: Sequence[float] = ()) -> Mean:
        """Start to average numbers that each rank holds, as tensors on its device, without waiting.

        Args:
            values: to average.
            row: numbers of this rank that all ranks are to know, as many on each.
        """
        if self._device.type == "cpu":
            return self._begin_mean_here([float(value) for value in values], row)
        # A number is filled in by a kernel: a copy to a GPU would wait for it.
        like: dict[str, Any] = {"device": self._device, "dtype": torch.float32}
        means = torch.stack(
            [
                each.detach().to(**like) if isinstance(each, torch.Tensor) else torch.full((), each, **like)
                for each in values
            ]
        )
        if not row:
            return Mean(dist.all_reduce(self._hold(means), async_op=True), means)
        # In the same collective: each rank adds its own row to zeros.
        rank, size = dist.get_rank(), dist.get_world_size()
        both = torch.cat([means, means.new_zeros(size * len(row))])
        total, rows = both[: len(means)], both[len(means) :].view(size, len(row))
        for index, value in enumerate(row):
            # Likewise.
            rows[rank, index].fill_(value)
        return Mean(dist.all_reduce(self._hold(both), async_op=True), total, rows)

    def _begin_mean_here(self, values: list[float], row: Sequence[float]) -> Mean:
        """The same where numbers can be read at once: one tensor, where a dozen small ones would cost most of it."""
        rank, size, count = dist.get_rank(), dist.get_world_size(), len(row)
        rows = [0.0] * (rank * count) + [*row] + [0.0] * ((size - rank - 1) * count)
        both = torch.tensor(values + rows, dtype=torch.float32)
        total = both[: len(values)]
        shown = both[len(values) :].view(size, count) if row else None
        return Mean(dist.all_reduce(self._hold(both), async_op=True), total, shown)

    def begin_sum(self, value: torch.Tensor) -> Total:
        """Start to add up a number that each rank holds as a tensor, without waiting."""
        total = value.detach().to(self._device, dtype=torch.float64, copy=True)
        return Total(dist.all_reduce(self._hold(total), async_op=True), total)

    def sum(self, *values: float) -> list[float]:
        """The sums over all ranks, one for each of the numbers."""
        total = torch.tensor(values, dtype=torch.float64, device=self._device)
        dist.all_reduce(self._hold(total))
        return [float(each) for each in total]

    def _hold_all(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        self._gathered.append(tensors)
        return tensors

    def _hold(self, tensor: torch.Tensor) -> torch.Tensor:
        self._held.append(tensor)
        return tensor

    def _empty(self, length: int) -> torch.Tensor:
        return torch.zeros(length, dtype=torch.uint8, device=self._device)

    def _tensor(self, data: bytes) -> torch.Tensor:
        # torch warns about read-only memory.
        return torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self._device) if data else self._empty(0)


def _bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.cpu().numpy())
