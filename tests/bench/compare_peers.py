"""Measure dslaunch beside its peers, turn by turn (A B C D A B C D ...), and print one table.
Called by run.sh.

  compare_peers.py --inputs DIR [--ours COMMAND] [--write docs/measurements.md]

COMMAND is dslaunch and the options that come before the target; without it, or where it does not
exist, our row is left out, and the table says so. Each turn is a fresh start of the program. A
figure is the median over turns: of a turn's median step (its first three steps left out), of the
time from command to the end of the first step, of the largest rank's peak RSS, and of page faults
a step.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
WORLD_SIZE, WARM_UP_STEPS, LIMIT_S = 2, 3, 600
SHAPES = [(1, 64, 30), (4, 256, 10)]  # batch, context, steps
PEERS = ["compute", "ddp", "deepspeed0"]


def run(command, folder, poll=lambda: None):
    """Run to the end, calling `poll` meanwhile. A failure or a run over the limit ends the bench
    with the program's last lines."""
    log = folder / "log"
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
        deadline = time.monotonic() + LIMIT_S
        try:
            while process.poll() is None and time.monotonic() < deadline:
                poll()
                time.sleep(0.005)
        finally:
            end(process)
    poll()
    if process.returncode != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
        raise SystemExit(
            f"{shlex.join(map(str, command))}\nended with {process.returncode}:\n{tail}"
        )


def end(process):
    """End a program that still runs. TERM first: torchrun passes it to its ranks, which are in
    sessions of their own."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def run_peer(peer, inputs, shape, folder):
    batch, context, steps = shape
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc_per_node={WORLD_SIZE}",
        HERE / "peer.py",
        "--peer",
        peer,
        "--archive",
        inputs / "gpt-small.pt",
        "--tokens",
        inputs / "kjv.bytes.u16.bin",
        "--result",
        folder / "figures",
        "--batch",
        str(batch),
        "--context",
        str(context),
        "--steps",
        str(steps),
    ]
    begun = time.time()
    run(command, folder)
    ranks = [json.loads((folder / f"figures.{rank}").read_text()) for rank in range(WORLD_SIZE)]
    steps_ms = [max(both) for both in zip(*(rank["step_ms"] for rank in ranks))]
    return {
        "step_ms": statistics.median(steps_ms[WARM_UP_STEPS:]),
        "start_s": max(rank["first_step_done"] for rank in ranks) - begun,
        "peak_rss_bytes": max(rank["peak_rss_bytes"] for rank in ranks),
        "page_faults": max(rank["page_faults"] for rank in ranks),
        "loss": statistics.mean(rank["losses"][-1] for rank in ranks),
    }


def our_config(inputs, shape):
    batch, context, steps = shape
    return {
        "train_batch_size": batch * WORLD_SIZE,
        "train_micro_batch_size_per_gpu": batch,
        "gradient_accumulation_steps": 1,
        "zero_optimization": {"stage": 0},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}},
        "dslaunch": {
            "steps": steps,
            "device": "cpu",
            "data": {
                "train": str(inputs / "kjv.bytes.u16.bin"),
                "context": context,
                "dtype": "uint16",
                "shuffle": False,
            },
        },
    }


def run_ours(ours, inputs, shape, folder):
    config, metrics = folder / "ds_config.json", folder / "output" / "metrics.jsonl"
    config.write_text(json.dumps(our_config(inputs, shape)))
    first_line_at = []

    def watch():
        if not first_line_at and metrics.exists() and b"\n" in metrics.read_bytes():
            first_line_at.append(time.time())

    begun = time.time()
    run(
        ours + [inputs / "gpt-small.pt", "--config", config, "--output", folder / "output"],
        folder,
        watch,
    )
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    if len(steps) != shape[2]:
        raise SystemExit(f"{metrics}: {len(steps)} steps, {shape[2]} were asked for")
    return {
        "step_ms": statistics.median(line["step_ms"] for line in steps[WARM_UP_STEPS:]),
        "start_s": first_line_at[0] - begun,
        "peak_rss_bytes": max(line["peak_rss_bytes"] for line in steps),
        "page_faults": statistics.median(line["page_faults"] for line in steps[WARM_UP_STEPS:]),
        "loss": steps[-1]["loss"],
    }


def measure(options, shape, contestants):
    turns = {name: [] for name in contestants}
    for turn in range(
        -1, options.turns
    ):  # turn -1 is not counted: DeepSpeed compiles its extensions, files come into memory
        for name in contestants:
            with tempfile.TemporaryDirectory(prefix="dsl-bench-") as temporary:
                folder = pathlib.Path(temporary)
                asked = shape if turn >= 0 else (shape[0], shape[1], WARM_UP_STEPS + 1)
                figures = (
                    run_ours(options.ours, options.inputs, asked, folder)
                    if name == "dslaunch"
                    else run_peer(name, options.inputs, asked, folder)
                )
            if turn < 0:
                continue
            turns[name].append(figures)
            print(
                f"turn {turn + 1}/{options.turns} batch {shape[0]} x {shape[1]} {name}: "
                f"{figures['step_ms']:.1f} ms, first step after "
                f"{figures['start_s']:.2f} s, loss {figures['loss']:.5f}",
                file=sys.stderr,
                flush=True,
            )
    return {
        name: {key: statistics.median(one[key] for one in each) for key in each[0]}
        for name, each in turns.items()
    }


def table(shape, medians):
    base = medians["compute"]["step_ms"]
    rows = [
        f"gpt-small, fp32, {WORLD_SIZE} ranks, batch {shape[0]} x {shape[1]} tokens, "
        f"last loss after {shape[2]} steps:",
        "",
        "| | step ms | / compute | first step s | peak RSS MiB | faults/step | last loss |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, m in medians.items():
        rows.append(
            f"| {name} | {m['step_ms']:.1f} | {m['step_ms'] / base:.2f} | {m['start_s']:.2f} | "
            f"{m['peak_rss_bytes'] / 2**20:.0f} | {m['page_faults']:.0f} | {m['loss']:.5f} |"
        )
    return rows


def machine():
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in open("/proc/cpuinfo")
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = next(
        int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal:")
    )
    return f"{os.cpu_count()} x {model}, {memory / 2**20:.0f} GiB, Linux {platform.release()}"


def report(options, results, loads):
    from importlib.metadata import version

    peers = ", ".join(f"{name} {version(name)}" for name in ["torch", "deepspeed"])
    lines = [
        f"{datetime.date.today()}; {machine()}; {peers}; {options.turns} interleaved turns, "
        f"medians; one thread a rank; load average "
        f"{loads[0]:.1f} before, {loads[1]:.1f} after.",
        "",
    ]
    if not options.ours:
        lines += ["dslaunch was left out: its binary was not there.", ""]
    for shape, medians in results:
        lines += table(shape, medians) + [""]
    return "\n".join(lines).rstrip() + "\n"


def write_section(path, text):
    """Replace what stands between the markers in `path`, which is made if it is missing."""
    begin, end = "<!-- peers: begin -->\n", "<!-- peers: end -->\n"
    page = (
        path.read_text()
        if path.exists()
        else f"# Measurements\n\n## Beside the peers\n\nMade by `make bench`.\n\n{begin}{end}"
    )
    if page.count(begin) != 1 or page.count(end) != 1:
        raise SystemExit(f"{path}: needs the lines {begin.strip()} and {end.strip()} once each")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page.split(begin)[0] + begin + "\n" + text + "\n" + end + page.split(end)[1])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=pathlib.Path, required=True)
    parser.add_argument("--ours", type=shlex.split, default=[])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument(
        "--shapes",
        type=int,
        nargs="*",
        choices=range(len(SHAPES)),
        default=list(range(len(SHAPES))),
    )
    parser.add_argument("--write", type=pathlib.Path)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("compare_peers.py: ended by SIGTERM"))
    if options.ours and not shutil.which(options.ours[0]):
        print(
            f"compare_peers.py: {options.ours[0]} is not there: measuring the peers only",
            file=sys.stderr,
        )
        options.ours = []
    contestants = PEERS + (["dslaunch"] if options.ours else [])
    before = os.getloadavg()[0]
    results = [
        (SHAPES[number], measure(options, SHAPES[number], contestants)) for number in options.shapes
    ]
    text = report(options, results, (before, os.getloadavg()[0]))
    print(text)
    if options.write:
        write_section(options.write, text)


if __name__ == "__main__":
    main()
