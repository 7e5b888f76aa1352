"""Every tier as a parameter of a fixture that is made once for many tests.

Every run makes such a test in the container tier. In another tier it is `long`, unless that tier's
own code stops what is tried: `@pytest.mark.stopped_in("process", "micro_vm")` names those tiers.
"""

from typing import Any

import pytest

_NEEDS = {
    "process": pytest.mark.bubblewrap,
    "container": pytest.mark.docker,
    "micro_vm": pytest.mark.runsc,
}

IN_EVERY_RUN = "container"


def every_tier(group: str, *marks: pytest.MarkDecorator) -> list[Any]:
    """The tiers, each with what it needs; the tests of `group` in one of them go together."""
    return [
        pytest.param(
            tier,
            id=tier,
            marks=[
                pytest.mark.tier(tier),
                pytest.mark.xdist_group(f"{group}-{tier}"),
                *([] if tier == IN_EVERY_RUN else [pytest.mark.matrix(tier)]),
                *marks,
                needs,
            ],
        )
        for tier, needs in _NEEDS.items()
    ]


def only_in_long_runs(item: pytest.Item) -> bool:
    """Whether a test in this tier tries nothing that the tier's own code stops."""
    matrix, stopped = item.get_closest_marker("matrix"), item.get_closest_marker("stopped_in")
    return matrix is not None and (stopped is None or matrix.args[0] not in stopped.args)
