"""Tests marked `ray` start a cluster on this machine; they run only where -m names them."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "ray: starts a Ray cluster on this machine; run with -m ray")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "ray" in config.option.markexpr:
        return
    for item in items:
        if "ray" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="runs only with -m ray"))
