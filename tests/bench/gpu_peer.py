#!/usr/bin/env python3
"""PyTorch's step of the network that dslaunch trains, on one GPU in bf16:
gpu_peer.py PEER MODEL.pt HEADS TOKENS [ROWS CONTEXT [OPERATIONS PEAK_TFLOPS]]

PEER: eager (fp32 weights under autocast to bf16) or fsdp2 (fully_shard of each block and of the
whole, bf16 parameters from fp32 shards). Fused AdamW, 8 x 1024 tokens, no recompute. Without a GPU
it runs on the CPU, to see that it does. The last line is the result. OPERATIONS are those of a
step, PEAK_TFLOPS the device's, as dslaunch reckons with them (0: not known): MFU is the same
quotient."""

import os
import statistics
import sys
import time

import gpt
import torch

STEPS = 15
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def fully_sharded(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    for name, value in (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29517")):
        os.environ.setdefault(name, value)
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    mesh = init_device_mesh(DEVICE, (1,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def main():
    peer, archive, heads, file = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    rows, context = (int(word) for word in (sys.argv[5:7] or ("8", "1024")))
    operations, peak = (float(word) for word in (sys.argv[7:9] or ("0", "0")))
    model = gpt.from_archive(archive, heads).to(DEVICE)
    numel = sum(parameter.numel() for parameter in model.parameters())
    if peer == "fsdp2":
        model = fully_sharded(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    raw = torch.frombuffer(bytearray(open(file, "rb").read()), dtype=torch.uint16)
    tokens = raw.to(torch.int64).to(DEVICE)
    times = []
    for step in range(STEPS):
        starts = [(step * rows + row) * context % (len(tokens) - context - 1) for row in range(rows)]
        inputs = torch.stack([tokens[s : s + context] for s in starts])
        targets = torch.stack([tokens[s + 1 : s + context + 1] for s in starts])
        wait()
        begin = time.perf_counter()
        with torch.autocast(DEVICE, torch.bfloat16, enabled=peer == "eager"):
            loss = model(inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait()
        times.append(time.perf_counter() - begin)
    seconds = statistics.median(times[-10:])
    memory = f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if DEVICE == "cuda" else "CPU"
    mfu = f"{operations / seconds / 1e12 / peak:.4f}" if peak > 0 else "none"
    print(
        f"| PyTorch {torch.__version__}, {peer}, fused AdamW, {numel / 1e9:.2f} B parameters "
        f"({memory}), last loss {loss.item():.4f} | {seconds * 1e3:.1f} ms "
        f"| {rows * context / seconds:.0f} | {mfu} |"
    )
    if peer == "fsdp2":
        torch.distributed.destroy_process_group()


main()
