"""What the scripted model does in these environments: everything right, but where a task is called wrong."""

import re

from clotho.testing.script import Question, ScriptedCall, ScriptedTurn

VERDICT = '{"score": 0.5}'


def answer(question: Question) -> ScriptedTurn:
    prompt = question.prompt
    if prompt == "hi":
        return ScriptedTurn(content="Hello.")  # to a server that fails this, Atropos sends nothing more
    if "Judge from 0 to 1" in prompt:
        return ScriptedTurn(content=VERDICT)
    if prompt.startswith("Find out:"):
        return ScriptedTurn(content="The long one: https://a.example/1 and https://b.example/2 say so.")
    if question.turn > 0 and "endless" not in prompt:
        return ScriptedTurn(content="Done.")
    if found := re.match(r"Write a file (\S+) that holds: (.*)", prompt, re.DOTALL):
        return _in_home(question.sibling, found[1], found[2])
    if "/workspace/sums.py" in prompt:
        return _writing("/workspace/sums.py", "total = sum\n", "touch -d '1 hour ago' /tmp/.marker")
    if "/workspace/half.py" in prompt:
        return _writing("half.py", "def half(n):\n    return n\n", "touch -d '1 hour ago' /tmp/.marker")
    if found := re.match(r"Task (\w+):", prompt):
        return _running(
            {"endless": "sleep 40"}.get(found[1], f"echo {found[1].replace('wrong', '?')} > name")
        )
    assert "answer.py" in prompt, prompt
    body = "2 * n" if question.sibling == 0 else "n"
    check = "import answer\nassert answer.double(2) == 4\n"
    made = f"printf 'def double(n):\\n    return {body}\\n' > answer.py; printf '{check}' > check.py"
    return ScriptedTurn(content="Writing the answer and its test.", calls=_running(made).calls)


def _in_home(sibling: int, path: str, text: str) -> ScriptedTurn:
    """Exactly; exactly, by another tool; and with something after it."""
    if sibling == 1:
        return ScriptedTurn(
            calls=(ScriptedCall(name="write_file", arguments={"path": path, "content": text}),)
        )
    return _running(f"printf '%s' '{text}{' and more' if sibling else ''}' > {path}")


def _writing(path: str, text: str, before: str) -> ScriptedTurn:
    write = ScriptedCall(name="write_file", arguments={"path": path, "content": text})
    return ScriptedTurn(calls=(*_running(before).calls, write))


def _running(command: str) -> ScriptedTurn:
    return ScriptedTurn(calls=(ScriptedCall(name="terminal", arguments={"command": command}),))
