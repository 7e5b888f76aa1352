"""What stands in a single passage and is named in a question is found, as people type it."""

from pathlib import Path

import pytest

from guest.memory.memory import Memory
from tests.support.memory.store import ORIGIN, opened

OTHERS = (
    "The booking of the ferry is in the blue folder, and the ticket too.",
    "Ferry tickets are cheaper in May; the booking is done by Nils.",
    "My number and address are on the ticket.",
)


@pytest.mark.parametrize(
    ("noted", "asked"),
    [
        ("parseUserName reads it", "user name"),
        ("parseUserName reads it", "parseusername"),
        ("max_retry_count is five", "retry"),
        ("max_retry_count is five", "max_retry_count"),
        ("core.io.reader is slow", "reader"),
        ("ISBN 978-3-16-148410-0", "9783161484100"),
        ("ISBN 9783161484100", "978-3-16-148410-0"),
        ("Call 0170 5550123", "+49 170 5550123"),
        ("Call +49 170 5550123", "01705550123"),
        ("It took 12,480 steps", "12480"),
        ("It took 12480 steps", "12,480"),
        ("A 🦊 for the den", "🦊"),
    ],
)
async def test_a_name_or_number_is_found_in_other_forms(
    tmp_path: Path, noted: str, asked: str
) -> None:
    async with opened(tmp_path / "memory.db") as by_words:
        for text in (*OTHERS, noted):
            await by_words.save(text, (), ORIGIN)
        results = (await by_words.search(asked)).results
        assert results[0].text == noted
        assert results[0].matched_by == "keyword"


@pytest.mark.parametrize(
    "named", ["QX-7741", "mia.lang@post.example", "88213", "https://a.example/x7", "berth_no"]
)
async def test_the_only_holder_of_what_is_named_is_first(memory: Memory, named: str) -> None:
    noted = (await memory.save(f"{named} is Mia's", (), ORIGIN)).note.note_id
    for text in OTHERS:
        await memory.save(text, (), ORIGIN)
    question = f"Whose booking and ticket of the ferry has the number or address {named}?"
    assert (await memory.search(question)).results[0].note_id == noted
