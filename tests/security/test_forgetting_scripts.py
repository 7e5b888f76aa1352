"""A text that is indexed in another form than it is shown in is forgotten in both."""

import random
from pathlib import Path

from tests.support.memory.store import ORIGIN, file_bytes, opened

COMMON = [chr(code) for code in range(0x4E00, 0x4E00 + 300)]
SECRET = [chr(code) for code in range(0x7000, 0x9000)]
"""Characters of which each occurs in one note only."""


async def test_forms_of_one_note(path: Path) -> None:
    async with opened(path) as memory:
        await memory.save("花园需要水", [], ORIGIN)
        note = (await memory.save("密码是鹦鹉。Ǌevena 고양이", [], ORIGIN)).note
        await memory.update(note.note_id, "密码是蜥蜴。क़िला", None, ORIGIN)
        forms = ["鹦鹉", "是鹦", "蜥蜴", "蜴", "Ǌevena", "njevena", "고양", "क़िला", "किला"]
        before = file_bytes(path)
        assert [form for form in forms if form.encode() not in before] == []
        await memory.delete(note.note_id)
        after = file_bytes(path)
        assert [form for form in forms if form.encode() in after] == []
        assert (await memory.search("花园")).results


async def test_nothing_is_left_of_any_character_after_many_changes(
    path: Path, chance: random.Random
) -> None:
    unused = iter(SECRET)
    alive: dict[str, list[str]] = {}
    dead: list[str] = []

    def text() -> tuple[str, list[str]]:
        secrets = [next(unused) for _ in range(6)]
        characters = chance.choices(COMMON, k=chance.choice([4, 40, 300]))
        for secret in secrets:
            characters.insert(chance.randrange(len(characters)), secret)
        return "".join(characters), secrets

    async with opened(path) as memory:
        for _ in range(400):
            written, secrets = text()
            action = chance.random()
            if action < 0.6 or not alive:
                alive[(await memory.save(written, [], ORIGIN)).note.note_id] = secrets
            elif action < 0.8:
                note_id = chance.choice(list(alive))
                await memory.update(note_id, written, None, ORIGIN)
                alive[note_id] += secrets
            else:
                note_id = chance.choice(list(alive))
                await memory.delete(note_id)
                dead += alive.pop(note_id)
        note_id = chance.choice(list(alive))
        await memory.delete(note_id)
        dead += alive.pop(note_id)
        content = file_bytes(path)
    assert len(dead) > 300
    seen = sum(secret.encode() in content for secrets in alive.values() for secret in secrets)
    assert seen > 500, "the test would see nothing"
    assert [secret for secret in dead if secret.encode() in content] == []
