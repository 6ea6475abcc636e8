#include "worker/train/train_messages.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/plan/worker_environment.h"
#include "runtime/schedules/learning_rate.h"
#include "runtime/train/step_line.h"
#include "storage/adapter/adapter_config.h"
#include "zero/states/shard_optimizer.h"

namespace dslaunch::worker {
namespace {

// The number of updates in which warn_of_no_change() looks for a learning rate above 0.
constexpr int64_t kUpdatesMax = 1'000'000;

std::string duration_text(std::chrono::duration<double> time) {
    constexpr int64_t kMinute = 60;
    constexpr int64_t kHour = 60 * kMinute;
    const auto seconds = static_cast<int64_t>(std::round(time.count()));
    if (time.count() < 10) return fmt::format("{:.1f} s", time.count());
    if (seconds < kMinute) return fmt::format("{} s", seconds);
    if (seconds < kHour) return fmt::format("{} min {} s", seconds / kMinute, seconds % kMinute);
    return fmt::format("{} h {} min", seconds / kHour, seconds % kHour / kMinute);
}

std::string what_was_done(const runtime::TrainResult& result, const config::RunConfig& config) {
    if (result.asked_to_end && result.steps < config.steps)
        return fmt::format("stopped at step {} of {}", result.steps, config.steps);
    if (!result.ended_early.empty())
        return fmt::format("ended early at step {} of {}: {}", result.steps, config.steps,
                           result.ended_early);
    return result.new_steps == 0
               ? fmt::format("the run was already at step {0} of {0}: nothing was trained",
                             result.steps)
               : fmt::format("trained {}", counted(result.steps, "step"));
}

// Returns text about the best held-out loss if it is not the last one.
std::string best_text(const runtime::TrainResult& result) {
    const bool is_told = !result.ended_early.empty();  // the reason for the end names the best loss
    if (is_told || !result.best_eval || result.best_eval->step == result.steps) return "";
    const auto& [step, loss] = *result.best_eval;
    if (result.eval_loss) return fmt::format(" (best {:.4f} at step {})", loss, step);
    return step == 0 ? "" : fmt::format(", best held-out loss {:.4f} at step {}", loss, step);
}

// Returns PATH. If the launcher gave this host a name, the name comes before PATH.
std::string on_host(const std::string& path) {
    const char* const host = std::getenv(launch::kHostVariable);
    return host == nullptr ? path : fmt::format("{}:{}", printable(host), path);
}

}  // namespace

void require_verifiable(const job::JobSetup& setup) {
    if (setup.on_gpu)
        fail(ExitCode::kUsage,
             "verify can check only values in the host's memory: use --device cpu; the plan for a "
             "GPU has the same instructions");
    if (!setup.config().precision.master_copies)
        fail(ExitCode::kConfig,
             "bf16.bf16_master_weights_and_grads: without fp32 copies, weights are rounded "
             "stochastically, and verify cannot predict the results: to verify, remove the key");
    if (setup.config().states != config::MomentFormat::kFp32)
        fail(ExitCode::kConfig,
             "dslaunch.optimizer.states: moments in fewer bits than fp32 are rounded "
             "stochastically, and verify cannot predict the results: to verify, set the key to "
             "fp32");
    if (setup.config().lagging.on)
        fail(ExitCode::kConfig,
             "zero_optimization.zenflow: verify compares each update with the exact update of its "
             "step, but zenflow makes most updates later. To verify, remove the section");
    const config::CompressionConfig& compression = setup.config().compression;
    if (compression.changes_graph())
        fail(ExitCode::kConfig,
             "compression_training: verify also computes each step in double precision, where a "
             "weight may be quantized to another value: to verify, remove the section");
    if (compression.reduction.enabled || compression.distill.teaches())
        fail(ExitCode::kConfig,
             "dslaunch.distill: verify computes a model alone, without its teacher: remove the "
             "section, and layer_reduction, to verify");
    if (setup.plan_options.reduce_packing() != WirePacking::kNone)
        fail(ExitCode::kConfig,
             "verify cannot predict gradients that hosts round before they send them: set "
             "communication_data_type (or, with dslaunch.sequence.size, "
             "seq_parallel_communication_data_type) to fp32, zero_quantized_gradients to false, "
             "and, with torch_autocast, lower_precision_safe_modules to []");
    if (setup.config().optimizer.compresses())
        fail(ExitCode::kUsage,
             "verify compares each step with a single rank, but the results of {} depend on the "
             "number of hosts: use AdamW to verify the job",
             zero::ShardOptimizer::name(setup.config().optimizer));
}

void warn_of_no_change(const config::RunConfig& config, const storage::TrainingState& resumed) {
    const auto moving = runtime::first_moving_update(config.scheduler, config.optimizer.lr,
                                                     {resumed.updates, kUpdatesMax});
    const int64_t steps = config.steps - resumed.step;
    if (steps <= 0 || (moving && *moving < resumed.updates + steps)) return;
    log_warn("train",
             "the learning rate is 0 in each of the remaining {}, so no weight will change; {}",
             counted(steps, "step"),
             moving ? fmt::format("the rate is above 0 from step {} on: train more steps, or "
                                  "remove the schedule (--set scheduler=null)",
                                  resumed.step + *moving - resumed.updates + 1)
                    : "set a rate with --lr");
}

void log_links(const runtime::TrainResult& result) {
    const std::string sent =
        runtime::links_text(result.links, std::max<int64_t>(1, result.new_steps));
    if (!sent.empty()) log_info("links", "sent by this host in a step: {}", sent);
    if (!result.comms.empty()) log_info("comms", "operations of rank 0\n{}", result.comms);
}

std::string summary_of(const runtime::TrainResult& result, const config::RunConfig& config) {
    std::string text = what_was_done(result, config);
    if (result.updates < result.steps)
        text += fmt::format(" ({} of them skipped)", result.steps - result.updates);
    text += fmt::format(", loss {:.4f}", result.loss);
    if (result.eval_loss) text += fmt::format(", held-out loss {:.4f}", *result.eval_loss);
    text += best_text(result);
    if (result.new_steps > 0) text += ", in " + duration_text(result.time);
    return text;
}

std::string written_text(const std::string& output, bool is_adapter, int64_t best_step) {
    const std::string best = best_step > 0 ? fmt::format(" of step {}, the best,", best_step) : "";
    if (is_adapter)
        return fmt::format(", adapter{} in {}/{}", best, on_host(output), storage::kAdapterFolder);
    return fmt::format(", weights{1} in {0}/model.safetensors and {0}/model.pt", on_host(output),
                       best);
}

}  // namespace dslaunch::worker
