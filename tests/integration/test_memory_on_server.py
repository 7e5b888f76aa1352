"""What memory does on a file it also does on a server, searched in its copy."""
# ruff: noqa: F403, F821 - the tests of memory itself, run once more

import pytest

from tests.unit.guest.memory.test_conversations import *
from tests.unit.guest.memory.test_keyed_notes import *
from tests.unit.guest.memory.test_memory_concurrency import *
from tests.unit.guest.memory.test_memory_search import *
from tests.unit.guest.memory.test_quota import *
from tests.unit.guest.memory.test_search_in_time import *
from tests.unit.guest.memory.test_writing_systems import *

pytestmark = [pytest.mark.sqld, pytest.mark.usefixtures("memory_on_a_server")]

del test_notes_are_found_when_conversations_fail  # it breaks the store's own tables
del test_any_text_is_a_query  # the same code, which asks the copy only
del test_what_is_no_name_or_text_is_refused  # the same code, which asks nothing
del test_a_refusal_that_nothing_explains_ends  # the same code, after a hundred requests
