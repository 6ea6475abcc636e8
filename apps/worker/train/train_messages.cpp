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

// The number of updates in which a schedule is searched for a learning rate above 0.
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
    return result.new_steps == 0
               ? fmt::format("at step {0} of {0} already: nothing was trained", result.steps)
               : fmt::format("trained {}", counted(result.steps, "step"));
}

// Returns text about the best held-out loss if it is not the last one.
std::string best_text(const runtime::TrainResult& result) {
    if (!result.best_eval || result.best_eval->step == result.steps) return "";
    const auto& [step, loss] = *result.best_eval;
    if (result.eval_loss) return fmt::format(" (best {:.4f} at step {})", loss, step);
    return step == 0 ? "" : fmt::format(", best held-out loss {:.4f} at step {}", loss, step);
}

// Returns PATH, with the name of its host in front if the launcher gave it one.
std::string on_host(const std::string& path) {
    const char* const host = std::getenv(launch::kHostVariable);
    return host == nullptr ? path : fmt::format("{}:{}", printable(host), path);
}

}  // namespace

void require_verifiable(const job::JobSetup& setup) {
    if (setup.on_gpu)
        fail(ExitCode::kUsage,
             "verify looks at values in the host's memory: give --device cpu; a GPU's plan "
             "has the same instructions");
    if (!setup.config().precision.master_copies)
        fail(ExitCode::kConfig,
             "bf16.bf16_master_weights_and_grads: weights without fp32 copies are rounded by "
             "random numbers, which verify cannot predict: verify without it");
    if (setup.config().states != config::MomentFormat::kFp32)
        fail(ExitCode::kConfig,
             "dslaunch.optimizer.states: moments in fewer bits than fp32 are rounded by drawn "
             "numbers, which verify cannot predict: verify with fp32");
    if (setup.config().lagging.on)
        fail(ExitCode::kConfig,
             "zero_optimization.zenflow: verify compares each update with the exact one of its "
             "step, and here most of them lag: verify without it");
    if (setup.plan_options.reduce_packing() != WirePacking::kNone)
        fail(ExitCode::kConfig,
             "verify does not predict gradients that hosts round before they send them: set "
             "communication_data_type (with dslaunch.sequence.size "
             "seq_parallel_communication_data_type) to fp32, zero_quantized_gradients to false, "
             "and with torch_autocast lower_precision_safe_modules to []");
    if (setup.config().optimizer.compresses())
        fail(ExitCode::kUsage,
             "verify compares each step with one rank that computes all alone, and {} gives "
             "other results on every number of hosts: verify the job with AdamW",
             zero::ShardOptimizer::name(setup.config().optimizer));
}

void warn_of_no_change(const config::RunConfig& config, const storage::TrainingState& resumed) {
    const auto moving = runtime::first_moving_update(config.scheduler, config.optimizer.lr,
                                                     {resumed.updates, kUpdatesMax});
    const int64_t steps = config.steps - resumed.step;
    if (steps <= 0 || (moving && *moving < resumed.updates + steps)) return;
    log_warn("train", "the learning rate is 0 in each of the {} to go: no weight will change; {}",
             counted(steps, "step"),
             moving ? fmt::format("it is above 0 from step {} on: train more steps, or leave "
                                  "the schedule out (--set scheduler=null)",
                                  resumed.step + *moving - resumed.updates + 1)
                    : "give one (--lr)");
}

void require_updates(const runtime::TrainResult& result) {
    const bool none_ever = result.steps > 0 && result.updates == 0;
    const bool none_now = result.new_steps > 0 && result.new_updates == 0;
    if (result.asked_to_end || (!none_ever && !none_now)) return;
    fail(ExitCode::kDiverged,
         "{} steps were done and none changed the model: the gradients of each were not finite, "
         "so it was skipped (each skip says the parameter and the loss scale). Where only the "
         "loss scale was too large, train more steps or lower fp16.initial_scale_power; else "
         "lower optimizer.params.lr, or use bf16; no weights are written",
         none_ever ? result.steps : result.new_steps);
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

std::string written_text(const std::string& output, bool is_adapter) {
    if (is_adapter)
        return fmt::format(", adapter in {}/{}", on_host(output), storage::kAdapterFolder);
    return fmt::format(", weights in {0}/model.safetensors and {0}/model.pt", on_host(output));
}

}  // namespace dslaunch::worker
