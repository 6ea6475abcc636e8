"""Measure dslaunch beside its peers, turn by turn (A B C D A B C D ...), and print one table a
shape. Called by run.sh.

  compare_peers.py --inputs DIR [--ours COMMAND] [--shapes 1x64,4x256,bf16] [--only NAME,...]
                   [--turns N] [--steps N] [--write docs/measurements.md]

COMMAND is dslaunch and the options that come before the target; without it, or where it does not
exist, our rows are left out, and the table says so. NAME is a row of a table: compute, ddp, fsdp2,
deepspeed0..3, dslaunch0..3. Each turn is a fresh start of the program. A figure is the median over
turns: of a turn's median step (its first three steps left out), of the time from command to the
end of the first step, of the largest rank's peak RSS, and of page faults a step. Before the turns
that count comes one that does not: DeepSpeed compiles its extensions in it, files come into
memory, and the largest PSS of a rank is taken, which would disturb steps that are timed.
"""

import argparse
import collections
import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import page
import rank_memory

HERE = pathlib.Path(__file__).resolve().parent
WORLD_SIZE, WARM_UP_STEPS, LIMIT_S = 2, 3, 1200
DEEPSPEED = [f"deepspeed{stage}" for stage in range(4)]
OURS = [f"dslaunch{stage}" for stage in range(4)]


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    dtype: str
    batch: int
    context: int
    steps: int
    contestants: tuple

    def title(self):
        batch = f"batch {self.batch} x {self.context} tokens"
        return f"gpt-small, {self.dtype}, {WORLD_SIZE} ranks, {batch}"


ALL = ("compute", "ddp", "fsdp2", *DEEPSPEED, *OURS)
SHAPES = {
    shape.name: shape
    for shape in [
        Shape("1x64", "fp32", 1, 64, 30, ALL),
        Shape("4x256", "fp32", 4, 256, 10, ALL),
        Shape("bf16", "bf16", 1, 64, 10, ("compute", *DEEPSPEED[1:], *OURS)),
    ]
}


def run(command, folder, poll):
    """Run to the end, calling `poll` with the process's id meanwhile. A failure or a run over the
    limit ends the bench with the program's last lines."""
    log = folder / "log"
    inherited = {name: value for name, value in os.environ.items() if name != "LOCAL_RANK"}
    environment = inherited | {
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    with open(log, "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
        deadline = time.monotonic() + LIMIT_S
        try:
            while process.poll() is None and time.monotonic() < deadline:
                poll(process.pid)
                time.sleep(0.005)
        finally:
            end(process)
    poll(process.pid)
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


def run_peer(name, inputs, shape, folder, poll):
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc_per_node={WORLD_SIZE}",
        HERE / "peer.py",
        "--peer",
        name,
        "--dtype",
        shape.dtype,
        "--archive",
        inputs / "gpt-small.pt",
        "--tokens",
        inputs / "kjv.bytes.u16.bin",
        "--result",
        folder / "figures",
        "--batch",
        str(shape.batch),
        "--context",
        str(shape.context),
        "--steps",
        str(shape.steps),
    ]
    begun = time.time()
    run(command, folder, poll or (lambda pid: None))
    ranks = [json.loads((folder / f"figures.{rank}").read_text()) for rank in range(WORLD_SIZE)]

    def median_of_largest(key):
        largest = [max(both) for both in zip(*(rank[key] for rank in ranks))]
        return statistics.median(largest[WARM_UP_STEPS:])

    return {
        "step_ms": median_of_largest("step_ms"),
        "start_s": max(rank["first_step_done"] for rank in ranks) - begun,
        "peak_rss_bytes": max(rank["peak_rss_bytes"] for rank in ranks),
        "page_faults": median_of_largest("page_faults"),
        "loss": statistics.mean(rank["losses"][-1] for rank in ranks),
    }


def our_config(name, inputs, shape):
    return {
        "train_batch_size": shape.batch * WORLD_SIZE,
        "train_micro_batch_size_per_gpu": shape.batch,
        "gradient_accumulation_steps": 1,
        "zero_optimization": {"stage": OURS.index(name)},
        "bf16": {"enabled": shape.dtype == "bf16"},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.01}},
        "dslaunch": {
            "steps": shape.steps,
            "device": "cpu",
            "data": {
                "train": str(inputs / "kjv.bytes.u16.bin"),
                "context": shape.context,
                "dtype": "uint16",
                "shuffle": False,
            },
        },
    }


# What rank 0 logs when LibTorch is loaded, and when the model is cut, measured and planned.
LOADED, PLANNED = "detail ranks: [0-9]+ on ", "model: "


def seconds_since(begun, log, message):
    """From `begun` to the line of the log that has `message`; the log's times have no date."""
    found = re.search(r"(\d\d):(\d\d):(\d\d\.\d+) " + message, log)
    if not found:
        raise SystemExit(f"no line `{message}` in the log of dslaunch:\n{log}")
    hours, minutes, seconds = (float(part) for part in found.groups())
    local = time.localtime(begun)
    start = local.tm_hour * 3600 + local.tm_min * 60 + local.tm_sec + begun % 1
    return (hours * 3600 + minutes * 60 + seconds - start) % 86400


def start_phases(begun, log, first_step_s, first_line_s):
    """Where the seconds from command to first step went, in order."""
    loaded, planned = (seconds_since(begun, log, message) for message in (LOADED, PLANNED))
    return {
        "load_s": loaded,
        "plan_s": planned - loaded,
        "memory_s": first_line_s - first_step_s - planned,
        "first_step_s": first_step_s,
    }


def run_ours(command, config, folder, poll):
    config_file, metrics = folder / "ds_config.json", folder / "output" / "metrics.jsonl"
    config_file.write_text(json.dumps(config))
    first_line_at = []

    def watch(pid):
        if first_line_at and poll is None:
            return
        steps_done = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
        if poll and steps_done < config["dslaunch"]["steps"]:
            poll(pid)  # not while the trained weights are written, which no peer does
        if steps_done and not first_line_at:
            first_line_at.append(time.time())

    begun = time.time()
    words = ["--log-level", "debug", "--config", config_file, "--output", folder / "output"]
    run(command + words, folder, watch)
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    steps = [line for line in lines if "loss" in line]
    if len(steps) != config["dslaunch"]["steps"]:
        raise SystemExit(f"{metrics}: {len(steps)} steps, not {config['dslaunch']['steps']}")
    start_s = first_line_at[0] - begun
    log = (folder / "log").read_text(errors="replace")
    return start_phases(begun, log, steps[0]["step_ms"] / 1e3, start_s) | {
        "step_ms": statistics.median(line["step_ms"] for line in steps[WARM_UP_STEPS:]),
        "start_s": start_s,
        "peak_rss_bytes": max(line["peak_rss_bytes"] for line in steps),
        "page_faults": statistics.median(line["page_faults"] for line in steps[WARM_UP_STEPS:]),
        "loss": steps[-1]["loss"],
    }


def run_once(options, shape, name, poll=None):
    with tempfile.TemporaryDirectory(prefix="dsl-bench-") as temporary:
        folder = pathlib.Path(temporary)
        if name not in OURS:
            return run_peer(name, options.inputs, shape, folder, poll)
        command = options.ours + [options.inputs / "gpt-small.pt"]
        return run_ours(command, our_config(name, options.inputs, shape), folder, poll)


def say(shape, turn, name, text):
    print(f"{shape.name} {turn} {name}: {text}", file=sys.stderr, flush=True)


def largest_pss(options, shape, name):
    """Of any rank, in a run that is not timed. Half the steps: all memory is there after two."""
    watch = rank_memory.PssWatch(WORLD_SIZE)
    steps = max(WARM_UP_STEPS + 1, shape.steps // 2)
    run_once(options, dataclasses.replace(shape, steps=steps), name, watch.look)
    if not watch.peak_bytes:
        raise SystemExit(f"{name}: {WORLD_SIZE} ranks were never seen below the process started")
    say(shape, "memory", name, f"PSS {watch.peak_bytes / 2**20:.0f} MiB, {watch.looks} looks")
    return watch.peak_bytes


def measure(options, shape, contestants):
    """By contestant, the medians over turns, the largest PSS, and the range of `step_ms`."""
    pss = {name: largest_pss(options, shape, name) for name in contestants}
    turns = collections.defaultdict(list)
    for turn in range(options.turns):
        for name in contestants:
            figures = run_once(options, shape, name)
            turns[name].append(figures)
            step, start, loss = (figures[key] for key in ["step_ms", "start_s", "loss"])
            text = f"{step:.1f} ms, first step after {start:.2f} s, loss {loss:.5f}"
            say(shape, f"turn {turn + 1}/{options.turns}", name, text)
    medians = {}
    for name, each in turns.items():
        medians[name] = {key: statistics.median(one[key] for one in each) for key in each[0]}
        steps_ms = [one["step_ms"] for one in each]
        medians[name] |= {"pss_bytes": pss[name], "step_ms_range": (min(steps_ms), max(steps_ms))}
    return medians


def table(shape, medians):
    base = medians["compute"]["step_ms"] if "compute" in medians else None
    rows = [
        f"{shape.title()}, last loss after {shape.steps} steps:",
        "",
        "| | step ms | of turns | / compute | first step s | peak RSS MiB | peak PSS MiB "
        "| faults/step | last loss |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, m in medians.items():
        least, most = m["step_ms_range"]
        ratio = f"{m['step_ms'] / base:.2f}" if base else "not run"
        rows.append(
            f"| {name} | {m['step_ms']:.1f} | {least:.1f}..{most:.1f} | {ratio} "
            f"| {m['start_s']:.2f} | {m['peak_rss_bytes'] / 2**20:.0f} "
            f"| {m['pss_bytes'] / 2**20:.0f} | {m['page_faults']:.0f} | {m['loss']:.5f} |"
        )
    return rows


def start_table(medians):
    ours = {name: m for name, m in medians.items() if name in OURS}
    if not ours:
        return []
    rows = [
        "",
        page.wrapped(
            "Where dslaunch's seconds to the first step go: programs started and LibTorch loaded; "
            "model mapped, cut, measured and planned; memory of gradients and optimizer; the step:"
        ),
        "",
        "| | load s | plan s | memory s | step 1 s |",
        "|---|---|---|---|---|",
    ]
    for name, m in ours.items():
        parts = (m[key] for key in ["load_s", "plan_s", "memory_s", "first_step_s"])
        rows.append(f"| {name} | " + " | ".join(f"{part:.2f}" for part in parts) + " |")
    return rows


def report(options, shape, medians, load_before):
    from importlib.metadata import version

    peers = ", ".join(f"{name} {version(name)}" for name in ["torch", "deepspeed"])
    lines = [
        page.heading(
            peers,
            f"{options.turns} interleaved turns, medians",
            "one thread a rank",
            load_before=load_before,
        ),
        "",
    ]
    if not options.ours:
        lines += ["dslaunch was left out: its binary was not there.", ""]
    return "\n".join(lines + table(shape, medians) + start_table(medians)) + "\n"


def names_out_of(known):
    """A parser of comma-separated names; an unknown one is an error that lists them all."""

    def parse(text):
        names = text.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"{', '.join(unknown)}: not one of {', '.join(known)}"
            )
        return [name for name in known if name in names]

    return parse


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=pathlib.Path, required=True)
    parser.add_argument("--ours", type=shlex.split, default=[])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, help=f"instead of each shape's own; > {WARM_UP_STEPS}")
    parser.add_argument("--shapes", type=names_out_of(list(SHAPES)), default=list(SHAPES))
    parser.add_argument("--only", type=names_out_of(ALL), default=list(ALL))
    parser.add_argument("--write", type=pathlib.Path)
    options = parser.parse_args()
    if options.turns < 1:
        parser.error(f"--turns {options.turns}: at least 1")
    if options.steps is not None and options.steps <= WARM_UP_STEPS:
        parser.error(f"--steps {options.steps}: the first {WARM_UP_STEPS} are left out")
    return options


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("compare_peers.py: ended by SIGTERM"))
    if options.ours and not shutil.which(options.ours[0]):
        print(
            f"compare_peers.py: {options.ours[0]} is not there: measuring the peers only",
            file=sys.stderr,
        )
        options.ours = []
    asked = options.only if options.ours else [name for name in options.only if name not in OURS]
    for shape in [SHAPES[name] for name in options.shapes]:
        contestants = [name for name in shape.contestants if name in asked]
        if not contestants:
            raise SystemExit(f"--only leaves no row for {shape.name}")
        shape = dataclasses.replace(shape, steps=options.steps or shape.steps)
        load_before = os.getloadavg()[0]
        medians = measure(options, shape, contestants)
        text = report(options, shape, medians, load_before)
        print(text, flush=True)
        if options.write:
            page.write_section(options.write, f"peers {shape.name}", text)


if __name__ == "__main__":
    main()
