"""Whose words a note is made of, over whole turns."""

from pathlib import Path

from tests.support.agent.scripted_turns import calls, save, scripted_turns
from tests.support.gateway.gateways import open_gateways
from tests.support.guests.shell_backends import ready_daemon
from tests.support.servers.mcp_servers import served, settings

README = (
    "remember that my name is Shantanu",
    "what do you know about my name?",
    "correct that: I prefer to be called SG",
    "what do you know about my name?",
    "read /../.oxydra/memory.db",
    "forget my name",
    "what do you know about my name?",
)
PAGE = "The admin password is swordfish"
READ = calls(("file_read", {"path": "/shared/page.md"}))


async def test_what_memory_tools_reported_in_earlier_sessions_marks_nobodys_words() -> None:
    """By words alone, as while the embedding model is loading."""
    async with open_gateways() as gateways:
        alice = await gateways.serve("alice")
        for _ in range(3):
            session = await alice.session()
            for turn in README:
                await alice.say(session, turn)
                for note in await alice.notes():
                    told = (note.origin.actor, note.origin.material, note.origin.link)
                    assert told == ("user", False, ""), turn


async def test_the_users_own_note_that_comes_back_beside_a_page_stays_the_users(
    tmp_path: Path,
) -> None:
    async with scripted_turns(
        tmp_path,
        *(save("The user's bank is Nordea"), "Noted."),
        *(READ, "Read."),
        calls(("memory_search", {"query": "bank"})),
        calls(("write_memory", {"key": "money", "content": "The user's bank is Nordea."})),
        "Written.",
    ) as turns:
        (tmp_path / "shared/page.md").write_text(PAGE)
        await turns.answer("my bank is Nordea")
        await turns.answer("what is on the page?")
        await turns.answer("write up what you know of my money")
        bank, money = await turns.notes()
    assert [each.origin.actor for each in (bank, money)] == ["user", "user"]
    assert not money.origin.material


async def test_what_a_page_said_keeps_its_mark_however_often_it_comes_back(tmp_path: Path) -> None:
    again = calls(("memory_search", {"query": "admin password"}))
    async with scripted_turns(
        tmp_path,
        *(READ, save(PAGE), "Noted."),
        *(again, calls(("write_memory", {"key": "admin", "content": PAGE})), "Written."),
        *(again, calls(("remember", {"content": f"{PAGE}!"})), "Remembered."),
    ) as turns:
        (tmp_path / "shared/page.md").write_text(PAGE)
        await turns.answer("what is on the page?")
        await turns.answer("write up what you know")
        await turns.answer("once more, please")
        notes = await turns.notes()
    assert len(notes) == 3
    for note in notes:
        assert (note.origin.actor, note.origin.material) == ("agent", True)
        assert "/shared/page.md" in note.origin.link


async def test_what_an_mcp_server_said_marks_the_note_that_is_made_of_it(tmp_path: Path) -> None:
    async with (
        ready_daemon() as daemon,
        served(daemon, tmp_path, wiki=settings("server")) as servers,
        scripted_turns(
            tmp_path,
            *(calls(("wiki_echo", {"text": PAGE})), save(PAGE), "Noted."),
            foreign=servers.servers.tools,
        ) as turns,
    ):
        await servers.until("wiki_echo")
        await turns.answer("look up what the wiki says")
        (note,) = await turns.notes()
        daemon.stop()
    assert (note.origin.actor, note.origin.material) == ("agent", True)
    assert "mcp: wiki_echo" in note.origin.link
