"""Trains a scripted model by transformers' Adafactor on the rows that a job of dslaunch takes
without shuffling, and compares the losses with those of the job's metrics.jsonl.

    python tests/parity/adafactor_transformers.py train.pt TOKENS run/metrics.jsonl \\
        '{"lr": 0.003, "relative_step": false, "scale_parameter": false}'

TOKENS are uint16. The job: 2 ranks of 4 rows of 64 tokens, gradients clipped at 1.
"""
import json
import sys

import numpy as np
import torch
from transformers.optimization import Adafactor

RANKS, ROWS, CONTEXT, CLIP = 2, 4, 64, 1.0


def rows_of(tokens, step, rank):
    first = (step * RANKS + rank) * ROWS
    samples = (len(tokens) - 1) // CONTEXT
    begins = [(first + row) % samples * CONTEXT for row in range(ROWS)]
    take = lambda shift: torch.from_numpy(np.stack(
        [tokens[b + shift:b + shift + CONTEXT] for b in begins]).astype(np.int64))
    return take(0), take(1)


def main(model_path, token_path, metrics_path, params):
    torch.set_num_threads(1)
    model = torch.jit.load(model_path).train()
    tokens = np.memmap(token_path, dtype=np.uint16, mode="r")
    lines = [json.loads(line) for line in open(metrics_path)]
    theirs = {line["step"]: line["loss"] for line in lines if "loss" in line}
    optimizer = Adafactor(model.parameters(), **params)
    worst = {}
    for step in range(max(theirs)):
        optimizer.zero_grad()
        loss = 0.0
        for rank in range(RANKS):
            own = model(*rows_of(tokens, step, rank)) / RANKS
            own.backward()
            loss += own.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        worst[step + 1] = abs(loss - theirs[step + 1])
    print(f"{len(worst)} steps: losses differ by {max(worst.values()):.2e} at most, "
          f"{max(d for s, d in worst.items() if s <= 50):.2e} in the first 50; "
          f"last loss {theirs[max(theirs)]:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:4], json.loads(sys.argv[4]))
