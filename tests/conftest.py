"""Tests that run only where -m names their marker: they need a cluster, libraries or the site, or are the attack."""

import pytest

ASKED_FOR = ("ray", "attack", "integrations", "outside", "site")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for marker in ASKED_FOR:
        if marker in config.option.markexpr:
            continue
        for item in items:
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=f"runs only with -m {marker}"))
