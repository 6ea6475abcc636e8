"""One rank of a peer that tests/bench/collectives.py measures: torch.distributed over Gloo, or
DeepSpeed's operator over shared memory. Prints lines `OPERATION BYTES SECONDS`, as
collectives_bench.cpp does: seconds of one call among CALLS in a row, of the slowest rank.

  collectives_peer.py gloo|shm CALLS OPERATION:BYTES...     sum, gather, exchange; shm: sum alone
"""

import os
import sys
import time

import torch
import torch.distributed as dist

WARM_UP_CALLS = 5


def calls_of(peer, operation, numel):
    """What is called again and again, with one tensor of NUMEL fp32 a rank."""
    world = dist.get_world_size()
    mine = torch.full((numel,), 1.0 + dist.get_rank())
    if peer == "shm":
        return lambda: torch.ops.deepspeed.inference_all_reduce_(mine)
    if operation == "sum":
        return lambda: dist.all_reduce(mine)
    if operation == "gather":
        all_of_them = torch.zeros(world * numel)
        return lambda: dist.all_gather_into_tensor(all_of_them, mine)
    if operation == "exchange":
        theirs = torch.zeros(numel)
        return lambda: dist.all_to_all_single(theirs, mine)
    raise SystemExit(f"no operation {operation}")


def main():
    peer, calls, jobs = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if peer == "shm":
        from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

        os.environ["LOCAL_SIZE"] = os.environ["LOCAL_WORLD_SIZE"]  # by it it knows its host
        operators = ShareMemCommBuilder().load()
        operators.initialize(dist.get_world_size(), dist.get_rank())
    for job in jobs:
        operation, size = job.split(":")
        call = calls_of(peer, operation, int(size) // 4)
        for _ in range(WARM_UP_CALLS):
            call()
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        took = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        if dist.get_rank() == 0:
            print(operation, size, f"{took.item() / calls:.9f}", flush=True)
    dist.barrier()
    os._exit(0)  # the operator's shared memory has no orderly end


if __name__ == "__main__":
    main()
