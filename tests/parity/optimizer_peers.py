"""Trains a scripted model by a published optimizer of others on the rows that a job of dslaunch
takes without shuffling, and compares the losses with those of the job's metrics.jsonl.

    python tests/parity/optimizer_peers.py Adafactor train.pt TOKENS run/metrics.jsonl \\
        '{"lr": 0.003, "relative_step": false, "scale_parameter": false}'

Adafactor is that of transformers, Lion that of lion-pytorch, Lamb that of timm. TOKENS are uint16.
The job: 2 ranks of 4 rows of 64 tokens, gradients clipped at 1.
"""
import importlib.util
import json
import sys
import types

import numpy as np
import torch

RANKS, ROWS, CONTEXT, CLIP = 2, 4, 64, 1.0


def published(name):
    if name == "Adafactor":
        from transformers.optimization import Adafactor

        return Adafactor
    if name == "Lion":
        from lion_pytorch import Lion

        return Lion
    # Without the packages around it, which want torchvision.
    folder = importlib.util.find_spec("timm").submodule_search_locations[0]
    for package, path in [("timm", folder), ("timm.optim", folder + "/optim")]:
        sys.modules[package] = types.ModuleType(package)
        sys.modules[package].__path__ = [path]
    return importlib.import_module("timm.optim.lamb").Lamb


def rows_of(tokens, step, rank):
    first = (step * RANKS + rank) * ROWS
    samples = (len(tokens) - 1) // CONTEXT
    begins = [(first + row) % samples * CONTEXT for row in range(ROWS)]
    take = lambda shift: torch.from_numpy(np.stack(
        [tokens[b + shift:b + shift + CONTEXT] for b in begins]).astype(np.int64))
    return take(0), take(1)


def main(name, model_path, token_path, metrics_path, params):
    torch.set_num_threads(1)
    model = torch.jit.load(model_path).train()
    tokens = np.memmap(token_path, dtype=np.uint16, mode="r")
    lines = [json.loads(line) for line in open(metrics_path)]
    theirs = {line["step"]: line["loss"] for line in lines if "loss" in line}
    optimizer = published(name)(model.parameters(), **params)
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
    main(*sys.argv[1:5], json.loads(sys.argv[5]))
