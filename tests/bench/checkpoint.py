"""Saves and loads of dslaunch beside torch.save, torch.distributed.checkpoint and DeepSpeed, in
turns on one machine: durable bytes a second, the time that training lost, the time to resume.

    tests/bench/checkpoint.sh [--size small|medium] [--batch N] [--context N] [--turns N] [--only a,b]
"""

import argparse
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PEERS = ["torch_save", "dcp", "dcp_async", "deepspeed1", "deepspeed3"]
OURS = {
    "dslaunch1": {"stage": 1, "async": True},
    "dslaunch3": {"stage": 3, "async": True},
    "dslaunch1_sync": {"stage": 1, "async": False},
}
SAVED = re.compile(
    r"step-(\d+): saved ([\d.]+) (\w+) in ([\d.]+) s \(([\d.]+) s until written on this host\); training paused for (\d+) ms"
)
UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def run_peer(name, options, folder):
    command = ["torchrun", "--nproc_per_node", "2", str(HERE / "checkpoint_peer.py")]
    command += ["--peer", name, "--size", options.size, "--folder", f"{folder}/peer"]
    command += ["--archive", f"{options.inputs}/gpt-{options.size}.pt"]
    command += ["--tokens", f"{options.inputs}/kjv.bytes.u16.bin"]
    command += ["--batch", str(options.batch), "--context", str(options.context)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=900)
    for line in result.stdout.splitlines():
        if line.startswith("FIGURES "):
            return json.loads(line[8:])
    sys.exit(f"{name} failed:\n{result.stdout[-2000:]}\n{result.stderr[-4000:]}")


def run_to_end(command, output):
    """(stderr, seconds until a step more than before was done)."""
    metrics = pathlib.Path(f"{output}/metrics.jsonl")

    def lines():
        return len(metrics.read_bytes().splitlines()) if metrics.exists() else 0

    before, begin, first = lines(), time.perf_counter(), None
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        while process.poll() is None:
            if first is None and lines() > before:
                first = time.perf_counter() - begin
            time.sleep(0.005)
        errors.seek(0)
        text = errors.read()
    if process.returncode != 0:
        sys.exit(f"{command} failed:\n{text[-4000:]}")
    return text, first


def run_ours(name, options, folder):
    kind = OURS[name]
    # The steps before the first save are what a step takes alone.
    config = {
        "train_micro_batch_size_per_gpu": options.batch,
        "zero_optimization": {"stage": kind["stage"]},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}},
        "dslaunch": {
            "data": {"train": f"{options.inputs}/kjv.bytes.u16.bin", "context": options.context},
            "steps": options.steps,
            "save": {"interval": options.interval, "async": kind["async"], **options.save},
        },
    }
    pathlib.Path(f"{folder}/config.json").write_text(json.dumps(config))
    output = f"{folder}/out"
    command = options.ours.split() + ["--output", output, "--config", f"{folder}/config.json"]
    command += [f"{options.inputs}/gpt-{options.size}.pt"]
    log, first_s = run_to_end(command, output)
    lines = [json.loads(line) for line in open(f"{output}/metrics.jsonl")]
    step_ms = {line["step"]: line["step_ms"] for line in lines if "loss" in line}
    alone = statistics.median([
        step_ms[step] for step in range(options.interval // 3, options.interval + 1)
    ])
    saves = []
    for step, number, unit, seconds, _, held_up in SAVED.findall(log):
        step = int(step)
        if step == options.steps:
            continue
        # What the whole of it has cost the steps behind it.
        behind = [step_ms[s] for s in range(step + 1, step + 1 + options.interval // 3)]
        overlapped = int(float(seconds) * 1e3 / alone) + 1
        saves.append(
            {
                "seconds": float(seconds),
                "added_ms": sum(behind) - len(behind) * alone,
                "held_up_ms": float(held_up),
                "steps": overlapped,
                "bytes": float(number) * UNITS[unit],
            }
        )
    # What a first step takes more when it comes from a checkpoint.
    config["dslaunch"]["steps"] = options.steps + 1
    pathlib.Path(f"{folder}/config.json").write_text(json.dumps(config))
    load_s = run_to_end(command + ["--resume"], output)[1] - first_s
    return {"peer": name, "step_ms": alone, "saves": saves, "load_s": load_s}


def disk_rate(folder, megabytes):
    path = f"{folder}/dd"
    begin = time.perf_counter()
    subprocess.run(
        ["dd", "if=/dev/zero", f"of={path}", "bs=8M", f"count={megabytes // 8}"]
        + ["oflag=direct", "conv=fsync"],
        check=True,
        capture_output=True,
    )
    seconds = time.perf_counter() - begin
    pathlib.Path(path).unlink()
    return megabytes * 2**20 / seconds


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", required=True)
    parser.add_argument("--ours", default="build/release/bin/dslaunch --num_gpus 2 --device cpu")
    parser.add_argument("--size", default="small")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100, help="of dslaunch")
    parser.add_argument("--interval", type=int, default=30, help="between its saves")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", default=",".join([*OURS, *PEERS]))
    parser.add_argument("--save", type=json.loads, default={}, help="more of dslaunch.save")
    parser.add_argument("--folder", default=tempfile.gettempdir())
    options = parser.parse_args()
    figures = {name: [] for name in options.only.split(",")}
    disk = []
    for _ in range(options.turns):
        for name, all_of in figures.items():
            folder = tempfile.mkdtemp(dir=options.folder)
            disk.append(disk_rate(folder, 512))
            run = run_ours if name in OURS else run_peer
            all_of.append(run(name, options, folder))
            shutil.rmtree(folder)
    print(f"disk (dd, direct, synced): {statistics.median(disk) / 1e9:.2f} GB/s")
    print("| who | MiB | s a save | GB/s durable | training lost, ms | of steps | resume, s |")
    print("|---|---|---|---|---|---|---|")
    for name, all_of in figures.items():
        saves = [save for figure in all_of for save in figure["saves"]]

        def median(key):
            return statistics.median(save[key] for save in saves)

        step_ms = statistics.median(figure["step_ms"] for figure in all_of)
        rate = statistics.median(save["bytes"] / save["seconds"] for save in saves)
        load_s = statistics.median(figure["load_s"] for figure in all_of)
        overlapped = max(1.0, median("steps"))
        share = median("added_ms") / (overlapped * step_ms)
        print(
            f"| {name} | {median('bytes') / 2**20:.0f} | {median('seconds'):.2f} "
            f"| {rate / 1e9:.2f} | {median('added_ms'):.0f} | {overlapped:.0f} x {step_ms:.0f} ms "
            f"({share:.1%}) | {load_s:.2f} |"
        )


if __name__ == "__main__":
    main()
