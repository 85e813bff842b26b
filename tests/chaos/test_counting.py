"""The instruments of the matrix: they see what they are there to see."""

import asyncio
import json

from chaos.link import Link
from chaos.results import CellResult, Run, compare
from clotho.plugins.demo.execution_markers import marked, marks_in, unmarked
from clotho.plugins.demo.provider import Bill, Call, duplicate_calls, marked_answer, unmarked_request
from clotho.processes.ports import HOST
from tests.support import PATIENCE_SECONDS

RUN = Run(rewards={"a/r0": 1.0, "a/r1": 0.0}, marks={"a/r0": {"0000-00": 1, "0001-00": 1}, "a/r1": {}})
CLEAN = CellResult(fault="worker", phase="reward", recovery=1.0)


def call(asked: float, *, journalled: bool = False) -> Call:
    return Call("a/r0/turn/0000", asked, journalled, answered=True)


def test_an_answer_given_twice_is_repaid() -> None:
    assert duplicate_calls([call(1), call(2)], deaths=[]) == Bill(repaid=1)


def test_an_answer_that_its_asker_could_not_write_any_more_is_counted_apart() -> None:
    assert duplicate_calls([call(1), call(3)], deaths=[2]) == Bill(died=1)
    assert duplicate_calls([call(1), call(3)], deaths=[4]) == Bill(repaid=1)
    assert duplicate_calls([call(1), call(3, journalled=True)], deaths=[2]) == Bill(repaid=1)
    assert duplicate_calls([call(1), call(3), call(4)], deaths=[2]) == Bill(repaid=1, died=1)


def test_a_request_may_be_read_after_the_death_of_who_sent_it() -> None:
    assert duplicate_calls([call(2.5), call(9)], deaths=[2]) == Bill(died=1)
    assert duplicate_calls([call(4), call(9)], deaths=[2]) == Bill(repaid=1)


def test_an_answer_to_who_hung_up_is_counted_apart_where_somebody_ended_work_on_purpose() -> None:
    heard = Call("a/r0/turn/0000", 1, False, answered=True, heard=True)
    assert duplicate_calls([call(1), call(2)], deaths=[], ended_on_purpose=True) == Bill(hung_up=1)
    assert duplicate_calls([call(1), call(2, journalled=True)], deaths=[], ended_on_purpose=True) == Bill(
        repaid=1
    )
    assert duplicate_calls([heard, call(2)], deaths=[], ended_on_purpose=True) == Bill(repaid=1)


def test_a_request_without_an_answer_costs_nothing() -> None:
    assert duplicate_calls([Call("a/r0/turn/0000", 1, False), call(2)], deaths=[]) == Bill()


def test_what_differs_from_the_undisturbed_run_is_counted() -> None:
    twice = RUN.model_copy(update={"marks": {**RUN.marks, "a/r0": {"0000-00": 2}}})
    found = compare(CLEAN, twice, RUN)
    assert (found.rerun, found.lost, found.rewards_changed) == (1, 1, 0)
    other = RUN.model_copy(update={"rewards": {"a/r0": 0.0}})
    found = compare(CLEAN, other, RUN)
    assert (found.rerun, found.lost, found.rewards_changed) == (0, 1, 1)
    assert compare(CLEAN, RUN, RUN).missed == []


def test_a_child_that_its_parent_leads_to_no_more_is_lost_and_a_second_one_is_a_task_done_again() -> None:
    delegating = RUN.model_copy(update={"marks": {**RUN.marks, "a/r0~0001-00": {"begun": 1}}})
    found = compare(CLEAN, RUN, delegating)
    assert (found.rerun, found.lost, found.rewards_changed) == (0, 1, 0)
    again = delegating.model_copy(update={"marks": {**delegating.marks, "a/r0~0002-00": {"begun": 1}}})
    found = compare(CLEAN, again, delegating)
    assert (found.rerun, found.lost, found.rewards_changed) == (1, 0, 0)
    twice = delegating.model_copy(update={"marks": {**RUN.marks, "a/r0~0001-00": {"begun": 2}}})
    assert compare(CLEAN, twice, delegating).rerun == 1


def test_a_late_recovery_misses_its_target() -> None:
    assert CLEAN.model_copy(update={"recovery_limit": 0.5}).missed == ["late: 1 s"]


def test_the_model_never_sees_a_mark() -> None:
    arguments = '{ "command":"echo \\"a\\" > f",  "timeout": 3}'
    seen = marked(arguments, "0001-00", seconds=4)
    assert json.loads(seen)["command"] == 'echo 0001-00 >> /work/.ran; sleep 4\necho "a" > f'
    assert unmarked(seen) == unmarked(marked(arguments, "0001-00", 4, "/etc/left-by-it")) == arguments
    answer = {"choices": [{"message": {"tool_calls": [{"function": {"arguments": arguments}}]}}]}
    message = json.loads(marked_answer(json.dumps(answer).encode(), "a/r0/turn/0001", 0))["choices"][0][
        "message"
    ]
    assert "0001-00" in message["tool_calls"][0]["function"]["arguments"]
    asked = json.loads(unmarked_request(json.dumps({"messages": [message]}).encode()))
    assert asked["messages"][0]["tool_calls"][0]["function"]["arguments"] == arguments


def test_marks_are_read_from_the_verifiers_log() -> None:
    assert marks_in("file: 'ran: x'\nanswer: ''\nran: 0000-00 0000-00 0001-00") == {
        "0000-00": 2,
        "0001-00": 1,
    }


async def test_a_cut_link_holds_what_is_sent_until_it_is_whole() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    async with await asyncio.start_server(echo, HOST, 0) as server:
        link = Link(server.sockets[0].getsockname()[1])
        await link.start()
        reader, writer = await asyncio.open_connection(HOST, link.port)
        writer.write(b"before\n")
        assert await reader.readline() == b"before\n"
        link.cut()
        writer.write(b"during\n")
        answer = asyncio.create_task(reader.readline())
        assert not (await asyncio.wait([answer], timeout=0.2))[0]
        link.heal()
        assert await asyncio.wait_for(answer, PATIENCE_SECONDS) == b"during\n"
        writer.close()
        await link.stop()
