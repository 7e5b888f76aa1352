"""What the runner says to the egress guest, and hears from it."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
from wire.errors import Code, WireError
from wire.v1 import egress_pb2, egress_pb2_grpc

from egress.admission.admission import Admission
from egress.admission.allowance import Allowance
from egress.configuration import Configuration, State
from egress.watch import Watch

log = logging.getLogger(__name__)

_Context = grpc.aio.ServicerContext[Any, Any]


class Control(egress_pb2_grpc.EgressServicer):
    """The service. Its only caller is the runner."""

    def __init__(
        self, state: State, admission: Admission, allowance: Allowance, watch: Watch
    ) -> None:
        self._state = state
        self._admission = admission
        self._allowance = allowance
        self._watch = watch

    async def Configure(  # noqa: N802
        self, request: egress_pb2.EgressConfiguration, _: _Context
    ) -> egress_pb2.EgressConfigured:
        try:
            configuration = Configuration.of(request, self._state.interception, self._state.served)
        except ValueError as error:
            self._state.shut(f"what may leave could not be read, so nothing does: {error}")
            self._admission.review()
            raise WireError(
                Code.INVALID_ARGUMENT,
                "egress cannot read what may leave, so nothing does",
                details=str(error),
                resolution="correct [egress] in runner.toml, then: runner egress reload",
            ) from None
        self._allowance.configure(request.limits, request.spent)
        self._state.open(configuration)
        self._admission.review()
        log.info("configured", extra={"event": "configured"})
        return egress_pb2.EgressConfigured(authority_pem=configuration.interception.authority_pem)

    async def Watch(  # noqa: N802
        self, request_iterator: AsyncIterator[egress_pb2.EgressReply], _: _Context
    ) -> AsyncIterator[egress_pb2.EgressEvent]:
        async for event in self._watch.stream(request_iterator):
            yield event

    async def Counters(  # noqa: N802
        self, _: egress_pb2.EgressCountersRequest, __: _Context
    ) -> egress_pb2.EgressCountersReply:
        return self._admission.counters()
