"""One user's conversations behind the gateway."""

from wire.v1 import gateway_pb2

from guest.gateway import bounds, convert
from guest.memory.conversation import Conversations

_LIST_DEFAULT = 50
_HISTORY_DEFAULT = 100


class Sessions:
    """Create, list, look at; every call is scoped to the user."""

    def __init__(self, user_id: str, conversations: Conversations) -> None:
        self._user_id = user_id
        self._conversations = conversations

    async def create(self, request: gateway_pb2.CreateSessionRequest) -> gateway_pb2.Session:
        with convert.checked():
            return convert.session(
                await self._conversations.create(
                    self._user_id,
                    session_id=bounds.identifier("session_id", request.session_id, optional=True),
                    title=bounds.title(request.title),
                    channel=bounds.identifier("channel", request.channel, optional=True),
                )
            )

    async def list(self, request: gateway_pb2.ListSessionsRequest) -> gateway_pb2.ListSessionsReply:
        sessions = await self._conversations.list(
            self._user_id, bounds.limit(request.limit, default=_LIST_DEFAULT)
        )
        return gateway_pb2.ListSessionsReply(sessions=map(convert.session, sessions))

    async def history(self, request: gateway_pb2.GetSessionRequest) -> gateway_pb2.SessionHistory:
        session_id = bounds.identifier("session_id", request.session_id)
        limit = bounds.limit(request.limit, default=_HISTORY_DEFAULT)
        with convert.checked():
            session = await self._conversations.get(self._user_id, session_id)
            events = await self._conversations.history(self._user_id, session_id, limit)
        return gateway_pb2.SessionHistory(
            session=convert.session(session), events=map(convert.event, events)
        )

    async def require(self, session_id: str) -> str:
        """`session_id`, which must be one of this user's; NOT_FOUND otherwise."""
        with convert.checked():
            await self._conversations.get(
                self._user_id, bounds.identifier("session_id", session_id)
            )
        return session_id
