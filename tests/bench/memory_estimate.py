"""Set what admission expects a rank to take beside the largest resident set of a run, and print one
table.

  memory_estimate.py --inputs DIR [--ours COMMAND] [--models NAME,...] [--zero 0,1,2,3]
                     [--ranks 1,2] [--stages N] [--hosts N] [--steps N]

Both figures are the job's own line at its end: of the rank that had most, checkpoint and all.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import shlex
import subprocess
import tempfile

LIMIT_S = 900
LINE = re.compile(r"memory of a rank: ([0-9.]+) (\w+) estimated, ([0-9.]+) (\w+) measured")
UNITS = {"MiB": 1.0, "GiB": 1024.0}


def config_of(options, zero):
    own = {
        "data": {"train": str(options.inputs / options.tokens), "context": options.context},
        "steps": options.steps,
    }
    if options.stages > 1:
        own["pipeline"] = {"stages": options.stages}
    return {
        "train_micro_batch_size_per_gpu": options.batch,
        "gradient_accumulation_steps": 4 if options.stages > 1 else 1,
        "zero_optimization": {"stage": zero},
        "bf16": {"enabled": options.bf16},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "dslaunch": own,
    }


def figures(options, model, zero, ranks):
    with tempfile.TemporaryDirectory(prefix="dsl-bench-") as temporary:
        folder = pathlib.Path(temporary)
        (folder / "config.json").write_text(json.dumps(config_of(options, zero)))
        command = [*options.ours, "--num_gpus", ranks // options.hosts, "--device", "cpu"]
        if options.hosts > 1:
            hosts = "".join(f"h{i} slots={ranks // options.hosts}\n" for i in range(options.hosts))
            (folder / "hostfile").write_text(hosts)
            command += ["--hostfile", "hostfile", "--launcher", "local"]
        command += [options.inputs / f"{model}.pt", "--config", "config.json", "--output", "out"]
        done = subprocess.run(
            [str(word) for word in command],
            cwd=folder, timeout=LIMIT_S, capture_output=True, text=True,
        )
    found = LINE.search(done.stdout + done.stderr)
    if done.returncode != 0 or not found:
        raise SystemExit(f"{shlex.join(map(str, command))}: {done.returncode}\n{done.stderr[-3000:]}")
    return float(found[1]) * UNITS[found[2]], float(found[3]) * UNITS[found[4]]


def main():
    def numbers(text):
        return [int(word) for word in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--tokens", default="kjv.bytes.u16.bin", help="a file of the inputs")
    parser.add_argument("--ours", type=shlex.split, default=["build/release/bin/dslaunch"])
    parser.add_argument("--models", type=lambda text: text.split(","), default=["gpt-tiny", "gpt-small"])
    parser.add_argument("--zero", type=numbers, default=[0, 1, 2, 3])
    parser.add_argument("--ranks", type=numbers, default=[1, 2])
    parser.add_argument("--bf16", action="store_true")
    for name, fallback in {"stages": 1, "hosts": 1, "steps": 4, "batch": 1, "context": 64}.items():
        parser.add_argument(f"--{name}", type=int, default=fallback)
    options = parser.parse_args()
    options.ours[0] = str(pathlib.Path(options.ours[0]).resolve())
    print(
        f"{datetime.date.today()}; {options.batch} x {options.context} tokens, "
        f"{'bf16' if options.bf16 else 'fp32'}, AdamW, {options.steps} steps and a checkpoint; "
        f"{options.stages} stages, {options.hosts} hosts; load average {os.getloadavg()[0]:.1f}.\n\n"
        "| model | ranks | ZeRO | estimated MiB | measured MiB | measured / estimated |\n"
        "|---|---|---|---|---|---|"
    )
    for model in options.models:
        for ranks in options.ranks:
            for zero in options.zero:
                estimated, measured = figures(options, model, zero, ranks)
                print(
                    f"| {model} | {ranks} | {zero} | {estimated:.1f} | {measured:.1f} "
                    f"| {measured / estimated:.3f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
