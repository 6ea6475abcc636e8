"""One rank of a Python peer, started by torchrun; rank 0 writes the figures to --result as JSON.

Peers: compute (no communication: what the machine allows), ddp (gloo), deepspeed0 (ZeRO-0, gloo).
Compiling and scripting of the peers is left off: they run as their documentation shows. One thread
a rank.
"""

import argparse
import json
import os
import pathlib
import resource
import sys
import time

import torch
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "fixtures"))
import data_order
import gpt


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", choices=["compute", "ddp", "deepspeed0"], required=True)
    for name in ["archive", "tokens", "result"]:
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--size", default="small")
    for name in ["batch", "context", "steps"]:
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--lr", type=float, default=1e-3)
    return parser.parse_args()


def torch_step(model, wrapped, lr):
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01, fused=True)

    def step(inputs):
        loss = wrapped(*inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def deepspeed_step(model, batch, lr):
    import deepspeed

    config = {
        "train_micro_batch_size_per_gpu": batch,
        "zero_optimization": {"stage": 0},
        "optimizer": {"type": "AdamW", "params": {"lr": lr, "weight_decay": 0.01}},
    }
    deepspeed.init_distributed("gloo")
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config
    )

    def step(inputs):
        loss = engine(*inputs)
        engine.backward(loss)
        engine.step()
        return loss.item()

    return step


def stepper(options, model):
    if options.peer == "deepspeed0":
        return deepspeed_step(model, options.batch, options.lr)
    if options.peer == "compute":
        return torch_step(model, model, options.lr)
    dist.init_process_group("gloo")
    return torch_step(model, torch.nn.parallel.DistributedDataParallel(model), options.lr)


def pss_bytes():
    for line in open("/proc/self/smaps_rollup"):
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("/proc/self/smaps_rollup has no Pss line")


def main():
    options = arguments()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    source = data_order.TokenFile(options.tokens, options.context)
    model = gpt.from_archive(options.archive, options.size)
    step = stepper(options, model)
    step_ms, losses, first_step_done, faults = [], [], None, 0
    for number in range(options.steps):
        start = time.perf_counter()
        picked = data_order.sample_numbers(
            number,
            0,
            rank,
            accumulation=1,
            world_size=world_size,
            batch=options.batch,
            sample_count=len(source),
        )
        losses.append(step(source.rows(picked)))
        step_ms.append((time.perf_counter() - start) * 1e3)
        if number == 0:
            first_step_done, faults = (
                time.time(),
                resource.getrusage(resource.RUSAGE_SELF).ru_minflt,
            )
    usage = resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "rank": rank,
        "step_ms": step_ms,
        "losses": losses,
        "first_step_done": first_step_done,
        "peak_rss_bytes": usage.ru_maxrss * 1024,
        "pss_bytes": pss_bytes(),
        "page_faults": (usage.ru_minflt - faults) / max(1, options.steps - 1),
    }
    pathlib.Path(f"{options.result}.{rank}").write_text(json.dumps(figures))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
