"""The code of a run's environment in the store: what it began with, until an operator lets it take newer code."""

import asyncio
from pathlib import Path

from clotho.environment.code import Code, is_kept_module, read_code
from clotho.environment.loading import module_of
from clotho.frozen_model import FrozenModel
from clotho.identifiers.keys import code_asked_prefix, code_prefix
from clotho.journal import Journal
from clotho.rollouts.run import RunManifest


class CodeAsked(FrozenModel):
    """Entry after which the run uses the environment's code that the next worker finds on its disk."""


async def ask_for_new_code(journal: Journal, run: str) -> None:
    """Let the run take the environment's code as it is now."""
    await journal.append(code_asked_prefix(run), CodeAsked())


class KeptCode:
    """The code of runs, as this process knows it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[str, Code | None] = {}

    async def known(self, manifest: RunManifest) -> Code | None:
        """The run's code as it was when this process last looked it up; see `current`."""
        if manifest.run not in self._known:
            return await self.current(manifest)
        return self._known[manifest.run]

    async def current(self, manifest: RunManifest) -> Code | None:
        """The run's code; None where the environment isn't on this host, and no other host has kept it."""
        module = module_of(manifest.environment)
        key = await self._key(manifest.run)
        code = await self._journal.read(key, Code)
        # it is on no disk, so no worker writes an entry after `ask_for_new_code`
        if code is None and is_kept_module(module):
            code = await self._first(manifest.run)
        elif code is None:
            code = await asyncio.to_thread(read_code, module)
            if code is not None:
                # write returns what another worker wrote first: all of them use the same code
                code = await self._journal.write(key, code)
        self._known[manifest.run] = code
        return code

    async def keep(self, run: str, code: Code) -> None:
        """Let the run use `code`, which is on no disk."""
        await self._journal.write(await self._key(run), code)

    async def _first(self, run: str) -> Code | None:
        """The code that the run began with: a kept module is named by its content, so its code never changes."""
        keys = await self._journal.keys(code_prefix(run))
        return await self._journal.read(keys[0], Code) if keys else None

    async def changed(self, manifest: RunManifest) -> list[Path]:
        """The files of the run's environment on this host that differ from the code that the run uses."""
        code = await self._journal.read(await self._key(manifest.run), Code)
        here = await asyncio.to_thread(read_code, module_of(manifest.environment))
        if code is None or here is None:
            return []
        kept = {module.name: module.source for module in code.modules}
        return [Path(each.path) for each in here.modules if kept.get(each.name) != each.source]

    async def _key(self, run: str) -> str:
        numbered = await self._journal.latest_numbered(code_asked_prefix(run), CodeAsked)
        return f"{code_prefix(run)}{0 if numbered is None else numbered[0] + 1:06}"
