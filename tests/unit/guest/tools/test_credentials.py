"""What is taken for a credential, what is not, and in what time."""

import random
import string
import time

import pytest

from guest.tools.base import Excerpt
from guest.tools.redaction.scrubber import REDACTED, Scrubber
from tests.support.tools.pipelines import cut_out

SCRUB = Scrubber()
LETTERS = string.ascii_letters + string.digits
RANDOM = random.Random(7)
PEM_BODY = "\n".join("".join(RANDOM.choices(LETTERS + "+/", k=64)) for _ in range(24))
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{PEM_BODY}\n-----END RSA PRIVATE KEY-----"


def letters(count: int) -> str:
    return (LETTERS[::-1] * 4)[:count]


@pytest.mark.parametrize(
    "secret",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" + letters(36),
        "github_pat_" + letters(40),
        "glpat-" + letters(20),
        "sk-ant-api03-" + letters(60),
        "sk-proj-" + letters(48),
        "sk-or-v1-" + letters(64),
        "sk-" + letters(48),
        "gsk_" + letters(52),
        "hf_" + letters(34),
        "npm_" + letters(36),
        "sk_live_" + letters(24),
        "AIza" + letters(35),
        "ya29." + letters(60),
        "GOCSPX-" + letters(28),
        "xoxb-1234567890-" + letters(24),
        "https://hooks.slack.com/services/T00000000/B00000000/" + letters(24),
        "oxa_" + letters(43),
        "SG." + letters(22) + "." + letters(43),
        "1234567890:AA" + letters(33),
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0." + letters(43),
        PEM,
    ],
)
@pytest.mark.parametrize("frame", ["{}", "see {} here", "({})", '"{}"', "\n{}\n", "日本{}日本"])
def test_shapes_of_credentials(secret: str, frame: str) -> None:
    shown = SCRUB.scrub(frame.format(secret))
    assert REDACTED in shown
    core = secret.rpartition("/")[2] if secret.startswith("https") else secret
    assert core not in shown
    assert core[12:40] not in shown


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("Authorization: Bearer abcdefghijkl", "abcdefghijkl"),
        ('{"Authorization": "Basic dXNlcjpwYXNz"}', "dXNlcjpwYXNz"),
        ("curl -H 'bearer 0123456789abcdef0'", "0123456789abcdef0"),
        ("postgres://app:swordfish@db/main", "swordfish"),
        ("password=hunter2", "hunter2"),
        ("DB_PASSWORD=letmein", "letmein"),
        ("password: hunter2!", "hunter2!"),
        ('"password": "correct horse battery"', "correct horse battery"),
        ("api_key: 'abcdef'", "abcdef"),
        ('API_KEY = "abcdef"', "abcdef"),
        ("  secret: swordfish\n", "swordfish"),
        ("- token: swordfish", "swordfish"),
        ("https://x.test/?token=abcdef&x=1", "abcdef"),
        ('{\\"password\\": \\"swordfish\\"}', "swordfish"),
        ('password = "with \\" a quote"', "a quote"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI"),
        ("passphrase: open-sesame-123", "open-sesame-123"),
    ],
)
def test_values_behind_a_name(text: str, hidden: str) -> None:
    shown = SCRUB.scrub(text)
    assert hidden not in shown
    assert REDACTED in shown


@pytest.mark.parametrize(
    "text",
    [
        "User's password manager is 1Password",
        "the password is kept by Bob",
        "my password is swordfish",
        "API key: ask the admin",
        "Favorite secret: pistachio ice cream",
        "Password: required",
        "token = request.headers['x']",
        "api_key = os.environ['KEY']",
        "password=None",
        "password = getpass()",
        "password=$DB_PASSWORD",
        "api_key=api_key",
        "max_tokens: 4096",
        "tokens: 12345",
        "secret: ${{ secrets.TOKEN }}",
        "password: ********",
        "token: <your token>",
        "task-oriented-software-development-kit-for-everyone",
        "mask-image-of-something-quite-long-2024",
        "Basic authentication is supported; bearer authentication-and-authorization too",
        "https://example.org:8080/path@home",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "note-0b9c1a52-1f7c-4c59-8a1e-6a3ad2f2c0de",
        "wire.kernel.beneath.KernelBeneath.open_a_very_long_dotted_name",
        "The -----BEGIN CERTIFICATE----- line is public",
        "",
    ],
)
def test_plain_language_and_code_stay_whole(text: str) -> None:
    assert SCRUB.scrub(text) == text


@pytest.mark.parametrize("first", range(0, len(PEM), 97))
@pytest.mark.parametrize("length", [1, 50, 400])
def test_any_piece_of_a_private_key_is_hidden_in_its_surroundings(first: int, length: int) -> None:
    piece = Excerpt(PEM[first : first + length], PEM[:first], PEM[first + length :])
    assert cut_out(SCRUB, piece) == REDACTED


@pytest.mark.parametrize("cut", range(40, len(PEM) - 40, 131))
def test_half_a_private_key_is_hidden_with_its_mark(cut: int) -> None:
    assert SCRUB.scrub(f"before. {PEM[:cut]}") == f"before. {REDACTED}"
    assert SCRUB.scrub(f"{PEM[-cut:]} after") == f"{REDACTED} after"


def test_a_mark_without_a_key_hides_little() -> None:
    text = "A file that begins with -----BEGIN PRIVATE KEY----- is secret. Do not show it."
    assert SCRUB.scrub(text).endswith("secret. Do not show it.")


@pytest.mark.parametrize("word", ["ollama", "none", "EMPTY", "key", "a1"])
def test_a_plain_word_given_as_a_key_is_no_secret(word: str) -> None:
    text = f"the {word} model server"
    assert Scrubber([word]).scrub(text) == text


@pytest.mark.parametrize("secret", ["hunter2", "s3cr", "sk-test"])
def test_a_short_key_that_is_no_word_is_hidden_exactly(secret: str) -> None:
    assert Scrubber([secret]).scrub(f"x{secret}y") == f"x{REDACTED}y"


def test_overlapping_secrets_are_hidden_whole() -> None:
    scrub = Scrubber(["AAAA1111BBBB", "BBBB2222CCCC"])
    assert scrub.scrub("x AAAA1111BBBB2222CCCC y") == f"x {REDACTED} y"


@pytest.mark.parametrize(
    "unit",
    [
        "eyJ",
        "eyJhbGciOiJ.",
        "sk-",
        "sk-ant-",
        "password=",
        'password="',
        'token: "\\',
        "://a:",
        "bearer  ",
        "-----BEGIN PRIVATE KEY-----\n",
        "-----END PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\nA-a: b\n",
        "A: b\n",
        "1234567890",
        "AKIA",
        "SG.",
        "AIza-",
        "a.",
        " ",
        "\\n",
    ],
)
def test_no_text_takes_more_than_linear_time(unit: str) -> None:
    """A guard against hanging: quadratic time would take minutes here."""
    text = unit * (400_000 // len(unit))
    began = time.monotonic()
    Scrubber(["AAAA1111BBBB", "1234567890123"]).scrub(text)
    assert time.monotonic() - began < 20
