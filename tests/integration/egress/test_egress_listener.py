"""The listeners of the real program: who is let in, and what comes through."""

from wire.v1 import egress_pb2 as pb

from tests.support.egress.origins import Certificates, names, origin
from tests.support.egress.program import Egress, head


async def test_a_request_goes_out_and_its_answer_comes_back(egress: Egress) -> None:
    async with origin() as server, names({"files.example.org": ["127.0.0.1"]}) as (at, _):
        url = f"http://files.example.org:{server.port}/a/b?c=d"
        await egress.configure(
            shell=pb.EgressPolicy(allow=[f"files.example.org:{server.port}"]), name_servers=[at]
        )
        answer = await egress.say(
            f"POST {url} HTTP/1.1\r\nHost: files.example.org:{server.port}\r\n"
            "Proxy-Connection: keep-alive\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-End: 2\r\n"
            "Content-Length: 5\r\n\r\nhello"
        )
        assert (answer.status, answer.body) == (200, b"you sent hello to /a/b?c=d")
        (request,) = server.requests
        assert request.headers["host"] == f"files.example.org:{server.port}"
        assert request.headers["x-end"] == "2"
        assert not {"x-hop", "proxy-connection", "oxydra-token"} & {
            name.lower() for name in request.headers
        }
        assert (request.method, request.raw_path) == ("POST", "/a/b?c=d")
    ended = await egress.end_of("files.example.org")
    (begun,) = egress.begun
    assert (ended.outcome, ended.status, ended.sent, ended.received) == ("done", 200, 5, 26)
    assert (begun.decision, begun.address, begun.path) == ("allowed", "127.0.0.1", "/a/b")
    assert (begun.role, begun.session_id, begun.turn_id) == ("shell", "session-1", "turn-1")


async def test_a_tunnel_carries_tls_both_ways(egress: Egress, certificates: Certificates) -> None:
    context = certificates.server("files.example.org")
    async with origin(context) as server, names({"files.example.org": ["127.0.0.1"]}) as (at, _):
        target = f"files.example.org:{server.port}"
        await egress.configure(shell=pb.EgressPolicy(allow=[target]), name_servers=[at])
        answer, (reader, writer) = await egress.tunnel(target)
        assert answer.status == 200
        await writer.start_tls(certificates.client(), server_hostname="files.example.org")
        writer.write(
            f"GET /bytes?3 HTTP/1.1\r\nHost: {target}\r\nConnection: close\r\n\r\n".encode()
        )
        received = await head(reader)
        assert received.status == 200
        assert len(await reader.read()) == 3 * 2**20
        writer.close()
    ended = await egress.end_of("files.example.org")
    assert ended.outcome == "done"
    assert ended.received > 3 * 2**20
    assert egress.begun[0].method == "CONNECT"
