"""Reads and writes one disk by dslaunch, fio and DeepSpeed's async_io; tests/bench/io_bench.sh calls it.

The rows take turns: in each turn every row writes its own file of --size for --seconds, then reads it.
A figure is the median over the turns. Processor time is user and system time of the process that moves
the bytes, as the kernel counts it, per 10^9 bytes; fio counts that of its job itself.
"""
import argparse
import importlib.util
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import page

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
BUFFER_BYTES = 64 << 20  # of one async_io request, a multiple of every block


def size_of(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def by_dslaunch(engine, options, folder, block, depth):
    """{direction: (GB/s, ms/GB)} of one turn."""
    command = [
        options.dslaunch, "io-bench", folder, "--json", "--no-store", "--no-fio", f"--size={options.size}",
        f"--engines={engine}", f"--blocks={block}", f"--depths={depth}", "--turns=1", f"--seconds={options.seconds}"]
    best = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["best"]
    return {way: (best[way]["bytes_per_s"] / 1e9, best[way]["cpu_s_per_gb"] * 1e3) for way in ("write", "read")}


def by_fio(engine, tunables, options, folder, block, depth):
    figures, path = {}, f"{folder}/fio"
    if os.path.exists(path):
        os.remove(path)  # laid out anew before it is timed, as the others' files are
    for way in ("write", "read"):
        command = [
            "fio", "--name=bench", f"--filename={path}", "--overwrite=1", f"--rw={way}",
            f"--ioengine={engine}", "--direct=1",
            f"--bs={size_of(block)}", f"--iodepth={depth}", f"--size={size_of(options.size)}", "--time_based",
            f"--runtime={int(options.seconds * 1000)}ms", "--thread", "--gtod_reduce=1", "--output-format=json"]
        if engine == "io_uring":
            command += ["--fixedbufs=1", "--registerfiles=1"]
        output = subprocess.run(command, check=True, capture_output=True, env=os.environ | tunables).stdout
        job = json.loads(output)["jobs"][0]
        seconds, gigabytes = job[way]["runtime"] / 1e3, job[way]["io_bytes"] / 1e9
        figures[way] = (gigabytes / seconds, (job["usr_cpu"] + job["sys_cpu"]) * 10 * seconds / gigabytes)
    return figures


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class AsyncIo:
    """DeepSpeed's async_io with its own defaults besides block size and depth, into pinned memory."""

    def __init__(self):
        path = os.environ.get("DSL_ASYNC_IO")
        if path:
            import torch  # noqa: F401  the module needs its libraries loaded

            spec = importlib.util.spec_from_file_location("async_io", path)
            self.module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(self.module)
        else:
            from deepspeed.ops.op_builder import AsyncIOBuilder

            self.module = AsyncIOBuilder().load()

    def __call__(self, options, folder, block, depth):
        import torch

        handle = self.module.aio_handle(size_of(block), depth, False, True, 1)
        tensor = handle.new_cpu_locked_tensor(BUFFER_BYTES, torch.empty(0, dtype=torch.uint8))
        tensor.random_(0, 256)
        path, figures = f"{folder}/async_io", {}
        for way, move in (("write", handle.sync_pwrite), ("read", handle.sync_pread)):
            if way == "write":  # as the others do: the whole file stands before it is timed
                for offset in range(0, size_of(options.size), BUFFER_BYTES):
                    handle.sync_pwrite(tensor, path, offset)
            moved, used, start = 0, processor_seconds(), time.monotonic()
            while time.monotonic() - start < options.seconds:
                if move(tensor, path, moved % size_of(options.size)) < 1:
                    sys.exit(f"async_io moved nothing at {moved}")
                moved += BUFFER_BYTES
            seconds = time.monotonic() - start
            figures[way] = (moved / seconds / 1e9, (processor_seconds() - used) / moved * 1e12)
        handle.free_cpu_locked_tensor(tensor)
        return figures


def rows_of(options):
    """{name: function}; what cannot run here is left out and said."""
    rows = {f"dslaunch {engine}": lambda *a, e=engine: by_dslaunch(e, *a) for engine in ("io_uring", "threads")}
    if shutil.which("fio"):
        huge = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
        for name, engine, tunables in (
                ("fio io_uring", "io_uring", {}), ("fio io_uring, huge pages", "io_uring", huge),
                ("fio libaio", "libaio", {})):
            rows[name] = lambda *a, e=engine, t=tunables: by_fio(e, t, *a)
    else:
        print("left out: fio is not installed", file=sys.stderr)
    try:
        rows["DeepSpeed async_io"] = AsyncIo()
    except Exception as error:  # whatever a peer's build says
        print(f"left out: DeepSpeed's async_io: {str(error).splitlines()[-1]}", file=sys.stderr)
    return rows


def measure(options, rows):
    """{setting: {row: {direction: (rate, cpu)}}}: medians."""
    results = {}
    with tempfile.TemporaryDirectory(prefix="dslaunch-bench-io-", dir=options.folder) as folder:
        for setting in options.settings.split(","):
            block, depth = setting.split("x")
            turns = {name: [] for name in rows}
            for turn in range(options.turns):
                for name, row in rows.items():
                    turns[name].append(row(options, folder, block, int(depth)))
                    print(f"{setting} turn {turn + 1} {name}: {turns[name][-1]}", file=sys.stderr)
            results[setting] = {
                name: {way: tuple(statistics.median(figures[way][i] for figures in found) for i in (0, 1))
                       for way in ("write", "read")} for name, found in turns.items()}
    return results


def disk_of(folder):
    source = subprocess.run(["findmnt", "-no", "SOURCE,FSTYPE", "--target", folder], capture_output=True, text=True)
    device = os.stat(folder).st_dev
    link = f"/sys/dev/block/{os.major(device)}:{os.minor(device)}"
    driver = os.path.basename(os.path.realpath(f"{link}/device/driver")) if os.path.exists(f"{link}/device/driver") else "?"
    return f"{' '.join(source.stdout.split()) or 'unknown disk'} ({driver})"


def report(options, results, load_before):
    lines = [
        page.heading(
            f"disk {disk_of(options.folder)}",
            f"a file of {options.size}, O_DIRECT",
            f"{options.turns} interleaved turns of {options.seconds:g} s, medians",
            load_before=load_before,
        ),
        "",
        "| block x depth | | read GB/s | / best fio | CPU ms/GB | write GB/s | / best fio | CPU ms/GB |",
        "|---|---|---|---|---|---|---|---|"]
    for setting, rows in results.items():
        for name, figures in rows.items():
            cells = []
            for way in ("read", "write"):
                rate, cpu = figures[way]
                fio = max((row[way][0] for other, row in rows.items() if other.startswith("fio")), default=None)
                cells += [f"{rate:.2f}", f"{rate / fio:.2f}" if fio else "", f"{cpu:.1f}"]
            lines.append(f"| {setting} | {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default="/var/tmp", help="on the disk to measure")
    parser.add_argument("--dslaunch", default="build/release/bin/dslaunch")
    parser.add_argument("--size", default="1G")
    parser.add_argument("--settings", default="1Mx8,1Mx32", help="BLOCKxDEPTH,…; DeepSpeed's default is 1Mx8")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--write", metavar="FILE", help="with the markers of the section to replace")
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    results = measure(options, rows_of(options))
    text = report(options, results, load_before)
    print(text)
    if options.write:
        page.write_section(options.write, "disk", text)


if __name__ == "__main__":
    main()
