import pytest
from clock import Clock
from reconciling import Bench


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def bench() -> Bench:
    return Bench()
