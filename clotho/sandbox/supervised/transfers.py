"""Files and archives on their way in or out of a sandbox, in its supervisor's control directory."""

import re
from collections.abc import Iterable, Mapping

from clotho.sandbox.supervised.files import damaged
from clotho.sandbox.supervised.interface import TRANSFERS, Control

ANSWER = re.compile(r"(?P<word>[a-z_]+) (?P<size>\d{1,19})\n(?P<path>.*)", re.ASCII | re.DOTALL)


class Transfers:
    """One entry for each request; the supervisor puts its answer there."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def file(self, key: str, name: str) -> str:
        return f"{TRANSFERS}/{key}/{name}"

    def written_keys(self) -> list[str]:
        """Keys under which files were written."""
        answers = ((key, self.answer(key)) for key in self._control.keys(TRANSFERS))
        return [key for key, answer in answers if answer is not None and answer[0] == "ok"]

    def stage(
        self,
        key: str,
        path: str,
        after: str | None,
        content: bytes | None,
        max_bytes: int,
        steady: bool,
        agents: Iterable[str] = (),
    ) -> None:
        """Stage a request. If `steady`, commands are stopped meanwhile; no link may lead out of `agents`."""
        verb = "get" if content is None else "put"
        header = f"verb {verb}\nmax {max_bytes}\nsteady {int(steady)}\n" + (
            f"after {after}\n" if after else ""
        )
        header += "".join(f"agents {folder}\n" for folder in agents)
        entries = {"request": f"{header}\n{path}".encode()}
        if content is not None:
            entries["content"] = content
        self._control.stage(TRANSFERS, key, entries)

    def answer(self, key: str) -> tuple[str, int, str] | None:
        """("ok" or an error's name, size, resolved path), or None while there is no answer."""
        text = self._control.text_of(self.file(key, "done"))
        if text is None:
            return None
        found = ANSWER.fullmatch(text)
        return (found["word"], int(found["size"]), found["path"]) if found else ("unavailable", 0, "")

    def content(self, key: str, size: int) -> bytes:
        """The `size` bytes that the answer told of. Raises SandboxLost where there are fewer."""
        file = self.file(key, "content")
        try:
            content = self._control.start_of(file, size)
        except FileNotFoundError:
            raise damaged(file) from None
        if len(content) < size:
            raise damaged(file)
        return content

    def forget(self, key: str) -> None:
        self._control.remove(f"{TRANSFERS}/{key}")

    def forget_content(self, key: str) -> None:
        self._control.remove(self.file(key, "content"))

    def stage_archive(self, key: str, verb: str, fields: Mapping[str, str], roots: Mapping[str, str]) -> None:
        """Stage a request with the FIFO `stream`, through which the archive goes."""
        lines = [f"verb {verb}", *(f"{name} {value}" for name, value in fields.items())]
        lines += [f"root {label} {path}" for label, path in roots.items()]
        request = "\n".join((*lines, "", "")).encode()
        self._control.stage(TRANSFERS, key, {"request": request}, fifo="stream")

    def stage_manifest(self, key: str, workspace: str) -> None:
        request = f"verb manifest\nroot work {workspace}\n\n".encode()
        self._control.stage(TRANSFERS, key, {"request": request})
