"""A memory's statistics, in one line for people and whole for programs."""

from datetime import UTC, datetime

from google.protobuf.json_format import MessageToDict
from wire.v1 import gateway_pb2


def statistics_json(found: gateway_pb2.MemoryStatisticsReply) -> dict[str, object]:
    """Every field under its name in the contract, numbers as numbers; `vectors` by model."""
    values: dict[str, object] = MessageToDict(
        found, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    numbers = {
        field.name: getattr(found, field.name)
        for field in found.DESCRIPTOR.fields
        if isinstance(getattr(found, field.name), int)
    }
    vectors = {each.model: each.vectors for each in found.vectors}
    return values | numbers | {"vectors": vectors}


def memory_line(found: gateway_pb2.MemoryStatisticsReply) -> str:
    """How much there is, how far its vectors are, and how its store is."""
    passages = "1 passage" if found.passages == 1 else f"{found.passages:,} passages"
    if found.passages:
        passages += f", {_embedded(found)}"
    parts = [passages, " ".join(filter(None, (found.store, found.state)))]
    if found.encrypted:
        parts.append("encrypted")
    if found.replica_synced_at:
        parts.append(f"local copy {replica_age_s(found):.0f} s old")
    return " · ".join(filter(None, parts))


def replica_age_s(found: gateway_pb2.MemoryStatisticsReply) -> float:
    """How long ago the local copy was complete, in seconds."""
    age = datetime.now(UTC) - datetime.fromisoformat(found.replica_synced_at)
    return max(0.0, age.total_seconds())


def _embedded(found: gateway_pb2.MemoryStatisticsReply) -> str:
    if found.passages_embedded >= found.passages:
        return "all embedded"
    share = f"{int(100 * found.passages_embedded / found.passages)} % embedded"
    if found.embedder != "ready":
        return f"{share} (the embedder is not ready)"
    if not found.embedding_model:
        return share
    again = "re-embedding" if found.vectors else "embedding"
    return f"{share} ({again} with {found.embedding_model})"
