#include "plan/choose/stage_choice.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

#include "base/error.h"
#include "support/catch.h"
#include "support/text_tools.h"
#include "unit/plan/pipeline/pipeline_shapes.h"

namespace dslaunch {

using namespace plan;

namespace {

// Returns segments of random cost with one parameter each. The last segment reads the first one's
// parameter too.
StageRequest random_request(int segments, ScheduleKind kind, const PipelineShape& shape,
                            std::mt19937& random) {
    StageRequest request;
    request.schedule = kind;
    request.shape = shape;
    for (int s = 0; s < segments; ++s) {
        SegmentCost cost;
        cost.forward_s = static_cast<double>(random() % 10);
        cost.backward_input_s = static_cast<double>(random() % 10);
        cost.backward_weight_s = static_cast<double>(1 + random() % 10);
        cost.activations = Bytes{static_cast<int64_t>(random() % 100)};
        cost.kept_for_weight = Bytes{static_cast<int64_t>(random() % 30)};
        cost.backward_takes = Bytes{static_cast<int64_t>(random() % 50)};
        cost.outputs = Bytes{static_cast<int64_t>(1 + random() % 20)};
        request.segments.push_back(cost);
        request.parameters.push_back({s});
        request.state_bytes.push_back(Bytes{static_cast<int64_t>(random() % 500)});
    }
    request.parameters.back().push_back(0);
    return request;
}

struct Weight {
    double slowest_s = 0;
    int64_t sent_bytes = 0;
    int64_t memory_bytes = 0;
};

// Computes everything again from its definition. Activations are counted by going through the
// schedule.
Weight weight_of(const StageRequest& request, const std::vector<int>& borders) {
    std::vector<PartCost> costs;
    Weight weight;
    const auto end_of = [&](size_t part) {
        return part < borders.size() ? borders[part] : static_cast<int>(request.segments.size());
    };
    std::vector<double> stage_s(static_cast<size_t>(request.shape.stages), 0);
    std::vector<std::vector<bool>> reads(stage_s.size(),
                                         std::vector<bool>(request.state_bytes.size(), false));
    int begin = 0;
    for (size_t part = 0; part <= borders.size(); ++part) {
        PartCost cost;
        const auto stage = static_cast<size_t>(
            place_of_part(request.schedule, request.shape, static_cast<int>(part)).stage);
        for (int s = begin; s < end_of(part); ++s) {
            const SegmentCost& of = request.segments[s];
            stage_s[stage] += of.forward_s + of.backward_input_s + of.backward_weight_s;
            cost.activations += of.activations;
            cost.kept_for_weight += of.kept_for_weight;
            cost.backward_takes = std::max(cost.backward_takes, of.backward_takes);
            for (const int parameter : request.parameters[s]) reads[stage][parameter] = true;
        }
        begin = end_of(part);
        if (part < borders.size())
            weight.sent_bytes += request.segments[static_cast<size_t>(begin) - 1].outputs.value;
        costs.push_back(cost);
    }
    weight.slowest_s = *std::max_element(stage_s.begin(), stage_s.end());
    const TimedRun run = simulate_pipeline(make_schedule(request.schedule, request.shape), costs);
    for (size_t stage = 0; stage < stage_s.size(); ++stage) {
        int64_t bytes = run.lanes[stage].live_bytes_max.value;
        for (size_t p = 0; p < request.state_bytes.size(); ++p)
            if (reads[stage][p]) bytes += request.state_bytes[p].value;
        weight.memory_bytes = std::max(weight.memory_bytes, bytes);
    }
    return weight;
}

// Visits all ways to cut.
void for_each_cut(int segments, int parts, const std::function<void(std::vector<int>)>& visit) {
    std::vector<int> borders;
    const std::function<void(int)> extend = [&](int first) {
        if (std::ssize(borders) == parts - 1) return visit(borders);
        for (int border = first; border < segments; ++border) {
            borders.push_back(border);
            extend(border + 1);
            borders.pop_back();
        }
    };
    extend(1);
}

std::vector<int> borders_of(const StageChoice& choice) {
    std::vector<int> borders;
    for (size_t part = 1; part < choice.parts.size(); ++part)
        borders.push_back(choice.parts[part].begin);
    return borders;
}

Weight best_by_force(const StageRequest& request) {
    constexpr auto kMost = std::numeric_limits<int64_t>::max();
    Weight best{std::numeric_limits<double>::infinity(), kMost, kMost};
    const auto segments = static_cast<int>(request.segments.size());
    const auto each = [&](const std::function<void(const Weight&)>& look) {
        for_each_cut(segments, request.shape.parts(), [&](const std::vector<int>& borders) {
            const Weight weight = weight_of(request, borders);
            best.memory_bytes = std::min(best.memory_bytes, weight.memory_bytes);
            if (!request.memory_max || weight.memory_bytes <= request.memory_max->value)
                look(weight);
        });
    };
    each(
        [&](const Weight& weight) { best.slowest_s = std::min(best.slowest_s, weight.slowest_s); });
    each([&](const Weight& weight) {
        if (weight.slowest_s <= kSlowestSlack * best.slowest_s)
            best.sent_bytes = std::min(best.sent_bytes, weight.sent_bytes);
    });
    return best;
}

}  // namespace

TEST_CASE("with one chunk a stage no cut is better than the chosen one, with and without a limit") {
    std::mt19937 random(17);
    int limited_count = 0;
    for (const ScheduleKind kind :
         {ScheduleKind::kGPipe, ScheduleKind::k1F1B, ScheduleKind::kZeroBubbleH1})
        for (int stages = 1; stages <= 4; ++stages)
            for (int segments = stages; segments <= 9; ++segments) {
                const int micro_batches = 1 + static_cast<int>(random() % 6);
                StageRequest request =
                    random_request(segments, kind, {stages, 1, micro_batches}, random);
                const Weight free = best_by_force(request);
                Weight chosen = weight_of(request, borders_of(choose_stages(request)));
                REQUIRE(chosen.slowest_s <= kSlowestSlack * free.slowest_s);
                REQUIRE(chosen.sent_bytes == free.sent_bytes);

                // The limit lies between the least possible need of the fullest stage and the need
                // of the free choice.
                request.memory_max = Bytes{(free.memory_bytes + chosen.memory_bytes) / 2};
                const Weight limited = best_by_force(request);
                chosen = weight_of(request, borders_of(choose_stages(request)));
                REQUIRE(chosen.memory_bytes <= request.memory_max->value);
                REQUIRE(chosen.slowest_s <= kSlowestSlack * limited.slowest_s);
                REQUIRE(chosen.sent_bytes == limited.sent_bytes);
                if (limited.slowest_s > free.slowest_s) ++limited_count;

                request.memory_max = Bytes{free.memory_bytes - 1};
                CHECK_THAT(test::error_of(ExitCode::kConfig,
                                          [&] { static_cast<void>(choose_stages(request)); }),
                           Catch::Contains("needs at least " + to_text(Bytes{free.memory_bytes})));
            }
    CHECK(limited_count > 5);
}

TEST_CASE("with several chunks a stage the chosen cut is near the best one") {
    std::mt19937 random(23);
    double worst = 1;
    double sum = 0;
    int cases_count = 0;
    for (const ScheduleKind kind : {ScheduleKind::kInterleaved, ScheduleKind::kZeroBubbleV})
        for (int stages = 1; stages <= 3; ++stages)
            for (int segments = 2 * stages; segments <= 9; ++segments)
                for (int round = 0; round < 5; ++round) {
                    const StageRequest request =
                        random_request(segments, kind, {stages, 2, 4}, random);
                    const double chosen_s =
                        weight_of(request, borders_of(choose_stages(request))).slowest_s;
                    const double best_s = best_by_force(request).slowest_s;
                    REQUIRE(chosen_s >= best_s);
                    worst = std::max(worst, chosen_s / best_s);
                    sum += chosen_s / best_s;
                    ++cases_count;
                }
    CHECK(worst < 1.35);
    CHECK(sum / cases_count < 1.05);
}

TEST_CASE("equal segments are dealt out evenly, whatever the schedule") {
    for (const ScheduleKind kind : kScheduleKinds) {
        const int chunks =
            kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kZeroBubbleV ? 2 : 1;
        StageRequest request;
        request.schedule = kind;
        request.shape = {4, chunks, 8};
        request.segments.assign(24, {1, 1, 1, Bytes{10}, {}, {}, Bytes{4}});
        request.link_bytes_per_s = 8;
        for (int s = 0; s < 24; ++s) {
            request.parameters.push_back({s});
            request.state_bytes.push_back(Bytes{100});
        }
        const StageChoice choice = choose_stages(request);
        REQUIRE(std::ssize(choice.parts) == 4 * chunks);
        for (size_t part = 0; part < choice.parts.size(); ++part) {
            const int each = 6 / chunks;
            CHECK(choice.parts[part] ==
                  SegmentRange{static_cast<int>(part) * each, (static_cast<int>(part) + 1) * each});
            CHECK(choice.costs[part].send_s == (part + 1 < choice.parts.size() ? 0.5 : 0));
        }
        for (const StageLoad& load : choice.stages) {
            CHECK(load.micro_batch_s == 18);
            CHECK(load.states == Bytes{600});
        }
        if (!splits_backward(kind))
            CHECK(choice.stages[3].activations.value ==
                  60 / chunks * live_bound(kind, request.shape, 3));
        CHECK(choice.tied.empty());
    }
}

TEST_CASE("what a stage holds is what running through its schedule finds") {
    std::mt19937 random(29);
    for_each_pipeline([&](ScheduleKind kind, const PipelineShape& shape) {
        if (random() % 4 != 0) return;
        const PipelineSchedule schedule = make_schedule(kind, shape);
        std::vector<PartCost> costs(static_cast<size_t>(shape.parts()));
        for (PartCost& cost : costs)
            cost = {1,
                    1,
                    1,
                    0,
                    Bytes{static_cast<int64_t>(random() % 100)},
                    Bytes{static_cast<int64_t>(random() % 100)},
                    Bytes{static_cast<int64_t>(random() % 100)}};
        const TimedRun run = simulate_pipeline(schedule, costs);
        for (int stage = 0; stage < shape.stages; ++stage) {
            std::vector<PartCost> own;
            for (int chunk = 0; chunk < shape.chunks; ++chunk)
                own.push_back(costs[part_of(kind, shape, {stage, chunk})]);
            REQUIRE(LiveFront(schedule, stage).peak(own) == run.lanes[stage].live_bytes_max);
        }
    });
}

TEST_CASE("a parameter that several stages read is named with them") {
    std::mt19937 random(31);
    StageRequest request = random_request(6, ScheduleKind::k1F1B, {3, 1, 4}, random);
    request.parameters[2].push_back(4);  // its stage may be that of segment 4, or another
    const StageChoice choice = given_stages(request, {2, 4});
    REQUIRE(choice.tied.size() == 2);
    CHECK(choice.tied[0].parameter == 0);
    CHECK(choice.tied[0].stages == std::vector<int>{0, 2});
    CHECK(choice.tied[1].parameter == 4);
    CHECK(choice.tied[1].stages == std::vector<int>{1, 2});
    // The first and the last part of a V are on the same stage, so nothing is tied across stages.
    request = random_request(6, ScheduleKind::kZeroBubbleV, {3, 2, 4}, random);
    const StageChoice in_v = given_stages(request, {1, 2, 3, 4, 5});
    CHECK(in_v.tied.empty());
    CHECK(in_v.stages[0].states == request.state_bytes[0] + request.state_bytes[5]);
}

TEST_CASE("stages that are given are taken as they are, or refused in words") {
    std::mt19937 random(37);
    StageRequest request = random_request(6, ScheduleKind::k1F1B, {3, 1, 4}, random);
    CHECK(borders_of(given_stages(request, {1, 5})) == std::vector<int>{1, 5});
    const auto refusal = [&](const std::vector<int>& borders) {
        return test::error_of(ExitCode::kConfig,
                              [&] { static_cast<void>(given_stages(request, borders)); });
    };
    CHECK(refusal({3}) == "a model of 3 parts has 2 borders between them, but 1 were given");
    CHECK(refusal({3, 3}) ==
          "a part cannot begin at segment 3: the first segments must increase and lie between 1 "
          "and 5");
    CHECK(refusal({0, 3}) ==
          "a part cannot begin at segment 0: the first segments must increase and lie between 1 "
          "and 5");
    CHECK(refusal({3, 6}) ==
          "a part cannot begin at segment 6: the first segments must increase and lie between 1 "
          "and 5");
    request.memory_max = Bytes{0};
    CHECK_THAT(refusal({1, 5}), Catch::Contains("a rank has only 0 B"));
    request.shape.stages = 7;
    CHECK(test::error_of(ExitCode::kConfig, [&] { static_cast<void>(choose_stages(request)); }) ==
          "7 stages of 1 chunk need at least 7 segments, but the model has 6; use fewer stages, or "
          "divide the model more finely with --segments");
}

}  // namespace dslaunch
