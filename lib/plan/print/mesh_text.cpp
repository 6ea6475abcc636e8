#include "plan/print/mesh_text.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/text/text_table.h"

namespace dslaunch::plan {
namespace {

Bytes sent_between(const MeshCost& cost) {
    Bytes bytes;
    for (const AxisTraffic& traffic : cost.traffic) bytes += traffic.between;
    return bytes;
}

std::string_view schedule_of(const MeshChoice& choice) {
    return choice.sizes.pipeline > 1 ? schedule_name(choice.schedule) : "-";
}

}  // namespace

std::string meshes_table(std::span<const MeshFinding> findings, size_t columns) {
    std::vector<std::vector<std::string>> rows = {{"mesh", "ZeRO", "recompute", "schedule",
                                                   "batches", "step ms", "idle", "of a rank",
                                                   "of a host", "between hosts"}};
    for (const auto& [choice, cost] : findings)
        rows.push_back({fmt::format("{}x{}x{}x{}", choice.sizes.pipeline, choice.sizes.data,
                                    choice.sizes.tensor, choice.sizes.sequence),
                        std::to_string(choice.zero_stage), choice.recompute ? "yes" : "no",
                        std::string(schedule_of(choice)), std::to_string(choice.micro_batches),
                        fmt::format("{:.3f}", 1e3 * cost.step_s),
                        fmt::format("{:.1f} %", 100 * cost.run.idle_share),
                        to_text(cost.fullest().in_memory()), to_text(cost.host),
                        to_text(sent_between(cost))});
    return "mesh: pipeline x data x tensor x sequence\n" +
           text_table(rows, {.align = "<><<>>>>>>", .width = columns});
}

std::string mesh_details(const MeshFinding& finding) {
    const MeshCost& cost = finding.cost;
    std::string text = fmt::format(
        "a step takes {:.3f} ms: {:.3f} for forward and backward with {:.1f} % idle, {:.3f} for "
        "gradient sums that do not overlap with computation, {:.3f} for updates",
        1e3 * cost.step_s, 1e3 * cost.pipeline_s, 100 * cost.run.idle_share, 1e3 * cost.sums_s,
        1e3 * cost.update_s);
    if (cost.disk_s > 0)
        text += fmt::format("; the disks are busy for {:.3f} ms of it", 1e3 * cost.disk_s);
    std::vector<std::vector<std::string>> axes = {{"axis", "inside hosts", "between hosts"}};
    for (int axis = 0; axis < kMeshAxes; ++axis) {
        const AxisTraffic& traffic = cost.traffic[axis];
        if (traffic.inside.value + traffic.between.value > 0)
            axes.push_back({std::string(mesh_axis_name(static_cast<MeshAxis>(axis))),
                            to_text(traffic.inside), to_text(traffic.between)});
    }
    std::vector<std::vector<std::string>> stages = {
        {"stage", "memory", "shared", "parameters", "disk", "of a rank"}};
    for (size_t stage = 0; stage < cost.stages.size(); ++stage) {
        const MeshMemory& memory = cost.stages[stage];
        stages.push_back({std::to_string(stage), to_text(memory.own), to_text(memory.shared),
                          to_text(memory.parameters), to_text(memory.disk)});
    }
    return fmt::format("{}\n\n{}\n{}", text, text_table(axes, {.align = "<>>"}),
                       text_table(stages, {.align = ">>>>>"}));
}

void mesh_json(const MeshFinding& finding, JsonWriter& json) {
    const auto& [choice, cost] = finding;
    json.begin_object().field("pipeline", choice.sizes.pipeline).field("data", choice.sizes.data);
    json.field("tensor", choice.sizes.tensor).field("sequence", choice.sizes.sequence);
    json.field("zero_stage", choice.zero_stage).field("recompute", choice.recompute);
    json.field("schedule", schedule_name(choice.schedule)).field("chunks", choice.chunks);
    json.field("micro_batches", choice.micro_batches).field("step_s", cost.step_s);
    json.field("pipeline_s", cost.pipeline_s).field("sums_s", cost.sums_s);
    json.field("update_s", cost.update_s).field("disk_s", cost.disk_s);
    json.field("idle_share", cost.run.idle_share).field("host_bytes", cost.host.value);
    json.key("bytes_by_axis").begin_object();
    for (int axis = 0; axis < kMeshAxes; ++axis) {
        const AxisTraffic& traffic = cost.traffic[axis];
        json.key(mesh_axis_name(static_cast<MeshAxis>(axis))).begin_object();
        json.field("inside_hosts", traffic.inside.value);
        json.field("between_hosts", traffic.between.value).end_object();
    }
    json.end_object().field("fullest_stage", cost.fullest_stage).key("by_stage").begin_array();
    for (const MeshMemory& memory : cost.stages) {
        json.begin_object().field("memory_bytes", memory.own.value);
        json.field("shared_bytes", memory.shared.value);
        json.field("parameter_bytes", memory.parameters.value);
        json.field("disk_bytes", memory.disk.value).end_object();
    }
    json.end_array().end_object();
}

std::string mesh_config(const MeshChoice& choice, int64_t rows, size_t segments) {
    JsonWriter json;
    json.begin_object().field("train_micro_batch_size_per_gpu", rows);
    json.field("gradient_accumulation_steps", choice.micro_batches);
    json.field("train_batch_size", rows * choice.micro_batches * choice.sizes.data);
    json.key("zero_optimization").begin_object().field("stage", choice.zero_stage).end_object();
    if (choice.recompute)
        json.key("activation_checkpointing")
            .begin_object()
            .field("number_checkpoints", segments)
            .end_object();
    json.key("dslaunch").begin_object();
    if (choice.sizes.pipeline > 1) {
        json.key("pipeline").begin_object().field("stages", choice.sizes.pipeline);
        json.field("schedule", schedule_name(choice.schedule));
        if (choice.chunks > 1) json.field("chunks", choice.chunks);
        json.end_object();
    }
    for (const auto& [name, size] :
         {std::pair{"tensor", choice.sizes.tensor}, {"sequence", choice.sizes.sequence}})
        if (size > 1) json.key(name).begin_object().field("size", size).end_object();
    json.end_object().end_object();
    return json.text();
}

}  // namespace dslaunch::plan
