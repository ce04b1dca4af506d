"""What a rank measures of its own part of the steps, on a host and on a device that is behind its host."""

from collections.abc import Callable

import pytest
import torch

from ddpjob_trainer.loop.distributing import distribute
from ddpjob_trainer.loop.optimization import Optimization
from ddpjob_trainer.loop.own_time import DeviceTimer, HostTimer, OwnTime, Timer
from ddpjob_trainer.process.group import Group


class Device:
    """Does what its host queues, one after the other; milliseconds."""

    def __init__(self) -> None:
        self.host, self.done, self.made = 0.0, 0.0, 0

    def queue(self, milliseconds: float) -> None:
        self.done = max(self.done, self.host) + milliseconds

    def moment(self) -> "Recorded":
        self.made += 1
        return Recorded(self)


class Recorded:
    """What torch.cuda.Event is for a real device."""

    def __init__(self, device: Device) -> None:
        self._device, self.at = device, 0.0

    def record(self) -> None:
        self._device.queue(0.0)
        self.at = self._device.done

    def query(self) -> bool:
        return self._device.host >= self.at

    def elapsed_time(self, end_event: "Recorded") -> float:
        assert self.query(), "would wait for the device"
        assert end_event.query(), "would wait for the device"
        return end_event.at - self.at


def step(own: OwnTime, pass_on: Callable[[float], None], queue: Callable[[float], None]) -> None:
    """5 of data, 3 and 20 of computing before and after 7 of waiting for the others, and 30 of that at the end."""
    own.begin_step()
    pass_on(5)
    own.compute()
    queue(3)
    own.wait()
    queue(7)
    own.compute()
    queue(20)
    own.wait()
    queue(30)
    own.end_step(0.065)


def test_on_a_host_each_part_is_what_passes_on_its_clock() -> None:
    now = [0.0]

    def take(milliseconds: float) -> None:
        now[0] += milliseconds / 1000

    own = OwnTime(HostTimer(lambda: now[0]), seed=0)
    for _ in range(4):
        step(own, take, take)
    found = own.taken()
    assert found == pytest.approx((4, 4, 0.02, 0.092, 0, 0.26))
    assert own.taken() == (0, 0, 0, 0, 0, 0)


def test_on_a_device_each_part_is_what_passes_there_and_nothing_is_waited_for() -> None:
    device = Device()

    def pass_on(milliseconds: float) -> None:
        # The host waits for its data only after the device has done all that it was given.
        device.host = max(device.host, device.done) + milliseconds

    own = OwnTime(DeviceTimer(device.moment), seed=0)
    for _ in range(4):
        step(own, pass_on, device.queue)
    # The last step is still under way.
    assert own.taken() == pytest.approx((4, 3, 0.015, 0.069, 0, 0.26))
    device.host = device.done
    assert own.taken() == pytest.approx((0, 1, 0.005, 0.023, 0, 0))


def test_data_that_comes_while_the_device_is_still_busy_is_not_waited_for() -> None:
    device = Device()

    def pass_on(milliseconds: float) -> None:
        device.host += milliseconds

    own = OwnTime(DeviceTimer(device.moment), seed=0)
    for _ in range(4):
        step(own, pass_on, device.queue)
    device.host = device.done
    assert own.taken() == pytest.approx((4, 4, 0.005, 0.092, 0, 0.26))


def test_a_device_that_is_far_behind_costs_no_more_than_some_steps() -> None:
    device = Device()
    own = OwnTime(DeviceTimer(device.moment), seed=0)
    for _ in range(10_000):
        step(own, lambda _: None, device.queue)
    assert device.made < 400
    device.host = device.done
    assert own.taken().measured < 100


@pytest.mark.parametrize("timer", [HostTimer(lambda: 0.0), DeviceTimer(Device().moment)])
def test_a_step_that_never_ends_counts_for_nothing(timer: Timer) -> None:
    own = OwnTime(timer, seed=0)
    for _ in range(3):
        own.begin_step()
        own.compute()
    assert own.taken() == (0, 0, 0, 0, 0, 0)


def test_of_many_short_steps_only_some_are_measured_and_none_is_left_out_by_rule() -> None:
    own, chosen = OwnTime(HostTimer(lambda: 0.0), seed=3), list[int]()
    for number in range(2_000):
        own.begin_step()
        own.end_step(0.005)
        if number % 10 == 9:
            chosen.append(int(own.taken().measured))
    # One in ten, at distances from 1 to 19.
    assert 150 < sum(chosen) < 260
    assert {0, 1, 2} <= set(chosen)


def test_long_steps_are_all_measured() -> None:
    own = OwnTime(HostTimer(lambda: 0.0), seed=3)
    for _ in range(100):
        own.begin_step()
        own.end_step(0.1)
    assert own.taken().measured == 100


def test_a_pause_is_that_of_the_rank_that_writes() -> None:
    first, other = (OwnTime(HostTimer(lambda: 0.0), seed=0) for _ in range(2))
    first.saved(2.0, own=True)
    other.saved(2.0, own=False)
    assert (first.taken().checkpoint, other.taken().checkpoint) == (2.0, 0.0)


def test_a_model_that_is_left_has_no_hooks(group: Group) -> None:
    module = torch.nn.BatchNorm1d(2)
    for _ in range(3):
        model = distribute(module, group.device, Optimization())
        own = OwnTime(HostTimer(lambda: 0.0), seed=0)
        own.attach(model)
        own.attach(model)
        assert [len(each._forward_pre_hooks) for each in (model, module)] == [1, 1]
        own.begin_step()
        own.detach()
        assert [len(each._forward_pre_hooks) for each in (model, module)] == [0, 0]
        own.compute()
        own.end_step(0.1)
        assert own.taken().measured == 0


def test_the_backward_pass_of_a_loss_without_gradients_is_left_to_fail_as_it_does() -> None:
    own = OwnTime(HostTimer(lambda: 0.0), seed=0)
    own.begin_step()
    loss = torch.ones(())
    own.before_backward(loss)
    with pytest.raises(RuntimeError, match="does not require grad"):
        loss.backward()
