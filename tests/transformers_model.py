"""What transformers makes of a model: `python tests/transformers_model.py …`, by an interpreter that has torch.

`randomize FOLDER POSITIONS` gives the model of a folder random weights, and so many positions.
`logprobs FOLDER` reads sequences of token ids from standard input, as JSON, and writes for each the logprobs of
its tokens but the first one, each after those before it, in single precision.
"""

import json
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

SEED = 20_000
SPREAD = 0.2
"""Standard deviation of the weights: distributions are neither flat nor certain."""


def randomize(folder: str, positions: int) -> None:
    config = AutoConfig.from_pretrained(folder)
    config.max_position_embeddings, config.initializer_range, config.dtype = positions, SPREAD, torch.float32
    torch.manual_seed(SEED)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def logprobs(folder: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    with torch.no_grad():
        for ids in json.load(sys.stdin):
            logits = model(torch.tensor([ids])).logits[0, :-1]
            chosen = torch.tensor(ids[1:])[:, None]
            found.append(torch.log_softmax(logits, dim=-1).gather(1, chosen)[:, 0].tolist())
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["randomize", folder, positions]:
            randomize(folder, int(positions))
        case ["logprobs", folder]:
            logprobs(folder)
