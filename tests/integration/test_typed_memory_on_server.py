"""Recalling, superseding, undoing and reviewing notes on a server, as on a file."""
# ruff: noqa: F403 - the tests of memory itself, run once more
# mypy: disable-error-code="assignment"

import pytest

from tests.unit.guest.memory.conftest import memory as memory
from tests.unit.guest.memory.test_foreign_values import filled as filled
from tests.unit.guest.memory.test_foreign_values import (
    test_some_values_in_some_columns_are_read as test_foreign_values,
)
from tests.unit.guest.memory.test_note_history import *
from tests.unit.guest.memory.test_review import (
    test_nearly_the_same_is_shown_as_a_pair as test_pairs,
)
from tests.unit.guest.memory.test_search_only import (
    test_only_its_own_session_finds_a_scoped_note as test_scoped,
)
from tests.unit.guest.memory.test_supersession import *
from tests.unit.guest.memory.test_typed_notes import *

pytestmark = [pytest.mark.sqld, pytest.mark.usefixtures("memory_on_a_server")]

__all__ = ["test_foreign_values", "test_pairs", "test_scoped"]
