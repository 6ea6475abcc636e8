"""Train an archive with stock PyTorch DDP for 50 steps and write its losses, for compare.py to hold
against a metrics.jsonl.

  torchrun --standalone --nproc_per_node 2 ddp_50_steps.py \\
      --archive train.pt --tokens FILE --context N --out losses.json
  torchrun --standalone --nproc_per_node 2 ddp_50_steps.py --fixture gpt --out losses.json

Data come in the order of a run without shuffling; one thread a rank; AdamW as in the fixtures. With
--fixture, archive, data and batch are those of tests/fixtures/models/NAME.json.
"""

import argparse
import contextlib
import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
sys.path.insert(0, str(FIXTURES))
import data_order
import reference_run


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fixture")
    parser.add_argument("--archive")
    parser.add_argument("--tokens")
    parser.add_argument("--dtype", default="uint16", choices=["uint16", "uint32"])
    parser.add_argument("--context", type=int)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--weight-decay", type=float, default=0.01)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    if not options.fixture and not (options.archive and options.tokens and options.context):
        parser.error("give --fixture, or --archive, --tokens and --context")
    return options


def task(options):
    """Archive, data, loss and batch."""
    if not options.fixture:
        return (
            options.archive,
            data_order.TokenFile(options.tokens, options.context, options.dtype),
            None,
            options.batch,
        )
    described = json.loads((FIXTURES / "models" / f"{options.fixture}.json").read_text())
    data = described["data"]
    path = FIXTURES / data["file"]
    source = (
        data_order.TokenFile(path, data["context"])
        if "context" in data
        else data_order.Rows(path, data["columns"])
    )
    return (
        FIXTURES / "models" / f"{options.fixture}.pt",
        source,
        described["loss"],
        described["batch"],
    )


def train(options, source, loss, batch, model):
    rank, world_size = dist.get_rank(), dist.get_world_size()
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=options.lr,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=options.weight_decay,
        foreach=False,
    )
    losses = []
    for step in range(options.steps):
        total = torch.zeros([], dtype=torch.float64)
        for micro in range(options.accumulation):
            picked = data_order.sample_numbers(
                step,
                micro,
                rank,
                accumulation=options.accumulation,
                world_size=world_size,
                batch=batch,
                sample_count=len(source),
            )
            last = micro + 1 == options.accumulation
            with contextlib.nullcontext() if last else model.no_sync():
                value = reference_run.loss_of(model, source.rows(picked), loss)
                (value / options.accumulation).backward()
            total += value.item()
        dist.all_reduce(total)
        losses.append(total.item() / (world_size * options.accumulation))
        optimizer.step()
        optimizer.zero_grad()
    return losses


def main():
    options = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    archive, source, loss, batch = task(options)
    module, _ = reference_run.load(archive)
    unused = any(
        parameter.requires_grad and name.startswith("unused")
        for name, parameter in module.named_parameters()
    )
    model = torch.nn.parallel.DistributedDataParallel(module.train(), find_unused_parameters=unused)
    losses = train(options, source, loss, batch, model)
    if dist.get_rank() == 0:
        world_size = dist.get_world_size()
        pathlib.Path(options.out).write_text(
            json.dumps(
                {
                    "torch": torch.__version__,
                    "world_size": world_size,
                    "batch": batch,
                    "accumulation": options.accumulation,
                    "archive": os.path.basename(archive),
                    "optimizer": {
                        "type": "AdamW",
                        "lr": options.lr,
                        "betas": [0.9, 0.999],
                        "eps": 1e-8,
                        "weight_decay": options.weight_decay,
                    },
                    "losses": losses,
                },
                indent=1,
            )
            + "\n"
        )
        print(f"{archive}: {losses[0]:.5f} -> {losses[-1]:.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
