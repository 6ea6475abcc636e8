#include "plan/choose/stage_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/error.h"
#include "plan/time/machine_rates.h"

namespace dslaunch::plan {
namespace {

// Unit costs of a part: each entry has one byte of a single kind of memory.
constexpr PartCost kUnits[] = {
    {.activations = Bytes{1}}, {.kept_for_weight = Bytes{1}}, {.backward_takes = Bytes{1}}};
constexpr size_t kKinds = std::size(kUnits);

bool covers(const std::vector<int>& larger, const std::vector<int>& smaller) {
    return std::equal(larger.begin(), larger.end(), smaller.begin(), std::greater_equal<>());
}

constexpr double kImpossible = std::numeric_limits<double>::infinity();

// A part that grows by one segment at a time, from its last segment to its first.
class GrowingPart {
  public:
    explicit GrowingPart(const StageRequest& request)
        : request_(request), counted_(request.state_bytes.size(), false) {}

    void add_before(int segment) {
        const SegmentCost& of = request_.segments[segment];
        add_times(cost_, of);
        cost_.activations += of.activations;
        cost_.kept_for_weight += of.kept_for_weight;
        cost_.backward_takes = std::max(cost_.backward_takes, of.backward_takes);
        for (const int parameter : request_.parameters[segment]) {
            if (counted_[parameter]) continue;
            counted_[parameter] = true;
            states_ += request_.state_bytes[parameter];
        }
    }
    [[nodiscard]] const PartCost& cost() const { return cost_; }
    [[nodiscard]] Bytes states() const { return states_; }

  private:
    const StageRequest& request_;
    PartCost cost_;
    Bytes states_;
    std::vector<bool> counted_;
};

PartCost cost_of(const StageRequest& request, SegmentRange range) {
    GrowingPart part(request);
    for (int segment = range.end; segment-- > range.begin;) part.add_before(segment);
    PartCost cost = part.cost();
    if (range.end < std::ssize(request.segments))
        cost.send_s = seconds_at(request.segments[range.end - 1].outputs, request.link_bytes_per_s);
    return cost;
}

// The numbers by which is_better() compares two choices. Less is better.
struct Verdict {
    double slowest_s = 0;
    int64_t sent_bytes = 0;
    int64_t memory_bytes = 0;  // memory of the stage that needs most
};

class StageChooser {
  public:
    explicit StageChooser(const StageRequest& request) : request_(request) {
        const PipelineSchedule schedule = make_schedule(request.schedule, request.shape);
        for (int stage = 0; stage < request.shape.stages; ++stage)
            fronts_.emplace_back(schedule, stage);
    }

    // Finds the ranges: by dynamic programming if each stage has one chunk, otherwise by local
    // search.
    std::vector<SegmentRange> choose() {
        return request_.shape.chunks == 1 ? choose_exactly() : search();
    }

    [[nodiscard]] StageChoice weigh(std::vector<SegmentRange> parts) const {
        StageChoice choice;
        choice.parts = std::move(parts);
        for (const SegmentRange& range : choice.parts)
            choice.costs.push_back(cost_of(request_, range));
        std::map<int, std::set<int>> stages_of;
        for (int stage = 0; stage < request_.shape.stages; ++stage) {
            StageLoad load;
            std::vector<PartCost> costs;
            std::set<int> parameters;
            for (int chunk = 0; chunk < request_.shape.chunks; ++chunk) {
                const auto part =
                    static_cast<size_t>(part_of(request_.schedule, request_.shape, {stage, chunk}));
                costs.push_back(choice.costs[part]);
                load.micro_batch_s += micro_batch_s(choice.costs[part]);
                for (int s = choice.parts[part].begin; s < choice.parts[part].end; ++s)
                    for (const int parameter : request_.parameters[s]) parameters.insert(parameter);
            }
            for (const int parameter : parameters) {
                load.states += request_.state_bytes[parameter];
                stages_of[parameter].insert(stage);
            }
            load.activations = fronts_[stage].peak(costs);
            choice.stages.push_back(load);
        }
        for (const auto& [parameter, stages] : stages_of)
            if (stages.size() > 1)
                choice.tied.push_back({parameter, {stages.begin(), stages.end()}});
        return choice;
    }

  private:
    // The quantity to minimize: for kSlowest and kMemory the largest cost of a stage, for kSent the
    // sum of the stages' costs.
    enum class Goal { kSlowest, kSent, kMemory };

    std::vector<SegmentRange> choose_exactly() {
        slowest_s_max_ = kImpossible;
        if (best_ranges(Goal::kSlowest).empty()) refuse(best_ranges(Goal::kMemory));
        slowest_s_max_ = kSlowestSlack * best_;
        return best_ranges(Goal::kSent);
    }

    // Returns the best ranges, by dynamic programming over the number of parts and the end of the
    // last part. Returns an empty list if nothing fits (never for kMemory).
    std::vector<SegmentRange> best_ranges(Goal goal) {
        const auto segments = static_cast<int>(request_.segments.size());
        const int parts = request_.shape.parts();
        std::vector<std::vector<double>> best(
            static_cast<size_t>(parts) + 1,
            std::vector<double>(static_cast<size_t>(segments) + 1, kImpossible));
        std::vector<std::vector<int>> begins(
            best.size(), std::vector<int>(static_cast<size_t>(segments) + 1, -1));
        best[0][0] = 0;
        for (int end = 1; end <= segments; ++end) {
            GrowingPart part(request_);
            for (int begin = end; begin-- > 0;) {
                part.add_before(begin);
                for (int p = 0; p < parts; ++p) {
                    const double before = best[p][begin];
                    if (before == kImpossible) continue;
                    const double own = cost_for(goal, p, end, part);
                    const double both = goal == Goal::kSent ? before + own : std::max(before, own);
                    double& least = best[p + 1][end];
                    if (both >= least) continue;
                    least = both;
                    begins[p + 1][end] = begin;
                }
            }
        }
        best_ = best.back().back();
        std::vector<SegmentRange> ranges;
        if (best_ == kImpossible) return ranges;
        int end = segments;
        for (int p = parts; p > 0; --p) {
            const int begin = begins[p][end];
            ranges.insert(ranges.begin(), {begin, end});
            end = begin;
        }
        return ranges;
    }

    // Returns the cost of part P if it ends at END; kImpossible if it does not fit. Memory is
    // checked only if each stage has one part.
    [[nodiscard]] double cost_for(Goal goal, int p, int end, const GrowingPart& part) const {
        const double takes_s = micro_batch_s(part.cost());
        if (goal != Goal::kMemory && takes_s > slowest_s_max_) return kImpossible;
        if (request_.shape.chunks == 1) {
            const Bytes memory = part.states() + fronts_[p].peak({part.cost()});
            if (goal == Goal::kMemory) return static_cast<double>(memory.value);
            if (request_.memory_max && memory > *request_.memory_max) return kImpossible;
        }
        if (goal == Goal::kSlowest) return takes_s;
        const bool last = end == std::ssize(request_.segments);
        const SegmentCost& at_end = request_.segments[end - 1];
        return last ? 0 : static_cast<double>(at_end.outputs.value);
    }

    std::vector<SegmentRange> search() {
        slowest_s_max_ = kImpossible;
        std::vector<SegmentRange> ranges = best_ranges(Goal::kSlowest);
        Verdict verdict = verdict_on(ranges);
        for (bool better = true; better;) {
            better = false;
            for (size_t border = 1; border < ranges.size(); ++border)
                for (const int by : {-1, 1}) {
                    std::vector<SegmentRange> moved = ranges;
                    moved[border - 1].end += by;
                    moved[border].begin += by;
                    if (moved[border - 1].begin == moved[border - 1].end ||
                        moved[border].begin == moved[border].end)
                        continue;
                    const Verdict other = verdict_on(moved);
                    if (!is_better(other, verdict)) continue;
                    ranges = std::move(moved);
                    verdict = other;
                    better = true;
                }
        }
        if (excess(verdict) > 0) refuse(ranges);
        return ranges;
    }

    [[nodiscard]] Verdict verdict_on(const std::vector<SegmentRange>& ranges) const {
        Verdict verdict;
        const StageChoice choice = weigh(ranges);
        for (const StageLoad& load : choice.stages) {
            verdict.slowest_s = std::max(verdict.slowest_s, load.micro_batch_s);
            verdict.memory_bytes = std::max(verdict.memory_bytes, load.memory().value);
        }
        for (size_t part = 0; part + 1 < ranges.size(); ++part)
            verdict.sent_bytes += request_.segments[ranges[part].end - 1].outputs.value;
        return verdict;
    }
    [[nodiscard]] int64_t excess(const Verdict& verdict) const {
        if (!request_.memory_max) return 0;
        return std::max<int64_t>(0, verdict.memory_bytes - request_.memory_max->value);
    }
    [[nodiscard]] bool is_better(const Verdict& a, const Verdict& b) const {
        return std::tuple(excess(a), a.slowest_s, a.sent_bytes) <
               std::tuple(excess(b), b.slowest_s, b.sent_bytes);
    }

    // Throws an error: no choice fits. RANGES is the choice that comes nearest to fitting.
    [[noreturn]] void refuse(const std::vector<SegmentRange>& ranges) const {
        const StageChoice choice = weigh(ranges);
        const auto fullest = std::max_element(
            choice.stages.begin(), choice.stages.end(),
            [](const StageLoad& a, const StageLoad& b) { return a.memory() < b.memory(); });
        fail(ExitCode::kConfig,
             "no division into {} stages fits in {} per rank: stage {} needs at least {}, of which "
             "{} are states and {} activations; use more stages, recompute, a higher ZeRO stage or "
             "fewer rows per micro batch",
             request_.shape.stages, to_text(*request_.memory_max), fullest - choice.stages.begin(),
             to_text(fullest->memory()), to_text(fullest->states), to_text(fullest->activations));
    }

    const StageRequest& request_;
    std::vector<LiveFront> fronts_;  // by stage
    double slowest_s_max_ = kImpossible;
    double best_ = kImpossible;  // the cost that best_ranges found last
};

void check_request(const StageRequest& request) {
    const std::string why_not = why_no_schedule(request.schedule, request.shape);
    DSL_CHECK(why_not.empty(), "{}", why_not);
    DSL_CHECK(request.parameters.size() == request.segments.size(),
              "parameters were given for {} segments only", request.parameters.size());
    const int parts = request.shape.parts();
    if (std::ssize(request.segments) < parts)
        fail(ExitCode::kConfig,
             "{} stages of {} {} need at least {} segments, but the model has {}; use fewer "
             "stages, or divide the model more finely with --segments",
             request.shape.stages, request.shape.chunks,
             request.shape.chunks == 1 ? "chunk" : "chunks", parts, request.segments.size());
}

// Returns the bytes of parameter P's weights, gradients and optimizer states that one rank holds.
// The gathered copy at ZeRO stage 3 is not included.
Bytes state_bytes(const ModelInfo& model, int p, const StepPlanOptions& options) {
    const ParameterInfo& parameter = model.parameters[static_cast<size_t>(p)];
    const auto share = [&](int64_t bytes, int from_stage) {
        const int64_t ranks = options.stage >= from_stage ? options.shard_ranks() : 1;
        return Bytes{(bytes + ranks - 1) / ranks};
    };
    const int64_t numel = parameter.numel;
    Bytes bytes;
    if (!options.offload.parameters) bytes += share(numel * parameter.element_bytes, 3);
    if (!parameter.trainable) return bytes;
    bytes += share(numel * kFp32Bytes, 2);  // gradients
    const int64_t states = options.optimizer_states + (options.master ? 1 : 0);
    if (!options.offload.states)
        bytes += share((numel * states + options.tensor_states_of(p)) * kFp32Bytes, 1);
    return bytes;
}

SegmentCost segment_cost(const ModelInfo& model, size_t index, const StepPlanOptions& options,
                         const SegmentTimes& times) {
    const SegmentInfo& segment = model.segments[index];
    const Bytes inputs = index == 0 ? model.batch_bytes : model.segments[index - 1].output_bytes;
    SegmentCost cost;
    add_times(cost, times);
    cost.outputs = segment.output_bytes;
    if (!segment.backward) return cost;
    cost.backward_takes =
        Bytes{std::max<int64_t>(0, segment.backward_peak.value - segment.activation_bytes.value)};
    cost.activations = inputs;
    if (options.recompute_groups > 0) {
        cost.backward_input_s += times.forward_s;
        cost.backward_takes += segment.activation_bytes;
    } else {
        cost.activations += segment.activation_bytes;
    }
    // The inputs of the segment are kept too: the first weight gradient of the segment is computed
    // from them.
    const bool measured = segment.weight_half_bytes.value > 0;
    cost.kept_for_weight =
        inputs + (measured ? segment.weight_half_bytes : segment.activation_bytes);
    return cost;
}

}  // namespace

LiveFront::LiveFront(const PipelineSchedule& schedule, int stage) {
    Moment held(kKinds * static_cast<size_t>(schedule.shape.chunks), 0);
    std::set<Moment> seen;
    for (const PipelineWork& work : schedule.stages[stage]) {
        int* const of_chunk = &held[kKinds * work.chunk];
        for (size_t k = 0; k < kKinds; ++k)
            of_chunk[k] += static_cast<int>(timed_work(work.kind, kUnits[k]).takes.bytes.value);
        seen.insert(held);
        for (size_t k = 0; k < kKinds; ++k)
            of_chunk[k] -= static_cast<int>(timed_work(work.kind, kUnits[k]).gives.bytes.value);
    }
    for (const Moment& moment : seen) {
        const bool covered = std::any_of(seen.begin(), seen.end(), [&](const Moment& other) {
            return other != moment && covers(other, moment);
        });
        if (!covered) moments_.push_back(moment);
    }
}

Bytes LiveFront::peak(const std::vector<PartCost>& costs) const {
    Bytes most;
    for (const Moment& moment : moments_) {
        DSL_CHECK(moment.size() == kKinds * costs.size(),
                  "the number of chunks ({}) does not match the pipeline", costs.size());
        Bytes bytes;
        for (size_t chunk = 0; chunk < costs.size(); ++chunk) {
            const int* const of_chunk = &moment[kKinds * chunk];
            bytes += costs[chunk].activations * of_chunk[0] +
                     costs[chunk].kept_for_weight * of_chunk[1] +
                     costs[chunk].backward_takes * of_chunk[2];
        }
        most = std::max(most, bytes);
    }
    return most;
}

StageChoice choose_stages(const StageRequest& request) {
    check_request(request);
    StageChooser chooser(request);
    return chooser.weigh(chooser.choose());
}

StageChoice given_stages(const StageRequest& request, const std::vector<int>& first_segments) {
    check_request(request);
    const auto segments = static_cast<int>(request.segments.size());
    if (std::ssize(first_segments) != request.shape.parts() - 1)
        fail(ExitCode::kConfig,
             "a model of {} parts has {} borders between them, but {} were given",
             request.shape.parts(), request.shape.parts() - 1, first_segments.size());
    std::vector<SegmentRange> parts{{0, segments}};
    for (const int first : first_segments) {
        if (first <= parts.back().begin || first >= segments)
            fail(ExitCode::kConfig,
                 "a part cannot begin at segment {}: the first segments must increase and lie "
                 "between 1 and {}",
                 first, segments - 1);
        parts.back().end = first;
        parts.push_back({first, segments});
    }
    const StageChoice choice = StageChooser(request).weigh(std::move(parts));
    for (size_t stage = 0; stage < choice.stages.size(); ++stage) {
        const Bytes memory = choice.stages[stage].memory();
        if (request.memory_max && memory > *request.memory_max)
            fail(ExitCode::kConfig, "stage {} needs {} of memory, but a rank has only {}", stage,
                 to_text(memory), to_text(*request.memory_max));
    }
    return choice;
}

std::vector<SegmentTimes> times_from_flops(const ModelInfo& model, double flops_per_s,
                                           double memory_bytes_per_s) {
    DSL_CHECK(flops_per_s > 0, "{} FLOP/s", flops_per_s);
    std::vector<SegmentTimes> times;
    for (const SegmentInfo& segment : model.segments) {
        Bytes touched = segment.activation_bytes;
        for (const int p : segment.parameters)
            touched += Bytes{model.parameters[p].numel * model.parameters[p].element_bytes};
        const double forward_s = std::max(static_cast<double>(segment.forward_flops) / flops_per_s,
                                          seconds_at(touched, memory_bytes_per_s));
        const double backward_s = segment.backward ? forward_s : 0;
        times.push_back({forward_s, backward_s, backward_s});
    }
    return times;
}

StageRequest make_stage_request(const ModelInfo& model, const StepPlanOptions& options,
                                const std::vector<SegmentTimes>& times) {
    DSL_CHECK(times.size() == model.segments.size(),
              "times of {} segments were given, but the model has {}", times.size(),
              model.segments.size());
    StageRequest request;
    for (size_t s = 0; s < times.size(); ++s) {
        request.segments.push_back(segment_cost(model, s, options, times[s]));
        request.parameters.push_back(model.segments[s].parameters);
    }
    for (int p = 0; p < std::ssize(model.parameters); ++p)
        request.state_bytes.push_back(state_bytes(model, p, options));
    return request;
}

}  // namespace dslaunch::plan
