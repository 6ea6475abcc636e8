#include "runtime/train/comms_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "base/text/text_table.h"
#include "runtime/train/step_links.h"

namespace dslaunch::runtime {

namespace {

// Returns the traffic kind of OP if ranks exchange data in it, otherwise nullopt.
std::optional<TrafficKind> operation_of(plan::Op op) {
    const TrafficKind kind = plan::traffic_kind(op);
    return is_planned(kind) && op != plan::Op::kExchange ? std::optional(kind) : std::nullopt;
}

double gigabytes_per_s(double bytes, Duration time) {
    return time <= Duration{0} ? 0 : bytes / (to_milliseconds(time) / 1e3) / 1e9;
}

std::string debug_text(const plan::Instruction& instruction) {
    std::string text = fmt::format(" of {} on the {} lane", plan::op_name(instruction.op),
                                   plan::lane_name(instruction.lane));
    if (instruction.bucket >= 0) text += fmt::format(", bucket {}", instruction.bucket);
    if (instruction.part >= 0) text += fmt::format(", part {}", instruction.part);
    if (instruction.micro_step >= 0) text += fmt::format(", micro step {}", instruction.micro_step);
    return text;
}

}  // namespace

double CommsLog::bus_factor(TrafficKind kind, bool to_all, int ranks) {
    const double others = static_cast<double>(ranks - 1) / ranks;
    if (kind == TrafficKind::kReduce) return to_all ? 2 * others : others;
    return kind == TrafficKind::kGather ? others : 1;
}

bool CommsLog::logs(TrafficKind kind) const {
    return config_.kinds.empty() || std::ranges::count(config_.kinds, kind) > 0;
}

void CommsLog::add(int64_t step, const plan::StepPlan& plan,
                   std::span<const plan::InstructionSpan> spans, const TrafficTable& moved) {
    DSL_CHECK(spans.size() == plan.instructions.size(),
              "{} spans were measured for {} instructions", spans.size(), plan.instructions.size());
    for (size_t i = 0; i < spans.size(); ++i) {
        const plan::Instruction& instruction = plan.instructions[i];
        const std::optional<TrafficKind> kind = operation_of(instruction.op);
        if (!kind || !logs(*kind)) continue;
        const Duration time = spans[i].end - spans[i].begin;
        const int64_t bytes = std::max(instruction.bytes, instruction.sent).value;
        Sum& sum = sums_[{*kind, bytes}];
        ++sum.count;
        sum.time += time;
        if (!config_.verbose) continue;
        const double rate = gigabytes_per_s(static_cast<double>(bytes), time);
        log_info("comms", "step {}: {}{}, {}, {:.3f} ms, algbw {:.2f} GB/s, busbw {:.2f} GB/s",
                 step, traffic_kind_name(*kind), config_.debug ? debug_text(instruction) : "",
                 to_text(Bytes{bytes}), to_milliseconds(time), rate, bus_rate(*kind, rate));
    }
    for (const TrafficKind kind : {TrafficKind::kTensor, TrafficKind::kControl})
        if (logs(kind)) inside_[kind] += moved.of(kind).sent;
}

std::string CommsLog::summary() const {
    std::vector<std::vector<std::string>> rows = {
        {"operation", "bytes", "count", "ms in all", "ms each", "algbw GB/s", "busbw GB/s"}};
    for (const auto& [key, sum] : sums_) {
        const auto& [kind, bytes] = key;
        const double each = to_milliseconds(sum.time) / static_cast<double>(sum.count);
        const double rate =
            gigabytes_per_s(static_cast<double>(bytes) * static_cast<double>(sum.count), sum.time);
        rows.push_back({std::string(traffic_kind_name(kind)), std::to_string(bytes),
                        std::to_string(sum.count), fmt::format("{:.2f}", to_milliseconds(sum.time)),
                        fmt::format("{:.3f}", each), fmt::format("{:.2f}", rate),
                        fmt::format("{:.2f}", bus_rate(kind, rate))});
    }
    for (const auto& [kind, sent] : inside_)
        if (sent.value > 0)
            rows.push_back({std::string(traffic_kind_name(kind)), std::to_string(sent.value)});
    if (rows.size() == 1) return {};
    std::string table = text_table(rows, {.align = "<>>>>>>"});
    table.pop_back();  // the log adds a newline
    return table;
}

}  // namespace dslaunch::runtime
