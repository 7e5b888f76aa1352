"""Which token may call what."""

import pytest
from wire.errors import Code, WireError
from wire.v1 import gateway_pb2

from runner.access.scopes import METHODS, NEEDED, Method, Scope

SERVICE = gateway_pb2.DESCRIPTOR.services_by_name["Gateway"]


def test_somebody_has_decided_on_every_method_of_the_gateway() -> None:
    """A new method is not relayed until a row of the table says who may call it."""
    assert set(NEEDED) == {method.name for method in SERVICE.methods}
    assert [method.path for method in METHODS.values()] == list(METHODS)
    streaming = {method.name for method in SERVICE.methods if method.client_streaming}
    assert {NEEDED[name] for name in streaming} <= {None}, "the relay passes on one request"


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


def test_every_request_that_names_a_channel_gets_the_tokens() -> None:
    with_channel = {method.name for method in METHODS.values() if method.with_channel}
    assert with_channel >= {"CreateSession", "RunTurn", "CallTool", "SaveNote", "EditNote"}
    run_turn = METHODS["/wire.v1.Gateway/RunTurn"]
    forged = gateway_pb2.RunTurnRequest(session_id="s", text="hi", channel="cli")
    sent = run_turn.through("access-laptop", forged.SerializeToString())
    forged.channel = "access-laptop"
    assert gateway_pb2.RunTurnRequest.FromString(sent) == forged
    with pytest.raises(WireError, match="cannot be read"):
        run_turn.through("access-laptop", b"\xff\xff")
    list_notes = METHODS["/wire.v1.Gateway/ListNotes"]
    assert list_notes.through("access-laptop", b"\xff\xff") == b"\xff\xff"
