"""web_research and code_math, played by a scripted model to their rewards."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clotho.environment import AgentResult
from clotho.plugins.web import corpus
from clotho.rollouts.call import ToolError
from clotho.runs.groups import scored_groups
from clotho.testing import Conversation, Script, ScriptedCall, ScriptedModel, ScriptedTurn, serving
from environments._final_answer import final_answer
from environments.code_math import PROBLEMS, same
from environments.web_research import CORPUS, QUESTIONS, normalised
from tests.cluster import Cluster
from tests.tools.model_service import ModelServer, completion

SEARCHES = {
    "designer of the lighthouse": "lighthouse of Port Sele designed by",
    "river": "bridge guild of the weavers paid for",
    "metres higher": "highest mountains metres",
    "profession": "university library of Tarn",
    "capital": "capital of Velmora year",
}
PAGES = {
    "designer of the lighthouse": ("towns/port-sele", "people/edda-marrin"),
    "river": ("bridges/guild-bridge",),
    "metres higher": ("mountains", "mountains/caller"),
    "profession": ("university", "people/ansel"),
    "capital": ("history/capitals", "ferries"),
}
CODE = {
    "divisible": "print(sum(n % sum(map(int, str(n))) == 0 for n in range(1, 10**6 + 1)))",
    "primes": "print(sum(n for n in range(2, 200000) if all(n % d for d in range(2, int(n**0.5) + 1))))",
    "integral": "print(22 / 7 - 3.141592653589793)",
    "sum of k": "print([sum(k * (k + 1) * (k + 2) for k in range(1, n + 1)) for n in range(6)])",
    "500 cents": (
        "w = [1] + [0] * 500\nfor c in (1, 5, 10, 25, 50, 100):\n"
        "    for t in range(c, 501):\n        w[t] += w[t - c]\nprint(w[500])"
    ),
}
COMPUTED = {"divisible": "95428", "primes": "1709600813", "500 cents": "98411"}


def calling(name: str, **arguments: object) -> ScriptedTurn:
    return ScriptedTurn(calls=(ScriptedCall.model_validate({"name": name, "arguments": arguments}),))


def saying(answer: str) -> ScriptedTurn:
    return ScriptedTurn(content=f"I looked it up.\n\n**Answer:** {answer}.")


async def rewards(cluster: Cluster, environment: str, conversations: list[Conversation]) -> list[list[float]]:
    """The rewards of each item's group: sibling 0 is right, sibling 1 is wrong."""
    run = environment.replace("_", "-")
    async with serving(ScriptedModel(Script(conversations=tuple(conversations)))) as url:
        handle = await cluster.start(
            run, url, environment=environment, model="scripted", groups=10, group_size=2
        )
        progress = await handle.result()
    assert progress.groups == 5
    return [
        [sibling.score for sibling in entry.siblings]
        for _, entry in await scored_groups(cluster.open_journal(), run)
    ]


async def test_research_is_rewarded_by_its_answer(cluster: Cluster) -> None:
    conversations = [
        Conversation(
            match=match,
            variants=(
                (
                    calling("web_search", query=query),
                    calling("web_extract", urls=[f"https://velmora.example/{page}" for page in PAGES[match]]),
                    saying(answers[0].upper()),
                ),
                (saying("Nowhere"),),
            ),
        )
        for (match, query), (_, answers) in zip(SEARCHES.items(), QUESTIONS, strict=True)
    ]
    assert await rewards(cluster, "web_research", conversations) == [[1.0, 0.0]] * 5


@pytest.fixture
def judge() -> Iterator[ModelServer]:
    made = ModelServer()
    made.body = completion("Yes.")
    yield made
    made.close()


async def judged(cluster: Cluster, judge: ModelServer, environment: str, **config: Any) -> list[float]:
    """The scores of a run of one rollout, whose judge says yes."""
    run = environment.rpartition(":")[2].lower().replace("_", "-") + "-judged"
    script = Script(conversations=(Conversation(variants=((saying("in 1811"),),)),))
    overrides = {"plugins": {"services": {"judge": {"url": judge.url, "model": "judges"}}}, **config}
    async with serving(ScriptedModel(script)) as url:
        handle = await cluster.start(run, url, environment=environment, model="scripted", overrides=overrides)
        await handle.result()
    [(_, entry)] = await scored_groups(cluster.open_journal(), run)
    return [sibling.score for sibling in entry.siblings]


async def test_an_answer_in_other_words_is_judged(cluster: Cluster, judge: ModelServer) -> None:
    assert await judged(cluster, judge, "web_research") == [1.0]
    assert len(judge.asked) == 1 and '"in 1811"' in judge.asked[0][2]["messages"][0]["content"]


async def test_a_verdict_is_paid_once_however_often_the_verification_is_tried(
    cluster: Cluster, judge: ModelServer, tmp_path: Path
) -> None:
    attempts = tmp_path / "attempts"
    scores = await judged(cluster, judge, "tests.environments.judged:Judged", attempts=str(attempts))
    assert scores == [1.0] and attempts.read_text() == "Yes.\n" * 2
    assert len(judge.asked) == 1


def test_every_question_can_be_answered_from_the_pages_that_its_search_finds() -> None:
    for (match, query), (question, answers) in zip(SEARCHES.items(), QUESTIONS, strict=True):
        assert match in question
        found = {each.url for each in corpus.search(str(CORPUS), query, 5)}
        pages = {f"https://velmora.example/{page}" for page in PAGES[match]}
        assert found & pages, question
        texts = " ".join((corpus.document(str(CORPUS), url) or ("", ""))[1] for url in pages)
        assert answers[0] in texts or answers[0] == str(2_086 - 1_872)


@pytest.mark.slow
async def test_mathematics_is_rewarded_by_its_answer(cluster: Cluster) -> None:
    rights = ("95,428", "1709600813", "-pi + 22/7", "(n**4 + 6*n^3 + 11*n**2 + 6*n)/4", "98411")
    conversations = [
        Conversation(
            match=match,
            variants=(
                (calling("execute_code", code=code), saying(right)),
                (saying("2**10"),),
            ),
        )
        for (match, code), right in zip(CODE.items(), rights, strict=True)
    ]
    assert await rewards(cluster, "code_math", conversations) == [[1.0, 0.0]] * 5


@pytest.mark.parametrize("match", sorted(COMPUTED))
def test_the_known_answers_are_what_code_computes(match: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(CODE[match], {})
    [answer] = [answer for problem, answer in PROBLEMS if match in problem]
    assert capsys.readouterr().out.strip() == answer == COMPUTED[match]


@pytest.mark.parametrize(
    ("right", "answer"),
    [
        ("22/7 - pi", "(22 - 7*pi)/7"),
        ("sqrt(2)/2", "1/sqrt(2)"),
        ("2", "2.0"),
        ("1000", "sqrt(1000000)"),
        ("log(8)", "3*ln(2)"),
        ("sin(x)**2", "1 - cos(x)^2"),
        ("-1234567.5", "-1,234,567.5"),
    ],
)
def test_equal_expressions_are_the_same(right: str, answer: str) -> None:
    assert same(right, answer)


@pytest.mark.parametrize(
    "answer",
    [
        *("0.0012644", "n", "x = 3", "", "22/7 -", "1/0", "zoo", "1.0 if 1 else 2", "True", "[22/7 - pi][0]"),
        *(
            "__import__('os').system('true')",
            "pi.__class__",
            "9**9**9**9",
            "(lambda: 22/7 - pi)()",
            "(" * 400,
        ),
    ],
)
def test_other_answers_are_not_and_none_is_run(answer: str) -> None:
    assert not same("22/7 - pi", answer)


@pytest.mark.parametrize(
    ("content", "answer"),
    [
        ("Answer: 42", "42"),
        ("**Answer:** `x + 1`.", "x + 1"),
        ("answer: 1\nAnswer: 2\n", "2"),
        ("The answer is 42", ""),
        (None, ""),
    ],
)
def test_the_answer_is_what_the_last_line_of_that_name_has(content: str | None, answer: str) -> None:
    errors: list[ToolError] = []
    result = AgentResult(
        messages=[{"role": "assistant", "content": content}],
        turns_used=1,
        finished_naturally=True,
        reasoning_per_turn=[],
        tool_errors=errors,
    )
    assert final_answer(result) == answer


def test_answers_are_compared_without_case_and_accents() -> None:
    assert normalised("  Óssel. ") == normalised("OSSEL")
