#!/usr/bin/env python3
"""PyTorch's step of the archive that dslaunch trains, on one GPU in bf16: gpu_peer.py MODEL.pt TOKENS

Weights in fp32 under autocast to bf16, fused AdamW, 8 x 1024 tokens, no recompute unless memory
asks for it. The last line is the result."""

import statistics
import sys
import time

import torch

ROWS, CONTEXT, STEPS = 8, 1024, 15


def main():
    model = torch.jit.load(sys.argv[1], map_location="cuda")
    numel = sum(parameter.numel() for parameter in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    raw = torch.frombuffer(bytearray(open(sys.argv[2], "rb").read()), dtype=torch.uint16)
    tokens = raw.to(torch.int64).cuda()
    times = []
    for step in range(STEPS):
        starts = [(step * ROWS + row) * CONTEXT % (len(tokens) - CONTEXT - 1) for row in range(ROWS)]
        inputs = torch.stack([tokens[s : s + CONTEXT] for s in starts])
        targets = torch.stack([tokens[s + 1 : s + CONTEXT + 1] for s in starts])
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16), torch.jit.optimized_execution(False):
            loss = model(inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    seconds = statistics.median(times[-10:])
    print(
        f"PyTorch {torch.__version__}, the same archive, fused AdamW, {numel / 1e9:.2f} B "
        f"parameters: {seconds * 1e3:.1f} ms a step, {ROWS * CONTEXT / seconds:.0f} tokens/s, "
        f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB"
    )


main()
