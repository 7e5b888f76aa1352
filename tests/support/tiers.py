"""Every tier as a parameter of a fixture that is made once for many tests."""

from typing import Any

import pytest

_NEEDS = {
    "process": pytest.mark.bubblewrap,
    "container": pytest.mark.docker,
    "micro_vm": pytest.mark.runsc,
}


def every_tier(group: str, *marks: pytest.MarkDecorator) -> list[Any]:
    """The tiers, each with what it needs; the tests of `group` in one of them go together."""
    return [
        pytest.param(
            tier,
            id=tier,
            marks=[
                pytest.mark.tier(tier),
                pytest.mark.xdist_group(f"{group}-{tier}"),
                *marks,
                needs,
            ],
        )
        for tier, needs in _NEEDS.items()
    ]
