"""The tools under conformance test: another one joins by an entry in ROWS."""

import base64
import shlex
from typing import Any

from environments.mcp_tasks import ACCOUNTS, SERVER
from tests.tools.ledgers import MANY, MOVE, MOVED, PROGRAM, START
from tests.tools.model_service import PNG
from tests.tools.row import SESSION, Call, Row

LONG_CHARS = 1_000
LINES = "\n".join(f"line {number} of many" for number in range(300))
CODE = """
from clotho_tools import terminal, write_file
open("log", "a").write("run\\n")
write_file("made", "made\\n")
print(terminal("cat log")["output"])
"""
TASKS = [{"id": "1", "content": "look", "status": "pending"}]

IMAGE = base64.b64encode(PNG).decode()
SKILL = "---\nname: knots\ndescription: Tie knots that hold.\n---\n\nPull both ends.\n"
SITE = "loom.test"
PAGE = """
<title>Loom</title><link rel=icon href="data:,"><button onclick="fetch('/pressed')">Press</button>
<input aria-label=Name><a href="/next">Next</a><img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=" alt=thread>
<script>console.log('ready')</script>"""
ANSWERS = f"""
read -r method target version
case $target in /pressed) echo pressed >> /work/pressed;; esac
printf 'HTTP/1.1 200 OK\\r\\nContent-Type: text/html\\r\\nConnection: close\\r\\n\\r\\n%s' {shlex.quote(PAGE)}
case $target in /long) for n in $(seq 200); do echo "<p>paragraph $n of many</p>"; done;; esac
"""
"""A site that the sandbox serves, and that keeps what was pressed."""
LOOM: Call = ("browser_navigate", {"url": f"http://{SITE}/"})
LONG_LOOM: Call = ("browser_navigate", {"url": f"http://{SITE}/long"})
ON_PAGE: dict[str, Any] = {"before": (LOOM,), "effect": "once", "lost": "diverged", "slow": True}
LEDGER: tuple[Call, ...] = (
    ("write_file", {"path": SERVER, "content": PROGRAM.read_text()}),
    ("write_file", {"path": ACCOUNTS, "content": START}),
)


ROWS: dict[str, Row] = {
    "terminal": Row(
        good={"command": "echo run >> log; cat log"},
        spelled={"command": "echo run >> log; cat log", "timeout": "60", "background": "false"},
        bad={"command": "touch touched", "timeout": 0},
        effect="once",
        lost="repeated",
        shows="cat log",
        prints="run\n",
        long={"command": "seq 2000"},
    ),
    "process": Row(
        before=(("terminal", {"command": "cat >> heard", "background": True}),),
        good={"action": "submit", "session_id": SESSION, "data": "hello"},
        spelled={"action": "submit", "session_id": SESSION, "data": "hello", "timeout": "9"},
        bad={"action": "shout"},
        effect="once",
        lost="diverged",
        shows="until grep -qs hello heard; do sleep 0.02; done; cat heard",
        prints="hello\n",
        long={"action": "list"},
        long_before=tuple(
            ("terminal", {"command": f"cat # {'x' * 300}", "background": True}) for _ in range(3)
        ),
    ),
    "read_file": Row(
        before=(("write_file", {"path": "notes", "content": "one\ntwo\n"}),),
        good={"path": "notes"},
        spelled={"path": "notes", "offset": "1", "limit": "500.0"},
        bad={"path": "notes", "offset": 0},
        effect="none",
        long={"path": "lines"},
        long_before=(("write_file", {"path": "lines", "content": LINES}),),
    ),
    "write_file": Row(
        good={"path": "made/file", "content": "text\n"},
        spelled={"path": "made/file", "content": "text\n", "mode": None},
        bad={"path": "touched"},
        effect="once",
        lost="repeated",
        shows="cat made/file",
        prints="text\n",
    ),
    "patch": Row(
        before=(("write_file", {"path": "notes", "content": "one\n"}),),
        good={"mode": "replace", "path": "notes", "old_string": "one", "new_string": "one two"},
        spelled={
            **{"mode": "replace", "path": "notes", "old_string": "one", "new_string": "one two"},
            "replace_all": "false",
        },
        bad={"mode": "guess", "path": "notes"},
        effect="once",
        lost="repeated",
        shows="cat notes",
        prints="one two\n",
        long={"mode": "replace", "path": "notes", "old_string": "one", "new_string": LINES},
        long_before=(("write_file", {"path": "notes", "content": "one\n"}),),
    ),
    "search_files": Row(
        before=(("write_file", {"path": "notes", "content": "one\ntwo\n"}),),
        good={"pattern": "two"},
        spelled={"pattern": "two", "limit": "50", "offset": "0"},
        bad={"pattern": "two", "target": "everything"},
        effect="none",
        long={"pattern": "line", "limit": 200},
        long_before=(("write_file", {"path": "lines", "content": LINES}),),
    ),
    "execute_code": Row(
        good={"code": CODE},
        spelled={"code": CODE, "timeout": None},
        bad={"program": "open('touched', 'w')"},
        effect="once",
        lost="repeated",
        shows="cat log made",
        prints="run\nmade\n",
        long={"code": "print('long ' * 1000)"},
    ),
    "web_search": Row(
        good={"query": "who wove the thread", "limit": 2},
        spelled={"query": "who wove the thread", "limit": "2"},
        bad={"query": "thread", "limit": 0},
        effect="none",
        long={"query": "thread", "limit": 20},
    ),
    "web_extract": Row(
        good={"urls": ["https://example.org/fates"]},
        spelled={"urls": "https://example.org/fates"},
        bad={"urls": []},
        effect="none",
        long={"urls": ["https://example.org/long"]},
    ),
    "skills_list": Row(
        before=tuple(
            ("skill_manage", {"action": "create", "name": f"{name}-skill", "content": SKILL})
            for name in ("first", "second", "third", "fourth")
        ),
        good={"category": "craft"},
        spelled={"category": "craft", "verbose": None},
        bad={"category": {}},
        effect="none",
        long={},
        long_before=tuple(
            ("skill_manage", {"action": "create", "name": f"skill-{number}", "content": SKILL})
            for number in range(20)
        ),
    ),
    "skill_view": Row(
        good={"name": "spinning"},
        spelled={"name": "spinning", "file_path": None},
        bad={"name": {}},
        effect="none",
        long={"name": "spinning", "file_path": "references/wool.md"},
    ),
    "skill_manage": Row(
        good={"action": "create", "name": "knots", "content": SKILL},
        spelled={"action": "create", "name": "knots", "content": SKILL, "replace_all": "false"},
        bad={"action": "forget", "name": "knots"},
        effect="idempotent",
    ),
    "clarify": Row(
        good={"question": "Wool or flax?", "choices": ["wool", "flax"]},
        spelled={"question": "Wool or flax?", "choices": '["wool", "flax"]'},
        bad={"question": "Which?", "choices": ["1", "2", "3", "4", "5"]},
        effect="none",
        long={"question": "Why? " * 300},
    ),
    "vision_analyze": Row(
        before=(("terminal", {"command": f"base64 -d > dot.png <<< {IMAGE}"}),),
        good={"image_url": "dot.png", "question": "What is it?"},
        spelled={"image_url": "dot.png", "question": "What is it?", "detail": None},
        bad={"image_url": "dot.png"},
        effect="idempotent",
        long={"image_url": "dot.png", "question": "What? " * 300},
        long_before=(("terminal", {"command": f"base64 -d > dot.png <<< {IMAGE}"}),),
    ),
    "image_generate": Row(
        good={"prompt": "a dot"},
        spelled={"prompt": "a dot", "aspect_ratio": "landscape"},
        bad={"prompt": "a dot", "aspect_ratio": "round"},
        effect="once",
        lost="repeated",
        shows="head -c 4 image-*.png | tail -c 3",
        prints="PNG",
        varies=("image",),
    ),
    "mixture_of_agents": Row(
        good={"user_prompt": "Why?"},
        spelled={"user_prompt": "Why?", "models": None},
        bad={"prompt": "Why?"},
        effect="idempotent",
        long={"user_prompt": "Why? " * 300},
    ),
    "delegate_task": Row(
        good={"goal": "count the files", "toolsets": ["file"]},
        spelled={"goal": "count the files", "toolsets": "file", "context": None},
        bad={"goal": ""},
        effect="once",
    ),
    "todo": Row(
        good={"todos": TASKS},
        spelled={"todos": '[{"id": 1, "content": "look", "status": "pending"}]', "merge": "false"},
        bad={"todos": [{"id": "1", "content": "look", "status": "lost"}]},
        effect="idempotent",
        long={"todos": [{"id": str(number), "content": f"task {number}"} for number in range(50)]},
    ),
    "browser_navigate": Row(
        good={"url": f"http://{SITE}/"},
        spelled={"url": f"http://{SITE}/", "wait": None},
        bad={"address": f"http://{SITE}/"},
        effect="once",
        lost="diverged",
        long={"url": f"http://{SITE}/long"},
    ),
    "browser_snapshot": Row(
        before=(LOOM,),
        good={"full": True},
        spelled={"full": "true"},
        bad={"full": "all of it"},
        effect="none",
        long={"full": False},
        long_before=(LONG_LOOM,),
    ),
    "browser_click": Row(
        **ON_PAGE,
        good={"ref": "e2"},
        spelled={"ref": "e2", "button": "left"},
        bad={"element": "Press"},
        shows="cat pressed",
        prints="pressed\n",
    ),
    "browser_type": Row(
        **ON_PAGE,
        good={"ref": "e3", "text": "12"},
        spelled={"ref": "e3", "text": 12},
        bad={"ref": "e3"},
    ),
    "browser_scroll": Row(
        **ON_PAGE,
        good={"direction": "down"},
        spelled={"direction": "down", "amount": "500"},
        bad={"direction": "sideways"},
    ),
    "browser_back": Row(
        before=(LOOM, ("browser_navigate", {"url": f"http://{SITE}/next"})),
        good={},
        spelled={"steps": "1"},
        bad=None,
        slow=True,
        effect="once",
        lost="diverged",
    ),
    "browser_press": Row(**ON_PAGE, good={"key": "5"}, spelled={"key": 5}, bad={"keys": "Tab"}),
    "browser_get_images": Row(
        before=(LOOM,), good={}, spelled={"limit": "5"}, bad=None, effect="none", slow=True
    ),
    "browser_console": Row(
        **ON_PAGE,
        good={"expression": "'word '.repeat(3)"},
        spelled={"expression": "'word '.repeat(3)", "clear": "false"},
        bad={"clear": "all of it"},
        long={"expression": "'word '.repeat(1000)"},
        long_before=(LOOM,),
    ),
    "browser_vision": Row(
        before=(LOOM,),
        good={"question": "What is it?"},
        spelled={"question": "What is it?", "annotate": "false"},
        bad={"annotate": True},
        effect="idempotent",
        slow=True,
        long={"question": "What? " * 300},
        long_before=(LOOM,),
    ),
    "browser_dialog": Row(
        before=(LOOM, ("browser_console", {"expression": "alert('well')"})),
        good={"action": "accept"},
        spelled={"action": "accept", "prompt_text": None},
        bad={"action": "shrug"},
        slow=True,
        effect="once",
        lost="diverged",
    ),
    "mcp_ledger_transfer": Row(
        stands_for="tools of an MCP server in the sandbox",
        before=(*LEDGER, ("mcp_ledger_list_accounts", {})),
        good=MOVE,
        spelled=MOVE | {"amount": "5"},
        bad=MOVE | {"amount": 0},
        effect="once",
        lost="diverged",
        shows=f"cat {ACCOUNTS}",
        prints=MOVED,
        long=MOVE,
        long_before=(*LEDGER, ("write_file", {"path": ACCOUNTS, "content": MANY})),
    ),
    "mcp_bank_transfer": Row(
        stands_for="tools of an MCP server on the host",
        good=MOVE,
        spelled=MOVE | {"amount": "5"},
        bad=MOVE | {"amount": 0},
        effect="told",
        shows=("mcp_bank_list_accounts", {}),
        prints=MOVED,
        long=MOVE,
        long_before=tuple(
            ("mcp_bank_open_account", {"name": f"name-{number}-{'x' * 100}"}) for number in range(10)
        ),
    ),
}
