#include "launcher/run/job_monitors.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/path.h"
#include "base/text/words.h"
#include "launcher/options/machine.h"

namespace dslaunch::launcher {
namespace {

// Returns the folder that a monitor of DeepSpeed uses: os.path.join(output_path, job_name).
std::string monitor_folder(const config::MonitorFolder& folder, const launch::JobSpec& spec) {
    if (!folder.enabled) return "";
    const std::filesystem::path path =
        std::filesystem::path(folder.output_path) / std::filesystem::path(folder.job_name);
    return resolved_path(path.string(), spec.working_directory);
}

// Returns OPTION and its VALUE as words of a command; nothing if VALUE is empty.
std::string option_text(const char* option, const std::string& value) {
    return value.empty() ? "" : fmt::format(" {} {}", option, shell_word(value));
}

std::string wandb_options(const config::WandbConfig& wandb) {
    return option_text("--project", wandb.project) + option_text("--team", wandb.team) +
           option_text("--group", wandb.group);
}

std::string comet_options(const config::CometConfig& comet) {
    return option_text("--project", comet.project) + option_text("--team", comet.workspace) +
           option_text("--name", comet.experiment_name) +
           option_text("--key", comet.experiment_key) + option_text("--mode", comet.mode) +
           fmt::format(" --interval {}", comet.interval_samples) +
           (comet.offline ? " --offline" : "");
}

}  // namespace

launch::MonitorSettings job_monitors(const config::RunConfig& config, const launch::JobSpec& spec) {
    const config::MonitorsConfig& wanted = config.monitors;
    launch::MonitorSettings monitors;
    monitors.event_folder = monitor_folder(wanted.tensorboard, spec);
    if (monitors.event_folder.empty() && (wanted.wandb.enabled || wanted.comet.enabled)) {
        const std::string& output = spec.output_directory;
        monitors.event_folder =
            resolved_path("tensorboard", output.empty() ? spec.working_directory : output);
    }
    monitors.csv_folder = monitor_folder(wanted.csv, spec);
    if (!wanted.prometheus_file.empty())
        monitors.prometheus_file = resolved_path(wanted.prometheus_file, spec.working_directory);
    monitors.run = std::filesystem::path(spec.output_directory).filename().string();
    if (monitors.run.empty()) monitors.run = spec.job_id;
    monitors.has_loss_scale = config.precision.compute == DType::kF16;
    return monitors;
}

std::vector<std::string> describe_monitors(const config::MonitorsConfig& config,
                                           const launch::MonitorSettings& monitors,
                                           const std::string& programs) {
    std::vector<std::string> lines;
    const std::string events = shell_word(path_from_here(monitors.event_folder));
    const std::string upload = shell_word(path_from_here(programs + "/dslaunch-upload"));
    if (config.tensorboard.enabled)
        lines.push_back(
            fmt::format("tensorboard: show the curves with: tensorboard --logdir {}", events));
    if (config.wandb.enabled)
        lines.push_back(fmt::format("wandb: nothing is sent; upload with: {} wandb{} {}", upload,
                                    wandb_options(config.wandb), events));
    if (config.comet.enabled)
        lines.push_back(fmt::format("comet: nothing is sent; upload with: {} comet{} {}", upload,
                                    comet_options(config.comet), events));
    if (!monitors.csv_folder.empty())
        lines.push_back(
            fmt::format("csv_monitor: the files are in {}", path_from_here(monitors.csv_folder)));
    if (!monitors.prometheus_file.empty())
        lines.push_back(fmt::format("dslaunch.metrics.prometheus: the newest step is in {}",
                                    path_from_here(monitors.prometheus_file)));
    return lines;
}

}  // namespace dslaunch::launcher
