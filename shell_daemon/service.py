"""The shell over gRPC: the contract's service, and nothing of its own."""
# ruff: noqa: ARG002, N802 - gRPC names the methods and passes requests and contexts

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from wire.v1 import shell_pb2, shell_pb2_grpc

from shell_daemon import checks
from shell_daemon.shell import Shell

Context = grpc.aio.ServicerContext[Any, Any]


class ShellService(shell_pb2_grpc.ShellServicer):
    """Hands every call to `Shell`; `wire.transport` checks tokens and maps errors. `admit`
    lets callers with a further token in."""

    def __init__(self, shell: Shell, admit: Callable[[str], None]) -> None:
        self._shell = shell
        self._admit = admit

    async def Hello(
        self, request: shell_pb2.ShellHelloRequest, context: Context
    ) -> shell_pb2.ShellHelloReply:
        return self._shell.hello()

    async def Admit(
        self, request: shell_pb2.AdmitRequest, context: Context
    ) -> shell_pb2.AdmitReply:
        checks.check_token(request.token)
        self._admit(request.token)
        return shell_pb2.AdmitReply()

    async def Start(
        self, request: shell_pb2.StartExecRequest, context: Context
    ) -> shell_pb2.StartExecReply:
        reply = self._shell.start(request)
        await asyncio.sleep(0)  # the command is on its way before the answer is
        return reply

    async def Output(
        self, request: shell_pb2.ExecOutputRequest, context: Context
    ) -> AsyncIterator[shell_pb2.ExecOutputEvent]:
        async for event in self._shell.output(request):
            yield event

    async def WriteStdin(
        self, request: shell_pb2.WriteStdinRequest, context: Context
    ) -> shell_pb2.WriteStdinReply:
        return await self._shell.write_stdin(request)

    async def Cancel(
        self, request: shell_pb2.CancelExecRequest, context: Context
    ) -> shell_pb2.CancelExecReply:
        return await self._shell.cancel(request)

    async def Release(
        self, request: shell_pb2.ReleaseExecRequest, context: Context
    ) -> shell_pb2.ReleaseExecReply:
        return self._shell.release(request)

    async def OpenSession(
        self, request: shell_pb2.OpenShellSessionRequest, context: Context
    ) -> shell_pb2.OpenShellSessionReply:
        return self._shell.open_session(request)

    async def CloseSession(
        self, request: shell_pb2.CloseShellSessionRequest, context: Context
    ) -> shell_pb2.CloseShellSessionReply:
        return await self._shell.close_session(request)
