"""What is tried in which tier."""

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test that is about something which a tier does not have is no part of the run there."""
    elsewhere = [item for item in items if _is_elsewhere(item)]
    config.hook.pytest_deselected(items=elsewhere)
    items[:] = [item for item in items if item not in elsewhere]


def _is_elsewhere(item: pytest.Item) -> bool:
    tier, other = item.get_closest_marker("tier"), item.get_closest_marker("not_in")
    return tier is not None and other is not None and tier.args[0] in other.args
