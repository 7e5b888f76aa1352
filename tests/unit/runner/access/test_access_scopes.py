"""Which token may call what."""

import pytest
from wire.errors import Code, WireError
from wire.tools import FAMILIES
from wire.v1 import gateway_pb2

from runner.access.scopes import METHODS, Method, Scope
from runner.client.calls import SERVICE

ALL = frozenset(Scope)


def test_somebody_has_decided_on_every_method_of_the_gateway() -> None:
    """A new method is open to nobody until the contract says who may call it."""
    assert {method.name for method in METHODS.values() if method.needed is None} == {
        *("SetMemoryToken", "SetProviderKey", "SetPeers"),
        *("ReportCalls", "Ask", "ProbeNetwork", "AddNotice"),
    }
    for described in SERVICE.methods:
        method = METHODS[described.name]
        assert method.needed is None or not described.client_streaming, "it passes on one request"


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)
def test_a_method_is_open_to_who_has_all_its_scopes(method: Method) -> None:
    needed = method.needed
    for scopes in (frozenset[Scope](), *(frozenset({scope}) for scope in Scope), frozenset(Scope)):
        if needed is not None and needed <= scopes:
            method.check(scopes)
        else:
            with pytest.raises(WireError) as raised:
                method.check(scopes)
            assert raised.value.code is Code.PERMISSION_DENIED


def test_who_begins_work_for_later_may_begin_it_now() -> None:
    """A run of a schedule is a turn, so each of their methods needs what a turn does."""
    of_schedules = [each for name, each in METHODS.items() if "Schedule" in name]
    assert len(of_schedules) >= 6
    assert {each.needed for each in of_schedules} == {METHODS["StartTurn"].needed}


def test_every_request_that_names_a_channel_gets_the_tokens() -> None:
    with_channel = {method.name for method in METHODS.values() if method.has_channel}
    assert with_channel >= {"CreateSession", "StartTurn", "CallTool", "SaveNote", "EditNote"}
    start_turn = METHODS["StartTurn"]
    forged = gateway_pb2.StartTurnRequest(session_id="s", text="hi", channel="cli")
    sent = start_turn.through("access-laptop", ALL, forged)
    assert forged.channel == "cli"
    forged.channel = "access-laptop"
    assert sent == forged
    request = gateway_pb2.ListNotesRequest(tag="tea")
    assert METHODS["ListNotes"].through("access-laptop", ALL, request) == request


CALL_TOOL = METHODS["CallTool"]


@pytest.mark.parametrize(
    ("tool", "session_id", "needed"),
    [
        ("memory_save", "", {Scope.MEMORY}),
        ("recall", "", {Scope.MEMORY}),
        ("scratch_note", "", {Scope.MEMORY}),
        ("memory_save", "s", {Scope.MEMORY, Scope.CHAT}),
        ("file_read", "", {Scope.CHAT}),
        ("shell_exec", "", {Scope.CHAT}),
        *((name, "", {Scope.CHAT}) for name in FAMILIES["schedules"]),
        ("search_of_a_server", "", {Scope.CHAT}),
        ("", "", {Scope.CHAT}),
    ],
)
def test_a_tool_is_open_to_who_has_its_scopes(
    tool: str, session_id: str, needed: set[Scope]
) -> None:
    request = gateway_pb2.CallToolRequest(name=tool, session_id=session_id)
    CALL_TOOL.through("access-laptop", frozenset(needed), request)
    for one in needed:
        with pytest.raises(WireError) as raised:
            CALL_TOOL.through("access-laptop", ALL - {one}, request)
        assert raised.value.code is Code.PERMISSION_DENIED


def test_a_list_of_tools_has_those_that_may_be_called() -> None:
    names = ("memory_search", "file_read", "shell_exec")
    reply = gateway_pb2.ListToolsReply(
        tools=[gateway_pb2.ToolDescription(name=name) for name in names]
    )

    def shown(*scopes: Scope) -> list[str]:
        list_tools = METHODS["ListTools"]
        answer = list_tools.back(frozenset(scopes), reply)
        assert isinstance(answer, gateway_pb2.ListToolsReply)
        return [tool.name for tool in answer.tools]

    assert shown(Scope.MEMORY) == ["memory_search"]
    assert shown(Scope.CHAT) == ["file_read", "shell_exec"]
    assert shown(Scope.ADMIN) == []
    assert shown(*Scope) == list(names)
