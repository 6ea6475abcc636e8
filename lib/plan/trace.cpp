#include "plan/trace.h"

#include "base/check.h"
#include "base/json.h"
#include "plan/plan_text.h"

namespace dslaunch {

namespace {

double microseconds(Duration time) {
    return to_milliseconds(time) * 1e3;
}

void name_lane(Lane lane, JsonWriter& json) {
    json.begin_object().field("ph", "M").field("name", "thread_name").field("pid", 0);
    json.field("tid", static_cast<int>(lane)).key("args").begin_object();
    json.field("name", lane_name(lane)).end_object().end_object();
}

}  // namespace

std::string trace_json(const StepPlan& plan, const ModelInfo& model,
                       std::span<const InstructionSpan> spans) {
    DSL_CHECK(spans.size() == plan.instructions.size(), "{} spans of {} instructions", spans.size(),
              plan.instructions.size());
    JsonWriter json;
    json.begin_object().field("displayTimeUnit", "ms").key("traceEvents").begin_array();
    for (int lane = 0; lane < kLanes; ++lane) name_lane(static_cast<Lane>(lane), json);
    for (size_t i = 0; i < spans.size(); ++i) {
        const Instruction& instruction = plan.instructions[i];
        json.begin_object().field("ph", "X").field("pid", 0);
        json.field("tid", static_cast<int>(instruction.lane));
        json.field("name", describe(instruction, model)).field("cat", op_name(instruction.op));
        json.field("ts", microseconds(spans[i].begin));
        json.field("dur", microseconds(spans[i].end - spans[i].begin));
        json.key("args").begin_object().field("instruction", i);
        json.field("bytes", instruction.bytes.value).field("flops", instruction.flops);
        json.end_object().end_object();
    }
    json.end_array().end_object();
    return json.text();
}

}  // namespace dslaunch
