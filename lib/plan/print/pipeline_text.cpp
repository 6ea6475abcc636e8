#include "plan/print/pipeline_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/text/text_table.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::plan {
namespace {

double milliseconds(double seconds) {
    return seconds * 1e3;
}

// The size of a part of the model, with each parameter counted once.
struct PartWeight {
    int64_t parameter_numel = 0;
    int64_t forward_flops = 0;
};

PartWeight weight_of(const ModelInfo& model, SegmentRange range) {
    PartWeight weight;
    std::set<int> parameters;
    for (int s = range.begin; s < range.end; ++s) {
        const SegmentInfo& segment = model.segments[s];
        weight.forward_flops += segment.forward_flops;
        parameters.insert(segment.parameters.begin(), segment.parameters.end());
    }
    for (const int parameter : parameters)
        weight.parameter_numel += model.parameters[parameter].numel;
    return weight;
}

std::string segments_text(const ModelInfo& model, SegmentRange range) {
    const std::string& first = model.segments[range.begin].name;
    if (range.end == range.begin + 1) return fmt::format("{} {}", range.begin, first);
    const int last = range.end - 1;
    return fmt::format("{}..{} {} .. {}", range.begin, last, first, model.segments[last].name);
}

// Returns the largest number of bytes of activations that a stage holds during the step.
Bytes activations_of(const PipelineOption& option, size_t stage) {
    return option.run.lanes[stage].live_bytes_max;
}

Bytes memory_of(const PipelineOption& option, size_t stage) {
    return option.choice.stages[stage].states + activations_of(option, stage);
}

template <typename BytesOf>
Bytes most_of(const PipelineOption& option, BytesOf&& bytes_of) {
    Bytes most;
    for (size_t stage = 0; stage < option.choice.stages.size(); ++stage)
        most = std::max(most, bytes_of(option, stage));
    return most;
}

size_t part_index(const PipelineOption& option, int stage, int chunk) {
    return static_cast<size_t>(part_of(option.kind, option.shape, {stage, chunk}));
}

void part_json(const PipelineOption& option, size_t part, const ModelInfo& model,
               JsonWriter& json) {
    const SegmentRange range = option.choice.parts[part];
    const PartCost& cost = option.choice.costs[part];
    const PartWeight weight = weight_of(model, range);
    json.begin_object().field("part", part).field("begin_segment", range.begin);
    json.field("end_segment", range.end).field("parameters", weight.parameter_numel);
    json.field("forward_flops", weight.forward_flops).field("forward_s", cost.forward_s);
    json.field("backward_input_s", cost.backward_input_s);
    json.field("backward_weight_s", cost.backward_weight_s).field("send_s", cost.send_s);
    json.field("activation_bytes", cost.activations.value).end_object();
}

void option_json(const PipelineOption& option, const ModelInfo& model, JsonWriter& json) {
    json.begin_object().field("schedule", schedule_name(option.kind));
    json.field("stages", option.shape.stages).field("chunks", option.shape.chunks);
    json.field("micro_batches", option.shape.micro_batches);
    if (!option.why_not.empty()) {
        json.field("why_not", option.why_not).end_object();
        return;
    }
    json.field("step_s", option.run.step_s).field("idle_share", option.run.idle_share);
    json.key("by_stage").begin_array();
    for (int stage = 0; stage < option.shape.stages; ++stage) {
        const auto s = static_cast<size_t>(stage);
        json.begin_object().field("stage", stage);
        json.field("idle_share", option.run.idle_share_of(s));
        json.field("live_max", option.run.lanes[s].live_max);
        json.field("activation_bytes", activations_of(option, s).value);
        json.field("state_bytes", option.choice.stages[s].states.value);
        json.key("parts").begin_array();
        for (int chunk = 0; chunk < option.shape.chunks; ++chunk)
            part_json(option, part_index(option, stage, chunk), model, json);
        json.end_array().end_object();
    }
    json.end_array().key("tied").begin_array();
    for (const TiedParameter& tied : option.choice.tied) {
        json.begin_object().field("parameter", model.parameters[tied.parameter].name);
        json.key("stages").begin_array();
        for (const int stage : tied.stages) json.value(stage);
        json.end_array().end_object();
    }
    json.end_array().end_object();
}

// The colours of the works, by WorkKind. A whole backward has the colour of its first half.
constexpr int kColourOfWork[] = {0, 1, 1, 2};

}  // namespace

std::string schedules_table(const std::vector<PipelineOption>& options) {
    std::string text = fmt::format("{:<12} {:>6} {:>6} {:>11} {:>7} {:>13} {:>13}\n", "schedule",
                                   "stages", "chunks", "step ms", "idle", "activations", "memory");
    for (const PipelineOption& option : options) {
        text += fmt::format("{:<12} {:>6} {:>6} ", schedule_name(option.kind), option.shape.stages,
                            option.shape.chunks);
        if (!option.why_not.empty()) {
            text += fmt::format("not possible: {}\n", option.why_not);
            continue;
        }
        text += fmt::format("{:>11.3f} {:>5.1f} % {:>13} {:>13}\n", milliseconds(option.run.step_s),
                            100 * option.run.idle_share, to_text(most_of(option, activations_of)),
                            to_text(most_of(option, memory_of)));
    }
    return text;
}

std::string stages_table(const PipelineOption& option, const ModelInfo& model) {
    std::vector<std::vector<std::string>> rows = {{"stage", "chunk", "segments", "parameters",
                                                   "GFLOP", "ms", "states", "activations", "idle"}};
    for (int stage = 0; stage < option.shape.stages; ++stage) {
        const auto s = static_cast<size_t>(stage);
        for (int chunk = 0; chunk < option.shape.chunks; ++chunk) {
            const size_t part = part_index(option, stage, chunk);
            const PartWeight weight = weight_of(model, option.choice.parts[part]);
            rows.push_back(
                {std::to_string(stage), std::to_string(chunk),
                 segments_text(model, option.choice.parts[part]),
                 std::to_string(weight.parameter_numel),
                 fmt::format("{:.3f}", static_cast<double>(weight.forward_flops) / 1e9),
                 fmt::format("{:.3f}", milliseconds(micro_batch_s(option.choice.costs[part])))});
            if (chunk > 0) continue;
            rows.back().insert(
                rows.back().end(),
                {to_text(option.choice.stages[s].states), to_text(activations_of(option, s)),
                 fmt::format("{:.1f} %", 100 * option.run.idle_share_of(s))});
        }
    }
    std::string text = text_table(rows, {.align = ">><>>>>>>"});
    for (const TiedParameter& tied : option.choice.tied) {
        text += fmt::format("{} is used in stages", model.parameters[tied.parameter].name);
        for (size_t i = 0; i < tied.stages.size(); ++i)
            text += fmt::format("{} {}", i == 0 ? "" : ",", tied.stages[i]);
        text += ": its gradients are added up across these stages\n";
    }
    return text;
}

void schedules_json(const std::vector<PipelineOption>& options, const ModelInfo& model,
                    JsonWriter& json) {
    json.begin_array();
    for (const PipelineOption& option : options) option_json(option, model, json);
    json.end_array();
}

Timeline pipeline_timeline(const PipelineSchedule& schedule, const TimedRun& run) {
    const PipelineShape& shape = schedule.shape;
    Timeline timeline;
    timeline.title = fmt::format("{}: {} stages, {} micro batches, {:.4g} ms, {:.1f} % idle",
                                 schedule_name(schedule.kind), shape.stages, shape.micro_batches,
                                 run.step_s * 1e3, run.idle_share * 100);
    if (splits_backward(schedule.kind)) {
        timeline.kinds = {"forward", "backward for inputs", "backward for weights"};
    } else {
        timeline.kinds = {"forward", "backward"};
    }
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
        timeline.shades.push_back(fmt::format("chunk {}", chunk));
    for (size_t stage = 0; stage < schedule.stages.size(); ++stage) {
        TimelineLane lane;
        lane.name = fmt::format("stage {}", stage);
        lane.remark = fmt::format("idle {:.1f} %", 100 * run.idle_share_of(stage));
        for (size_t i = 0; i < schedule.stages[stage].size(); ++i) {
            const PipelineWork& work = schedule.stages[stage][i];
            const TimedSpan& span = run.spans[stage][i];
            lane.spans.push_back({span.begin_s, span.end_s,
                                  kColourOfWork[static_cast<size_t>(work.kind)], work.chunk,
                                  fmt::format("{}", work.micro_batch),
                                  fmt::format("{}, chunk {}, micro batch {}: {:.4g} to {:.4g} ms",
                                              work_name(work.kind), work.chunk, work.micro_batch,
                                              span.begin_s * 1e3, span.end_s * 1e3)});
        }
        timeline.lanes.push_back(std::move(lane));
    }
    return timeline;
}

}  // namespace dslaunch::plan
