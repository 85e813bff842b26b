"""Tokens of HTTP servers: where they are kept, and to whom clients show them."""

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import httpx
import pytest
from clotho_client.tokens import read_token, token_file

from clotho.cli.options import address_with, token_for
from clotho.errors import InvalidInput
from clotho.listeners.tokens import TokenAuth, token_of_port

PORT = 8010


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CLOTHO_TOKEN", raising=False)
    return tmp_path


@pytest.fixture
def bound() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def shown_to(url: str, auth: TokenAuth | None = None, headers: dict[str, str] | None = None) -> str | None:
    """The authorization that a server at `url` gets."""
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        return httpx.Response(200)

    with httpx.Client(transport=httpx.MockTransport(answer), auth=auth or TokenAuth()) as client:
        client.get(url, headers=headers)
    return seen[0]


def test_a_ports_token_is_made_once_and_its_users_alone() -> None:
    token = token_of_port(PORT)
    assert token == token_of_port(PORT) and token.text != token_of_port(PORT + 1).text
    path = token_file(PORT)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert token.in_url(f"http://127.0.0.1:{PORT}") == f"http://clotho:{token.text}@127.0.0.1:{PORT}"
    assert {each.name for each in path.parent.iterdir()} == {str(PORT), str(PORT + 1)}


def test_a_file_that_others_may_have_read_is_refused(tmp_path: Path) -> None:
    token_of_port(PORT)
    token_file(PORT).chmod(0o644)
    with pytest.raises(InvalidInput, match="others may know"):
        token_of_port(PORT)
    link = token_file(PORT + 1)
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInput, match="can't be kept"):
        token_of_port(PORT + 1)


def test_a_cache_folder_that_cannot_be_written_is_said(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "file"))
    with pytest.raises(InvalidInput, match="--token-variable"):
        token_of_port(PORT)


def test_clients_show_the_file_to_servers_of_this_machine_alone() -> None:
    assert shown_to(f"http://127.0.0.1:{PORT}/") is None
    token = token_of_port(PORT).text
    for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", socket.gethostname()):
        assert shown_to(f"http://{host}:{PORT}/") == f"Bearer {token}", host
    for url in (f"http://trainer.example:{PORT}/", f"http://10.0.0.1:{PORT}/", "http://127.0.0.1:8011/"):
        assert shown_to(url) is None


def test_what_is_given_goes_before_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    token_of_port(PORT)
    url = f"http://127.0.0.1:{PORT}/"
    assert shown_to(url, TokenAuth("given")) == "Bearer given"
    assert shown_to(f"http://clotho:in-url@127.0.0.1:{PORT}/") == "Bearer in-url"
    assert shown_to(url, headers={"authorization": "Bearer own"}) == "Bearer own"
    monkeypatch.setenv("CLOTHO_TOKEN", "shared")
    assert shown_to(url) == shown_to("http://trainer.example/") == "Bearer shared"
    assert token_of_port(PORT).text == "shared"
    monkeypatch.setenv("CLOTHO_TOKEN", " ")
    with pytest.raises(InvalidInput, match="CLOTHO_TOKEN is empty"):
        token_of_port(PORT)


def test_a_token_in_a_variable_is_not_printed(bound: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "a secret")
    token = token_for(bound, "MINE", without=False)
    assert token is not None and token.text == "a secret"
    assert address_with(token, "http://h:1") == "\nwith its token: http://clotho:$MINE@h:1"
    assert token_for(bound, None, without=True) is None and address_with(None, "http://h:1") == ""
    with pytest.raises(InvalidInput, match="either"):
        token_for(bound, "MINE", without=True)


def test_a_token_that_is_made_while_a_request_is_on_its_way_is_shown() -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        text = token_of_port(PORT).text
        return httpx.Response(200 if seen[-1] == f"Bearer {text}" else 401, text=request.read().decode())

    with httpx.Client(transport=httpx.MockTransport(answer), auth=TokenAuth()) as client:
        answered = client.post(f"http://127.0.0.1:{PORT}/register", json={"a": 1})
        assert answered.status_code == 200 and answered.json() == {"a": 1}
        assert client.get(f"http://trainer.example:{PORT}/").status_code == 401
    assert len(seen) == 3 and seen[0] is seen[2] is None


async def test_asynchronous_clients_show_it_too() -> None:
    token = token_of_port(PORT).text
    transport = httpx.MockTransport(
        lambda request: httpx.Response(200, text=request.headers["authorization"])
    )
    async with httpx.AsyncClient(transport=transport, auth=TokenAuth()) as client:
        answers = await asyncio.gather(*(client.get(f"http://localhost:{PORT}/") for _ in range(3)))
    assert {answer.text for answer in answers} == {f"Bearer {token}"}


def test_processes_that_make_a_token_at_once_have_the_same() -> None:
    for port in range(20):
        together = Barrier(8)

        def made(port: int = port, together: Barrier = together) -> str:
            together.wait()
            return token_of_port(port).text

        with ThreadPoolExecutor(8) as threads:
            found = {each.result() for each in [threads.submit(made) for _ in range(8)]}
        assert found == {read_token(token_file(port))}
    assert len(list(token_file(PORT).parent.iterdir())) == 20, "nothing is left beside the files"
