"""Generate the protobuf, gRPC and type-stub code beside the contract.

`python tools/generate_proto.py [OUTPUT]` writes into `proto/` or into OUTPUT,
which the freshness test uses to compare.
"""

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
SCRIPTS = Path(sys.executable).parent


def generate(output: Path) -> None:
    sources = sorted(str(path.relative_to(PROTO)) for path in PROTO.glob("wire/v1/*.proto"))
    status = protoc.main(
        [
            "protoc",
            f"-I{PROTO}",
            f"-I{files('grpc_tools') / '_proto'}",  # Google's own
            f"--python_out={output}",
            f"--grpc_python_out={output}",
            f"--plugin=protoc-gen-mypy={SCRIPTS / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={SCRIPTS / 'protoc-gen-mypy_grpc'}",
            f"--mypy_out=quiet:{output}",
            f"--mypy_grpc_out=quiet:{output}",
            *sources,
        ]
    )
    if status != 0:
        raise SystemExit(f"protoc failed with status {status}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PROTO)
