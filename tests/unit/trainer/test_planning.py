"""How long a training is planned to be is how long it becomes, from wherever it is."""

import pytest

from ddpjob_trainer.data.position import Position
from ddpjob_trainer.data.sharing import Share, StepSize
from ddpjob_trainer.loop.planning import planned_epochs, planned_steps


class Samples:
    """Batches of two samples on each of two ranks."""

    batch_size = 2

    def __init__(self, size: int) -> None:
        self.size = size

    def share(self, consumed: int, step: StepSize) -> Share:
        return Share(self.size, consumed, 0, 2, self.batch_size, step)

    def steps(self, consumed: int, step: StepSize) -> int:
        return self.share(consumed, step).steps

    def positions(self, size: StepSize, epochs: int | None, max_steps: int | None) -> list[Position]:
        """All positions that a training comes to, the ends of epochs included."""
        here = [Position()]
        while (epochs is None or here[-1].epoch < epochs) and (max_steps is None or here[-1].step < max_steps):
            epoch, step = here[-1].epoch, here[-1].step
            for part in self.share(0, size).parts():
                if part.last:
                    step += 1
                    here.append(Position(epoch, part.consumed, step))
                    if step == max_steps:
                        break
            if here[-1].consumed == self.size:
                here.append(Position(epoch + 1, 0, step))
        return here


@pytest.mark.parametrize("step", [StepSize(1, 2), StepSize(3, 2), StepSize(1, 5)])
@pytest.mark.parametrize("size", [1, 4, 17])
@pytest.mark.parametrize(
    ("epochs", "max_steps"), [(1, None), (3, None), (None, 1), (None, 7), (None, 10), (2, 7), (9, 4), (1, 99)]
)
def test_the_plan_is_the_same_at_any_position_and_comes_true(
    size: int, step: StepSize, epochs: int | None, max_steps: int | None
) -> None:
    source = Samples(size)
    positions = source.positions(step, epochs, max_steps)
    last = positions[-1]
    for done in positions:
        total = planned_steps(source, done, step, epochs=epochs, max_steps=max_steps)  # type: ignore[arg-type]
        assert total == last.step
        found = planned_epochs(source, done, step, total_steps=total)  # type: ignore[arg-type]
        assert found == last.epoch + (last.consumed > 0)


def test_a_training_that_is_beyond_its_end_stays_where_it_is() -> None:
    done = Position(2, 4, 11)
    for epochs, max_steps in ((None, 5), (1, None), (1, 5)):
        assert planned_steps(Samples(17), done, StepSize(1, 2), epochs=epochs, max_steps=max_steps) == 11  # type: ignore[arg-type]
    assert planned_epochs(Samples(17), done, StepSize(1, 2), total_steps=11) == 3  # type: ignore[arg-type]
