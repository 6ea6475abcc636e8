"""The memory of a job's ranks as the kernel sees it from outside: PSS, in which a page that K
processes map counts 1/K for each. Peak RSS counts such a page whole in every one of them.
"""

import pathlib
import time

PROC = pathlib.Path("/proc")


def parents():
    """The parent of every process of this machine, by pid."""
    found = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                # The name in parentheses may hold blanks; the parent is the second field after it.
                found[int(entry.name)] = int(
                    (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
                )
            except (FileNotFoundError, ProcessLookupError):
                pass  # it has ended since the folder was listed
    return found


def ranks_below(ancestor):
    """The processes below `ancestor` that were started as a rank: torchrun and dslaunch both say
    so by LOCAL_RANK in the environment."""
    parent_of = parents()
    ranks = []
    for pid in parent_of:
        above = pid
        while above in parent_of and above != ancestor:
            above = parent_of[above]
        if above != ancestor or pid == ancestor:
            continue
        try:
            environment = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if any(one.startswith(b"LOCAL_RANK=") for one in environment):
            ranks.append(pid)
    return ranks


def pss_bytes(pid):
    """0 for a process that has ended."""
    try:
        with open(PROC / str(pid) / "smaps_rollup") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (FileNotFoundError, ProcessLookupError, StopIteration):
        return 0


class PssWatch:
    """Called often, looks every `interval_s` and keeps the largest PSS that any of `world_size`
    ranks had.

    A look counts only while all ranks are there: what a rank shares with one that has ended would
    be counted whole. It walks the page tables of each rank, which takes milliseconds, so it does
    not belong into a run whose steps are timed.
    """

    def __init__(self, world_size, interval_s=0.05):
        self.world_size = world_size
        self.interval_s = interval_s
        self.peak_bytes = 0
        self.looks = 0
        self.next_look = 0.0

    def look(self, pid):
        if time.monotonic() < self.next_look:
            return
        found = [pss_bytes(rank) for rank in ranks_below(pid)]
        if len(found) >= self.world_size and all(found):
            self.peak_bytes = max(self.peak_bytes, *found)
            self.looks += 1
        self.next_look = time.monotonic() + self.interval_s
