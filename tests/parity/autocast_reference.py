"""Writes autocast_reference.json: losses of fixtures trained by stock PyTorch under torch.autocast
with fp32 parameters, in float16 with torch.amp.GradScaler. autocast_test.cpp reads it. Run in an
environment with torch; the sums of two ranks are DistributedDataParallel's.

Products in float16 differ between processors, and a gradient near float16's largest number skips a
step on one and not on another. A run that ends elsewhere with other kernels has those losses and
scales too, as "others".
"""

import json
import os
import pathlib
import subprocess
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
FIXTURES = HERE.parent / "fixtures"
sys.path.insert(0, str(FIXTURES))

import data_order  # noqa: E402
import make_models  # noqa: E402
import reference_run  # noqa: E402

NAMES = ["gpt", "gpt-tied", "mixture", "llama", "exported-llama", "exported-convnet", "lstm"]
RUNS = [(1, 1), (2, 2)]  # world size, accumulation
STEPS = 30
# oneDNN's and LibTorch's kernels: of processors without arithmetic in float16, of this one, and
# slower ones.
KERNELS = [
    {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    {},
    {"ATEN_CPU_CAPABILITY": "default"},
    {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
]


def train(name, dtype, world_size, accumulation):
    fixture = make_models.FIXTURES[name]
    path = FIXTURES / "models" / f"{name}.pt{'2' if fixture.exported else ''}"
    source = make_models.source_of(fixture.data)
    ranks = [reference_run.load(path)[0].train() for _ in range(world_size)]
    optimizers = [
        torch.optim.AdamW(rank.parameters(), **make_models.OPTIMIZER, foreach=False)
        for rank in ranks
    ]
    scalers = [torch.amp.GradScaler("cpu", enabled=dtype == torch.float16) for _ in ranks]
    losses, scales = [], []
    for step in range(STEPS):
        total = 0.0
        for number, module in enumerate(ranks):
            for micro in range(accumulation):
                picked = data_order.sample_numbers(
                    step, micro, number, accumulation=accumulation, world_size=world_size,
                    batch=fixture.batch, sample_count=len(source),
                )
                with torch.autocast("cpu", dtype=dtype):
                    value = reference_run.loss_of(module, source.rows(picked), fixture.loss)
                scalers[number].scale(value.float() / accumulation).backward()
                total += value.item()
        losses.append(total / (world_size * accumulation))
        scales.append(scalers[0].get_scale())
        reference_run.average_gradients([list(rank.parameters()) for rank in ranks])
        for optimizer, scaler in zip(optimizers, scalers):
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    return {"losses": losses, "scales": scales}


def with_kernels(variables, name, dtype, world_size, accumulation):
    """Returns the same run of a process of its own, since kernels are chosen once a process."""
    words = [sys.executable, __file__, name, dtype, str(world_size), str(accumulation)]
    return json.loads(subprocess.check_output(words, env={**os.environ, **variables}))


def differ(run, other):
    pairs = zip(run["losses"], other["losses"])
    return any(abs(a - b) > 1e-3 * abs(a) for a, b in pairs) or run["scales"] != other["scales"]


def prepare():
    torch.set_num_threads(1)
    # TorchScript would cast by lists of its own in place of autocast's.
    torch._C._jit_set_autocast_mode(False)
    torch._C._set_graph_executor_optimize(False)


def main():
    prepare()
    runs = []
    for name in NAMES:
        for dtype in (torch.bfloat16, torch.float16):
            for world_size, accumulation in RUNS:
                run = {"model": name, "dtype": str(dtype).split(".")[1], "world_size": world_size,
                       "accumulation": accumulation}
                try:
                    train(name, dtype, world_size, accumulation)
                except RuntimeError as error:
                    print(name, dtype, "is left out:", str(error).splitlines()[0])
                    continue
                found = []
                for variables in KERNELS if dtype == torch.float16 else KERNELS[:1]:
                    one = with_kernels(variables, *run.values())
                    if all(differ(other, one) for other in found):
                        found.append(one)
                run.update(found[0])
                if found[1:]:
                    run["others"] = found[1:]
                runs.append(run)
                print(name, run["dtype"], world_size, accumulation, run["losses"][-1], flush=True)
    lines = ",\n".join(json.dumps(run) for run in runs)
    text = f'{{"torch": "{torch.__version__}",\n"runs": [\n{lines}\n]}}\n'
    (HERE / "autocast_reference.json").write_text(text)


if __name__ == "__main__":
    if len(sys.argv) == 5:
        prepare()
        print(json.dumps(train(sys.argv[1], getattr(torch, sys.argv[2]), *map(int, sys.argv[3:]))))
    else:
        main()
