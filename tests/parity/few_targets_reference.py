"""Write what transformers computes of batches with few targets: python few_targets_reference.py

few_targets_reference.json beside this file, for tests/parity/few_targets_test.cpp: SGD on the
llama of tests/fixtures/huggingface with rows of which many targets are ignored. The loss of a step
is the sum of its tokens' losses over the number of its targets, as transformers.Trainer has it with
num_items_in_batch; a step without a target leaves the model as it is.

This script needs the environment that tools/peers.sh makes.
"""

import json
import pathlib

import torch
import transformers

HERE = pathlib.Path(__file__).parent
ROWS, LENGTH, STEP_ROWS, VOCABULARY, LR = 32, 6, 8, 61, 0.5


def token(row, place):
    return (7 * row + 3 * place * place) % VOCABULARY


def is_learned(row, place):
    if row < 2 or 16 <= row < 24:  # a micro batch, and a whole step
        return False
    return row != 4 or place < 2


def batch():
    tokens = [[token(r, p) for p in range(LENGTH)] for r in range(ROWS)]
    targets = [
        [token(r, p + 1) if is_learned(r, p) else -100 for p in range(LENGTH)] for r in range(ROWS)
    ]
    return torch.tensor(tokens), torch.tensor(targets)


def main():
    torch.set_num_threads(1)
    folder = HERE.parent / "fixtures" / "huggingface" / "llama"
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    tokens, targets = batch()

    def loss_of(rows):
        logits = model(tokens[rows]).logits.flatten(0, 1)
        labels = targets[rows].flatten()
        total = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
        return total / max(1, int((labels != -100).sum()))

    losses, norms = [], []
    with torch.no_grad():
        held_out = [loss_of(slice(0, ROWS)).item()]
    for step in range(ROWS // STEP_ROWS):
        optimizer.zero_grad()
        loss = loss_of(slice(step * STEP_ROWS, (step + 1) * STEP_ROWS))
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1e30).item())
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        held_out.append(loss_of(slice(0, ROWS)).item())
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    facts = {"losses": losses, "norms": norms, "held_out": held_out, "versions": versions}
    (HERE / "few_targets_reference.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
