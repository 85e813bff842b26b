"""`python -m examples.trl_tiny.train`: TRL's GRPOTrainer on rollouts of Clotho; started again, it goes on.

It needs TRL, and Clotho in the same environment.
"""

import argparse
import asyncio
import json
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from clotho.models.backend import Inference
from clotho.models.endpoint import Endpoint
from clotho.models.rendering.rendering import Rendering
from clotho.orders.messages import RunOrder
from clotho.rollouts.item import Item
from clotho.trainers.trl import given_reward, rollout_func
from clotho.trainers.weights import ServedWeights
from environments.file_tasks import FileTasks, FileTasksConfig

ENVIRONMENT = "file_tasks"
LOG = "log.jsonl"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.trl_tiny.train", description=__doc__)
    parser.add_argument("--api", required=True, help="URL of `clotho serve-rollouts`")
    parser.add_argument("--server", required=True, help="the embedded server's URL, without a path")
    parser.add_argument("--model", required=True, help="the model's name there")
    parser.add_argument("--start", type=Path, required=True, help="the folder of the first weights")
    parser.add_argument("--weights", type=Path, required=True, help="the folder that the server reads")
    parser.add_argument("--output", type=Path, required=True, help="the folder for checkpoints and the log")
    parser.add_argument("--run", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--groups", type=int, default=4, help="of each step")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    publish = ServedWeights(asked.weights, asked.server)
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(asked.start, dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(asked.start),
        reward_funcs=given_reward,
        args=GRPOConfig(
            output_dir=str(asked.output),
            use_cpu=True,
            bf16=False,
            per_device_train_batch_size=asked.groups * asked.group_size,
            gradient_accumulation_steps=1,
            num_generations=asked.group_size,
            max_steps=asked.steps,
            learning_rate=asked.rate,
            lr_scheduler_type="constant",
            temperature=1.0,
            beta=0.0,
            save_steps=1,
            save_total_limit=2,
            logging_steps=1,
            report_to="none",
            disable_tqdm=True,
            seed=asked.seed,
            gradient_checkpointing=False,
        ),
        train_dataset=dataset(asked.steps * asked.groups, asked.seed),
        rollout_func=rollout_func(
            asked.api,
            asked.run,
            RunOrder(
                environment=ENVIRONMENT,
                model=asked.model,
                endpoint=Endpoint(base_url=f"{asked.server}/v1", inference=Inference.TOKENS),
                rendering=Rendering(tool_call_parser="hermes"),
                temperature=1.0,
                group_size=asked.group_size,
            ),
            publish=publish,
        ),
    )
    trainer.train(resume_from_checkpoint=last_checkpoint(asked.output))
    publish(trainer)
    log = [json.dumps(entry) for entry in trainer.state.log_history]
    (asked.output / LOG).write_text("\n".join(log) + "\n")


def dataset(size: int, seed: int) -> Dataset:
    """Items of the environment, each as a prompt of JSON."""

    async def draw() -> list[Item]:
        environment = FileTasks(FileTasksConfig(seed=seed))
        await environment.setup()
        return [await environment.get_next_item() for _ in range(size)]

    return Dataset.from_dict({"prompt": [json.dumps(item) for item in asyncio.run(draw())]})


def last_checkpoint(output: Path) -> str | None:
    """The last that was written whole: its trainer_state.json comes last."""
    whole = [path.parent for path in output.glob("checkpoint-*/trainer_state.json") if path.stat().st_size]
    return str(max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default="")) or None


if __name__ == "__main__":
    main()
