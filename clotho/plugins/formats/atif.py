"""Rollouts as trajectories in the Agent Trajectory Interchange Format (ATIF), which Harbor reads."""

import json
from collections.abc import Sequence
from importlib import metadata

from pydantic import JsonValue

from clotho.evaluation.recorded import at, facts_of, parsed_arguments, usage_of
from clotho.models.backend import SampledTurn
from clotho.models.messages import ChatMessage, ToolCall
from clotho.rollouts.agent import AgentKind
from clotho.rollouts.group import ToolManifest
from clotho.rollouts.rollout import RolloutSummary
from clotho.rollouts.run import RunManifest
from clotho.rollouts.transcript import Step, Transcript
from clotho.runs.children import Descendant
from clotho.runs.export import RecordedRollout

SCHEMA = "ATIF-v1.7"
AGENT = "clotho"
SOURCES = {"system": "system", "developer": "system", "user": "user"}

Fields = dict[str, JsonValue]


def trajectory(read: RecordedRollout, tools: ToolManifest, manifest: RunManifest) -> Fields:
    """The trajectory of a scored rollout, with those of its children."""
    fields = _trajectory(read.summary, read.transcript, read.children, manifest)
    agent = fields["agent"]
    assert isinstance(agent, dict)
    offered = read.transcript.offered or [tool.tool_schema for tool in tools.tools]
    agent["tool_definitions"] = [dict(schema) for schema in offered]
    return fields | {"extra": {"reward": read.summary.score, **facts_of(read)}}


def _trajectory(
    summary: RolloutSummary, transcript: Transcript, descendants: Sequence[Descendant], manifest: RunManifest
) -> Fields:
    acts, program = manifest.agent.kind in (AgentKind.MODEL, AgentKind.PROGRAM), transcript.prompt.program
    steps: list[JsonValue] = []
    if program is None:  # else the task is in what the program sends
        steps += [_said(number, message) for number, message in enumerate(transcript.prompt.messages, 1)]
    for step in transcript.steps:
        if (turn := step.turn.sampled) is not None:
            steps += [_said(len(steps) + number, each) for number, each in enumerate(step.added, 1)]
            steps.append(_step(len(steps) + 1, step, turn, acts))
    usage = usage_of(transcript)
    fields: Fields = {
        "schema_version": SCHEMA,
        "session_id": summary.rollout,
        "trajectory_id": summary.rollout,
        "agent": {
            "name": program or AGENT,
            "version": metadata.version("clotho-rollouts"),
            "model_name": manifest.model,
        },
        "steps": steps,
        "final_metrics": {
            "total_prompt_tokens": usage.prompt_tokens,
            "total_completion_tokens": usage.completion_tokens,
            "total_cached_tokens": usage.cached_prompt_tokens,
            "total_steps": len(steps),
        },
    }
    children = [(end, did) for end, did in descendants if end.parent == summary.rollout]
    if children:
        fields["subagent_trajectories"] = [
            _trajectory(end, did, descendants, manifest) for end, did in children
        ]
    return fields


def _said(number: int, message: ChatMessage) -> Fields:
    """A message to the model; what is no text in it is JSON."""
    return {
        "step_id": number,
        "source": SOURCES.get(message.role, "user"),
        "message": _text(message),
    }


def _step(number: int, step: Step, turn: SampledTurn, acts: bool) -> Fields:
    """A turn and the results of its calls; `acts`: a model sampled it."""
    message = turn.message
    fields: Fields = {
        "step_id": number,
        "timestamp": at(turn.started),
        "source": "agent",
        "message": _text(message),
        "llm_call_count": int(acts),
    }
    if message.tool_calls:
        results = [
            _result(call, entry.content, entry.child)
            for call, entry in zip(message.tool_calls, step.calls, strict=False)
        ]
        fields |= {
            "tool_calls": [_call(call) for call in message.tool_calls],
            "observation": {"results": [*results]},
        }
    if acts:
        fields |= {"model_name": turn.model, "metrics": _metrics(turn)}
        if message.reasoning_content:
            fields["reasoning_content"] = message.reasoning_content
    if step.asked is not None and (step.asked.aside or step.asked.extends is None):
        # steps are in the order of time, of whichever conversation they are
        fields["extra"] = {"aside": step.asked.aside, "begins_conversation": step.asked.extends is None}
    return fields


def _call(call: ToolCall) -> JsonValue:
    arguments, error = parsed_arguments(call.function.arguments)
    fields: Fields = {
        "tool_call_id": call.id,
        "function_name": call.function.name,
        "arguments": arguments,
    }
    return fields if error is None else fields | {"extra": {"parse_error": error}}


def _result(call: ToolCall, content: str, child: str | None) -> JsonValue:
    fields: Fields = {"source_call_id": call.id, "content": content}
    return fields if child is None else fields | {"subagent_trajectory_ref": [{"trajectory_id": child}]}


def _metrics(turn: SampledTurn) -> Fields:
    usage = turn.usage
    fields: Fields = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "cached_tokens": usage.cached_prompt_tokens,
    }
    if turn.tokens is not None:
        fields |= {
            "prompt_token_ids": [*turn.tokens.prompt_ids],
            "completion_token_ids": [*turn.tokens.ids],
            "logprobs": [*turn.tokens.logprobs],
        }
    return fields


def _text(message: ChatMessage) -> str:
    content = message.content
    return content if isinstance(content, str) else json.dumps(content) if content else ""
