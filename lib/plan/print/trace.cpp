#include "plan/print/trace.h"

#include "base/check.h"
#include "base/text/json.h"
#include "plan/print/plan_text.h"

namespace dslaunch::plan {

namespace {

double microseconds(Duration time) {
    return to_milliseconds(time) * 1e3;
}

// A group of tracks, one for each lane.
class TraceGroup {
  public:
    TraceGroup(int number, const StepPlan& plan, const ModelInfo& model, JsonWriter& json)
        : number_(number), plan_(plan), model_(model), json_(json) {}

    void name(std::string_view what, int lane, std::string_view name) {
        json_.begin_object().field("ph", "M").field("name", what).field("pid", number_);
        json_.field("tid", lane).key("args").begin_object();
        json_.field("name", name).end_object().end_object();
    }

    void add(std::span<const InstructionSpan> spans) {
        DSL_CHECK(spans.size() == plan_.instructions.size(),
                  "{} spans do not match {} instructions", spans.size(), plan_.instructions.size());
        for (int lane = 0; lane < kLanes; ++lane)
            name("thread_name", lane, lane_name(static_cast<Lane>(lane)));
        for (size_t i = 0; i < spans.size(); ++i) add(i, spans[i]);
    }

  private:
    void add(size_t i, const InstructionSpan& span) {
        const Instruction& instruction = plan_.instructions[i];
        json_.begin_object().field("ph", "X").field("pid", number_);
        json_.field("tid", static_cast<int>(instruction.lane));
        json_.field("name", describe(instruction, model_)).field("cat", op_name(instruction.op));
        json_.field("ts", microseconds(span.begin));
        json_.field("dur", microseconds(span.end - span.begin));
        json_.key("args").begin_object().field("instruction", i);
        json_.field("bytes", instruction.bytes.value).field("flops", instruction.flops);
        json_.end_object().end_object();
    }

    int number_;
    const StepPlan& plan_;
    const ModelInfo& model_;
    JsonWriter& json_;
};

}  // namespace

std::string trace_json(const StepPlan& plan, const ModelInfo& model,
                       std::span<const InstructionSpan> spans,
                       std::span<const InstructionSpan> predicted) {
    JsonWriter json;
    json.begin_object().field("displayTimeUnit", "ms").key("traceEvents").begin_array();
    TraceGroup measured(0, plan, model, json);
    if (!predicted.empty()) measured.name("process_name", 0, "measured");
    measured.add(spans);
    if (!predicted.empty()) {
        TraceGroup group(1, plan, model, json);
        group.name("process_name", 0, "predicted");
        group.add(predicted);
    }
    json.end_array().end_object();
    return json.text();
}

}  // namespace dslaunch::plan
