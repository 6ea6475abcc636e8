#include "worker/plan/plan_tune.h"

#include <ATen/Parallel.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/screen.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "base/text/json.h"
#include "base/text/text_table.h"
#include "config/tuning/autotuning.h"
#include "job/predict/changed_job.h"
#include "job/predict/host_admission.h"
#include "job/predict/job_forecast.h"
#include "job/process/process_resources.h"
#include "job/setup/set_up_job.h"
#include "plan/choose/tuning_space.h"
#include "plan/predict/known_devices.h"
#include "plan/time/row_times.h"
#include "worker/plan/plan_reports.h"

namespace dslaunch::worker {
namespace {

constexpr int kRounds = 2;             // passes in a measurement; trials correct its errors
constexpr double kSecondSizeS = 15;    // a second size is measured if the first took at most this
constexpr int64_t kSecondRowsMax = 4;  // the second size has at most this many times the rows
constexpr size_t kShownMax = 20;       // rows of the table

// A config and its forecasts.
struct Considered {
    plan::TunedSettings settings;
    bool is_possible = true;
    double step_s = 0;  // 0: not known
    Bytes rank;         // largest memory of a rank; on GPUs, of a GPU
    bool fits = true;
};

// The job whose settings are tuned, and the rates of this machine.
struct Tuning {
    const job::JobSetup& setup;
    runtime::Topology place;
    plan::TunedSettings given;
    std::vector<std::string> nvme_paths;
    std::vector<plan::RowTimes> times;  // empty: no forecast of time
    plan::MachineRates machine;
    ProgramMemory program;
    plan::HostLimits limits;
    std::string kept;  // why the micro batch must not change; empty if it may
};

plan::TunedSettings settings_of(const config::RunConfig& config) {
    plan::TunedSettings settings;
    settings.micro_rows = config.batch.micro_rows;
    settings.accumulation_steps = config.batch.accumulation_steps;
    settings.stage = config.zero.stage;
    settings.recompute_groups = config.recompute_groups;
    settings.optimizer_on_disk = config.offload.optimizer == config::OffloadDevice::kNvme;
    settings.parameters_on_disk = config.offload.parameters == config::OffloadDevice::kNvme;
    settings.bucket_numel = config.zero.reduce_bucket_numel;
    return settings;
}

config::RunConfig with_settings(config::RunConfig config, const plan::TunedSettings& settings,
                                const std::vector<std::string>& nvme_paths) {
    const bool was_high = config.zero.stage >= 2;
    config.batch.micro_rows = settings.micro_rows;
    config.batch.accumulation_steps = settings.accumulation_steps;
    config.zero.stage = settings.stage;
    if (settings.stage >= 2) config.reduce = config::ReduceWhen::kMicroStep;
    if (settings.stage < 2 && was_high) config.reduce = config::ReduceWhen::kOnce;
    config.zero.reduce_bucket_numel = settings.bucket_numel;
    config.recompute_groups = settings.recompute_groups;
    const auto device = [](bool on_disk) {
        return on_disk ? config::OffloadDevice::kNvme : config::OffloadDevice::kNone;
    };
    config.offload.optimizer = device(settings.optimizer_on_disk);
    config.offload.parameters = device(settings.parameters_on_disk);
    config.offload.nvme_paths = nvme_paths;
    return config;
}

// Returns the folders that the config names for values on disk, even if the config does not use
// them.
std::vector<std::string> disk_folders(const job::JobSetup& setup) {
    if (!setup.config().offload.nvme_paths.empty()) return setup.config().offload.nvme_paths;
    for (const config::ResolvedValue& value : setup.resolved.values)
        if (value.path.ends_with(".nvme_path") && value.value.is(config::Value::Kind::kString) &&
            ::access(value.value.text.c_str(), W_OK) == 0)
            return {value.value.text};
    return {};
}

// Returns the reason why a micro batch of another size would change the model; empty if there is
// none.
std::string why_keep_micro_batch(const job::JobSetup& setup) {
    for (const config::ResolvedValue& value : setup.resolved.values)
        if (value.path == "elasticity.enabled" && value.value.boolean)
            return "elasticity determines it";
    for (const graph::ModelBuffer& buffer : setup.whole_model().buffers())
        if (buffer.name.ends_with("running_mean"))
            return fmt::format("{} is a mean over a micro batch", printable(buffer.name));
    return "";
}

plan::TuningLimits limits_of(const Tuning& tuning) {
    const job::JobSetup& setup = tuning.setup;
    const config::AutotuningConfig wishes = config::autotuning_of(setup.resolved);
    config::require_limits(wishes, setup.config().batch);
    const auto is_fixed = [&](const char* path) {
        return config::is_from_command_line(setup.resolved, path);
    };
    plan::TuningLimits limits;
    limits.rows = tuning.given.micro_rows * tuning.given.accumulation_steps;
    limits.ranks = tuning.place.world_size();
    limits.micro_rows_min = wishes.micro_rows_min.value_or(limits.micro_rows_min);
    limits.micro_rows_max = wishes.micro_rows_max.value_or(limits.micro_rows_max);
    limits.micro_sizes = wishes.micro_sizes.value_or(limits.micro_sizes);
    if (!tuning.kept.empty() || is_fixed("train_micro_batch_size_per_gpu") ||
        is_fixed("gradient_accumulation_steps"))
        limits.micro_rows_min = limits.micro_rows_max = tuning.given.micro_rows;
    if (is_fixed("zero_optimization.stage")) limits.stages.clear();
    // Offload to the CPU needs stage 1 or higher.
    if (setup.config().offload.optimizer == config::OffloadDevice::kCpu)
        std::erase(limits.stages, 0);
    limits.segments = std::ssize(setup.model_info.segments);
    limits.trained_numel = setup.model_info.trainable_numel();
    limits.tunes_recompute = !is_fixed("activation_checkpointing.number_checkpoints");
    limits.tunes_buckets =
        !wishes.fast.value_or(false) && !is_fixed("zero_optimization.reduce_bucket_size");
    limits.tunes_disk = !setup.on_gpu && !tuning.nvme_paths.empty() && !setup.sharing.plan &&
                        !is_fixed("zero_optimization.offload_optimizer.device") &&
                        !is_fixed("zero_optimization.offload_param.device");
    return limits;
}

// Returns the size of a micro batch to measure besides the given one; nullopt if there is none.
std::optional<int64_t> second_size(const std::vector<plan::TunedSettings>& space) {
    const int64_t given = space.front().micro_rows;
    std::optional<int64_t> second;
    for (const plan::TunedSettings& one : space) {
        if (one.micro_rows == given || one.micro_rows > kSecondRowsMax * given) continue;
        const auto apart = [&](int64_t rows) {
            return std::max(rows, given) / std::min(rows, given);
        };
        if (!second || apart(one.micro_rows) > apart(*second)) second = one.micro_rows;
    }
    return second;
}

// Returns true if this machine has room for another copy of the model for a moment.
bool has_room(const Tuning& tuning) {
    constexpr int64_t kTimes = 4;  // weights, gradients and activations of a pass
    int64_t bytes = 0;
    for (const plan::ParameterInfo& parameter : tuning.setup.model_info.parameters)
        bytes += parameter.numel * parameter.element_bytes;
    const auto limit = tightest_share(tuning.limits.memory.limits, 1);
    return !limit || bytes * kTimes < limit->left.value;
}

// Measures how long segments take, and stores the times in TUNING. Uses the given size of micro
// batch and, if there is time and memory, a second size.
void measure(Tuning& tuning, const std::vector<plan::TunedSettings>& space,
             const PlanArguments& arguments) {
    const job::JobSetup& setup = tuning.setup;
    const MeshArguments& mesh = arguments.mesh;
    if (setup.on_gpu) {
        if (mesh.device_memory.empty() && mesh.flops_per_s <= 0) return;
        job::JobRates rates = rates_of_gpu(setup, mesh);
        tuning.machine = rates.machine;
        tuning.times = {{tuning.given.micro_rows, std::move(rates.segments)}};
        return;
    }
    if (setup.shapes_only) return;  // without weights nothing can be timed
    const int ranks = *std::ranges::max_element(tuning.place.node_sizes);
    const auto began = std::chrono::steady_clock::now();
    const auto measured = [&](const job::JobSetup& of) {
        job::set_rank_threads(ranks);
        return job::measure_job_rates(of,
                                      {at::get_num_threads(), mesh.link_bytes_per_s, kRounds, {}});
    };
    job::JobRates rates = measured(setup);
    tuning.machine = rates.machine;
    tuning.times = {{tuning.given.micro_rows, std::move(rates.segments)}};
    const double took_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const std::optional<int64_t> rows = second_size(space);
    if (!rows || took_s > kSecondSizeS || !has_room(tuning)) return;
    plan::TunedSettings other = tuning.given;
    other.micro_rows = *rows;
    other.accumulation_steps =
        tuning.given.micro_rows * tuning.given.accumulation_steps / other.micro_rows;
    job::JobArguments changed = arguments.job;
    changed.begins = {};
    for (std::string& override :
         plan::tuning_overrides(other, tuning.given, setup.config().batch.train_rows, ""))
        changed.overrides.push_back(std::move(override));
    const job::JobSetup second = job::set_up_job(changed, tuning.place);
    if (second.model_info.segments.size() != setup.model_info.segments.size()) return;
    tuning.times.push_back({*rows, measured(second).segments});
}

Considered consider(const Tuning& tuning, const plan::TunedSettings& settings) {
    Considered one;
    one.settings = settings;
    const std::optional<job::JobSetup> other =
        job::changed_job(tuning.setup, tuning.place,
                         with_settings(tuning.setup.config(), settings, tuning.nvme_paths));
    if (!other) {
        one.is_possible = false;
        return one;
    }
    const plan::HostNeed need = job::need_of_host(*other, tuning.place, tuning.program);
    one.rank = tuning.setup.on_gpu ? need.device : need.of_rank();
    one.fits = plan::all_fit(plan::admit(need, tuning.limits));
    if (tuning.times.empty()) return one;
    job::JobRates rates;
    rates.machine = tuning.machine;
    rates.segments = plan::times_for_rows(tuning.times, settings.micro_rows);
    const std::vector<plan::InstructionSpan> spans =
        job::forecast_step(other->plan, *other, tuning.place, rates);
    one.step_s = plan::end_of({&spans, 1});
    return one;
}

// Returns the configs that can be run. The given config comes first, then the others by their
// expected step time, the shortest first.
std::vector<Considered> consider_all(Tuning& tuning, const PlanArguments& arguments) {
    const job::JobSetup& setup = tuning.setup;
    job::AdmissionOptions options;
    if (!arguments.mesh.device_memory.empty())
        options.device = plan::device_room_of(arguments.mesh.device_memory);
    tuning.program = job::admit_host(setup, tuning.place, options).program;
    tuning.limits = {read_memory_state(), 1, read_disk_room(tuning.nvme_paths), options.device};
    const std::vector<plan::TunedSettings> space =
        plan::tuning_space(tuning.given, limits_of(tuning));
    measure(tuning, space, arguments);
    std::vector<Considered> considered;
    for (const plan::TunedSettings& settings : space) {
        Considered one = consider(tuning, settings);
        if (one.is_possible || considered.empty()) considered.push_back(one);
    }
    std::stable_sort(considered.begin() + 1, considered.end(),
                     [](const Considered& a, const Considered& b) { return a.step_s < b.step_s; });
    return considered;
}

std::vector<std::string> overrides_of(const Tuning& tuning, const plan::TunedSettings& settings) {
    return plan::tuning_overrides(settings, tuning.given, tuning.setup.config().batch.train_rows,
                                  tuning.nvme_paths.empty() ? "" : tuning.nvme_paths.front());
}

void print_json(const Tuning& tuning, const std::vector<Considered>& considered) {
    const job::JobSetup& setup = tuning.setup;
    const config::RunConfig& config = setup.config();
    JsonWriter json;
    json.begin_object().field("train_rows", config.batch.train_rows);
    json.field("kept_micro_batch", tuning.kept).field("steps", config.steps);
    json.field("step_flops", 3 * setup.model_info.forward_flops() *
                                 config.batch.accumulation_steps *
                                 (config.batch.data_parallel_size));
    json.key("measured_rows").begin_array();
    for (const plan::RowTimes& times : tuning.times) json.value(times.rows);
    json.end_array().key("configs").begin_array();
    for (const Considered& one : considered) {
        const plan::TunedSettings& of = one.settings;
        json.begin_object().field("micro_rows", of.micro_rows);
        json.field("accumulation_steps", of.accumulation_steps).field("stage", of.stage);
        json.field("recompute_groups", of.recompute_groups);
        json.field("optimizer_on_disk", of.optimizer_on_disk);
        json.field("parameters_on_disk", of.parameters_on_disk);
        json.field("bucket_numel", of.bucket_numel).field("step_s", one.step_s);
        json.field("rank_bytes", one.rank.value).field("fits", one.fits);
        json.key("set").begin_array();
        for (const std::string& override : overrides_of(tuning, of)) json.value(override);
        json.end_array().end_object();
    }
    json.end_array().end_object();
    fmt::print("{}\n", json.text());
}

void print_table(const Tuning& tuning, const std::vector<Considered>& considered) {
    std::vector<std::vector<std::string>> rows = {{"config", "step", "memory of a rank", ""}};
    for (size_t c = 0; c < std::min(considered.size(), kShownMax); ++c) {
        const Considered& one = considered[c];
        rows.push_back({plan::settings_text(one.settings),
                        one.step_s > 0 ? fmt::format("{:.1f} ms", 1e3 * one.step_s) : "?",
                        to_text(one.rank),
                        c == 0      ? "the given config"
                        : !one.fits ? "does not fit"
                                    : ""});
    }
    if (!tuning.kept.empty()) fmt::print("the micro batch stays the same: {}\n", tuning.kept);
    fmt::print("{}", text_table(rows, {.align = "<>><", .width = terminal_columns(STDOUT_FILENO)}));
    if (considered.size() > kShownMax)
        fmt::print("and {} more (--json lists all)\n", considered.size() - kShownMax);
}

}  // namespace

void print_tuning(const job::JobSetup& setup, const PlanArguments& arguments) {
    std::vector<Considered> considered;
    Tuning tuning{setup,
                  place_of(arguments, 0),
                  settings_of(setup.config()),
                  disk_folders(setup),
                  {},
                  {},
                  {},
                  {},
                  why_keep_micro_batch(setup)};
    {
        const Progress progress("plan", "measuring the time of a step");
        considered = consider_all(tuning, arguments);
    }
    if (arguments.json) {
        print_json(tuning, considered);
    } else {
        print_table(tuning, considered);
    }
}

}  // namespace dslaunch::worker
