"""What of a turn stands in the field `oxydra` of answers."""

from wire.v1 import gateway_pb2 as pb

from runner.client.turn import TurnSoFar
from runner.openai.turns import ResponseRef, own_field


def test_what_changed_in_files_stands_there_where_something_can_have() -> None:
    ref = ResponseRef("turn-00000000-0000-4000-8000-000000000001")
    turn = TurnSoFar()
    turn.add(pb.TurnEvent(completed=pb.TurnCompleted(text="done")))
    assert "files" not in own_field(ref, turn)
    path = "/projects/api/a.py"
    files = pb.FileChanges(files=1, added=2, changes=[pb.FileChange(path=path, kind="added")])
    for ended in (
        pb.TurnEvent(completed=pb.TurnCompleted(files=files)),
        pb.TurnEvent(failed=pb.TurnFailed(files=files)),
        pb.TurnEvent(incomplete=pb.TurnIncomplete(so_far=pb.TurnCompleted(files=files))),
    ):
        turn = TurnSoFar()
        turn.add(ended)
        assert own_field(ref, turn)["files"]["changes"] == [{"path": path, "kind": "added"}]
