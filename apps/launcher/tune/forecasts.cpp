#include "launcher/tune/forecasts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "launch/machine/torch_place.h"
#include "launch/plan/worker_environment.h"
#include "launch/process/spawn.h"
#include "launcher/options/machine.h"
#include "launcher/run/commands.h"
#include "launcher/tune/watched_child.h"

namespace dslaunch::launcher {
namespace {

std::vector<std::string> command_of(const RunOptions& options, const launch::JobSpec& spec,
                                    const std::string& worker) {
    size_t most = 1;
    for (const launch::PlannedNode& node : spec.nodes) most = std::max(most, node.workers.size());
    std::vector<std::string> words = {worker,
                                      "plan",
                                      options.target,
                                      "--tune",
                                      "--json",
                                      fmt::format("--world-size={}", spec.world_size),
                                      fmt::format("--ranks-per-node={}", most)};
    if (!options.config.empty()) words.push_back("--config=" + options.config);
    if (options.trust_model) words.emplace_back("--trust-model");
    if (spec.device == launch::DeviceRequest::kCuda) words.emplace_back("--device=cuda");
    for (const std::string& assignment : options.set) words.push_back("--set=" + assignment);
    return words;
}

WatchedChild start_plan(const RunOptions& options, const launch::JobSpec& spec) {
    const std::string worker = Machine::this_one().binary_directory + "/dsworker";
    require_worker(worker);
    Pipe lines = make_pipe(), messages = make_pipe();
    launch::SpawnRequest request;
    request.command = command_of(options, spec, worker);
    launch::lead_to_torch(worker, request.environment);
    launch::limit_spinning(request.environment);
    request.working_directory = spec.working_directory;
    request.stdout_fd = lines.write_end.get();
    request.stderr_fd = messages.write_end.get();
    request.die_with_parent = true;
    const launch::SpawnResult started = launch::spawn(request);
    if (!started.error.empty()) fail(ExitCode::kSetup, "{}: {}", worker, started.error);
    return {started.pid, std::move(lines.read_end), std::move(messages.read_end)};
}

}  // namespace

Forecasts parse_forecasts(const std::string& text) {
    const nlohmann::json root = nlohmann::json::parse(text, nullptr, false);
    Forecasts forecasts;
    try {
        forecasts.train_rows = root.at("train_rows");
        forecasts.step_flops = root.at("step_flops");
        forecasts.kept = root.at("kept_micro_batch");
        for (const nlohmann::json& config : root.at("configs")) {
            TuneCandidate one;
            plan::TunedSettings& settings = one.trial.settings;
            settings.micro_rows = config.at("micro_rows");
            settings.accumulation_steps = config.at("accumulation_steps");
            settings.stage = config.at("stage");
            settings.recompute_groups = config.at("recompute_groups");
            settings.optimizer_on_disk = config.at("optimizer_on_disk");
            settings.parameters_on_disk = config.at("parameters_on_disk");
            settings.bucket_numel = config.at("bucket_numel");
            one.trial.forecast_s = config.at("step_s");
            one.trial.fits = config.at("fits");
            one.rank_bytes = config.at("rank_bytes");
            one.set = config.at("set").get<std::vector<std::string>>();
            forecasts.candidates.push_back(std::move(one));
        }
    } catch (const nlohmann::json::exception& error) {
        fail(ExitCode::kInternal, "the output of `plan --tune` cannot be read: {}", error.what());
    }
    if (forecasts.candidates.empty())
        fail(ExitCode::kInternal, "`plan --tune` has listed no config");
    return forecasts;
}

Forecasts make_forecasts(const RunOptions& options, const launch::JobSpec& spec,
                         std::chrono::steady_clock::time_point deadline, int signal_fd) {
    std::string text;
    const ChildResult child = watch(
        start_plan(options, spec),
        [&](std::string_view line) {
            text += line;
            return true;
        },
        deadline, signal_fd);
    if (child.end == ChildEnd::kInterrupted)
        fail(ExitCode::kInterrupted, "interrupted before the first trial: nothing was chosen");
    if (child.end == ChildEnd::kTimeOver)
        fail(ExitCode::kUsage,
             "the forecast alone takes longer than the time for the search: give more --minutes");
    if (child.exit_code != 0)
        throw Error(static_cast<ExitCode>(child.exit_code), cause_of(child.messages));
    return parse_forecasts(text);
}

}  // namespace dslaunch::launcher
