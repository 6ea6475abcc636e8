// dsworker plan MODEL: computes the work and the memory of a training step, for any number of
// ranks, without starting anything.
#include <c10/core/Device.h>
#include <fmt/core.h>

#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "base/path.h"
#include "base/terminal/progress.h"
#include "config/read/unread_config.h"
#include "job/predict/host_admission.h"
#include "job/predict/job_forecast.h"
#include "job/setup/job_layout.h"
#include "job/setup/set_up_job.h"
#include "job/setup/trial_batch.h"
#include "runtime/compute/rank_device.h"
#include "storage/files/zip_archive.h"
#include "storage/huggingface/model_folder.h"
#include "worker/plan/plan_job.h"
#include "worker/plan/plan_options.h"
#include "worker/plan/plan_reports.h"
#include "worker/plan/plan_tune.h"
#include "worker/roles.h"

namespace dslaunch::worker {
namespace {

// Refuses requests that do not fit the config. SHARES: true if ranks share layers or positions.
void check_wish(const job::JobSetup& setup, const MeshArguments& mesh, bool shares) {
    if (setup.on_gpu && (mesh.wish.stages > 1 || shares))
        fail(ExitCode::kConfig,
             "dslaunch.device: cuda: on GPUs this version supports only data parallelism with "
             "ZeRO; to plan stages or shared layers, remove the device or set it to cpu");
    if (!setup.on_gpu && !mesh.device_memory.empty())
        fail(
            ExitCode::kUsage,
            "--device-memory is the memory of a GPU, but this plan is for CPUs: add --device cuda");
    if (setup.on_gpu && mesh.host_memory_gib > 0)
        fail(
            ExitCode::kUsage,
            "--host-memory is for ranks that share a host's memory; for GPUs, use --device-memory");
    if (setup.sharing.plan && (shares || mesh.search || mesh.wish.stages > 0))
        fail(ExitCode::kUsage,
             "the config already shares layers or positions among ranks (dslaunch.tensor.size, "
             "dslaunch.sequence.size): to plan other meshes, remove these keys from it");
}

HelpPage plan_help() {
    return {.does =
                "Prints segments, instructions, memory and bytes moved, without starting anything. "
                "It reads the model, measures it by a pass over one micro batch, and shows a "
                "training step of rank 0: whether it fits, its memory by kind and tier, and the "
                "bytes that it reads, writes and sends.",
            .examples = {"dslaunch plan train.pt --config ds_config.json --world-size 8",
                         "dslaunch plan train.pt --world-size 8 --stages 4 --svg step.svg",
                         "dslaunch plan train.pt --hostfile hostfile --search",
                         "dslaunch plan train.pt --world-size 8 --device cuda "
                         "--device-memory H100"},
            .docs = "docs/scale/plan.md, docs/scale/pipelines.md, docs/scale/tensor-parallel.md"};
}

// Prints the report on SETUP that ARGUMENTS ask for, unless it is a report about meshes. SHARES is
// true if ranks share layers.
void print_one(const job::JobSetup& setup, PlanArguments& arguments, bool shares) {
    job::check_host_plans(setup, place_of(arguments, 0));
    if (arguments.sequence > 0) {
        arguments.tensor.sequence = true;
        arguments.tensor.rules.size = arguments.sequence;
    }
    if (shares || arguments.tensor.sequence) {
        fmt::print("{}", tensor_report(setup, arguments.tensor, arguments.json));
    } else if (arguments.compare == "shard") {
        fmt::print("{}", compare_shards(setup, arguments.json));
    } else if (arguments.compare == "cache") {
        fmt::print("{}", compare_caches(setup, arguments.json));
    } else {
        print_plan(setup, arguments);
    }
}

// Warns if a config file is beside an archive that contains another config.
void warn_of_unread_config(const job::JobArguments& arguments) {
    constexpr const char* kConfigName = "ds_config.json";
    const std::string& model = arguments.model_path;
    if (!arguments.config_path.empty() || storage::model_folder_of(model)) return;
    const storage::ZipArchive archive(model);
    const auto packed = archive.extra(kConfigName);
    if (!packed) return;
    const std::string unread =
        config::unread_config_text(*packed, fmt::format("{}:{}", model, kConfigName),
                                   fmt::format("{}/{}", folder_of(model), kConfigName));
    if (!unread.empty()) log_warn("config", "{}", unread);
}

}  // namespace

int plan_main(int argc, char** argv) {
    PlanArguments arguments;
    CommandLine app(plan_help(), "dslaunch plan");
    add_plan_options(app, arguments);
    if (!app.parse({argv + 1, argv + argc})) return 0;
    settle_plan_options(app, arguments);
    const MeshArguments& mesh = arguments.mesh;
    arguments.job.plan_only = true;
    // A plan for a GPU is made on the CPU. It is refused if a run would be refused.
    arguments.job.open_device = [](const config::RunConfig& config) {
        if (config.device == config::DeviceChoice::kCuda) runtime::check_gpu_support(config);
        return c10::Device(c10::kCPU);
    };
    // The command that started this process beside it has warned already.
    if (arguments.beside_ranks > 0) set_log_level(LogLevel::kError);
    if (arguments.beside_ranks == 0) warn_of_unread_config(arguments.job);
    const runtime::Topology place = place_of(arguments, 0);
    std::optional<Progress> progress;
    if (arguments.beside_ranks == 0) progress.emplace("plan", "reading the model");
    arguments.job.begins = [&](std::string_view what) {
        if (progress) progress->begin(what);
    };
    if (arguments.learning_rate) {
        config::RunConfig config = job::config_of_job(arguments.job, place);
        if (config.steps == 0 && (config.epochs > 0 || !config.data.train_path.empty()))
            config = job::set_up_job(arguments.job, place).config();
        progress.reset();
        fmt::print("{}", learning_rate_text(config, arguments.json));
        return 0;
    }
    const job::JobSetup setup = job::set_up_job(arguments.job, place);
    progress.reset();
    if (arguments.beside_ranks > 0) {
        job::measure_beside_rank(setup, arguments.beside_ranks);
        return 0;
    }
    const bool shares = app.count("--tensor") + app.count("--sequence") > 0;
    check_wish(setup, mesh, shares);
    // Refuses what needs a pass over the whole batch before anything is printed.
    const bool needs_pass =
        arguments.forecast || arguments.tune || mesh.search || mesh.wish.stages > 0 || shares;
    if (needs_pass && !setup.estimate.empty()) static_cast<void>(job::trial_batch(setup));
    if (arguments.tune) {
        print_tuning(setup, arguments);
        return 0;
    }
    if (mesh.search) {
        print_search(setup, mesh);
        return 0;
    }
    if (mesh.wish.stages > 0) {
        print_pipelines(setup, mesh);
        return 0;
    }
    print_one(setup, arguments, app.count("--tensor") > 0);
    return 0;
}

}  // namespace dslaunch::worker
