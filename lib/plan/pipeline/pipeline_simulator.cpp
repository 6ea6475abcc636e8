#include "plan/pipeline/pipeline_simulator.h"

#include <algorithm>

#include "base/check.h"
#include "plan/pipeline/pipeline_walk.h"

namespace dslaunch::plan {
namespace {

double duration(const PartCost& cost, WorkKind kind) {
    switch (kind) {
        case WorkKind::kForward:
            return cost.forward_s;
        case WorkKind::kBackward:
            return cost.backward_input_s + cost.backward_weight_s;
        case WorkKind::kBackwardInput:
            return cost.backward_input_s;
        case WorkKind::kBackwardWeight:
            return cost.backward_weight_s;
    }
    DSL_CHECK(false, "work {}", static_cast<int>(kind));
}

// When what was sent arrives. A stage has a link to the one before and one to the one behind, round
// the pipeline; with two stages both are the same.
class Links {
  public:
    explicit Links(int stages) : stages_(stages), free_s_(2 * static_cast<size_t>(stages), 0) {}

    double send(int from, int to, double ready_s, double takes_s) {
        if (from == to) return ready_s;
        const bool next = to == (from + 1) % stages_;
        double& free_s = free_s_[2 * static_cast<size_t>(from) + (next ? 0 : 1)];
        free_s = std::max(free_s, ready_s) + takes_s;
        return free_s;
    }

  private:
    int stages_;
    std::vector<double> free_s_;
};

StageUse use_of(const PipelineSchedule& schedule, int stage, const std::vector<WorkSpan>& spans,
                const std::vector<PartCost>& costs) {
    StageUse use;
    use.begin_s = spans.front().begin_s;
    use.end_s = spans.back().end_s;
    int live = 0;
    Bytes bytes;
    const std::vector<PipelineWork>& works = schedule.stages[stage];
    for (size_t i = 0; i < works.size(); ++i) {
        const int part = part_of(schedule.kind, schedule.shape, {stage, works[i].chunk});
        const PartCost& cost = costs[part];
        use.busy_s += spans[i].end_s - spans[i].begin_s;
        if (works[i].kind == WorkKind::kForward) {
            ++live;
            bytes += cost.activations;
        }
        const bool frees =
            works[i].kind == WorkKind::kBackward || works[i].kind == WorkKind::kBackwardInput;
        use.live_max = std::max(use.live_max, live);
        use.live_bytes_max =
            std::max(use.live_bytes_max, frees ? bytes + cost.backward_takes : bytes);
        if (frees) bytes -= cost.activations;
        if (works[i].kind == WorkKind::kBackwardInput) bytes += cost.kept_for_weight;
        if (works[i].kind == WorkKind::kBackwardWeight) bytes -= cost.kept_for_weight;
        if (works[i].kind == WorkKind::kBackward || works[i].kind == WorkKind::kBackwardWeight)
            --live;
    }
    return use;
}

}  // namespace

PipelineRun simulate_pipeline(const PipelineSchedule& schedule,
                              const std::vector<PartCost>& costs) {
    const PipelineShape& shape = schedule.shape;
    DSL_CHECK(std::ssize(costs) == shape.parts(), "costs of {} parts, not of {}", costs.size(),
              shape.parts());
    PipelineRun run;
    for (const auto& works : schedule.stages) run.spans.emplace_back(works.size());
    const auto micro_batches = static_cast<size_t>(shape.micro_batches);
    std::vector<double> inputs_s(costs.size() * micro_batches, 0);
    std::vector<double> gradients_s(inputs_s.size(), 0);
    std::vector<double> free_s(schedule.stages.size(), 0);
    Links links(shape.stages);
    const std::vector<size_t> done =
        walk_schedule(schedule, [&](int stage, size_t index, const WorkNeeds& needs) {
            const PipelineWork& work = schedule.stages[stage][index];
            std::vector<double>& arrivals_s =
                work.kind == WorkKind::kForward ? inputs_s : gradients_s;
            const auto at = [&](int part) -> double& {
                return arrivals_s[static_cast<size_t>(part) * micro_batches +
                                  static_cast<size_t>(work.micro_batch)];
            };
            double& now_s = free_s[stage];
            WorkSpan& span = run.spans[stage][index];
            span.begin_s = needs.from_part < 0 ? now_s : std::max(now_s, at(needs.part));
            span.end_s = span.begin_s + duration(costs[needs.part], work.kind);
            now_s = span.end_s;
            if (needs.to_part < 0) return;
            const int cut = std::min(needs.part, needs.to_part);
            at(needs.to_part) =
                links.send(stage, place_of_part(schedule.kind, shape, needs.to_part).stage, now_s,
                           costs[cut].send_s);
        });
    double busy_s = 0;
    for (int stage = 0; stage < shape.stages; ++stage) {
        const auto s = static_cast<size_t>(stage);
        DSL_CHECK(done[s] == schedule.stages[s].size(), "stage {} waits for ever", stage);
        run.stages.push_back(use_of(schedule, stage, run.spans[s], costs));
        run.step_s = std::max(run.step_s, run.stages.back().end_s);
        busy_s += run.stages.back().busy_s;
    }
    if (run.step_s > 0) run.idle_share = 1 - busy_s / (run.step_s * shape.stages);
    return run;
}

}  // namespace dslaunch::plan
