import pytest
from hypothesis import given
from hypothesis import strategies as st

from clotho.tools.exit_codes import meaning
from clotho.tools.output import plain, truncated
from clotho.tools.secrecy import REDACTED, Redactor, without_tokens
from tests.support import cpu_seconds


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b"\x1b[?25lhidden\x1b[2K\x1b[1A", "hidden"),
        (b"\x1b]0;title\x07text", "text"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"\x1bPq#0\x1b\\after", "after"),
        (b"\x1b(B\x1b=\x1b7x", "x"),
        ("naïve – 日本".encode(), "naïve – 日本"),
        (b"bad \xff byte", "bad � byte"),
        (b"a\r\nb", "a\r\nb"),
    ],
)
def test_escape_sequences_go_and_text_stays(raw: bytes, expected: str) -> None:
    assert plain(raw) == expected


def test_a_terminal_ends_lines_in_its_own_way() -> None:
    assert plain(b"a\r\nb\r\n", pty=True) == "a\nb\n"


def test_many_unterminated_sequences_take_no_quadratic_time() -> None:
    assert plain(b"\x1b]" * 500_000) == ""


@pytest.mark.parametrize("text", ["-----BEGIN PRIVATE KEY-----", "eyJaaaaaaaaaa-", "sk-", "\x1b[1", "ghp_a"])
def test_repeated_beginnings_of_secrets_take_no_quadratic_time(text: str) -> None:
    plain(text.encode() * 50_000)


def test_credentials_are_looked_for_in_little_time() -> None:
    """A call may show a megabyte, and the code of one call has fifty calls made."""
    numbers = "".join(f"{number}\n" for number in range(400_000))
    assert cpu_seconds(lambda: without_tokens(numbers), 0.25) < 0.25


def test_truncation_keeps_head_and_tail() -> None:
    text = "".join(f"{i:06}\n" for i in range(20_000))
    shown = truncated(text)
    assert shown.startswith(text[:20_000]) and shown.endswith(text[-30_000:])
    assert "90,000 chars omitted out of 140,000 total" in shown
    assert truncated("x" * 50_000) == "x" * 50_000


@given(st.text(max_size=300), st.integers(10, 200))
def test_truncation_is_bounded(text: str, limit: int) -> None:
    shown = truncated(text, limit)
    assert shown == text if len(text) <= limit else len(shown) < limit + 80


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcdefghijklmnopqrstuvwx",
        "ghp_" + "a1" * 18,
        "AKIAIOSFODNN7EXAMPLE",
        "hf_" + "x" * 34,
        "xoxb-123456789012-abcdef",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_credentials_are_known_by_their_shape(secret: str) -> None:
    assert without_tokens(f"key={secret};") == f"key={REDACTED};"


@pytest.mark.parametrize("harmless", ["sk-short", "task-list-of-everything-there-is", "deadbeef" * 8, "AKIA"])
def test_ordinary_text_stays(harmless: str) -> None:
    assert without_tokens(harmless) == harmless


def test_given_values_are_redacted_also_inside_json() -> None:
    redact = Redactor(['pass"wörd\\1', "hunter22", "", "abc"])
    assert redact('hunter22 abc pass"wörd\\1') == f"{REDACTED} abc {REDACTED}"
    assert (
        redact(r'{"a": "pass\"wörd\\1", "b": "pass\"w\u00f6rd\\1"}')
        == f'{{"a": "{REDACTED}", "b": "{REDACTED}"}}'
    )
    assert Redactor()("anything") == "anything"


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("grep x file", 1, "No lines matched"),
        ("cd src && grep -r x .", 1, "No lines matched"),
        ("cat file | /usr/bin/grep 'a|b'", 1, "No lines matched"),
        ("LANG=C grep x file > out", 1, "No lines matched"),
        ("grep x file > out 2>&1", 1, "No lines matched"),
        ("make 2>&1 | grep x 2>&1", 1, "No lines matched"),
        ("echo start\ndiff a b\n", 1, "differ"),
        ("[ -f x ]", 1, "condition is false"),
        ("nosuch", 127, "not found"),
        ("python big.py", 137, "memory"),
    ],
)
def test_exit_codes_are_explained(command: str, code: int, words: str) -> None:
    assert words in (meaning(command, code) or "")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("grep x file", 0),
        ("grep x file", 2),
        ("grep x file; python y.py", 1),
        ("grep x file || make", 2),
        ("grep x file 2>&1 & wait", 1),
        ('echo "unbalanced', 1),
        ("", 1),
        ("x" * 20_000, 1),
    ],
)
def test_plain_exit_codes_are_not(command: str, code: int) -> None:
    assert meaning(command, code) is None


@given(st.text(max_size=60), st.integers(0, 255))
def test_any_command_has_a_meaning_or_none(command: str, code: int) -> None:
    meaning(command, code)
