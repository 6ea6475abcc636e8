// Forecasts of steps: closed forms for one rank, and the simulator of pipelines for several stages.
#include "plan/predict/step_forecast.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "plan/pipeline/stage_model.h"
#include "plan/pipeline/timed_schedule.h"
#include "plan/print/trace.h"
#include "support/catch.h"

namespace dslaunch {

using namespace plan;

using Json = nlohmann::json;

namespace {

// Returns layers of one parameter each, with 1 << 20 elements.
ModelInfo step_forecast_layers(int segments) {
    ModelInfo model;
    model.batch_bytes = Bytes{100};
    for (int s = 0; s < segments; ++s) {
        SegmentInfo segment;
        segment.name = fmt::format("layer.{}", s);
        segment.output_bytes = Bytes{1000};
        segment.activation_bytes = Bytes{5000};
        segment.parameters = {s};
        segment.backward = true;
        model.parameters.push_back({segment.name + ".weight", 1 << 20, 4, true});
        model.segments.push_back(segment);
    }
    return model;
}

std::vector<SegmentTimes> random_times(size_t segments, unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> seconds(0.5, 2.0);
    std::vector<SegmentTimes> times;
    for (size_t s = 0; s < segments; ++s)
        times.push_back({seconds(random), seconds(random), seconds(random)});
    return times;
}

double sum_of(const std::vector<SegmentTimes>& times) {
    double sum = 0;
    for (const SegmentTimes& of : times)
        sum += of.forward_s + of.backward_input_s + of.backward_weight_s;
    return sum;
}

StepPlan plan_of(const ModelInfo& model, const StepPlanOptions& options) {
    return make_step_plan(model, make_flat_layout(model, {1 << 20, 1}), options);
}

double forecast(const StepPlan& plan, const ModelInfo& model,
                const std::vector<SegmentTimes>& times, const MachineRates& rates) {
    const RankStep step{&plan, &model, times};
    return end_of(forecast_steps({&step, 1}, rates));
}

}  // namespace

TEST_CASE("a step of one rank takes all of its segments, and updates share its processors") {
    const ModelInfo model = step_forecast_layers(4);
    const std::vector<SegmentTimes> times = random_times(4, 1);
    MachineRates rates;
    for (const bool clip : {false, true})
        for (const int64_t micro_steps : {1, 3}) {
            StepPlanOptions options;
            options.accumulation_steps = micro_steps;
            options.clip = clip;
            options.fused_update = !clip;
            const StepPlan plan = plan_of(model, options);
            const double computing_s = static_cast<double>(micro_steps) * sum_of(times);
            rates.update_numel_per_s = 0;
            CHECK(forecast(plan, model, times, rates) == Approx(computing_s));
            // 4 Mi elements, one second per Mi. Lanes that share processors lose no time: with clip
            // nothing runs beside the updates, without it something always does.
            rates.update_numel_per_s = 1 << 20;
            CHECK(forecast(plan, model, times, rates) == Approx(computing_s + 4));
        }
}

TEST_CASE("computing and updates beside each other are as fast as measured") {
    // One layer after another gives up its gradient. Each update except the last runs beside the
    // next layer's backward, and is shorter than it.
    const ModelInfo model = step_forecast_layers(4);
    const std::vector<SegmentTimes> times(4, {1.0, 2.0, 2.0});
    StepPlanOptions options;
    options.fused_update = true;
    const StepPlan plan = plan_of(model, options);
    MachineRates rates;
    rates.update_numel_per_s = 1 << 20;  // a second each
    rates.computing_beside = 0.75;
    rates.updating_beside = 0.4;
    // Three updates take 1 / 0.4 s each, and a backward loses a quarter of that time; the last
    // update runs alone.
    CHECK(forecast(plan, model, times, rates) == Approx(4 * 1 + 4 * 4 + 3 * 2.5 * 0.25 + 1));
    rates.computing_beside = rates.updating_beside = 1;  // processors for both
    CHECK(forecast(plan, model, times, rates) == Approx(4 * 1 + 4 * 4 + 1));
}

TEST_CASE("gradients of later micro steps are added to those of the first where they lie") {
    const ModelInfo model = step_forecast_layers(4);
    const std::vector<SegmentTimes> times = random_times(4, 4);
    MachineRates rates;
    rates.sum_bytes_per_s = 12 * (1 << 20);  // a second for each Mi of elements: two reads, a write
    for (const bool each : {false, true})
        for (const int64_t micro_steps : {1, 2, 5}) {
            StepPlanOptions options;
            options.accumulation_steps = micro_steps;
            options.fused_update = !each;
            options.reduce_each_micro_step = each;
            const StepPlan plan = plan_of(model, options);
            const std::vector<double> seconds = instruction_seconds({&plan, &model, times}, rates);
            double backwards_s = 0;
            for (size_t i = 0; i < plan.instructions.size(); ++i)
                if (plan.instructions[i].op == Op::kBackward) backwards_s += seconds[i];
            double of_segments_s = 0;
            for (const SegmentTimes& of : times)
                of_segments_s += of.backward_input_s + of.backward_weight_s;
            const double adding_s = each ? 0.0 : 4.0 * static_cast<double>(micro_steps - 1);
            CHECK(backwards_s ==
                  Approx(static_cast<double>(micro_steps) * of_segments_s + adding_s));
        }
}

TEST_CASE("with recompute each segment of a group runs forward once more") {
    const ModelInfo model = step_forecast_layers(4);
    const std::vector<SegmentTimes> times = random_times(4, 2);
    StepPlanOptions options;
    options.recompute_groups = 1;
    double forward_s = 0;
    for (const SegmentTimes& of : times) forward_s += of.forward_s;
    CHECK(forecast(plan_of(model, options), model, times, {}) == Approx(sum_of(times) + forward_s));
}

TEST_CASE("what crosses hosts is hidden behind the backward, but for what comes last") {
    const ModelInfo model = step_forecast_layers(3);
    const std::vector<SegmentTimes> times(3, SegmentTimes{1, 1, 1});
    StepPlanOptions options{0, 2, 0, 1};
    options.node_sizes = {1, 1};
    const StepPlan plan = plan_of(model, options);
    MachineRates rates;
    // A bucket takes half a second, less than a backward, so only the first segment's bucket adds
    // to the step.
    rates.link_bytes_per_s = static_cast<double>(plan.sent().value) / 3 / 0.5;
    CHECK(forecast(plan, model, times, rates) == Approx(9.5));
    // A bucket takes three seconds, more than a backward, so buckets follow one another from the
    // end of the first backward on.
    rates.link_bytes_per_s /= 6;
    CHECK(forecast(plan, model, times, rates) == Approx(3 + 2 + 3 * 3));
}

TEST_CASE("stages forecast from their plans take what the simulator of pipelines says") {
    constexpr int kSegments = 8;
    const ModelInfo model = step_forecast_layers(kSegments);
    const std::vector<SegmentTimes> times = random_times(kSegments, 3);
    struct Kind {
        ScheduleKind kind;
        int chunks;
    };
    for (const auto& [kind, chunks] : {Kind{ScheduleKind::kGPipe, 1},
                                       {ScheduleKind::k1F1B, 1},
                                       {ScheduleKind::kZeroBubbleH1, 1},
                                       {ScheduleKind::kInterleaved, 2},
                                       {ScheduleKind::kZeroBubbleV, 2}})
        for (const int stages : {1, 2, 3, 4, 8})
            for (const int micro_batches : {1, 2, 5, 8}) {
                INFO(schedule_name(kind) << ", " << stages << " stages, " << micro_batches);
                const PipelineShape shape{stages, chunks, micro_batches};
                if (shape.parts() > kSegments) continue;
                const PipelineSchedule schedule = make_schedule(kind, shape);
                std::vector<SegmentRange> parts;
                std::vector<PartCost> costs;
                for (int part = 0; part < shape.parts(); ++part) {
                    parts.push_back(
                        {kSegments * part / shape.parts(), kSegments * (part + 1) / shape.parts()});
                    PartCost& cost = costs.emplace_back();
                    for (int s = parts.back().begin; s < parts.back().end; ++s) {
                        const SegmentTimes& of = times[s];
                        cost.forward_s += of.forward_s;
                        cost.backward_input_s += of.backward_input_s;
                        cost.backward_weight_s += of.backward_weight_s;
                    }
                }
                const auto ranges = ranges_of_stages(kind, shape, parts);
                std::vector<ModelInfo> models;
                std::vector<std::vector<SegmentTimes>> times_of;
                std::vector<StepPlan> plans;
                for (int stage = 0; stage < stages; ++stage) {
                    const std::vector<SegmentRange>& own = ranges[stage];
                    models.push_back(stage_model(model, own));
                    for (times_of.emplace_back(); const SegmentRange& range : own)
                        times_of.back().insert(times_of.back().end(), times.begin() + range.begin,
                                               times.begin() + range.end);
                    StepPlanOptions options;
                    options.accumulation_steps = micro_batches;
                    options.stage_work = stage_work(model, parts, schedule, stage);
                    plans.push_back(plan_of(models.back(), options));
                }
                std::vector<RankStep> steps;
                for (size_t stage = 0; stage < plans.size(); ++stage)
                    steps.push_back({&plans[stage], &models[stage], times_of[stage]});
                CHECK(end_of(forecast_steps(steps, {})) ==
                      Approx(simulate_pipeline(schedule, costs).step_s));
            }
}

TEST_CASE("a trace with a forecast has both, one under the other, instruction by instruction") {
    const ModelInfo model = step_forecast_layers(2);
    const StepPlan plan = plan_of(model, {});
    const std::vector<SegmentTimes> times = random_times(2, 4);
    const RankStep step{&plan, &model, times};
    const std::vector<InstructionSpan> predicted = forecast_steps({&step, 1}, {}).front();
    const std::vector<InstructionSpan> real(plan.instructions.size(),
                                            {std::chrono::seconds(1), std::chrono::seconds(3)});
    const Json trace = Json::parse(trace_json(plan, model, real, predicted));
    std::map<int64_t, std::string> groups;
    std::map<int64_t, std::map<int64_t, Json>> spans;  // spans by group and instruction
    for (const Json& event : trace.at("traceEvents")) {
        const auto group = event.at("pid").get<int64_t>();
        if (event.at("name") == "process_name") groups[group] = event.at("args").at("name");
        if (event.at("ph") == "X")
            spans[group][event.at("args").at("instruction").get<int64_t>()] = event;
    }
    REQUIRE(groups == std::map<int64_t, std::string>{{0, "measured"}, {1, "predicted"}});
    REQUIRE(spans.at(0).size() == plan.instructions.size());
    REQUIRE(spans.at(1).size() == plan.instructions.size());
    for (size_t i = 0; i < predicted.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        CHECK(spans.at(0).at(at).at("ts") == 1e6);
        CHECK(spans.at(0).at(at).at("dur") == 2e6);
        CHECK(spans.at(1).at(at).at("name") == spans.at(0).at(at).at("name"));
        CHECK(spans.at(1).at(at).at("tid") == spans.at(0).at(at).at("tid"));
        CHECK(spans.at(1).at(at).at("ts").get<double>() ==
              Approx(to_milliseconds(predicted[i].begin) * 1e3));
    }
    // A trace without a forecast has one group, without a name.
    CHECK(trace_json(plan, model, real).find("process_name") == std::string::npos);
}

}  // namespace dslaunch
