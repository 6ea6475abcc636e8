#include "runtime/train/step_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/terminal/moving_line.h"
#include "base/text.h"
#include "runtime/train/step_metrics.h"

namespace dslaunch::runtime {

namespace {

// Returns a text such as "0:07" (minutes and seconds), or with hours if there is at least one hour.
std::string time_left_text(double seconds) {
    constexpr double kHour = 3600;
    if (seconds >= kHour) return clock_text(seconds);
    const auto whole = static_cast<int64_t>(seconds);
    return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

StepReport::StepReport(const StepReportParts& parts)
    : parts_(parts),
      line_(*parts.clock, parts.config->steps),
      comms_(parts.config->comms_logger, parts.ranks_of_stage, parts.config->zero.stage == 0) {
    follow_plan();
}

void StepReport::follow_plan() {
    tier_peaks_ = plan::peak_by_tier(parts_.runner->plan());
    kind_peaks_ = plan::peak_by_kind(parts_.runner->plan());
}

bool StepReport::is_logged(int64_t step) const {
    const config::RunConfig& config = *parts_.config;
    return step == 1 || step == config.steps ||
           step % std::max<int64_t>(1, config.print_interval) == 0;
}

void StepReport::warn_of_targets(int64_t step, const StepTargets& targets) {
    if (targets.empty_everywhere == 0) return;
    const bool has_none = targets.weight == 0;
    if (has_none && !std::exchange(has_warned_of_no_targets_, true))
        log_warn("train",
                 "step {}: all targets of the global batch are ignored, so the loss and the "
                 "gradients of this update are 0 (shown only once)",
                 step);
    if (!has_none && !std::exchange(has_warned_of_empty_batches_, true))
        log_warn("train",
                 "step {}: all targets are ignored in {}, so the mean of the loss does not include "
                 "these rows (shown only once)",
                 step, counted(targets.empty_everywhere, "micro batch"));
}

void StepReport::end_step(int64_t step, const StepFacts& facts, const StepRates& rates) {
    const StepRunner& runner = *parts_.runner;
    if (parts_.config->wall_clock_breakdown)
        breakdown_.add(runner.plan(), runner.spans(), runner.compute_waited());
    send_metrics(step, facts, rates);
    show(step, facts, rates.lr);
    interval_ms_ += facts.step_ms;
    ++interval_steps_;
    if (comms_.enabled()) comms_.add(step, runner.plan(), runner.spans(), facts.links.moved);
    if (is_logged(step)) send_progress(step, facts, rates.lr);
}

void StepReport::send_metrics(int64_t step, const StepFacts& facts, const StepRates& rates) {
    const config::RunConfig& config = *parts_.config;
    parts_.reporter->metrics(
        metrics_line({.step = step,
                      .samples_seen = parts_.samples_before +
                                      (step - parts_.steps_before) * config.batch.train_rows,
                      .loss = facts.loss,
                      .rewards = facts.has_rewards ? std::optional(facts.rewards) : std::nullopt,
                      .lr = rates.lr,
                      .gradient_norm = rates.gradient_norm,
                      .loss_scale = facts.loss_scale,
                      .skipped = facts.skipped,
                      .step_ms = facts.step_ms,
                      .samples = config.batch.train_rows,
                      .tokens_per_sample = parts_.tokens_per_sample,
                      .forward_flops = parts_.forward_flops * config.batch.accumulation_steps,
                      .peak_tflops = parts_.peak.tflops,
                      .peak_source = parts_.peak.source,
                      .rss_bytes = facts.rss_bytes,
                      .peak_rss_bytes = facts.peak_rss_bytes,
                      .page_faults = facts.page_faults,
                      .data_wait_ms = facts.data_wait_ms,
                      .lane_wait_ms = facts.compute_wait_ms,
                      .tier_peaks = tier_peaks_,
                      .kind_peaks = kind_peaks_,
                      .memory = parts_.account->memory(),
                      .links = parts_.runner->traffic().all(),
                      .step_links = facts.links,
                      .disk = parts_.account->disk_traffic(),
                      .breakdown = breakdown_.newest()}));
}

// Returns the share of the device's peak rate that a step reaches if it takes STEP_MS milliseconds;
// 0 if the peak is not known.
double StepReport::mfu(double step_ms) const {
    if (parts_.peak.tflops <= 0) return 0;
    const int64_t flops = parts_.forward_flops * parts_.config->batch.accumulation_steps;
    return step_tflops(flops, step_ms) / parts_.peak.tflops;
}

void StepReport::show(int64_t step, const StepFacts& facts, double lr) {
    const bool has_tokens = parts_.tokens_per_sample > 0;
    const auto rows = static_cast<double>(parts_.config->batch.train_rows);
    line_.end_step(
        {.step = step,
         .loss = facts.loss,
         .lr = lr,
         .step_ms = facts.step_ms,
         .units_per_step = has_tokens ? rows * static_cast<double>(parts_.tokens_per_sample) : rows,
         .unit = has_tokens ? "tok" : "samples",
         .mfu = mfu(facts.step_ms),
         .rss = Bytes{facts.rss_bytes}});
}

void StepReport::send_progress(int64_t step, const StepFacts& facts, double lr) {
    const config::RunConfig& config = *parts_.config;
    const double elapsed = to_milliseconds(parts_.clock->now() - begin_) / 1e3;
    const double left = elapsed / static_cast<double>(step - parts_.steps_before) *
                        static_cast<double>(config.steps - step);
    const double step_ms = interval_ms_ / static_cast<double>(interval_steps_);
    const double rows_per_s = static_cast<double>(config.batch.train_rows) / (step_ms / 1e3);
    const std::string speed =
        parts_.tokens_per_sample > 0
            ? rate_text(rows_per_s * static_cast<double>(parts_.tokens_per_sample), "token")
            : rate_text(rows_per_s, "sample");
    const std::optional<double> news =
        parts_.held_out == nullptr ? std::nullopt : parts_.held_out->take_news();
    const std::string held_out = news ? fmt::format("  held-out {:.4f}", *news) : "";
    const double used = mfu(step_ms);
    // A program with a loop of its own need not say how many steps there will be.
    const bool is_known = config.steps > 0;
    const std::string of_steps = is_known ? fmt::format("/{}", config.steps) : "";
    const std::string left_text =
        is_known ? fmt::format("  left {}", time_left_text(left)) : std::string();
    const std::string share = used > 0 ? fmt::format("  mfu {}", mfu_text(used)) : "";
    parts_.reporter->progress(
        // On a narrow terminal the last fields are left out.
        fmt::format("step {}{}  loss {:.4f}{}{}  {}  {:.1f} ms/step  lr {:.3g}{}  {}", step,
                    of_steps, facts.loss, held_out, left_text, speed, step_ms, lr, share,
                    to_text(Bytes{facts.rss_bytes})));
    if (config.wall_clock_breakdown)
        log_info("train", "step {}: {}; total {:.1f} ms per step; means over {} on rank 0", step,
                 breakdown_.take(), step_ms, counted(interval_steps_, "step"));
    interval_ms_ = 0;
    interval_steps_ = 0;
}

}  // namespace dslaunch::runtime
