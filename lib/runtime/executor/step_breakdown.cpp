#include "runtime/executor/step_breakdown.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"

namespace dslaunch::runtime {
namespace {

constexpr std::array<const char*, 10> kWorkNames = {
    "data",   "forward", "recompute", "backward",       "gather",
    "reduce", "update",  "disk",      "between stages", "waiting"};

}  // namespace

StepBreakdown::Work StepBreakdown::work_of(plan::Op op) {
    using plan::Op;
    switch (op) {
        case Op::kLoad:
            return Work::kData;
        case Op::kForward:
            return Work::kForward;
        case Op::kRecompute:
            return Work::kRecompute;
        case Op::kBackward:
        case Op::kBackwardInput:
        case Op::kBackwardWeight:
            return Work::kBackward;
        case Op::kAwait:
        case Op::kGather:
        case Op::kRelease:
            return Work::kGather;
        case Op::kClaim:
        case Op::kPost:
        case Op::kReduce:
        case Op::kExchange:
        case Op::kAccumulate:
        case Op::kTie:
            return Work::kReduce;
        case Op::kNorm:
        case Op::kSelect:
        case Op::kUpdate:
        case Op::kUpdateRest:
            return Work::kUpdate;
        case Op::kRead:
        case Op::kWrite:
            return Work::kDisk;
        case Op::kSend:
        case Op::kReceive:
            return Work::kStages;
    }
    DSL_CHECK(false, "op {}", static_cast<int>(op));
}

void StepBreakdown::add(const plan::StepPlan& plan, std::span<const plan::InstructionSpan> spans,
                        Duration waited) {
    DSL_CHECK(spans.size() == plan.instructions.size(),
              "{} spans were measured for {} instructions", spans.size(), plan.instructions.size());
    newest_ = {};
    for (size_t i = 0; i < spans.size(); ++i)
        newest_[static_cast<size_t>(work_of(plan.instructions[i].op))] +=
            spans[i].end - spans[i].begin;
    newest_[static_cast<size_t>(Work::kWaiting)] += waited;
    for (size_t work = 0; work < kWorks; ++work) times_[work] += newest_[work];
    ++steps_;
}

std::vector<WorkTime> StepBreakdown::newest() const {
    static_assert(kWorkNames.size() == kWorks);
    std::vector<WorkTime> parts;
    for (size_t work = 0; work < kWorks; ++work)
        if (newest_[work] != Duration{0})
            parts.push_back({kWorkNames[work], to_milliseconds(newest_[work])});
    return parts;
}

std::string StepBreakdown::take() {
    DSL_CHECK(steps_ > 0, "no step was added");
    std::string text;
    for (size_t work = 0; work < kWorks; ++work) {
        if (times_[work] == Duration{0}) continue;
        text += fmt::format("{}{} {:.1f} ms", text.empty() ? "" : ", ", kWorkNames[work],
                            to_milliseconds(times_[work]) / static_cast<double>(steps_));
    }
    times_ = {};
    steps_ = 0;
    return text;
}

}  // namespace dslaunch::runtime
