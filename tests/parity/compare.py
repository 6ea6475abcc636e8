"""Hold the losses of a metrics.jsonl against a reference: compare.py REFERENCE METRICS [--tolerance
1e-4]

REFERENCE is what ddp_50_steps.py wrote, or a fixture's JSON file with --run
WORLD_SIZE,ACCUMULATION. Every step has to be there, and to differ from the reference by at most the
tolerance (absolute; losses here are between 1 and 10). Of a repeated step the last line counts.
Ends with 0 if all agree, else 1 with the first step that does not. Needs plain Python 3 only.
"""

import argparse
import json
import math
import sys


def reference_losses(path, run):
    content = json.load(open(path))
    if run is None:
        return content["losses"]
    world_size, accumulation = map(int, run.split(","))
    for candidate in content["training"]["runs"]:
        if (candidate["world_size"], candidate["accumulation"]) == (world_size, accumulation):
            return candidate["losses"]
    sys.exit(f"{path}: has no run of {world_size} ranks with accumulation {accumulation}")


def measured_losses(path):
    by_step = {}
    for number, text in enumerate(open(path), start=1):
        try:
            line = json.loads(text)
        except ValueError as error:
            sys.exit(f"{path}:{number}: not JSON: {error}")
        if "loss" in line:
            by_step[line["step"]] = line["loss"]
    return by_step


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("reference")
    parser.add_argument("metrics")
    parser.add_argument("--run")
    parser.add_argument("--tolerance", type=float, default=1e-4)
    options = parser.parse_args()
    expected, measured = reference_losses(options.reference, options.run), measured_losses(
        options.metrics
    )
    if sorted(measured) != list(range(1, len(expected) + 1)):
        sys.exit(f"{options.metrics}: has {len(measured)} steps, the reference has {len(expected)}")
    worst_step, worst = 0, -1.0
    for step, loss in enumerate(expected, start=1):
        difference = (
            abs(measured[step] - loss) if isinstance(measured[step], (int, float)) else math.inf
        )
        if not difference <= options.tolerance:
            sys.exit(
                f"step {step}: loss {measured[step]}, reference {loss}, "
                f"difference {difference:.2e} > {options.tolerance:.0e}"
            )
        if difference > worst:
            worst_step, worst = step, difference
    print(
        f"{len(expected)} steps agree within {options.tolerance:.0e}; "
        f"largest difference {worst:.2e}, at step {worst_step}"
    )


if __name__ == "__main__":
    main()
