"""Programs that serve models, as their documentation has their APIs, with a model that plays along.

The model calls a tool where it is asked to, saves what begins with "remember that", and knows what
it was shown.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]
Route = Callable[[dict[str, Any]], Answer]
GB = 10**9


class ModelServer:
    """A running one: `asked` is every request, as method and path."""

    def __init__(self, routes: Mapping[str, Route], port: int, host: str) -> None:
        self.routes = dict(routes)
        self.asked: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self._http = ThreadingHTTPServer((host, port), self._handler())
        self.port = self._http.server_address[1]
        self.thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                name = f"{self.command} {self.path}"
                length = int(self.headers.get("content-length", "0"))
                body = json.loads(self.rfile.read(length) or b"{}")
                server.asked.append(name)
                server.bodies.append(body)
                server.headers.append({key.lower(): value for key, value in self.headers.items()})
                route = server.routes.get(name) or server.routes.get("*", _not_there)
                status, answer = route(body)
                self.send_response(status)
                if isinstance(answer, Iterator):
                    lines = self.path.startswith("/api/")  # of Ollama
                    form = "application/x-ndjson" if lines else "text/event-stream"
                    self.send_header("content-type", form)
                    self.send_header("connection", "close")
                    self.end_headers()
                    for piece in answer:
                        self.wfile.write(piece.encode())
                        self.wfile.flush()
                    self.close_connection = True
                    return
                data = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
                self.send_header("content-type", "application/json; charset=utf-8")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = _serve  # noqa: N815

            def log_message(self, *_: object) -> None:
                return

        return Handler


@contextmanager
def serving(
    routes: Mapping[str, Route], port: int = 0, host: str = "127.0.0.1"
) -> Iterator[ModelServer]:
    server = ModelServer(routes, port, host)
    server.thread.start()
    try:
        yield server
    finally:
        server.close()
        server.thread.join()


def _not_there(_: object) -> Answer:
    return 404, "404 page not found"


def always(answer: Any, status: int = 200) -> Route:
    return lambda _: (status, answer)


def tag(
    name: str,
    *can: str,
    size: float = 1.0,
    loaded: bool = False,
    at: str = "",
    family: str = "qwen3",
    **facts: int,
) -> Any:
    """A model of Ollama: what it is capable of, its size in GB, and figures of its `family`."""
    remote = {"remote_host": at, "remote_model": name} if at else {}
    capabilities = {"capabilities": list(can)} if can else {}
    listed = {"name": name, "model": name, "size": int(size * GB), **remote}
    figures = {f"{family}.{key.replace('__', '.')}": each for key, each in facts.items()}
    told = {
        "details": {"family": family},
        "model_info": {"general.architecture": family, **figures},
    }
    return {"listed": listed, "shown": {**capabilities, **told, **remote}, "loaded": loaded}


def ollama(*tags: Any, pulls: str = "", gives: int = 0) -> dict[str, Route]:
    """Ollama with these models; `pulls` is the error of a download, else it succeeds. It gives a
    model the window that it is asked for, or at most `gives`."""
    models = {each["listed"]["name"]: each for each in tags}

    def listed(_: object) -> Answer:
        return 200, {"models": [each["listed"] for each in models.values()]}

    def show(body: dict[str, Any]) -> Answer:
        found = models.get(body["model"])
        return (200, found["shown"]) if found else (404, {"error": "model not found"})

    def pull(body: dict[str, Any]) -> Answer:
        def steps() -> Iterator[str]:
            name, total = body["model"], int(2.6 * GB)
            yield json.dumps({"status": "pulling manifest"}) + "\n"
            if pulls:
                yield json.dumps({"error": pulls}) + "\n"
                return
            for done in (0.2, 0.7, 1):
                layer = {"digest": "sha256:ab", "total": total, "completed": int(done * total)}
                yield json.dumps({"status": "pulling ab", **layer}) + "\n"
            models[name] = tag(name, "completion", "tools", size=2.6)
            yield json.dumps({"status": "success"}) + "\n"

        return 200, steps()

    def chat(body: dict[str, Any]) -> Answer:
        found = models.get(body["model"])
        if found is None:
            return 404, {"error": f"model '{body['model']}' not found"}
        can = found["shown"].get("capabilities", ["tools", "thinking"])
        if body.get("tools") and "tools" not in can:
            return 400, {
                "error": f"registry.ollama.ai/library/{body['model']} does not support tools"
            }
        think = body.get("think")
        if think and "thinking" not in can:
            return 400, {"error": f'"{body["model"]}" does not support thinking'}
        if isinstance(think, str) and found["shown"]["details"]["family"] != "gptoss":
            return 400, {"error": f'think value "{think}" is not supported for this model'}
        window = min(body["options"].get("num_ctx", 4096), gives or 10**9)
        found["loaded"], found["listed"]["context_length"] = True, window
        words = len(json.dumps([body["messages"], body.get("tools")])) // 4
        if words > window and body.get("truncate") is False:
            why = f"request ({words} tokens) exceeds the available context size ({window} tokens)"
            refusal = {"code": 400, "message": why, "type": "exceed_context_size_error"}
            return 400, {"error": json.dumps({"error": refusal})}
        lines = list(_said(_reply(body)))
        if body.get("stream") is False:
            return 200, {**json.loads(lines[-1]), "message": json.loads(lines[0])["message"]}
        return 200, iter(lines)

    def running(_: object) -> Answer:
        return 200, {"models": [each["listed"] for each in models.values() if each["loaded"]]}

    return {
        "GET /v1/models": lambda _: (200, {"object": "list", "data": [{"id": n} for n in models]}),
        "GET /api/version": always({"version": "0.32.1"}),
        "GET /api/tags": listed,
        "GET /api/ps": running,
        "POST /api/show": show,
        "POST /api/pull": pull,
        "POST /api/chat": chat,
    }


def _said(reply: dict[str, Any]) -> Iterator[str]:
    """What the model answers, as the lines of Ollama's stream."""
    calls = [
        {
            "function": {
                "name": call["function"]["name"],
                "arguments": json.loads(call["function"]["arguments"]),
            }
        }
        for call in reply.get("tool_calls", ())
    ]
    message = {"role": "assistant", "content": reply.get("content", "")}
    yield (
        json.dumps({"message": message | ({"tool_calls": calls} if calls else {}), "done": False})
        + "\n"
    )
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 11, "eval_count": 7}
    yield json.dumps({"message": {"role": "assistant", "content": ""}, **end}) + "\n"


def lm_studio(*models: dict[str, Any]) -> dict[str, Route]:
    """LM Studio, which answers 200 at addresses that it does not have."""
    return {
        "GET /v1/models": always({"object": "list", "data": [{"id": m["key"]} for m in models]}),
        "GET /api/v1/models": always({"models": list(models)}),
        "POST /v1/chat/completions": lambda body: (200, _streamed(body)),
        "*": always({"error": "Unexpected endpoint or method."}),
    }


def studio_model(key: str, *, tools: bool = True, size: float = 1.0, loaded: bool = False) -> Any:
    return {
        "type": "llm",
        "key": key,
        "size_bytes": int(size * GB),
        "loaded_instances": [{"id": key, "config": {"context_length": 8192}}] if loaded else [],
        "capabilities": {"vision": False, "trained_for_tool_use": tools},
    }


def llama_cpp(name: str, *, tools: bool) -> dict[str, Route]:
    """llama.cpp's server with one model."""
    caps = {"supports_tools": tools, "supports_tool_calls": tools}
    settings = {"default_generation_settings": {"n_ctx": 4096}, "chat_template_caps": caps}
    item = {"id": name, "object": "model", "owned_by": "llamacpp"}
    return {
        "GET /v1/models": always({"object": "list", "data": [item]}),
        "GET /props": always({**settings, "model_path": f"/models/{name}.gguf"}),
    }


def vllm(name: str, *, auto_tools: bool) -> dict[str, Route]:
    """vLLM with one model, started with or without --enable-auto-tool-choice."""
    refusal = (
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
    )

    def chat(body: dict[str, Any]) -> Answer:
        if body.get("tools") and not auto_tools:
            return 400, {"error": {"message": refusal, "type": "BadRequestError", "code": 400}}
        return 200, _streamed(body)

    item = {"id": name, "object": "model", "owned_by": "vllm", "max_model_len": 8192}
    return {
        "GET /v1/models": always({"object": "list", "data": [item]}),
        "GET /version": always({"version": "0.11.0"}),
        "POST /v1/chat/completions": chat,
    }


def _streamed(body: dict[str, Any]) -> Iterator[str]:
    """What the model answers, as server-sent events."""
    delta = _reply(body)
    finish = "tool_calls" if "tool_calls" in delta else "stop"
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    common = {"id": "c-1", "object": "chat.completion.chunk", "created": 1, "model": body["model"]}
    for choices in (
        [{"index": 0, "delta": {"role": "assistant", **delta}}],
        [{"index": 0, "delta": {}, "finish_reason": finish}],
    ):
        yield f"data: {json.dumps({**common, 'choices': choices})}\n\n"
    yield f"data: {json.dumps({**common, 'choices': [], 'usage': usage})}\n\n"
    yield "data: [DONE]\n\n"


def _reply(body: dict[str, Any]) -> dict[str, Any]:
    messages = body["messages"]
    shown = "\n".join(str(each.get("content") or "") for each in messages)
    tools = [each["function"]["name"] for each in body.get("tools", ())]
    if messages[-1]["role"] == "tool":
        return {"content": "I will keep that in mind."}
    last = str(messages[-1]["content"]).splitlines()[-1]  # below what stands beside the message
    if tools == ["ready"]:
        return _call("ready", word="yes")
    if (wish := re.search(r"remember that (.+)", last)) and "memory_save" in tools:
        return _call("memory_save", content=wish[1])
    if "what is my name" in last and (known := re.search(r"my name is (\w+)", shown)):
        return {"content": f"Your name is {known[1]}."}
    return {"content": "I do not know."}


def _call(name: str, **arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"index": 0, "id": "call-1", "type": "function", "function": function}]}
