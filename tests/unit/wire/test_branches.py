"""Which sessions are of one conversation."""

from wire.branches import are_branches, branch_of, told_in, told_so


def test_a_session_beside_another_says_of_which_it_is_and_what_it_was_told() -> None:
    for name in ("garden", "0a9d5c1e-0000-4000-8000-00000000c0de", "x" * 64):
        branch = branch_of(name, 12, "User: hi")
        assert len(branch) <= 64
        assert told_in(branch, name) == 12
        assert told_in(name, name) is None
        assert told_in(branch, f"{name}r") is None
        assert (told_so(branch, "User: hi"), told_so(branch, "User: ho")) == (True, False)
        assert are_branches(branch, name)
        assert are_branches(branch, branch_of(name, 3, ""))
        assert not are_branches(branch, branch)
        assert not are_branches(branch, f"{name}r")
