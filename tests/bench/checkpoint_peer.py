"""One rank of a Python peer that saves checkpoints, started by torchrun; prints figures as JSON.

Peers: torch_save (DDP; rank 0 writes everything, as the tutorials do, and syncs the file), dcp and
dcp_async (FSDP2, torch.distributed.checkpoint), deepspeed1 and deepspeed3 (save_checkpoint, then a
sync of what it wrote: it does none itself).
"""

import argparse
import glob
import json
import os
import pathlib
import shutil
import sys
import time

import torch
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import peer as peers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "fixtures"))
import data_order
import gpt


def sync(folder):
    for path in glob.glob(f"{folder}/**", recursive=True):
        if os.path.isfile(path):
            with open(path, "rb") as file:
                os.fsync(file.fileno())
    os.sync()


def all_done(future):
    done = torch.tensor(float(future.done()))
    dist.all_reduce(done, dist.ReduceOp.MIN)
    return bool(done)


def bytes_in(folder):
    paths = glob.glob(f"{folder}/**", recursive=True)
    return sum(os.path.getsize(path) for path in paths if os.path.isfile(path))


def build(options, model):
    """(step, save(folder), load(folder)); save returns a future or None."""
    rank = dist.get_rank()
    if options.peer.startswith("deepspeed"):
        import deepspeed

        config = {
            "train_micro_batch_size_per_gpu": options.batch,
            "zero_optimization": {"stage": int(options.peer[-1])},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}},
        }
        engine, *_ = deepspeed.initialize(
            model=model, model_parameters=model.parameters(), config=config
        )

        def step(inputs):
            loss = engine(*inputs)
            engine.backward(loss)
            engine.step()
            return loss.item()

        def save(folder):
            engine.save_checkpoint(folder, tag="t")
            dist.barrier()
            if rank == 0:
                sync(folder)
            dist.barrier()

        return step, save, lambda folder: engine.load_checkpoint(folder, tag="t")

    wrapped = (
        torch.nn.parallel.DistributedDataParallel(model)
        if options.peer == "torch_save"
        else peers.fully_sharded(model)
    )
    step, optimizer = peers.torch_step(model, wrapped)

    if options.peer == "torch_save":

        def save(folder):
            if rank == 0:
                os.makedirs(folder, exist_ok=True)
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                with open(f"{folder}/state.pt", "wb") as file:
                    torch.save(state, file)
                    file.flush()
                    os.fsync(file.fileno())
            dist.barrier()

        def load(folder):
            state = torch.load(f"{folder}/state.pt")
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])

        return step, save, load

    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    group = dist.new_group()  # of the thread that saves

    def state():
        weights, moments = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": moments}

    def save(folder):
        if options.peer == "dcp_async":
            return dcp.async_save(state(), checkpoint_id=folder, process_group=group)
        dcp.save(state(), checkpoint_id=folder)
        return None

    def load(folder):
        into = state()
        dcp.load(into, checkpoint_id=folder)
        set_state_dict(
            model,
            optimizer,
            model_state_dict=into["model"],
            optim_state_dict=into["optimizer"],
        )

    return step, save, load


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", required=True)
    parser.add_argument("--size", default="small")
    for name in ["archive", "tokens", "folder"]:
        parser.add_argument(f"--{name}", required=True)
    for name, value in {"batch": 1, "context": 64, "steps": 12, "saves": 3}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    source = data_order.TokenFile(options.tokens, options.context)
    model = gpt.from_archive(options.archive, options.size)
    step, save, load = build(options, model)
    number = 0

    def one_step():
        nonlocal number
        picked = data_order.sample_numbers(
            number,
            0,
            rank,
            accumulation=1,
            world_size=world_size,
            batch=options.batch,
            sample_count=len(source),
        )
        begin = time.perf_counter()
        step(source.rows(picked))
        number += 1
        return (time.perf_counter() - begin) * 1e3

    plain = [one_step() for _ in range(options.steps)][3:]
    figures = {"peer": options.peer, "step_ms": sorted(plain)[len(plain) // 2], "saves": []}
    for save_number in range(options.saves):
        folder = f"{options.folder}/{save_number}"
        begin = time.perf_counter()
        future = save(folder)
        blocked = time.perf_counter() - begin
        during = []
        while future is not None and not all_done(future):
            during.append(one_step())
        if future is not None:
            future.result()
        seconds = time.perf_counter() - begin
        dist.barrier()
        extra = sum(during) - len(during) * figures["step_ms"]
        figures["saves"].append(
            {
                "seconds": seconds,
                "added_ms": blocked * 1e3 + extra,
                "steps": len(during),
                "bytes": bytes_in(folder),
            }
        )
        one_step()
    dist.barrier()
    begin = time.perf_counter()
    load(f"{options.folder}/{options.saves - 1}")
    dist.barrier()
    figures["load_s"] = time.perf_counter() - begin
    if rank == 0:
        print("FIGURES " + json.dumps(figures), flush=True)
        shutil.rmtree(options.folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
