// The monitors that a run's config asks for. No threads: plain values.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch::config {

// `tensorboard` or `csv_monitor`.
struct MonitorFolder {
    bool enabled = false;
    std::string output_path;  // as given; empty for the folder in which the job was started
    std::string job_name = "DeepSpeedJobName";  // the folder below output_path

    bool operator==(const MonitorFolder&) const = default;
};

// `wandb`. dslaunch-upload sends the event files with W&B's own program.
struct WandbConfig {
    bool enabled = false;
    std::string project = "deepspeed";
    std::string team, group;  // empty if not given

    bool operator==(const WandbConfig&) const = default;
};

// `comet`, whose events dslaunch-upload sends too.
struct CometConfig {
    bool enabled = false;
    bool offline = false;                                                   // online: false
    std::string project, workspace, experiment_name, experiment_key, mode;  // empty if not given
    int64_t interval_samples = 100;  // samples between two events

    bool operator==(const CometConfig&) const = default;
};

// All monitors.
struct MonitorsConfig {
    MonitorFolder tensorboard;
    MonitorFolder csv;
    WandbConfig wandb;
    CometConfig comet;
    std::string prometheus_file;  // dslaunch.metrics.prometheus as given; empty for none

    bool operator==(const MonitorsConfig&) const = default;
};

}  // namespace dslaunch::config
