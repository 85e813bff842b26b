"""`python -m examples.trl_tiny.train`: TRL's GRPOTrainer on rollouts of Clotho; started again, it goes on.

It needs TRL, and Clotho in the same environment.
"""

import argparse
import json
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from clotho.plugins.trainers.trl import given_reward, rollout_func
from clotho.plugins.trainers.weights import ServedWeights
from examples.trl_tiny.task import TEMPERATURE, draw_items, run_order


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.trl_tiny.train", description=__doc__)
    parser.add_argument("--api", required=True, help="URL of `clotho serve-rollouts`")
    parser.add_argument("--server", required=True, help="the embedded server's URL, without a path")
    parser.add_argument("--model", required=True, help="the model's name there")
    parser.add_argument("--start", type=Path, required=True, help="the folder of the first weights")
    parser.add_argument("--weights", type=Path, required=True, help="the folder that the server reads")
    parser.add_argument("--output", type=Path, required=True, help="the folder for checkpoints")
    parser.add_argument("--log", type=Path, required=True, help="the file for the log, as JSON lines")
    parser.add_argument("--run", required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--group-size", type=int, required=True)
    parser.add_argument("--groups", type=int, required=True, help="of each step")
    parser.add_argument("--seed", type=int, required=True)
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
            temperature=TEMPERATURE,
            # Started again after the first epoch, TRL would shuffle otherwise than before.
            shuffle_dataset=False,
            beta=0.0,
            save_steps=1,
            save_total_limit=2,
            logging_steps=1,
            report_to="none",
            disable_tqdm=True,
            seed=asked.seed,
            gradient_checkpointing=False,
        ),
        train_dataset=dataset(asked.groups, asked.seed),
        rollout_func=rollout_func(
            asked.api,
            asked.run,
            run_order(asked.server, asked.model, asked.group_size, asked.seed),
            publish=publish,
        ),
    )
    trainer.train(resume_from_checkpoint=last_checkpoint(asked.output))
    publish(trainer)
    asked.log.write_text("\n".join(map(json.dumps, trainer.state.log_history)) + "\n")


def dataset(size: int, seed: int) -> Dataset:
    """Items of the environment, each as a prompt of JSON."""
    return Dataset.from_dict({"prompt": [json.dumps(item) for item in draw_items(size, seed)]})


def last_checkpoint(output: Path) -> str | None:
    """The last that was written whole: its trainer_state.json comes last."""
    whole = [path.parent for path in output.glob("checkpoint-*/trainer_state.json") if _is_json(path)]
    return str(max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default="")) or None


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


if __name__ == "__main__":
    main()
