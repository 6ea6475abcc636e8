// loss.svg in a run's folder: the curve of its loss, and of its held-out loss. Data path:
// metrics.jsonl -> [here] -> loss.svg. One thread.
#pragma once

#include <string>

#include "launcher/report/chart.h"

namespace dslaunch::launcher {

// Returns the chart of the loss and the held-out loss in TABLE.
[[nodiscard]] Chart loss_chart(const MetricsTable& table);

// Writes FOLDER/loss.svg from FOLDER/metrics.jsonl. Writes nothing if fewer than two steps have a
// loss, or if another file has this name. Warns if the file cannot be written; never throws.
void write_loss_picture(const std::string& folder);

}  // namespace dslaunch::launcher
