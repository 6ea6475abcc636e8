// The part of rank 0's log that a report on its run shows. One thread; reads a file.
#pragma once

#include "launcher/report/run_facts.h"

namespace dslaunch::launcher {

// Sets the members of RUN that come from logs/rank-0.log: said, warnings and last_lines. If
// run.json has no memory, also sets predicted_memory and measured_memory. Reads only the log's
// first and last 256 KiB, since the log may be large. Adds a problem if the file cannot be read.
void read_run_log(RunFolder& run);

}  // namespace dslaunch::launcher
