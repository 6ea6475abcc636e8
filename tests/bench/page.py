"""What the benches have in common: the machine's line above a table, and a page's section between
two markers."""

import datetime
import os
import pathlib
import platform
import textwrap

COLUMNS = 100


def machine():
    """Processors, memory and kernel."""
    with open("/proc/cpuinfo") as lines:
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    with open("/proc/meminfo") as lines:
        kib = next(int(line.split()[1]) for line in lines if line.startswith("MemTotal:"))
    name = names[0] if names else platform.machine()
    return f"{os.cpu_count()} x {name}, {kib / 2**20:.0f} GiB, Linux {platform.release()}"


def heading(*facts, load_before):
    """The line above a table: date, machine, FACTS and the load average, wrapped."""
    loads = f"load average {load_before:.1f} before, {os.getloadavg()[0]:.1f} after."
    return wrapped("; ".join([str(datetime.date.today()), machine(), *facts, loads]))


def wrapped(text):
    return "\n".join(
        textwrap.wrap(text, COLUMNS, break_long_words=False, break_on_hyphens=False)
    )


def write_section(path, name, text):
    """Replaces what stands in the page PATH between the markers of the section NAME."""
    path = pathlib.Path(path)
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    page = path.read_text()
    if page.count(begin) != 1 or page.count(end) != 1:
        raise SystemExit(f"{path}: needs the lines {begin.strip()} and {end.strip()} once each")
    before, rest = page.split(begin)
    after = rest.split(end)[1]
    path.write_text(f"{before}{begin}\n{text.strip()}\n\n{end}{after}")
