"""Lines that start Python."""

import pytest
from converting import ALL, about, line, spec


@pytest.mark.usefixtures("whole_api")
class TestPython:
    def test_options_of_the_interpreter_are_carried_over_or_told(self) -> None:
        converted = line("python -u -W ignore train.py", supported=ALL)
        assert spec(converted)["trainer"]["env"] == [{"name": "PYTHONUNBUFFERED", "value": "1"}]
        assert "spec.trainer.env" in about(converted, "-W")

    def test_a_program_that_may_spawn_its_own_processes_gets_a_note(self) -> None:
        assert "set spec.procsPerNode to their number" in about(line("python x.py", supported=ALL), "python x.py")

    def test_what_prepares_a_machine_is_not_a_training(self) -> None:
        converted = line("python -m pip install x; python -m venv v; python train.py", supported=ALL)
        assert spec(converted)["trainer"] == {"script": "train.py"}
