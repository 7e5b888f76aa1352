"""For any order of starts, copies, removals and new accounts: no two users share a uid, and none
changes without a reason."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.errors import WorkspaceError
from runner.workspace.guest_uids import GuestUids, assign

pytestmark = pytest.mark.root

UIDS = GuestUids(1_210_779_000, 6)
users = st.sampled_from(["alice", "bob", "carol", "dave"])
steps = st.one_of(
    st.tuples(st.just("start"), users),
    st.tuples(st.just("start"), users),
    st.tuples(st.just("remove"), users),
    st.tuples(st.just("copy"), users, users),
    st.tuples(st.just("give"), users, st.sampled_from([0, UIDS.embedder, 4711])),
    st.tuples(st.just("account"), st.sampled_from(UIDS.users)),
)


def recorded(path: Path) -> int:
    return path.stat().st_gid if path.exists() else 0


@given(st.lists(steps, max_size=24))
def test_no_two_users_share_a_uid_and_each_keeps_its_own(story: list[tuple[str, ...]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        accounts: set[int] = set()
        settled: dict[str, int] = {}
        """The uid that each user had at the last start, while nothing has happened to it since."""

        def holder(uid: int) -> str:
            return "an account" if uid in accounts else ""

        for kind, *what in story:
            if kind == "start":
                path = root / what[0]
                path.mkdir(exist_ok=True)
                others = {recorded(other) for other in root.iterdir() if other != path}
                try:
                    uid = assign(root, what[0], UIDS, holder).uid
                except WorkspaceError:
                    assert others | accounts >= set(UIDS.users)
                    continue
                assert uid == recorded(path)
                assert uid in UIDS.users
                assert uid not in others | accounts
                assert settled.get(what[0], uid) == uid
                settled[what[0]] = uid
            elif kind == "remove":
                shutil.rmtree(root / what[0], ignore_errors=True)
                settled.pop(what[0], None)
            elif kind == "copy":
                source, target = what
                if source != target and (root / source).exists():
                    (root / target).mkdir(exist_ok=True)
                    os.chown(root / target, -1, recorded(root / source))
                    settled.pop(source, None)
                    settled.pop(target, None)
            elif kind == "give":
                (root / what[0]).mkdir(exist_ok=True)
                os.chown(root / what[0], -1, int(what[1]))
                settled.pop(what[0], None)
            else:
                accounts.add(int(what[0]))
                settled = {user: uid for user, uid in settled.items() if uid not in accounts}
