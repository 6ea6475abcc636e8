// resolve_monitors(): where the metrics of steps are written besides metrics.jsonl.
#include <string>

#include "base/text/file_faults.h"
#include "config/resolve/resolve_parts.h"

namespace dslaunch::config {
namespace {

constexpr const char* kPrometheus = "dslaunch.metrics.prometheus";

// Adds a problem if GIVEN is a path of an object store, because files there cannot be appended to,
// or if only a shell could read it.
void require_folder(KeyReader& keys, const std::string& path, const std::string& given) {
    if (given.find("://") != std::string::npos)
        keys.problem(
            path,
            "must be a path on the machine that runs dslaunch, not in an object store, because "
            "every step appends to the files: copy the files to the object store after the run");
    if (const std::string text = unexpanded_text(given); !text.empty()) keys.problem(path, text);
}

MonitorFolder take_folder(KeyReader& keys, const std::string& section) {
    MonitorFolder folder;
    folder.enabled = keys.take_bool(section + ".enabled");
    folder.output_path = keys.take_text(section + ".output_path");
    folder.job_name = keys.take_text(section + ".job_name");
    if (folder.enabled) require_folder(keys, section + ".output_path", folder.output_path);
    return folder;
}

}  // namespace

void resolve_monitors(KeyReader& keys, RunConfig& run) {
    MonitorsConfig& monitors = run.monitors;
    monitors.tensorboard = take_folder(keys, "tensorboard");
    monitors.csv = take_folder(keys, "csv_monitor");
    WandbConfig& wandb = monitors.wandb;
    wandb.enabled = keys.take_bool("wandb.enabled");
    wandb.project = keys.take_text("wandb.project");
    wandb.team = keys.take_text("wandb.team");
    wandb.group = keys.take_text("wandb.group");
    CometConfig& comet = monitors.comet;
    comet.enabled = keys.take_bool("comet.enabled");
    comet.project = keys.take_text("comet.project");
    comet.workspace = keys.take_text("comet.workspace");
    comet.experiment_name = keys.take_text("comet.experiment_name");
    comet.experiment_key = keys.take_text("comet.experiment_key");
    comet.mode = keys.take_text("comet.mode");
    comet.interval_samples = keys.take_integer("comet.samples_log_interval");
    const Value online = keys.take("comet.online");
    comet.offline = online.is(Value::Kind::kBool) && !online.boolean;
    monitors.prometheus_file = keys.take_text(kPrometheus);
    require_folder(keys, kPrometheus, monitors.prometheus_file);
    if (monitors.prometheus_file.empty()) return;
    if (!monitors.prometheus_file.ends_with(".prom"))
        keys.problem(kPrometheus,
                     "must be a file whose name ends in .prom: node_exporter's textfile collector "
                     "reads no others");
}

}  // namespace dslaunch::config
