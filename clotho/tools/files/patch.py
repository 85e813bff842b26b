"""The `patch` tool: replacing text in a file, and V4A patches over several.

A patch reads files and writes them back, so making it twice may not be the same as making it once. Before
anything is changed, the call records what it will do: the steps, each file's whole new text, the hash of the
old one, and the result. An attempt that finds this record carries it out, whatever the files hold by now.
"""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from clotho.errors import FileRefused, InvalidInput
from clotho.frozen_model import FrozenModel
from clotho.tools import shell, write_once
from clotho.tools.files import fuzzy, v4a
from clotho.tools.files.diff import unified
from clotho.tools.files.lint import Lint, lint
from clotho.tools.files.matching import Budget
from clotho.tools.files.paths import absolute_path, quoted, refuse_protected
from clotho.tools.files.text_file import TextFile, is_text
from clotho.tools.results import problem, text
from clotho.tools.schemas import boolean, object_schema, string
from clotho.tools.tool import Arguments, CallContext, Tool, ToolOutcome

MAX_FILE_BYTES = fuzzy.MAX_CHARS
"""Bytes of a file, before and after, and of all files of a patch together."""
MOST_FILES = 100
"""Paths that one patch names."""
MOST_CHECKED = 5
"""Files of a patch whose syntax is checked, for up to five seconds each."""
RECORD = "patch"


class Write(FrozenModel):
    path: str
    content: str
    before: str | None
    """Hash of the file that is replaced; None for a new one."""


class Intent(FrozenModel):
    """The changes of a patch, and the message once they are made."""

    steps: tuple[v4a.Step, ...] = ()
    writes: tuple[Write, ...]
    result: str


class Patch(Tool):
    name = "patch"
    toolset = "file"
    called_by_code = True
    description = (
        "Edit files in place; use it rather than sed or awk in the terminal. mode=replace replaces old_string by "
        "new_string in one file: matching tolerates differences in whitespace, indentation and quotes, and must "
        "be unique unless replace_all is set. mode=patch applies a V4A patch to any number of files, all or "
        "none: '*** Begin Patch', then '*** Update File: path' with hunks of ' ', '-' and '+' lines after "
        "'@@ a line before @@', '*** Add File: path' with '+' lines, '*** Delete File: path', "
        "'*** Move File: old -> new', and '*** End Patch'. The result has the diff, and a syntax check."
    )
    parameters = object_schema(
        "mode",
        mode=string(
            "replace needs path, old_string and new_string; patch needs patch",
            one_of=("replace", "patch"),
            default="replace",
        ),
        path=string("File to edit"),
        old_string=string("Text to replace, with enough around it to be unique"),
        new_string=string("What to put there; empty deletes"),
        replace_all=boolean("Replace every match", default=False),
        patch=string("A patch in the V4A format"),
    )

    async def replay(self, arguments: Arguments, context: CallContext, shown: str) -> ToolOutcome:
        return await self.run(arguments, context)

    async def run(self, arguments: Arguments, context: CallContext) -> ToolOutcome:
        try:
            if (recorded := await write_once.recall(context, RECORD)) is not None:
                intent = Intent.model_validate_json(recorded)
            else:
                intent = await _planned(arguments, context)
                await write_once.record(context, RECORD, intent.model_dump_json().encode())
            await _carry_out(intent, context, begun=recorded is not None)
        except (InvalidInput, FileRefused) as error:
            return problem(str(error), success=False)
        return ToolOutcome(content=intent.result)


async def _planned(arguments: Arguments, context: CallContext) -> Intent:
    needed = ("path", "old_string", "new_string") if arguments["mode"] == "replace" else ("patch",)
    for name in needed:
        if name not in arguments:
            raise InvalidInput(f"mode={arguments['mode']} needs {name}")
    if arguments["mode"] == "patch":
        return await _planned_patch(arguments["patch"], context)
    path = arguments["path"]
    refuse_protected(absolute_path(path, context))
    file = await _read(path, context)
    if file is None:
        raise InvalidInput(f"{path}: no such file")
    return await asyncio.to_thread(_replacement, arguments, file, absolute_path(path, context))


def _replacement(arguments: Arguments, file: TextFile, path: str) -> Intent:
    done = fuzzy.replace(
        file.text, arguments["old_string"], arguments["new_string"], arguments.get("replace_all", False)
    )
    shown = arguments["path"]
    result = text(
        success=True,
        diff=unified(shown, file.text, done.text),
        files_modified=[shown],
        lint=lint(shown, done.text),
    )
    return Intent(writes=(_write(path, file, done.text),), result=result)


async def _planned_patch(patch: str, context: CallContext) -> Intent:
    operations = v4a.parse(patch)
    edited = v4a.edited(operations)
    if len(paths := v4a.paths(operations)) > MOST_FILES:
        raise InvalidInput(f"the patch names {len(paths)} files: make it {MOST_FILES} at most")
    files, left = dict[str, TextFile | None](), MAX_FILE_BYTES
    for path in paths:
        refuse_protected(absolute_path(path, context))
        files[path] = file = await _read(path, context, needs_text=path in edited, most=left)
        # one bound for all files: they are in memory at once, and again in the record
        left -= 0 if file is None else len(file.encoded(file.text))
    texts = {path: None if file is None else file.text for path, file in files.items()}
    plan = await asyncio.to_thread(v4a.plan, operations, texts.__getitem__)
    return await asyncio.to_thread(_patch_intent, plan, files, context)


def _patch_intent(plan: v4a.Plan, files: Mapping[str, TextFile | None], context: CallContext) -> Intent:
    writes = [
        _write(absolute_path(write.path, context), files[write.origin] if write.origin else None, write.text)
        for write in plan.writes
    ]
    listed: dict[str, Any] = {
        "files_modified": [
            c.moved_to or c.path for c in plan.changes if c.before is not None and c.after is not None
        ],
        "files_created": [c.path for c in plan.changes if c.before is None],
        "files_deleted": [c.path for c in plan.changes if c.after is None],
    }
    budget = Budget()
    result = text(
        success=True,
        diff="\n".join(unified(c.path, c.before, c.after, c.moved_to, budget=budget) for c in plan.changes),
        **{name: paths for name, paths in listed.items() if paths},
        lint=_checked(plan.writes),
    )
    return Intent(steps=plan.steps, writes=tuple(writes), result=result)


def _checked(writes: Sequence[v4a.Write]) -> dict[str, Lint]:
    few = len(writes) <= MOST_CHECKED
    skipped = {"status": "skipped", "output": "too many files to check"}
    return {write.path: lint(write.path, write.text) if few else skipped for write in writes}


def _write(path: str, file: TextFile | None, after: str) -> Write:
    """Prepare the write of a file, with the line ends and the mark it has now. Raises InvalidInput if too long."""
    before = None if file is None else _hash(file.content)
    content = (file or TextFile("")).encoded(after)
    if len(content) > MAX_FILE_BYTES:
        raise InvalidInput(
            f"{path} would have {len(content):,} bytes, over the maximum of {MAX_FILE_BYTES:,}"
        )
    return Write(path=path, content=content.decode(), before=before)


async def _read(
    path: str, context: CallContext, needs_text: bool = True, most: int = MAX_FILE_BYTES
) -> TextFile | None:
    """Read the file; None where there is none, an empty text where it isn't text and `needs_text` is false.

    Raises InvalidInput for a file of more than `most` bytes.
    """
    found = await context.sandbox.read_file(absolute_path(path, context), most, shell.last_command(context))
    if found.error == "not_found":
        return None
    if not needs_text and (found.error == "too_large" or not is_text(found.content)):
        return TextFile("")
    if found.error == "too_large":
        raise InvalidInput(f"{path}: too large: files to patch may have {MAX_FILE_BYTES:,} bytes together")
    if found.error is not None:
        raise InvalidInput(f"{path}: {found.error.replace('_', ' ')}")
    return TextFile.decoded(found.content, path)


async def _carry_out(intent: Intent, context: CallContext, *, begun: bool) -> None:
    """Make the changes, or what an earlier attempt has left of them: by their keys each happens once."""
    previous = shell.last_command(context)
    for index, step in enumerate(intent.steps):
        job = shell.job(context, "step", index, script=_script(step), timeout=60)
        status = await shell.finish(job, context)
        if status.exit_code != 0:
            said = (await context.sandbox.output(job.key)).decode(errors="replace").strip()
            raise InvalidInput(f"{step.path}: {said[:300] or 'failed'}")
    # only a later attempt has to look: the first one finds none of its own writes
    made = await context.sandbox.applied() if begun else frozenset[str]()
    for index, write in enumerate(intent.writes):
        key, content = context.job_key("write", index), write.content.encode()
        if key not in made and not (begun and await _is_written(write, context)):
            await context.sandbox.write_file(write.path, content, previous, key)


async def _is_written(write: Write, context: CallContext) -> bool:
    """Raises InvalidInput for a file that has neither its old nor its new content."""
    found = await context.sandbox.read_file(write.path, MAX_FILE_BYTES, shell.last_command(context))
    now = None if found.error == "not_found" else _hash(found.content)
    if now == _hash(write.content.encode()):
        return True
    if now != write.before:
        raise InvalidInput(f"{write.path} was changed by another process while it was patched: read it again")
    return False


def _script(step: v4a.Step) -> str:
    path = quoted(step.path)
    if step.destination is None:
        return f"rm -- {path}"
    to = quoted(step.destination)
    # -n: a file that was put there since the plan stays; -T: nothing is moved into a folder of that name
    return f'mkdir -p -- "$(dirname -- {to})" && mv -nT -- {path} {to}'


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
