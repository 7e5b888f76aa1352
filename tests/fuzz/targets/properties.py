"""Properties as targets: hypothesis makes their examples from the bytes of an input."""

import random
from collections.abc import Mapping
from typing import Any

from tests.fuzz.material import Target, stateless
from tests.property import test_egress_policy_property as egress
from tests.property import test_path_properties as paths
from tests.property import test_redaction_properties as redaction
from tests.property import test_runner_properties as runner
from tests.property import test_text_calls_property as answers


def _target(name: str, share: int, *properties: Any) -> Target:
    """A target of the properties, of which the first byte of an input chooses one."""
    tries = [each.hypothesis.fuzz_one_input for each in properties]

    def one_input(data: bytes) -> None:
        if data:
            tries[data[0] % len(tries)](data[1:])

    return Target(name, share, stateless(one_input), _seeds)


def _seeds() -> Mapping[str, bytes]:
    """Enough bytes for an example: hypothesis makes none of fewer than it asks for."""
    return {f"random-{number}": random.Random(number).randbytes(512) for number in range(14)}


TARGETS = (
    _target("log_lines", 50, runner.test_any_line_of_a_log_can_be_shown),
    _target(
        "model_answers",
        40,
        answers.test_calls_are_read_as_they_were_written,
        answers.test_any_text_is_borne_and_split_alike_in_all_pieces,
        answers.test_a_call_that_stands_in_what_was_read_is_found,
    ),
    _target(
        "egress_rules",
        60,
        egress.test_a_rule_is_refused_in_words_or_says_the_same_again,
        egress.test_a_host_has_one_spelling,
        egress.test_a_path_that_a_rule_means_stays_below_it,
    ),
    _target(
        "paths",
        30,
        paths.test_both_ways_open_the_same_or_refuse_alike,
        paths.test_no_read_shows_what_lies_outside,
        paths.test_the_runner_follows_no_link,
        paths.test_a_shown_name_is_one_line,
        runner.test_a_user_id_is_one_plain_name_or_refused,
        runner.test_no_database_path_leads_to_a_guest_or_to_another_user,
        runner.test_an_absolute_path_leads_to_no_workspace_but_ones_own,
    ),
    _target(
        "scrubber",
        110,
        redaction.test_a_known_secret_is_hidden_in_any_text,
        redaction.test_a_cut_through_a_secret_hides_what_is_left_of_it,
        redaction.test_redaction_is_stable,
        redaction.test_what_a_model_writes_again_as_it_stands_is_the_text,
    ),
)
