#include "plan/pipeline/timed_schedule.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <random>

#include "pipeline_shapes.h"
#include "support/catch.h"
#include "support/sanitizer.h"

namespace dslaunch {

using namespace plan;

namespace {

std::vector<PartCost> equal_costs(const PipelineShape& shape, const PartCost& cost) {
    return std::vector<PartCost>(static_cast<size_t>(shape.parts()), cost);
}

TimedRun run_of(ScheduleKind kind, const PipelineShape& shape, const PartCost& cost) {
    return simulate_pipeline(make_schedule(kind, shape), equal_costs(shape, cost));
}

// Returns the time for which a stage is idle in a step of parts of equal cost.
double bubble_of(ScheduleKind kind, const PipelineShape& shape, const PartCost& cost) {
    const double part_s = cost.forward_s + cost.backward_input_s + cost.backward_weight_s;
    return run_of(kind, shape, cost).step_s - shape.micro_batches * shape.chunks * part_s;
}

// Simulates the same model in another way: it moves the begin and end of everything later until
// nothing changes any more.
class Relaxation {
  public:
    Relaxation(const PipelineSchedule& schedule, const std::vector<PartCost>& costs)
        : schedule_(schedule), costs_(costs) {
        for (const auto& works : schedule.stages) ends_.emplace_back(works.size(), 0.0);
    }

    double step_s() {
        while (sweep()) {
        }
        double step_s = 0;
        for (const std::vector<double>& ends : ends_) step_s = std::max(step_s, ends.back());
        return step_s;
    }

  private:
    bool sweep() {
        bool moved = false;
        for (size_t stage = 0; stage < ends_.size(); ++stage) {
            double now_s = 0;
            for (size_t i = 0; i < ends_[stage].size(); ++i) {
                const PipelineWork& work = schedule_.stages[stage][i];
                const int part = part_at(stage, work);
                const bool forward = work.kind == WorkKind::kForward;
                double begin_s = now_s;
                if (forward) begin_s = std::max(begin_s, arrival_s(part - 1, part, work));
                if (work.kind == WorkKind::kBackward || work.kind == WorkKind::kBackwardInput)
                    begin_s = std::max(begin_s, arrival_s(part + 1, part, work));
                const PartCost& cost = costs_[part];
                now_s = begin_s;
                if (forward) now_s += cost.forward_s;
                if (work.kind == WorkKind::kBackwardInput) now_s += cost.backward_input_s;
                if (work.kind == WorkKind::kBackwardWeight) now_s += cost.backward_weight_s;
                if (work.kind == WorkKind::kBackward)
                    now_s += cost.backward_input_s + cost.backward_weight_s;
                if (now_s > ends_[stage][i]) {
                    ends_[stage][i] = now_s;
                    moved = true;
                }
            }
        }
        return moved;
    }

    [[nodiscard]] int part_at(size_t stage, const PipelineWork& work) const {
        return part_of(schedule_.kind, schedule_.shape, {static_cast<int>(stage), work.chunk});
    }

    // Returns the time when part TO has WORK's result from part FROM. The stage of FROM sends all
    // results that go the same way in the order of its works.
    [[nodiscard]] double arrival_s(int from, int to, const PipelineWork& work) const {
        if (from < 0 || from >= schedule_.shape.parts()) return 0;
        const auto stage_of = [&](int part) {
            return static_cast<size_t>(place_of_part(schedule_.kind, schedule_.shape, part).stage);
        };
        const size_t sender = stage_of(from);
        const bool forward = work.kind == WorkKind::kForward;
        double link_s = 0;
        for (size_t i = 0; i < ends_[sender].size(); ++i) {
            const PipelineWork& sent = schedule_.stages[sender][i];
            const int part = part_at(sender, sent);
            if (sent.kind == WorkKind::kBackwardWeight) continue;
            const int target = sent.kind == WorkKind::kForward ? part + 1 : part - 1;
            if (target < 0 || target >= schedule_.shape.parts()) continue;
            const bool this_one = part == from && target == to &&
                                  sent.micro_batch == work.micro_batch &&
                                  (sent.kind == WorkKind::kForward) == forward;
            if (stage_of(target) == sender) {
                if (this_one) return ends_[sender][i];
                continue;
            }
            if (stage_of(target) != stage_of(to)) continue;
            link_s = std::max(link_s, ends_[sender][i]) + costs_[std::min(part, target)].send_s;
            if (this_one) return link_s;
        }
        FAIL("nobody sends it");
        return 0;
    }

    const PipelineSchedule& schedule_;
    const std::vector<PartCost>& costs_;
    std::vector<std::vector<double>> ends_;
};

}  // namespace

TEST_CASE("with parts of equal cost the bubble is the schedule's formula") {
    // With whole numbers, sums of doubles are exact.
    for (const PartCost& cost : {PartCost{1, 1, 1}, PartCost{2, 2, 1}, PartCost{2, 3, 2},
                                 PartCost{1, 2, 4}, PartCost{3, 1, 3}}) {
        const double forward = cost.forward_s;
        const double input = cost.backward_input_s;
        const double weight = cost.backward_weight_s;
        for_each_pipeline([&](ScheduleKind kind, const PipelineShape& shape) {
            const int behind = shape.stages - 1;
            const int missing = std::max(0, shape.stages - shape.micro_batches);
            double formula = 0;
            switch (kind) {
                case ScheduleKind::kGPipe:
                case ScheduleKind::k1F1B:
                    formula = behind * (forward + input + weight);
                    break;
                // Each further chunk waits if a group does not fill the pipeline.
                case ScheduleKind::kInterleaved:
                    formula = (behind + (shape.chunks - 1) * missing) * (forward + input + weight);
                    break;
                case ScheduleKind::kZeroBubbleH1:
                    if (missing > 0) return;
                    formula = behind * std::max({forward, input, forward + input - weight});
                    break;
                case ScheduleKind::kZeroBubbleV:
                    if (forward != input || input != weight) return;
                    formula =
                        std::max(behind, 4 * shape.stages - 2 - 2 * shape.micro_batches) * forward;
                    break;
            }
            INFO(schedule_name(kind) << " stages " << shape.stages << " chunks " << shape.chunks
                                     << " micro batches " << shape.micro_batches);
            REQUIRE(bubble_of(kind, shape, cost) == formula);
        });
    }
}

TEST_CASE("idle shares are those that the schedules are known by") {
    const PartCost equal{1, 1, 1};
    const auto idle_share = [&](ScheduleKind kind, int chunks) {
        return run_of(kind, {4, chunks, 8}, equal).idle_share;
    };
    CHECK(idle_share(ScheduleKind::kGPipe, 1) == Approx(3.0 / 11));  // 27 %
    CHECK(idle_share(ScheduleKind::k1F1B, 1) == Approx(3.0 / 11));
    CHECK(idle_share(ScheduleKind::kInterleaved, 2) == Approx(3.0 / 19));
    CHECK(idle_share(ScheduleKind::kZeroBubbleH1, 1) == Approx(3.0 / 27));  // 11 %
    CHECK(idle_share(ScheduleKind::kZeroBubbleV, 2) == Approx(3.0 / 51));
    for_each_pipeline([&](ScheduleKind kind, const PipelineShape& shape) {
        if (kind != ScheduleKind::kInterleaved || shape.micro_batches < shape.stages) return;
        const double parts = shape.chunks * shape.micro_batches;
        REQUIRE(run_of(kind, shape, equal).idle_share ==
                Approx((shape.stages - 1) / (parts + shape.stages - 1)));
    });
}

TEST_CASE("zb-v has no gap between a stage's first and last work") {
    for (int stages = 1; stages <= 8; ++stages)
        for (int micro_batches = 2 * stages; micro_batches <= 2 * stages + 5; ++micro_batches)
            for (const LaneUse& use :
                 run_of(ScheduleKind::kZeroBubbleV, {stages, 2, micro_batches}, {1, 1, 1}).lanes)
                CHECK(use.end_s - use.begin_s == use.busy_s);
}

TEST_CASE("times are those of an independent relaxation, whatever the costs and transfers") {
    std::mt19937 random(7);
    for_each_pipeline([&](ScheduleKind kind, const PipelineShape& shape) {
        if (shape.stages > 5 || random() % 6 != 0) return;
        std::vector<PartCost> costs;
        for (int part = 0; part < shape.parts(); ++part)
            costs.push_back({static_cast<double>(random() % 9), static_cast<double>(random() % 9),
                             static_cast<double>(random() % 9), static_cast<double>(random() % 5)});
        const PipelineSchedule schedule = make_schedule(kind, shape);
        INFO(schedule_name(kind) << " stages " << shape.stages << " chunks " << shape.chunks
                                 << " micro batches " << shape.micro_batches);
        REQUIRE(simulate_pipeline(schedule, costs).step_s == Relaxation(schedule, costs).step_s());
    });
}

TEST_CASE("a transfer is paid once on the way down and once on the way up") {
    // With one micro batch nothing is hidden: 4 stages, 3 cuts, 2 s each way.
    CHECK(run_of(ScheduleKind::k1F1B, {4, 1, 1}, {1, 1, 1, 2}).step_s == 4 * 3 + 2 * 3 * 2);
    // Two micro batches on a link that takes 10 s each: the second waits for the first, both ways.
    CHECK(run_of(ScheduleKind::kGPipe, {2, 1, 2}, {1, 1, 1, 10}).step_s ==
          1 + (10 + 10) + 1 + 2 + (10 + 10) + 2);
    // In a V, the last part is on the first part's stage, so there is no transfer at the turn.
    CHECK(run_of(ScheduleKind::kZeroBubbleV, {1, 2, 1}, {1, 1, 1, 5}).step_s == 6);
}

TEST_CASE("activations are held from the forward to the backward, and a rest of them for weights") {
    for_each_pipeline([](ScheduleKind kind, const PipelineShape& shape) {
        const PipelineSchedule schedule = make_schedule(kind, shape);
        const TimedRun run =
            simulate_pipeline(schedule, equal_costs(shape, {1, 1, 1, 0, Bytes{10}, Bytes{3}}));
        for (int stage = 0; stage < shape.stages; ++stage) {
            const LaneUse& use = run.lanes[stage];
            // The bytes, counted by hand: when a work runs, each earlier forward counts with the
            // bytes that it still has.
            std::map<std::pair<int, int>, int> held;
            int bytes_max = 0;
            for (const PipelineWork& work : schedule.stages[stage]) {
                int& own = held[{work.chunk, work.micro_batch}];
                if (work.kind == WorkKind::kForward) own = 10;
                int bytes = 0;
                for (const auto& [key, value] : held) bytes += value;
                bytes_max = std::max(bytes_max, bytes);
                if (work.kind == WorkKind::kBackwardInput) own = 3;
                if (work.kind == WorkKind::kBackward || work.kind == WorkKind::kBackwardWeight)
                    own = 0;
            }
            REQUIRE(use.live_bytes_max.value == bytes_max);
            REQUIRE(use.live_max <= live_bound(kind, shape, stage));
            if (!splits_backward(kind)) REQUIRE(use.live_bytes_max.value == 10 * use.live_max);
        }
    });
    // The bounds are reached.
    for (const ScheduleKind kind : kScheduleKinds) {
        const int chunks =
            kind == ScheduleKind::kZeroBubbleV || kind == ScheduleKind::kInterleaved ? 2 : 1;
        const PipelineShape shape{4, chunks, 16};
        const TimedRun run = run_of(kind, shape, {1, 1, 1});
        for (int stage = 0; stage < 4; ++stage)
            CHECK(run.lanes[stage].live_max == live_bound(kind, shape, stage));
    }
}

TEST_CASE("a thousand stages and hundreds of micro batches are simulated in well under a second") {
    const std::clock_t begin = std::clock();  // processor time of this process alone
    const TimedRun run = run_of(ScheduleKind::kZeroBubbleH1, {1024, 1, 512}, {1, 1, 1});
    const double cpu_s = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    CHECK(run.lanes.size() == 1024);
    // It takes 0.1 s; a search over all pairs would take minutes.
    if (!test::kSanitized) CHECK(cpu_s < 1);
}

}  // namespace dslaunch
