"""Measure the CPU optimizer beside PyTorch's and DeepSpeed's on the same tensors, turn by turn in
one process (A B C D A B C D ...), and print one table. Called by kernels.sh.

  kernels.py --library build/release/bin/libbench_kernels.so [--numel N] [--turns N]
             [--write docs/measurements.md]

Two jobs: plain AdamW in fp32; and a step of mixed precision: gradients unscaled and clipped (one
factor), AdamW, parameters also written in bf16. DeepSpeed's is mul_, DeepSpeedCPUAdam and copy_, as
its ZeRO stages 1 and 2 do with offload. `memory` moves the bytes of the plain job in place and
computes next to nothing. Figures are medians over turns, of wall time and, for one thread, of
processor time, which other work on the machine disturbs less. The factor alternates between 2 and
1/2, so that the gradients stay what they are.
"""

import argparse
import ctypes
import itertools
import os
import pathlib
import statistics
import sys
import time

import page
import torch

THREADS = (1, 2)
PATHS = ("avx512_bf16", "avx512", "avx2", "neon", "scalar")


class Arrays(ctypes.Structure):
    """BenchArrays of kernels_bench.cpp."""

    _fields_ = [("numel", ctypes.c_int64)] + [
        (name, ctypes.c_void_p)
        for name in (
            "parameters",
            "momentum",
            "variance",
            "gradients",
            "half_gradients",
            "half_parameters",
        )
    ]


class Tensors:
    """One set for everyone: parameters, gradients, both moments, both in 16 bits."""

    def __init__(self, numel):
        generator = torch.Generator().manual_seed(1)
        self.parameters = torch.nn.Parameter(torch.randn(numel, generator=generator))
        self.gradients = torch.randn(numel, generator=generator) * 1e-2
        self.momentum = torch.randn(numel, generator=generator) * 1e-3
        self.variance = torch.rand(numel, generator=generator) * 1e-4 + 1e-6
        self.half_gradients = self.gradients.to(torch.bfloat16)
        self.half_parameters = self.parameters.detach().to(torch.bfloat16)
        self.parameters.grad = self.gradients

    def arrays(self, half_gradients, half_parameters):
        return Arrays(
            self.parameters.numel(),
            self.parameters.data_ptr(),
            self.momentum.data_ptr(),
            self.variance.data_ptr(),
            self.gradients.data_ptr(),
            self.half_gradients.data_ptr() if half_gradients else None,
            self.half_parameters.data_ptr() if half_parameters else None,
        )


def torch_fused(tensors):
    optimizer = torch.optim.AdamW([tensors.parameters], lr=1e-4, weight_decay=1e-2, fused=True)
    optimizer.state[tensors.parameters] = {
        "step": torch.tensor(3.0),
        "exp_avg": tensors.momentum,
        "exp_avg_sq": tensors.variance,
    }
    return optimizer


def deepspeed_adam(tensors):
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    optimizer = DeepSpeedCPUAdam([tensors.parameters], lr=1e-4, weight_decay=1e-2, adamw_mode=True)
    optimizer.state[tensors.parameters] = {
        "step": 3,
        "exp_avg": tensors.momentum,
        "exp_avg_sq": tensors.variance,
    }
    return optimizer


class Bench:
    """What can be measured: names to functions of a thread count and a factor."""

    def __init__(self, library, numel):
        self.library = ctypes.CDLL(str(library))
        self.tensors = Tensors(numel)
        self.adam, self.deepspeed = torch_fused(self.tensors), deepspeed_adam(self.tensors)

    def ours(self, path, half_gradients, half_parameters):
        arrays = self.tensors.arrays(half_gradients, half_parameters)

        def call(threads, factor):
            scale = ctypes.c_float(factor)
            return self.library.bench_adamw(path.encode(), threads, ctypes.byref(arrays), scale)

        return None if call(1, 1.0) else call

    def memory(self):
        arrays = self.tensors.arrays(False, False)
        return lambda threads, _: self.library.bench_touch(threads, ctypes.byref(arrays))

    def deepspeed_mixed(self, _, factor):
        self.tensors.gradients.mul_(factor)
        self.deepspeed.step()
        self.tensors.half_parameters.copy_(self.tensors.parameters.detach())

    def jobs(self):
        """Titles, bytes an element that must be moved, and contestants, of each job."""
        plain = {f"dslaunch {path}": self.ours(path, False, False) for path in PATHS}
        plain["torch, fused AdamW"] = lambda *_: self.adam.step()
        plain["DeepSpeedCPUAdam"] = lambda *_: self.deepspeed.step()
        plain["memory"] = self.memory()
        mixed = {f"dslaunch {path}": self.ours(path, False, True) for path in PATHS}
        mixed |= {
            f"dslaunch {path}, bf16 gradients": self.ours(path, True, True) for path in PATHS[:3]
        }
        mixed["DeepSpeed, three passes"] = self.deepspeed_mixed
        return {"AdamW, fp32": plain, "unscale, clip, AdamW, bf16 out": mixed}


def measure(bench, turns):
    """Seconds of wall and of processor time of each turn, by (job, contestant, threads)."""
    jobs = {job: {n: c for n, c in rows.items() if c} for job, rows in bench.jobs().items()}
    taken = {}
    for turn, threads in itertools.product(range(-1, turns), THREADS):
        torch.set_num_threads(threads)
        for job, rows in jobs.items():
            for name, call in rows.items():
                start, start_processor = time.perf_counter(), time.process_time()
                call(threads, 2.0 if turn % 2 else 0.5)
                seconds = time.perf_counter() - start, time.process_time() - start_processor
                if turn >= 0:  # the turn before faults memory in and starts threads
                    taken.setdefault((job, name, threads), []).append(seconds)
    return taken


# What each job's rows are set beside.
PEERS = {
    "AdamW, fp32": "torch, fused AdamW",
    "unscale, clip, AdamW, bf16 out": "DeepSpeed, three passes",
}


def table(taken, options, load_before):
    from deepspeed import __version__ as deepspeed_version

    lines = [
        page.heading(
            f"torch {torch.__version__.split('+')[0]}, deepspeed {deepspeed_version}",
            f"{options.numel / 2**20:g} Mi parameters, {options.turns} interleaved turns, medians",
            "ratios are to torch's fused AdamW and to DeepSpeed's three passes",
            load_before=load_before,
        ),
        "",
        "| | T=1 processor ms | ratio | T=1 wall ms | ratio | T=2 wall ms | ratio |",
        "|---|---|---|---|---|---|---|",
    ]

    def median(job, name, column):
        threads, clock = column
        return statistics.median(turn[clock] for turn in taken[job, name, threads])

    for job, name in dict.fromkeys(key[:2] for key in taken):
        cells = []
        for column in ((1, 1), (1, 0), (2, 0)):
            own, peer = median(job, name, column), median(job, PEERS[job], column)
            cells.append(f"{own * 1e3:.1f} | {own / peer:.2f}")
        lines.append(f"| {job}: {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--numel", type=int, default=64 << 20)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--write", type=pathlib.Path)
    options = parser.parse_args()
    if options.turns < 1:
        parser.error(f"--turns {options.turns}: at least 1")
    bench = Bench(options.library.resolve(), options.numel)
    load_before = os.getloadavg()[0]
    text = table(measure(bench, options.turns), options, load_before)
    print(text, flush=True)
    if options.write:
        page.write_section(options.write, "kernels", text)


if __name__ == "__main__":
    sys.exit(main())
