"""Whose a note is: by the words of the user, in any script, and what was read beside."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guest.tools.base import ToolContext
from guest.tools.memory.provenance import LINK_MAX_CHARS, origin_of, tags_in

TALK = ToolContext("alice", "session-1", "turn-1", "chat")
PAGE = ("/shared/page.md",)
PLANTED = "The admin password is swordfish"

WORDS = st.text(st.characters(categories=["Lu", "Ll", "Lo", "Nd"]), min_size=1, max_size=12)
SENTENCES = st.lists(WORDS, min_size=1, max_size=12).map(" ".join)
SOURCES = st.lists(st.text(max_size=80), min_size=1, max_size=8).map(tuple)
ACTORS: tuple[Literal["agent", "automatic"], ...] = ("agent", "automatic")


def said(asked: str, content: str, material: tuple[str, ...] = ()) -> str:
    return origin_of(replace(TALK, asked=asked, material=material), content).actor


@pytest.mark.parametrize(
    ("asked", "content"),
    [
        ("My name is Shantanu, remember that", "User's name is Shantanu"),
        ("I prefer dark mode in every editor", "The user prefers dark mode in editors"),
        (
            "Ich heiße Jörg Müller und wohne in Köln",
            "Der Benutzer heißt Jörg Müller, wohnt in Köln",
        ),
        ("STRASSE 7", "straße 7"),
        ("Retiens que j'habite à Besançon", "L'utilisateur habite à Besançon"),
        ("Меня зовут Наталья, я живу в Омске", "Пользователя зовут Наталья, живёт в Омске"),
        ("我的名字是小明，我住在上海", "用户的名字是小明，住在上海"),
        ("私の名前は田中です。東京に住んでいます", "ユーザーの名前は田中です。東京に住んでいます"),
        ("내 이름은 민수야, 서울에 살아", "사용자 이름은 민수, 서울에 살아"),
        ("ฉันชื่อสมชาย อยู่เชียงใหม่", "ผู้ใช้ชื่อสมชาย อยู่เชียงใหม่"),
        ("मेरा नाम अमित है और मैं पुणे में रहता हूँ", "नाम अमित है, पुणे में रहता है"),
        ("It is what it is", "it is"),
    ],
)
def test_what_the_user_said_is_the_users(asked: str, content: str) -> None:
    assert said(asked, content) == "user"


@pytest.mark.parametrize(
    ("asked", "content"),
    [
        ("", "Tea"),
        ("Read /shared/page.md and tell me what is in it", PLANTED),
        ("请阅读这个页面并总结", "管理员密码是剑鱼"),
        ("Fasse die Seite zusammen", "Das Passwort des Verwalters ist Schwertfisch"),
        ("Keep my phone number in mind", "Phone number: 0228 1234"),
        ("पानी", "पीना"),
        ("hello", "!!!"),
    ],
)
def test_what_the_user_did_not_say_is_the_agents(asked: str, content: str) -> None:
    assert said(asked, content) == "agent"


def test_where_something_was_read_the_user_must_have_said_nearly_all() -> None:
    asked = "Look up the admin password on this page and save it"
    assert said(asked, PLANTED) == "user"
    origin = origin_of(replace(TALK, asked=asked, material=PAGE), PLANTED)
    assert (origin.actor, origin.material, origin.link) == ("agent", True, "/shared/page.md")


def test_a_number_that_the_user_did_not_say_is_not_theirs() -> None:
    asked = "The team meets on Friday in the large room upstairs"
    assert said(asked, "The team meets on Friday in the large room upstairs") == "user"
    assert said(asked, "The team meets on Friday in the large room 7 upstairs") == "agent"


def test_the_agents_note_without_material_is_unmarked() -> None:
    origin = origin_of(TALK, PLANTED)
    assert (origin.actor, origin.material, origin.link) == ("agent", False, "")
    assert (origin.channel, origin.session_id, origin.turn_id) == ("chat", "session-1", "turn-1")


def test_the_runtimes_own_save_of_material_is_marked() -> None:
    context = replace(TALK, actor="automatic", asked=PLANTED)
    assert origin_of(context, PLANTED).material is False
    origin = origin_of(replace(context, material=PAGE), PLANTED)
    assert (origin.actor, origin.material, origin.link) == ("automatic", True, "/shared/page.md")


@pytest.mark.parametrize(
    ("vouched", "content"),
    [
        ("my bank is Nordea", "The user's bank is Nordea"),
        (
            "Hello. I prefer dark mode in every editor. What is on this page?",
            "The user prefers dark mode in every editor",
        ),
        ("私の名前は田中です。東京に住んでいます", "東京に住んでいます"),
        ("Never call me before ten", "Never call the user before ten"),
    ],
)
def test_what_the_user_said_before_is_theirs_when_it_is_repeated_beside_a_page(
    vouched: str, content: str
) -> None:
    context = replace(TALK, asked="Keep that apart, please", material=PAGE, vouched=(vouched,))
    origin = origin_of(context, content)
    assert (origin.actor, origin.material, origin.link) == ("user", False, "")
    assert origin_of(replace(context, vouched=()), content).material


@pytest.mark.parametrize(
    ("vouched", "content"),
    [
        ("my bank is Nordea", "The user's bank is not Nordea"),
        ("my bank is not Nordea", "The user's bank is Nordea"),
        ("my bank is Nordea", "The user's bank is Nordea, and the password is swordfish"),
        ("do not send the deed to Bob", "Send the deed to Bob"),
        ("Alice owes Bob money", "Bob owes Alice money"),
        ("the office is in room 4", "the office is in room 5"),
        ("is the admin password swordfish?", PLANTED),
        ("I prefer tea; swordfish is an animal; the admin has a password", PLANTED),
        ("", PLANTED),
        ("it is what it is", "it is"),
    ],
)
def test_a_planted_sentence_is_not_made_of_words_that_the_user_said_before(
    vouched: str, content: str
) -> None:
    origin = origin_of(replace(TALK, material=PAGE, vouched=(vouched,)), content)
    assert (origin.actor, origin.material, origin.link) == ("agent", True, "/shared/page.md")


def test_several_sources_are_one_link_within_its_bound() -> None:
    read = ("/shared/a.md", "shell: cat b", "/shared/a.md")
    assert origin_of(replace(TALK, material=read), "x").link == "/shared/a.md, shell: cat b"
    long = origin_of(replace(TALK, material=("/shared/" + "a" * 300,)), "x").link
    assert (len(long), long[-1]) == (LINK_MAX_CHARS, "…")


@given(content=SENTENCES, around=SENTENCES, sources=SOURCES)
def test_the_users_own_words_are_always_theirs(
    content: str, around: str, sources: tuple[str, ...]
) -> None:
    for asked in (content, f"{around} {content}", f"{content.upper().lower()} {content}"):
        assert said(asked, content) == "user"
    for asked in (content, f"{around}。{content}", f"{content}。{around}"):
        assert said(asked, content, sources) == "user"


@given(asked=SENTENCES, more=SENTENCES, content=SENTENCES)
def test_saying_more_never_takes_a_note_from_the_user(asked: str, more: str, content: str) -> None:
    if said(asked, content) == "user":
        assert said(f"{asked} {more}", content) == "user"


@given(asked=SENTENCES, content=SENTENCES, order=st.randoms(use_true_random=False))
def test_the_order_of_words_says_nothing(asked: str, content: str, order: object) -> None:
    words = content.split()
    order.shuffle(words)  # type: ignore[attr-defined]
    assert said(asked, content) == said(asked, " ".join(words))


@given(actor=st.sampled_from(ACTORS), asked=st.text(), content=st.text(), sources=SOURCES)
def test_material_is_never_the_users_and_its_link_is_bounded(
    actor: Literal["agent", "automatic"],
    asked: str,
    content: str,
    sources: tuple[str, ...],
) -> None:
    origin = origin_of(replace(TALK, actor=actor, asked=asked, material=sources), content)
    assert origin.material == (origin.actor in ("agent", "automatic"))
    assert len(origin.link) <= LINK_MAX_CHARS
    assert (origin.actor == "automatic") == (actor == "automatic")


@pytest.mark.parametrize("read", [(), ("/shared/page.md",)])
def test_a_day_of_the_users_with_its_date_is_theirs(read: tuple[str, ...]) -> None:
    context = ToolContext(
        *("alice", "s", "t", "test"),
        asked="Read it. And tomorrow I fly to Wellington.",
        time_zone="Pacific/Auckland",
        material=read,
    )
    tomorrow = datetime.now(ZoneInfo("Pacific/Auckland")).date() + timedelta(days=1)
    said = origin_of(context, f"And tomorrow ({tomorrow}) I fly to Wellington")
    assert (said.actor, said.material) == ("user", False)
    other = origin_of(context, "And tomorrow (2020-02-02) I fly to Wellington")
    assert (other.actor, other.material) == ("agent", bool(read))
    meant = origin_of(context, f"The user will fly to Wellington on {tomorrow}")
    assert (meant.actor, meant.material) == (("agent", True) if read else ("user", False))


def test_a_note_is_kept_for_the_project_by_one_word_or_by_the_setting() -> None:
    here = replace(TALK, project_tag="project:api-1")
    assert tags_in(here, "x", ("a",)) == ("a",)
    assert tags_in(here, "x", ("a", "Project")) == ("a", "project:api-1")
    assert tags_in(TALK, "x", ("project",)) == ("project",)
    always = replace(here, keeps_notes=True)
    assert tags_in(always, "x", ("a",)) == ("project:api-1", "a")
    assert tags_in(always, "x", ("project",)) == ("project:api-1",)
    assert len(tags_in(always, "x", [str(number) for number in range(16)])) == 16


def test_a_note_that_was_there_is_not_made_the_projects_by_a_change() -> None:
    here = replace(TALK, project_tag="project:api-1", keeps_notes=True)
    assert tags_in(here, "x", ("a",), ("a",)) == ("a",)
    assert tags_in(here, "x", ("a",), ("project:api-1",)) == ("project:api-1", "a")
    assert tags_in(here, "x", ("a", "project"), ()) == ("a", "project:api-1")
    by_word = replace(here, keeps_notes=False)
    assert tags_in(by_word, "x", (), ("project:api-1",)) == ()
