"""One rank of a Python peer, started by torchrun; writes its figures to --result.RANK as JSON.

Peers: compute (no communication: what the machine allows), ddp, fsdp2, and deepspeed0 to deepspeed3
(the ZeRO stages); all over gloo. With --dtype bf16, compute runs under autocast with fp32
weights, and DeepSpeed by its own `bf16` section. Compiling and scripting of the peers is left
off: they run as their documentation shows. One thread a rank.
"""

import argparse
import contextlib
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

DEEPSPEED_STAGES = {f"deepspeed{stage}": stage for stage in range(4)}
WITH_BF16 = ["compute", *DEEPSPEED_STAGES]


def arguments():
    parser = argparse.ArgumentParser()
    peers = ["compute", "ddp", "fsdp2", *DEEPSPEED_STAGES]
    parser.add_argument("--peer", choices=peers, required=True)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    for name in ["archive", "tokens", "result"]:
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--size", default="small")
    for name in ["batch", "context", "steps"]:
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--quantized", action="store_true")
    options = parser.parse_args()
    if options.dtype == "bf16" and options.peer not in WITH_BF16:
        parser.error(f"--dtype bf16 is there for {', '.join(WITH_BF16)}, not for {options.peer}")
    return options


def torch_step(model, wrapped, lr=1e-3, dtype="fp32"):
    """One step of WRAPPED, which is MODEL or around it, and the optimizer."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01, fused=True)

    def precision():
        if dtype == "bf16":
            return torch.autocast("cpu", torch.bfloat16)
        return contextlib.nullcontext()

    def step(inputs):
        with precision():
            loss = wrapped(*inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step, optimizer


def fully_sharded(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def deepspeed_step(model, options):
    import deepspeed

    config = {
        "train_micro_batch_size_per_gpu": options.batch,
        "zero_optimization": {"stage": DEEPSPEED_STAGES[options.peer]},
        "optimizer": {"type": "AdamW", "params": {"lr": options.lr, "weight_decay": 0.01}},
        "bf16": {"enabled": options.dtype == "bf16"},
    }
    if options.quantized:
        config["zero_optimization"] |= {
            "zero_quantized_weights": True,
            "zero_quantized_gradients": True,
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
    if options.peer in DEEPSPEED_STAGES:
        return deepspeed_step(model, options)
    wrapped = model
    if options.peer != "compute":
        dist.init_process_group("gloo")
        if options.peer == "fsdp2":
            wrapped = fully_sharded(model)
        else:
            wrapped = torch.nn.parallel.DistributedDataParallel(model)
    step, _ = torch_step(model, wrapped, options.lr, options.dtype)
    return step


def page_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def main():
    options = arguments()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    source = data_order.TokenFile(options.tokens, options.context)
    model = gpt.from_archive(options.archive, options.size)
    step = stepper(options, model)
    step_ms, losses, faults, first_step_done = [], [], [], None
    for number in range(options.steps):
        start, faults_before = time.perf_counter(), page_faults()
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
        faults.append(page_faults() - faults_before)
        first_step_done = first_step_done or time.time()
    figures = {
        "rank": rank,
        "step_ms": step_ms,
        "losses": losses,
        "first_step_done": first_step_done,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "page_faults": faults,
    }
    pathlib.Path(f"{options.result}.{rank}").write_text(json.dumps(figures))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
