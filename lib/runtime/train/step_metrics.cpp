#include "runtime/train/step_metrics.h"

#include <fmt/core.h>

#include "base/terminal/moving_line.h"

namespace dslaunch::runtime {
namespace {

void add_number(JsonWriter& json, const char* key, std::optional<double> value) {
    json.key(key);
    if (value) {
        json.value(*value);
    } else {
        json.null();
    }
}

// Adds the memory of each kind. The first six fields are bytes that the state counted. The last
// three fields are bytes that the plan expects.
void add_memory(JsonWriter& json, const StepMetrics& metrics) {
    const MemoryAccount& account = metrics.memory;
    const auto planned = [&](plan::BufferKind kind) {
        return metrics.kind_peaks[static_cast<size_t>(kind)].value;
    };
    json.key("memory").begin_object();
    json.field("parameters", account.parameters.value).field("gradients", account.gradients.value);
    json.field("master", account.master.value).field("moments", account.moments.value);
    json.field("staging", account.staging.value);
    json.field("swap_buffers", account.swap_buffers.value);
    json.field("activations", planned(plan::BufferKind::kActivations));
    json.field("live_values", planned(plan::BufferKind::kLiveValues));
    json.field("buffers", planned(plan::BufferKind::kBuffers)).end_object();
}

}  // namespace

double step_tflops(int64_t forward_flops, double step_ms) {
    return 3.0 * static_cast<double>(forward_flops) / (step_ms / 1e3) / 1e12;
}

std::string metrics_line(const StepMetrics& metrics) {
    const double seconds = metrics.step_ms / 1e3;
    const auto samples = static_cast<double>(metrics.samples);
    JsonWriter json;
    json.begin_object().field("step", metrics.step).field("samples", metrics.samples_seen);
    json.field("loss", metrics.loss);
    if (metrics.rewards) add_rewards(json, "", *metrics.rewards);
    json.field("lr", metrics.lr);
    add_number(json, "grad_norm", metrics.gradient_norm);
    json.field("loss_scale", metrics.loss_scale);
    if (metrics.skipped) json.field("skipped", true);
    json.field("step_ms", metrics.step_ms);
    std::optional<double> tokens_per_s;
    if (metrics.tokens_per_sample > 0)
        tokens_per_s = samples * static_cast<double>(metrics.tokens_per_sample) / seconds;
    add_number(json, "tokens_per_s", tokens_per_s);
    json.field("samples_per_s", samples / seconds);
    const double tflops = step_tflops(metrics.forward_flops, metrics.step_ms);
    json.field("tflops", tflops);
    std::optional<double> mfu;
    if (metrics.peak_tflops > 0) mfu = tflops / metrics.peak_tflops;
    add_number(json, "mfu", mfu);
    if (metrics.peak_tflops > 0)
        json.field("peak_tflops", metrics.peak_tflops).field("peak_from", metrics.peak_source);
    json.field("rss_bytes", metrics.rss_bytes).field("peak_rss_bytes", metrics.peak_rss_bytes);
    json.field("page_faults", metrics.page_faults);
    json.field("data_wait_ms", metrics.data_wait_ms).field("lane_wait_ms", metrics.lane_wait_ms);
    json.key("tier_bytes").begin_object();
    for (size_t t = 0; t < metrics.tier_peaks.size(); ++t)
        json.field(plan::tier_name(static_cast<plan::Tier>(t)), metrics.tier_peaks[t].peak.value);
    json.end_object();
    add_memory(json, metrics);
    json.key("link_bytes").begin_object().field("sent", metrics.links.sent.value);
    json.field("received", metrics.links.received.value).end_object();
    json.key("step_link_bytes");
    links_json(metrics.step_links, json);
    if (metrics.disk) {
        json.key("disk_bytes").begin_object().field("read", metrics.disk->read.value);
        json.field("written", metrics.disk->written.value).end_object();
        json.field("disk_checksum_ms", to_milliseconds(metrics.disk->checksum_time));
    }
    if (!metrics.breakdown.empty()) {
        json.key("breakdown_ms").begin_object();
        for (const WorkTime& part : metrics.breakdown) json.field(part.work, part.ms);
        json.end_object();
    }
    json.end_object();
    return json.text();
}

void add_rewards(JsonWriter& json, const std::string& prefix, const graph::RewardMeans& rewards) {
    json.field(prefix + "rewards/chosen", rewards.chosen);
    json.field(prefix + "rewards/rejected", rewards.rejected);
    json.field(prefix + "rewards/margins", rewards.margin());
    json.field(prefix + "rewards/accuracies", rewards.accuracy);
}

std::string rate_text(double per_second, std::string_view noun) {
    return fmt::format("{} {}s/s", rate_number(per_second), noun);
}

}  // namespace dslaunch::runtime
