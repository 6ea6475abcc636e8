#include "plan/plan_text.h"

#include <fmt/core.h>

namespace dslaunch {

namespace {

std::string join_numbers(const std::vector<int>& numbers) {
    std::string text;
    for (const int number : numbers) text += fmt::format("{}{}", text.empty() ? "" : " ", number);
    return text;
}

std::string segments_table(const ModelInfo& model) {
    std::string text =
        fmt::format("{:>4} {:<40} {:>6} {:>12} {:>12} {:>12} {:>10}\n", "#", "segment", "nodes",
                    "parameters", "activations", "live after", "GFLOP");
    for (size_t s = 0; s < model.segments.size(); ++s) {
        const SegmentInfo& segment = model.segments[s];
        int64_t numel = 0;
        for (const int parameter : segment.parameters)
            numel += model.parameters[static_cast<size_t>(parameter)].numel;
        text += fmt::format("{:>4} {:<40} {:>6} {:>12} {:>12} {:>12} {:>10.3f}\n", s, segment.name,
                            segment.nodes, numel, to_text(segment.activation_bytes),
                            to_text(segment.output_bytes),
                            static_cast<double>(segment.forward_flops) / 1e9);
    }
    return text;
}

void buffers_json(const StepPlan& plan, JsonWriter& json) {
    json.key("memory").begin_object();
    const auto peaks = peak_by_tier(plan);
    for (size_t t = 0; t < peaks.size(); ++t) {
        json.key(tier_name(static_cast<Tier>(t))).begin_object();
        json.field("persistent_bytes", peaks[t].persistent.value)
            .field("peak_bytes", peaks[t].peak.value);
        json.field("peak_instruction", peaks[t].instruction);
        json.key("by_kind").begin_object();
        for (int kind = 0; kind < kBufferKinds; ++kind) {
            Bytes total;
            for (const PlanBuffer& buffer : plan.buffers)
                if (buffer.persistent && buffer.kind == static_cast<BufferKind>(kind) &&
                    buffer.tier == static_cast<Tier>(t))
                    total += buffer.bytes;
            if (total.value > 0)
                json.field(buffer_kind_name(static_cast<BufferKind>(kind)), total.value);
        }
        json.end_object().end_object();
    }
    json.end_object();
}

}  // namespace

std::string describe(const Instruction& instruction, const ModelInfo& model) {
    std::string text(op_name(instruction.op));
    if (instruction.segment >= 0)
        text += fmt::format(" segment {} ({})", instruction.segment,
                            model.segments[static_cast<size_t>(instruction.segment)].name);
    if (instruction.bucket >= 0) text += fmt::format(" bucket {}", instruction.bucket);
    if (instruction.micro_step >= 0) text += fmt::format(", micro step {}", instruction.micro_step);
    return text;
}

std::string plan_table(const StepPlan& plan, const ModelInfo& model, const FlatLayout& layout) {
    std::string text = segments_table(model);
    text += fmt::format(
        "\nrank {}: {} instructions, {} buckets, {} trainable elements in the flat buffers\n",
        plan.rank, plan.instructions.size(), layout.buckets.size(), layout.numel);
    text += fmt::format("{:>5} {:<13} {:<60} {:>10} {}\n", "#", "lane", "instruction", "moves",
                        "waits for");
    Bytes moved;
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
        const Instruction& instruction = plan.instructions[i];
        moved += instruction.bytes;
        text += fmt::format("{:>5} {:<13} {:<60} {:>10} {}\n", i, lane_name(instruction.lane),
                            describe(instruction, model),
                            instruction.bytes.value > 0 ? to_text(instruction.bytes) : "",
                            join_numbers(instruction.waits));
    }
    text += fmt::format("\nbytes moved between ranks, a step: {}\n", to_text(moved));
    const auto peaks = peak_by_tier(plan);
    for (size_t t = 0; t < peaks.size(); ++t)
        text += fmt::format("{:<7} held {:>12}, peak {:>12}{}\n", tier_name(static_cast<Tier>(t)),
                            to_text(peaks[t].persistent), to_text(peaks[t].peak),
                            peaks[t].instruction < 0
                                ? ""
                                : fmt::format(" at instruction {}", peaks[t].instruction));
    return text;
}

void plan_json(const StepPlan& plan, const ModelInfo& model, const FlatLayout& layout,
               JsonWriter& json) {
    json.begin_object().field("rank", plan.rank).field("flat_numel", layout.numel);
    json.field("hash", fmt::format("{:016x}", plan.hash()));
    json.key("instructions").begin_array();
    Bytes moved;
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
        const Instruction& instruction = plan.instructions[i];
        moved += instruction.bytes;
        json.begin_object().field("index", i).field("op", op_name(instruction.op));
        json.field("lane", lane_name(instruction.lane)).field("text", describe(instruction, model));
        if (instruction.segment >= 0) json.field("segment", instruction.segment);
        if (instruction.bucket >= 0) json.field("bucket", instruction.bucket);
        if (instruction.micro_step >= 0) json.field("micro_step", instruction.micro_step);
        json.field("bytes", instruction.bytes.value).field("flops", instruction.flops);
        json.key("waits").begin_array();
        for (const int wait : instruction.waits) json.value(wait);
        json.end_array().end_object();
    }
    json.end_array().field("bytes_moved", moved.value);
    buffers_json(plan, json);
    json.end_object();
}

}  // namespace dslaunch
