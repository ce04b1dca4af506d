import pytest
from converting import check_without_what_is_to_come
from hypothesis import HealthCheck, settings

# How fast the machine is at this moment says nothing about the code.
settings.register_profile("ddpjob", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ddpjob")


@pytest.fixture
def whole_api(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launchers and backends that the API is still to get pass its check."""
    check_without_what_is_to_come(monkeypatch)
