"""Options and settings of the whole suite."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import settings

from tests.pysim import quicken

# The same examples every time, as with simulations (seed 1); ``rocinante test --seed`` asks for
# others. Building a model inside a test takes longer than any sensible deadline.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("seeded", deadline=None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")


def pytest_configure(config: pytest.Config) -> None:
    # With several processes pytest itself would say that no tests ran, and not why.
    for argument in config.args:
        path = config.invocation_params.dir / argument.partition("::")[0]
        if not path.exists():
            raise pytest.UsageError(f"There is no {argument.partition('::')[0]}")
    if config.getoption("--slow"):
        os.environ["ROCINANTE_SLOW"] = "1"  # for the cases of benches (tests/slow.py)
    seeded = config.getoption("--hypothesis-seed", None) is not None
    settings.load_profile("seeded" if seeded else "steady")
    quicken()


#: Folders whose tests take longest. They begin first, so that at the end both processes have work.
LONG = ("nic", "interop", "endpoint", "campaign", "measure", "replay", "sim")


def pytest_runtest_setup() -> None:
    """What stands now stays: with each simulation the collector looks at its own objects alone.

    Designs that tests share grow to gigabytes, and going through them takes a second.
    """
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not set(LONG) & set(item.path.parts))
    if config.getoption("--slow"):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: needs --slow"))
