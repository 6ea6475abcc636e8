// The part of rank 0's log that a report on its run shows. One thread; reads a file.
#pragma once

#include "launcher/report/run_facts.h"

namespace dslaunch::launcher {

// Sets RUN's said, warnings and last_lines from logs/rank-0.log: from its first and last 256 KiB,
// since it may be large. If run.json has no memory, sets predicted_memory and measured_memory from
// there too. Adds a problem if the file cannot be read.
void read_run_log(RunFolder& run);

}  // namespace dslaunch::launcher
