"""Set forecasts of dslaunch beside the steps of its runs, turn by turn, and print two tables.

  forecast.py --inputs DIR [--ours COMMAND] [--only NAME,...] [--turns N] [--steps N]

NAME is a case: a model of DIR, how many ranks, how many of them are stages (`gpt-small-2x1`: two
stages of one rank). Each turn is a forecast (`dslaunch plan --forecast`), then a run, so that what
else the machine does falls on both alike; a figure is the median over turns of the forecast and of
a run's median step, its first three left out. The second table is of one traced step a case: what
its instructions took on rank 0, by kind, beside what was predicted of them before it began.
"""

import argparse
import collections
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

import page

WARM_UP_STEPS, LIMIT_S = 3, 900
CASES = [
    f"{model}-{shape}"
    for model in ["gpt-tiny", "gpt-small"]
    for shape in ["1x1", "1x2", "2x1"]  # stages x ranks of a stage
]


def shape_of(case):
    model, _, shape = case.rpartition("-")
    stages, data = (int(number) for number in shape.split("x"))
    return model, stages, data


def config_of(options, case, traced):
    _, stages, data = shape_of(case)
    micro_batches = options.micro if stages > 1 else 1
    own = {
        "data": {"train": str(options.inputs / options.tokens), "context": options.context},
        "steps": options.steps,
    }
    if stages > 1:
        own["pipeline"] = {"stages": stages}
    if traced:
        own["trace_step"] = options.steps - 1
    return {
        "train_micro_batch_size_per_gpu": options.batch,
        "gradient_accumulation_steps": micro_batches,
        "zero_optimization": {"stage": options.zero},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "steps_per_print": 1000,
        "dslaunch": own,
    }


def call(command, folder):
    command = [str(word) for word in command]
    done = subprocess.run(command, cwd=folder, timeout=LIMIT_S, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{shlex.join(command)}: {done.returncode}\n{done.stderr[-3000:]}")
    return done.stdout


def forecast_ms(options, case, folder):
    model, stages, data = shape_of(case)
    command = [*options.ours, "plan", options.inputs / f"{model}.pt", "--config", "config.json"]
    command += ["--world-size", stages * data, "--forecast", "--json"]
    return json.loads(call(command, folder))["forecast"]["step_s"] * 1e3


def run(options, case, folder):
    """Medians of its steps, and with a trace what instructions took by kind."""
    model, stages, data = shape_of(case)
    command = [*options.ours, "--num_gpus", stages * data, "--device", "cpu"]
    command += [options.inputs / f"{model}.pt", "--config", "config.json", "--output", "out"]
    call(command, folder)
    lines = [json.loads(line) for line in open(folder / "out" / "metrics.jsonl")]
    steps = [line["step_ms"] for line in lines if "step_ms" in line][WARM_UP_STEPS:]
    trace = folder / "out" / "trace.json"
    return statistics.median(steps), by_kind(json.loads(trace.read_text())) if trace.exists() else {}


def by_kind(trace):
    """Milliseconds of each kind of instruction on rank 0, measured and predicted, and of the step."""
    sums = collections.defaultdict(lambda: [0.0, 0.0])
    ends = [0.0, 0.0]
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            sums[event["cat"]][event["pid"]] += event["dur"] / 1e3
            ends[event["pid"]] = max(ends[event["pid"]], (event["ts"] + event["dur"]) / 1e3)
    return {"step": ends, **dict(sorted(sums.items(), key=lambda item: -item[1][0]))}


def measure(options):
    figures = collections.defaultdict(lambda: collections.defaultdict(list))
    traces = {}
    for turn in range(options.turns):
        for case in options.only:
            with tempfile.TemporaryDirectory(prefix="dsl-bench-") as temporary:
                folder = pathlib.Path(temporary)
                # The last turn has the traced step, whose forecast is measured in the run.
                traced = turn + 1 == options.turns
                (folder / "config.json").write_text(json.dumps(config_of(options, case, traced)))
                predicted = forecast_ms(options, case, folder)
                step_ms, kinds = run(options, case, folder)
            figures[case]["forecast"].append(predicted)
            figures[case]["step"].append(step_ms)
            traces[case] = kinds or traces.get(case)
            print(
                f"turn {turn + 1}/{options.turns} {case}: forecast {predicted:.1f} ms, "
                f"step {step_ms:.1f} ms",
                file=sys.stderr,
                flush=True,
            )
    return figures, traces


def report(options, figures, traces, load_before):
    print(
        page.heading(
            f"{options.turns} turns, medians",
            f"{options.batch} x {options.context} tokens, ZeRO {options.zero}, fp32, AdamW",
            f"{options.micro} micro batches in pipelines",
            load_before=load_before,
        )
        + "\n\n"
        "| stages x ranks | forecast ms | step ms | of turns | forecast / step |\n"
        "|---|---|---|---|---|"
    )
    for case, of in figures.items():
        forecast, step = statistics.median(of["forecast"]), statistics.median(of["step"])
        spread = f"{min(of['step']):.1f}..{max(of['step']):.1f}"
        print(f"| {case} | {forecast:.1f} | {step:.1f} | {spread} | {forecast / step:.2f} |")
    for case, kinds in traces.items():
        print(f"\n{case}, one step:\n\n| | predicted ms | measured ms | ratio |\n|---|---|---|---|")
        for kind, (measured, predicted) in (kinds or {}).items():
            ratio = f"{predicted / measured:.2f}" if measured > 0 else ""
            print(f"| {kind} | {predicted:.2f} | {measured:.2f} | {ratio} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--tokens", default="kjv.bytes.u16.bin", help="a file of the inputs")
    parser.add_argument("--ours", type=shlex.split, default=["build/release/bin/dslaunch"])
    parser.add_argument("--only", type=lambda text: text.split(","), default=CASES)
    for name, fallback in {
        "turns": 3, "steps": 20, "micro": 4, "batch": 1, "context": 64, "zero": 0,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=fallback)
    options = parser.parse_args()
    options.ours[0] = str(pathlib.Path(options.ours[0]).resolve())
    load_before = os.getloadavg()[0]
    report(options, *measure(options), load_before)


if __name__ == "__main__":
    main()
