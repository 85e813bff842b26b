"""Who is told, and what, when a run pauses itself or ends."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from clotho.config import Settings, settings_class
from clotho.errors import InvalidInput, Unavailable
from clotho.plugins.notices import sending as notices
from clotho.plugins.notices.sending import tell_command, tell_web_hook
from clotho.processes.ports import free_port
from clotho.rollouts.campaign import CampaignProgress
from clotho.rollouts.notice import Notice, RunEvent
from clotho.rollouts.run import PAUSED_BY_HAND
from clotho.run_settings import RunSettings
from clotho.runs.operations import Operations
from clotho.runs.targets import Target
from clotho.temporal.search_attributes import RUN
from clotho.testing.script import Fault, Script
from clotho.testing.scripted_model import ScriptedModel, serving
from tests.cli.command import Finished, clotho
from tests.cluster import Cluster
from tests.monitoring.web_hook import SILENT, WebHook
from tests.support import eventually, start
from tests.workflows.scripts import scoring

NOTICE = Notice(id="1", event=RunEvent.SCORED, run="first", groups=2, scored=2, failed=0)
APPEND = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"


@pytest.fixture
def hook() -> Iterator[WebHook]:
    with closing(WebHook()) as hook:
        yield hook


def asking(**notices: Any) -> Settings:
    """A worker's settings that ask for notices."""
    return settings_class().model_validate({"plugins": {"notices": notices}})


def posting(monkeypatch: pytest.MonkeyPatch, hook: WebHook) -> Callable[[Notice], Awaitable[None]]:
    monkeypatch.setenv("HOOK_URL", hook.url)
    monkeypatch.setenv("HOOK_TOKEN", "t0ken")
    settings = asking(webhook_variable="HOOK_URL", webhook_token_variable="HOOK_TOKEN")
    return partial(tell_web_hook, settings=settings)


def told_by(hook: WebHook) -> dict[str, str]:
    return {"CLOTHO_PLUGINS__NOTICES__WEBHOOK_VARIABLE": "HOOK_URL", "HOOK_URL": hook.url}


async def accepted(hook: WebHook, number: int) -> list[dict[str, Any]]:
    """The bodies of the accepted requests, once there are so many."""

    async def there() -> bool:
        return len(hook.accepted) >= number

    await eventually(there, f"{number} notices")
    return [body for _, body in hook.accepted]


async def test_a_run_tells_that_it_paused_itself_and_that_it_ended(private_cluster: Cluster) -> None:
    """Where the web hook fails, the command isn't run again."""
    told = private_cluster.folder / "told"
    operate = Operations(private_cluster.open_journal(), private_cluster.client)
    refusals = Fault(kind="status", status=401, requests=(1, 2))
    model = ScriptedModel(Script(conversations=(scoring(1.0),), faults=(refusals,)))
    with closing(WebHook(503)) as hook:
        command = json.dumps([sys.executable, "-c", APPEND, str(told)])
        await private_cluster.start_worker(CLOTHO_PLUGINS__NOTICES__COMMAND=command, **told_by(hook))
        async with serving(model) as url:
            order = {"groups": 3, "max_open_groups": 1, "stop_after_failures": 2}
            handle = await start(private_cluster, "told", url, **order)
            [paused] = await accepted(hook, 1)
            await operate.resume(Target.named("told"))
            await handle.result()
        _, ended = await accepted(hook, 2)
    assert (paused["event"], paused["run"], paused["groups"]) == ("paused", "told", 3)
    assert "2 rollouts in a row failed alike: ModelRejected" in paused["reason"]
    assert [body["id"] for body in hook.refused] == [paused["id"]] != [ended["id"]]
    assert ended | {"id": ""} == {
        "id": "",
        "event": "scored",
        "run": "told",
        "reason": "",
        "groups": 3,
        "scored": 3,
        "failed": 0,
        "text": "run told scored, 3 of 3 groups scored",
    }

    async def commands() -> list[dict[str, Any]] | None:
        lines = told.read_text().splitlines() if told.exists() else []
        return list(map(json.loads, lines)) if len(lines) == 2 else None

    assert await eventually(commands, "the command to be run twice") == [paused, ended]


async def test_a_budget_that_is_met_and_ends_without_all_groups_are_told(
    private_cluster: Cluster, hook: WebHook
) -> None:
    """A pause by hand isn't: its operator knows."""
    await private_cluster.start_worker(**told_by(hook))
    operate, target = (
        Operations(private_cluster.open_journal(), private_cluster.client),
        Target.named("bounded"),
    )
    refusal = Fault(kind="status", status=401, requests=(1,))
    model = ScriptedModel(Script(conversations=(scoring(1.0),), faults=(refusal,)))
    async with serving(model) as url:
        with pytest.raises(WorkflowFailureError):
            await (await start(private_cluster, "refused", url)).result()
        await accepted(hook, 1)
        settings = RunSettings(budget={"calls": {"terminal": 1}})
        handle = await start(
            private_cluster, "bounded", url, groups=1000, max_open_groups=1, settings=settings
        )

        async def paused_for(reason: str | None) -> None:
            async def shown() -> bool:
                progress: CampaignProgress = await handle.query("progress", result_type=CampaignProgress)
                return progress.paused == reason

            await eventually(shown, f"the campaign to show its pause as {reason}")

        await accepted(hook, 2)
        await operate.change_budget(target, RunSettings(budget={"calls": {"terminal": 10_000}}))
        await operate.resume(target)
        await paused_for(None)
        await operate.pause(target)
        await paused_for(PAUSED_BY_HAND)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        refused, met, cancelled = await accepted(hook, 3)
    assert (refused["event"], refused["run"]) == ("failed", "refused")
    assert "401" in refused["reason"]
    assert (met["event"], met["run"]) == ("paused", "bounded")
    assert "calls of terminal" in met["reason"]
    assert (cancelled["event"], cancelled["run"]) == ("cancelled", "bounded")


async def test_a_notice_whose_worker_is_killed_is_given_again_and_holds_no_run_up(
    private_cluster: Cluster,
) -> None:
    with closing(WebHook(SILENT)) as hook:
        worker = await private_cluster.start_worker(**told_by(hook))
        async with serving(ScriptedModel(Script(conversations=(scoring(1.0),)))) as url:
            await (await start(private_cluster, "undisturbed", url)).result()

        async def asked() -> bool:
            return bool(hook.refused)

        await eventually(asked, "the first request")
        await worker.kill()
        await private_cluster.start_worker(**told_by(hook))
        [again] = await accepted(hook, 1)
        assert hook.refused == [again]


@pytest.mark.slow
async def test_notices_that_fail_are_shown_and_hold_nothing_up(
    private_cluster: Cluster, tmp_path: Path
) -> None:
    """The one of `troubled` is tried again, that of `refused` is given up; `troubled` can be deleted meanwhile."""
    cluster, client = private_cluster, private_cluster.client
    where = ("--store", cluster.store_location, "--temporal", cluster.address)
    variables = {"CLOTHO_TEMPORAL__NAMESPACE": client.namespace}

    async def said(*command: str, text: str) -> Finished | None:
        answer = await clotho(*command, *where, environment=variables)
        return answer if text in answer.output else None

    async with serving(ScriptedModel(Script(conversations=(scoring(1.0),)))) as url:
        with closing(WebHook(404, *[503] * 10_000)) as hook:
            await cluster.start_worker(**told_by(hook))
            await (await start(cluster, "refused", url)).result()
            given_up = "given up: the web hook answers 404"
            await eventually(partial(said, "status", "refused", text=given_up), "the failed notice")
            await (await start(cluster, "troubled", url)).result()
            failing = ": the web hook answers 503"
            shown = await eventually(
                partial(said, "status", "troubled", text=failing), "the notice that fails"
            )
            assert ": attempt " in shown.output and "404" not in shown.output
            both = await clotho("status", *where, environment=variables)
            assert given_up in both.output and failing in both.output
            assert "open or failed" not in shown.output and "doesn't" not in shown.output

            async def all_listed() -> bool:
                found = [each.id async for each in client.list_workflows(f"{RUN} = 'troubled'")]
                kinds = sorted(each.partition("/")[2].partition("-")[0] for each in found)
                return kinds == ["g000000", "g000000/r0", "~campaign", "~notice"]

            await eventually(all_listed, "the workflows of the run listed")
            examined = await clotho("doctor", *where, environment={**variables, **told_by(hook)})
            assert examined.status == 1
            assert failing in examined.output and "web hook: HOOK_URL is set here" in examined.output
            deleted = await clotho("delete", "troubled", "--yes", *where, environment=variables)
            assert deleted.status == 0, deleted


async def test_a_token_is_sent_and_refusals_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(WebHook(429, 404)) as hook:
        post = posting(monkeypatch, hook)
        with pytest.raises(Unavailable, match="answers 429"):
            await post(NOTICE)
        with pytest.raises(InvalidInput, match="answers 404"):
            await post(NOTICE)
        await post(NOTICE)
    [(headers, body)] = hook.accepted
    assert headers["authorization"] == "Bearer t0ken"
    assert body["text"] == "run first scored, 2 of 2 groups scored"


async def test_errors_of_the_web_hook_do_not_tell_its_url(
    monkeypatch: pytest.MonkeyPatch, hook: WebHook
) -> None:
    post = posting(monkeypatch, hook)
    monkeypatch.setenv("HOOK_URL", f"http://127.0.0.1:{free_port()}/s3cret")
    with pytest.raises(Unavailable, match=r"^the web hook can't be reached: ConnectError$"):
        await post(NOTICE)
    monkeypatch.setenv("HOOK_URL", "s3cret")
    with pytest.raises(
        InvalidInput, match=r"^the web hook's variable HOOK_URL holds no URL of http or https$"
    ):
        await post(NOTICE)
    monkeypatch.delenv("HOOK_URL")
    with pytest.raises(InvalidInput, match="HOOK_URL is not set"):
        await post(NOTICE)


async def test_time_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A program that the command has started ends with it."""
    monkeypatch.setattr(notices, "SECONDS", 2.0)
    with closing(WebHook(SILENT)) as hook, pytest.raises(Unavailable, match="doesn't answer within 2 s"):
        await posting(monkeypatch, hook)(NOTICE)
    told = tmp_path / "told"
    told.touch()
    script = f"flock {told} sleep 600 & wait"
    with pytest.raises(Unavailable, match="took more than 2 s"):
        await tell_command(NOTICE, asking(command=("sh", "-c", script)))
    unlocked = await asyncio.create_subprocess_exec("flock", str(told), "true")
    assert await unlocked.wait() == 0


@pytest.mark.parametrize(
    ("command", "kind", "said"),
    [
        (("/nonexistent/program",), InvalidInput, "No such file"),
        ((sys.executable, "-c", "raise SystemExit(3)"), Unavailable, "status 3"),
    ],
)
async def test_a_command_that_fails_is_named(
    command: tuple[str, ...], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        await tell_command(NOTICE, asking(command=command))


async def test_a_command_gets_no_keys_of_model_servers_and_need_not_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    code = f"import os; open({str(tmp_path / 'seen')!r}, 'w').write(os.environ.get('OPENAI_API_KEY', 'none'))"
    settings = asking(command=(sys.executable, "-c", code))
    assert "OPENAI_API_KEY" in settings.worker.model_keys
    await tell_command(NOTICE, settings)
    assert await asyncio.to_thread((tmp_path / "seen").read_text) == "none"
