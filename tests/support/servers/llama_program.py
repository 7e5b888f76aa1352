"""llama.cpp's server, for the Python of .venv/models/server, which has nothing else.

    llama_program.py serve MODEL WINDOW TEMPLATE
    llama_program.py render MODEL TEMPLATE…

`serve` prints its address and serves until it is killed. `render` reads requests from standard
input, a JSON object of them by name, has each rendered with each template, and prints what was
refused, as JSON: for each template the server's words by the request's name.
"""

import json
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import xllamacpp


def start(model: str, window: int, template: str) -> xllamacpp.Server:
    parameters = xllamacpp.CommonParams()
    parameters.model.path = model
    parameters.n_ctx = window
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.use_jinja = True
    parameters.chat_template = template
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = 1  # two wait for each other on a machine with other work
    parameters.sampling.seed = 1
    parameters.warmup = False
    # Neither load the weights once more to see what fits, nor in another arrangement: two seconds.
    parameters.fit_params = False
    parameters.no_extra_bufts = True
    return xllamacpp.Server(parameters)


def refusal(address: str, request: object) -> str:
    """The server's words; empty where it renders the request."""
    asked = urllib.request.Request(
        f"{address}/apply-template",
        json.dumps(request).encode(),
        {"content-type": "application/json"},
    )
    try:
        urllib.request.urlopen(asked, timeout=60).close()
    except urllib.error.HTTPError as error:
        return error.read().decode(errors="replace")
    return ""


def render(model: str, templates: list[str]) -> dict[str, dict[str, str]]:
    requests = json.load(sys.stdin)
    found = {}
    for template in templates:
        server = start(model, 256, Path(template).read_text())
        said = {name: refusal(server.listening_address, body) for name, body in requests.items()}
        found[Path(template).stem] = {name: words for name, words in said.items() if words}
        del server
    return found


if __name__ == "__main__":
    task, model, *more = sys.argv[1:]
    if task == "serve":
        running = start(model, int(more[0]), Path(more[1]).read_text())
        print(running.listening_address, flush=True)
        threading.Event().wait()
    print(json.dumps(render(model, more)))
