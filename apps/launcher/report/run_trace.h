// The instructions of one step in trace.json, measured and predicted. One thread; reads a file.
#pragma once

#include <string>

#include "launcher/report/run_facts.h"

namespace dslaunch::launcher {

// Sets RUN's trace from trace.json; adds a problem if it is damaged.
void read_run_trace(RunFolder& run);

// Returns an <svg> element with two bars for each lane, measured and predicted, or an empty text if
// there is no trace. WIDTH: the width of the picture in CSS pixels.
[[nodiscard]] std::string trace_svg(const RunTrace& trace, int width);
// Returns the kinds of instructions in TRACE with their colours as an HTML list.
[[nodiscard]] std::string trace_legend(const RunTrace& trace);
// Returns for each lane the time in which it worked, measured and predicted, and the time of the
// whole step.
[[nodiscard]] ReportTable trace_rows(const RunTrace& trace);

}  // namespace dslaunch::launcher
