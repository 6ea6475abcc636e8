#!/usr/bin/env python3
"""How well the lanes of a step overlap: overlap.py TRACE.json [STEP_MS]

TRACE.json is what dslaunch.trace_step writes. Prints how long each lane was busy, the union of all
of them, and the step beside the busiest lane: with perfect overlap they are equal. STEP_MS is the
step's line in metrics.jsonl, which adds what runs between the instructions of two steps; without
it the end of the last instruction counts.

Then the disk: how long anything was read or written, and at what rate altogether, to be held
against the rate of reading and writing at once that `dslaunch io-bench` prints.

Then the chain that ends last, by operation: backwards from the last instruction, each time to the
one that ended latest before the instruction began, and the time in which neither ran. What it
spends outside of the busiest lane is what a better plan could win.
"""
import json
import sys
from collections import defaultdict

SLACK_US = 5  # clocks are read at the begin and the end of an instruction, not between them


def union(spans):
    total, end = 0.0, float("-inf")
    for begin, finish in sorted(spans):
        if finish > end:
            total += finish - max(begin, end)
            end = finish
    return total


def chain(events):
    """The instructions that lead to the last one, last first, each with the wait before it."""
    by_end = sorted(events, key=lambda event: event["ts"] + event["dur"])
    current, links = by_end[-1], []
    while current is not None:
        earlier = [e for e in by_end if e is not current
                   and e["ts"] + e["dur"] <= current["ts"] + SLACK_US and e["ts"] < current["ts"]]
        before = earlier[-1] if earlier else None
        since = before["ts"] + before["dur"] if before else 0.0
        links.append((current, max(0.0, current["ts"] - since)))
        current = before
    return links


def main(path, step_ms=None):
    with open(path) as file:
        trace = json.load(file)["traceEvents"]
    trace = [e for e in trace if e["pid"] == 0]  # as it ran, not as predicted
    lanes = {e["tid"]: e["args"]["name"] for e in trace if e["name"] == "thread_name"}
    events = [e for e in trace if e["ph"] == "X" and e["dur"] > 0]
    spans = defaultdict(list)
    for event in events:
        spans[lanes[event["tid"]]].append((event["ts"], event["ts"] + event["dur"]))
    last = max(end for all_of_lane in spans.values() for _, end in all_of_lane)
    step = step_ms * 1e3 if step_ms else last
    busy = {lane: union(all_of_lane) for lane, all_of_lane in spans.items()}
    for lane, time in sorted(busy.items(), key=lambda item: -item[1]):
        print(f"{lane:>14}  busy {time / 1e3:9.1f} ms  {time / step:5.2f} of the step")
    everything = union([span for all_of_lane in spans.values() for span in all_of_lane])
    print(f"{'any':>14}  busy {everything / 1e3:9.1f} ms")
    print(f"{'all, added':>14}       {sum(busy.values()) / 1e3:9.1f} ms")
    most = max(busy, key=busy.get)
    print(f"step {step / 1e3:.1f} ms = {step / busy[most]:.2f} x the busiest lane ({most}), "
          f"{step / sum(busy.values()):.2f} x the sum of all")
    disk = [e for e in events if lanes[e["tid"]] in ("read", "write")]
    if disk:
        moved = sum(e["args"]["bytes"] for e in disk)
        in_use = union([(e["ts"], e["ts"] + e["dur"]) for e in disk])
        print(f"the disk: read or written for {in_use / 1e3:.1f} ms, {in_use / step:.2f} of the step; "
              f"{moved / 1e9:.2f} GB, {moved / step / 1e3:.2f} GB/s of the step")
    by_op, waits = defaultdict(float), 0.0
    for event, wait in chain(events):
        by_op[(lanes[event["tid"]], event["cat"])] += event["dur"]
        waits += wait
    print("the chain that ends last:")
    for (lane, op), time in sorted(by_op.items(), key=lambda item: -item[1]):
        print(f"{lane:>14}  {op:<12} {time / 1e3:9.1f} ms")
    print(f"{'nothing':>14}  {'':<12} {waits / 1e3:9.1f} ms")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) == 3 else None)
