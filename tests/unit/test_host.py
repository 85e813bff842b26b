"""The name that a machine keeps."""

import os
from pathlib import Path
from typing import Any

import pytest

from clotho import host
from clotho.config import Settings


def test_the_name_is_kept_and_of_two_processes_both_have_the_first_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, link = tmp_path / "cache", os.link
    monkeypatch.setattr(host, "cache_folder", lambda: folder)

    def after_another(*names: Any) -> None:
        (folder / "host").write_text("made-by-another")
        link(*names)

    monkeypatch.setattr(os, "link", after_another)
    assert host.host_name(Settings()) == host.host_name(Settings()) == "made-by-another"
    assert [each.name for each in folder.iterdir()] == ["host"]


def test_a_name_is_whole_once_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "cache_folder", lambda: tmp_path)
    seen, link = [], os.link

    def looked_at(*names: Any) -> None:
        assert not (tmp_path / "host").exists(), "nobody reads what isn't written"
        link(*names)
        seen.append((tmp_path / "host").read_text())

    monkeypatch.setattr(os, "link", looked_at)
    assert [host.host_name(Settings())] == seen and seen[0]
