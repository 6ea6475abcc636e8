// The choice of a job's monitors. No threads: a plain value.
#pragma once

#include <string>

namespace dslaunch::launch {

// The monitors that a job has.
struct MonitorSettings {
    std::string event_folder;     // absolute; empty: no event files
    std::string csv_folder;       // absolute; empty: no CSV files
    std::string prometheus_file;  // absolute; empty: no file
    std::string run;              // the job's name for Prometheus
    bool has_loss_scale = false;  // the loss scale is an event, as with DeepSpeed's fp16

    // Returns true if there is a monitor.
    [[nodiscard]] bool any() const {
        return !event_folder.empty() || !csv_folder.empty() || !prometheus_file.empty();
    }
};

}  // namespace dslaunch::launch
