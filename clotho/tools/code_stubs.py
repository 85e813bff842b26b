"""The Python module through which code in the sandbox calls tools, and the shell script that runs the code.

A call is a file `{number}.request` in a folder of the execution, made by a link so that its number is its own, also
among threads and forked processes. Its answer is the file `{number}.answer`.
"""

import keyword
import shlex
from collections.abc import Iterable
from typing import Any

from clotho.tools.tool import Tool

MODULE = "clotho_tools"
ALIAS = "hermes_tools"
"""The name by which code in datasets imports it."""
FOLDER = "/tmp/.clotho-code"
STDERR_BYTES = 400_000
MOST_DESCRIPTION_CHARS = 500
"""Characters of a tool's description in its stub."""

# link(2), not rename: it fails where the number is taken, and a request that exists is whole
# an answer that exists is whole, too: the worker's write_file renames it into place
EXCHANGE = '''\
"""Tools of the rollout. Each call waits for its answer."""
import json, os, time
_folder = os.path.dirname(os.path.abspath(__file__))


def _call(_tool, **given):
    arguments = {{name: value for name, value in given.items() if value is not None}}
    request = json.dumps({{"tool": _tool, "arguments": arguments}})
    draft = os.path.join(_folder, "draft-%d-%d" % (os.getpid(), time.monotonic_ns()))
    with open(draft, "w") as file:
        file.write(request)
    for number in range({most}):
        try:
            os.link(draft, os.path.join(_folder, "%d.request" % number))
        except FileExistsError:
            continue
        os.unlink(draft)
        return _answer(os.path.join(_folder, "%d.answer" % number))
    os.unlink(draft)
    raise RuntimeError("code may make at most {most} tool calls")


def _answer(path):
    pause = 0.001
    while not os.path.exists(path):
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    with open(path) as file:
        text = file.read()
    try:
        return json.loads(text)
    except ValueError:
        return text
'''

# the first line: earlier code may have put a link in the folder's place; rm deletes the files of other calls
# PYTHONPATH: for a script, Python has the script's folder on its path, and not the working directory
# cat reads the errors that head leaves: the code couldn't write them otherwise
SCRIPT = """\
[ -d {root} ] && [ ! -L {root} ] || rm -rf {root}; set -- {root}/*
mkdir -p {folder} && printf %s {code} > {folder}/code.py && printf %s {stubs} > {folder}/{module}.py
printf 'from {module} import *' > {folder}/{alias}.py; mkfifo {folder}/errors; rm -rf "$@" 2> /dev/null &
{{ head -c {stderr} > {folder}/stderr; : > {folder}/read; exec cat > /dev/null; }} < {folder}/errors &
export PYTHONPATH="$PWD${{PYTHONPATH:+:$PYTHONPATH}}" PYTHONUNBUFFERED=1
python3 {folder}/code.py 2> {folder}/errors < /dev/null
code=$?
for pause in 0.001 0.002 0.002 0.005 0.01 0.02 0.04 0.04 0.04 0.04; do
    [ -e {folder}/read ] && break; sleep $pause
done
exit $code
"""
"""A process that the code leaves behind may hold the pipe of its errors: that isn't waited for."""


def stubs(tools: Iterable[Tool], most_calls: int) -> str:
    """The module's text: a function for each tool, with its parameters."""
    return EXCHANGE.format(most=most_calls) + "".join(function(tool) for tool in tools)


def function(tool: Tool) -> str:
    schema: Any = tool.parameters
    required = schema.get("required", [])
    names = [*required, *(name for name in schema["properties"] if name not in required)]
    plain = [name for name in names if _is_parameter(name)]
    given = [f"{name}={name}" for name in plain]
    parameters = [name if name in required else f"{name}=None" for name in plain]
    if len(plain) < len(names):
        parameters.append("**_others")
        given.append("**_others")
    call = ", ".join([repr(tool.name), *given])
    body = f"    {tool.description[:MOST_DESCRIPTION_CHARS]!a}\n    return _call({call})"
    return f"\n\ndef {tool.name}({', '.join(parameters)}):\n{body}\n"


def _is_parameter(name: str) -> bool:
    """Whether a function may have a parameter of that name; a server's tool may have others."""
    plain = name.isascii() and name.isidentifier() and not name.startswith("_")
    return plain and not keyword.iskeyword(name)


def script(key: str, code: str, text: str) -> str:
    """Runs `code`, which has no NUL, with the stubs `text`, in the folder of execution `key`."""
    return SCRIPT.format(
        root=FOLDER,
        folder=folder_of(key),
        module=MODULE,
        alias=ALIAS,
        code=shlex.quote(code),
        stubs=shlex.quote(text),
        stderr=STDERR_BYTES,
    )


def folder_of(key: str) -> str:
    return f"{FOLDER}/{key}"
