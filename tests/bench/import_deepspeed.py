"""Training begun in DeepSpeed and gone on in dslaunch, beside the same training all in DeepSpeed.

    tests/bench/import_deepspeed.sh [--kinds 0-fp32,1-fp32,2-fp32,3-fp32] [--steps 20] [--more 20]

KIND is STAGE-DTYPE; of bf16-accumulate gradients are accumulated in fp32. For each DeepSpeed trains gpt-tiny on two ranks over gloo, saves, and goes on; then
`dslaunch ckpt import` takes the checkpoint over and `dslaunch --resume` makes the same steps on the
same data. Fails when losses of a step differ by more than --tolerance of the loss.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
WORLD_SIZE, BATCH, CONTEXT = 2, 4, 64


def config_of(kind):
    stage, dtype = kind.split("-", 1)
    config = {
        "train_micro_batch_size_per_gpu": BATCH,
        "zero_optimization": {"stage": int(stage)},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}},
        "bf16": {"enabled": dtype.startswith("bf16")},
        "gradient_clipping": 1.0,  # as DeepSpeed clips when nothing is said
    }
    if dtype.endswith("accumulate"):
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    return config


def peer(options):
    """One rank: the mean over ranks of each step's loss, as a line of the first rank's stdout."""
    sys.path[:0] = [str(HERE), str(HERE.parent / "fixtures")]
    import data_order
    import deepspeed
    import gpt
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    model = gpt.from_archive(f"{options.inputs}/gpt-tiny.pt", "tiny")
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config_of(options.peer)
    )
    source = data_order.TokenFile(f"{options.inputs}/kjv.bytes.u16.bin", CONTEXT)
    losses = []
    for step in range(options.steps + options.more):
        if step == options.steps:
            engine.save_checkpoint(f"{options.folder}/deepspeed")
        picked = data_order.sample_numbers(
            step,
            0,
            dist.get_rank(),
            accumulation=1,
            world_size=WORLD_SIZE,
            batch=BATCH,
            sample_count=len(source),
        )
        loss = engine(*source.rows(picked))
        engine.backward(loss)
        engine.step()
        mean = loss.detach().float()
        dist.all_reduce(mean)
        losses.append(mean.item() / WORLD_SIZE)
    if dist.get_rank() == 0:
        print("LOSSES " + json.dumps(losses[options.steps :]), flush=True)
    dist.destroy_process_group()


def run(command):
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if result.returncode != 0:
        sys.exit(f"{command} failed:\n{result.stdout[-2000:]}\n{result.stderr[-4000:]}")
    return result.stdout


def losses_of_deepspeed(kind, options, folder):
    command = ["torchrun", "--standalone", f"--nproc_per_node={WORLD_SIZE}", __file__]
    command += ["--inputs", options.inputs, "--folder", folder, "--peer", kind]
    command += ["--steps", str(options.steps), "--more", str(options.more)]
    for line in run(command).splitlines():
        if line.startswith("LOSSES "):
            return json.loads(line[7:])
    sys.exit("DeepSpeed told no losses")


def losses_of_dslaunch(kind, options, folder):
    config = config_of(kind)
    config["dslaunch"] = {
        "data": {
            "train": f"{options.inputs}/kjv.bytes.u16.bin",
            "context": CONTEXT,
            "shuffle": False,
        },
        "steps": options.steps + options.more,
    }
    pathlib.Path(f"{folder}/config.json").write_text(json.dumps(config))
    output = f"{folder}/out"
    program = options.ours.split()
    run([program[0], "ckpt", "import", f"{folder}/deepspeed", output])
    command = [*program, "--output", output, "--config", f"{folder}/config.json"]
    command += [f"--resume={output}/checkpoints/step-{options.steps}"]
    run([*command, f"{options.inputs}/gpt-tiny.pt"])
    lines = [json.loads(line) for line in open(f"{output}/metrics.jsonl")]
    return [line["loss"] for line in lines if "loss" in line]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", required=True)
    parser.add_argument("--ours", default="build/release/bin/dslaunch --num_gpus 2 --device cpu")
    parser.add_argument("--kinds", default="0-fp32,1-fp32,2-fp32,3-fp32")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--more", type=int, default=20)
    parser.add_argument("--tolerance", type=float, default=1e-4)
    parser.add_argument("--folder", default=tempfile.gettempdir())
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if "RANK" in os.environ:
        peer(options)
        return
    print("| stage-dtype | steps | first loss | last loss | largest difference / loss |")
    print("|---|---|---|---|---|")
    worst = 0.0
    for kind in options.kinds.split(","):
        folder = tempfile.mkdtemp(dir=options.folder)
        theirs = losses_of_deepspeed(kind, options, folder)
        ours = losses_of_dslaunch(kind, options, folder)
        shutil.rmtree(folder)
        if len(ours) != len(theirs):
            sys.exit(f"{len(theirs)} steps in DeepSpeed and {len(ours)} in dslaunch")
        far = max(abs(a - b) / b for a, b in zip(ours, theirs))
        worst = max(worst, far)
        print(f"| {kind} | {options.steps} + {options.more} ", end="")
        print(f"| {theirs[0]:.4f} | {theirs[-1]:.4f} | {far:.1e} |", flush=True)
    if worst > options.tolerance:
        sys.exit(f"losses differ by {worst:.1e} of the loss; {options.tolerance:.1e} is allowed")


if __name__ == "__main__":
    main()
