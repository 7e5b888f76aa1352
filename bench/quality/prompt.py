"""What memory brings into a prompt by itself: the answers to questions, and little else."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.quality import corpus
from bench.quality.measure import names_of
from guest.agent.prompt.recall import PromptContent, Relevant
from guest.embedding.backends import Embedder
from guest.memory.memory import Memory
from guest.memory.models import MemoryConfig
from guest.memory.search.tokens import tokens_of
from guest.tools.base import ToolContext

_USER: Final = "notes"
_PATIENT_S: Final = 60.0
_SMALL_TALK: Final = (
    "hi",
    "good morning!",
    "thanks a lot",
    "ok",
    "yes, please do",
    "no, that's fine",
    "great, well done",
    "go on",
    "what do you mean?",
    "can you say that in other words?",
    "hm, I'm not sure about that",
    "see you tomorrow",
    "never mind",
    "I see",
    "hello there",
    "sounds good to me",
    "let's continue tomorrow",
    "that did not work",
    "make it shorter",
    "and then?",
    "danke, das ist super",
    "ja mach das bitte",
    "merci beaucoup",
    "gracias, perfecto",
)


@dataclass(frozen=True)
class Prompted:
    """`recall`: the share of the answers that stand in the prompt; `notes` and `tokens`: how
    much is brought in for a question on average; `idle_notes`: for small talk."""

    recall: float
    notes: float
    tokens: float
    idle_notes: float


async def prompted(path: Path, embedder: Embedder) -> Prompted:
    """Figures of the notes in the database that `measure` has made at `path`."""
    config = MemoryConfig(str(path))
    memory = await Memory.open(config, embedder, _USER)
    relevant = Relevant(
        memory, config.settings.context_tokens, lambda _, text: text, timeout_s=_PATIENT_S
    )
    part = corpus.notes()
    names = await names_of(memory, part)
    context = ToolContext(_USER, "now", "now", "bench")
    shares, notes, tokens, idle = [], [], [], []
    for question in part.questions:
        found = await relevant.find(context, question.text)
        told = relevant.tell(found, PromptContent("now", 0, (question.text,)))
        brought = {names[note_id] for note_id, _ in told.found}
        shares.append(len(question.answers & brought) / len(question.answers))
        notes.append(len(told.found))
        tokens.append(tokens_of(told.text))
    for said in _SMALL_TALK:
        found = await relevant.find(context, said)
        idle.append(len(relevant.tell(found, PromptContent("now", 0, (said,))).found))
    await memory.close()
    return Prompted(
        sum(shares) / len(shares),
        sum(notes) / len(notes),
        sum(tokens) / len(tokens),
        sum(idle) / len(idle),
    )
