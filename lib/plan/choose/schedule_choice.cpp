#include "plan/choose/schedule_choice.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <queue>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int kChunks = 2;

struct Rules {
    bool forward_first = false;  // true: if a forward and a backward can both run, the forward does
    double patience = 0;         // a stage does not begin a backward_weight if other work can begin
                                 // within this fraction of the backward_weight's time
};

// Simulates one step with a clock: a stage chooses its next work whenever it becomes free.
class GreedyStep {
  public:
    GreedyStep(const PipelineShape& shape, const std::vector<PartCost>& costs, const Rules& rules)
        : costs_(costs), rules_(rules), schedule_{ScheduleKind::kZeroBubbleV, shape, {}} {
        const auto micro_batches = static_cast<size_t>(shape.micro_batches);
        schedule_.stages.resize(static_cast<size_t>(shape.stages));
        stages_.resize(static_cast<size_t>(shape.stages));
        for (auto* times : {&inputs_s_, &gradients_s_})
            times->assign(static_cast<size_t>(shape.parts()),
                          std::vector<double>(micro_batches, kNever));
        std::fill(inputs_s_.front().begin(), inputs_s_.front().end(), 0.0);
        for (int stage = 0; stage < shape.stages; ++stage) wakings_.push({0, stage});
    }

    PipelineSchedule run() {
        while (!wakings_.empty()) {
            const auto [now_s, stage] = wakings_.top();
            wakings_.pop();
            if (now_s < at(stage).free_s) continue;
            if (const auto work = choose(stage, now_s)) start(stage, *work, now_s);
        }
        return std::move(schedule_);
    }

  private:
    struct Stage {
        double free_s = 0;
        int live = 0;
        std::array<int, kChunks> forwards{};
        std::array<int, kChunks> inputs{};
        std::array<int, kChunks> weights{};
    };
    struct Waking {
        double now_s;
        int stage;
        bool operator>(const Waking& other) const {
            return now_s != other.now_s ? now_s > other.now_s : stage > other.stage;
        }
    };

    Stage& at(int stage) { return stages_[stage]; }
    [[nodiscard]] size_t part_at(int stage, int chunk) const {
        return static_cast<size_t>(part_of(schedule_.kind, schedule_.shape, {stage, chunk}));
    }

    // Returns the time at which the next forward of CHUNK can begin. Returns kNever if no forward
    // is left, the time is not known yet, or the stage has no room for more activations.
    double forward_at(int stage, int chunk) {
        const Stage& own = at(stage);
        const int next = own.forwards[chunk];
        if (next == schedule_.shape.micro_batches) return kNever;
        // The last of the stage's places for activations is left to the second chunk. If the first
        // chunk took all places, the second chunk could not run, and no activations could ever be
        // freed.
        const int room = 2 * schedule_.shape.stages - (chunk == 0 ? 1 : 0);
        if (own.live >= room) return kNever;
        return inputs_s_[part_at(stage, chunk)][next];
    }
    double input_at(int stage, int chunk) {
        const Stage& own = at(stage);
        const int next = own.inputs[chunk];
        if (next == own.forwards[chunk]) return kNever;
        const size_t part = part_at(stage, chunk);
        if (part + 1 == costs_.size()) return 0;
        return gradients_s_[part][next];
    }

    std::optional<PipelineWork> choose(int stage, double now_s) {
        std::optional<PipelineWork> ready;
        double next_s = kNever;
        const auto look = [&](WorkKind kind, int chunk, double at_s) {
            const Stage& own = at(stage);
            const auto c = static_cast<size_t>(chunk);
            const int next = kind == WorkKind::kForward ? own.forwards[c] : own.inputs[c];
            if (at_s > now_s) {
                next_s = std::min(next_s, at_s);
            } else if (!ready) {
                ready = PipelineWork{kind, chunk, next};
            }
        };
        for (const bool forward : {rules_.forward_first, !rules_.forward_first})
            for (const int chunk : {1, 0}) {
                if (forward) look(WorkKind::kForward, chunk, forward_at(stage, chunk));
                if (!forward) look(WorkKind::kBackwardInput, chunk, input_at(stage, chunk));
            }
        if (ready) return ready;
        for (const int chunk : {1, 0}) {
            const auto c = static_cast<size_t>(chunk);
            if (at(stage).weights[c] == at(stage).inputs[c]) continue;
            // The second chunk computes weight gradients first, like on a single rank. The first
            // chunk must not get ahead of it.
            if (chunk == 0 && at(stage).weights[0] == at(stage).weights[1]) continue;
            const double takes_s = costs_[part_at(stage, chunk)].backward_weight_s;
            if (next_s - now_s < rules_.patience * takes_s) continue;
            return PipelineWork{WorkKind::kBackwardWeight, chunk, at(stage).weights[c]};
        }
        if (next_s < kNever) wakings_.push({next_s, stage});
        return std::nullopt;
    }

    void start(int stage, const PipelineWork& work, double now_s) {
        Stage& own = at(stage);
        const auto chunk = static_cast<size_t>(work.chunk);
        const size_t part = part_at(stage, work.chunk);
        schedule_.stages[stage].push_back(work);
        if (work.kind == WorkKind::kBackwardWeight) {
            ++own.weights[chunk];
            --own.live;
            own.free_s = now_s + costs_[part].backward_weight_s;
        } else if (work.kind == WorkKind::kForward) {
            ++own.forwards[chunk];
            ++own.live;
            own.free_s = now_s + costs_[part].forward_s;
            if (part + 1 < costs_.size())
                arrive(inputs_s_, part + 1, work, own.free_s + costs_[part].send_s);
        } else {
            ++own.inputs[chunk];
            own.free_s = now_s + costs_[part].backward_input_s;
            if (part > 0)
                arrive(gradients_s_, part - 1, work, own.free_s + costs_[part - 1].send_s);
        }
        wakings_.push({own.free_s, stage});
    }

    void arrive(std::vector<std::vector<double>>& times, size_t part, const PipelineWork& work,
                double at_s) {
        times[part][work.micro_batch] = at_s;
        const int stage =
            place_of_part(schedule_.kind, schedule_.shape, static_cast<int>(part)).stage;
        wakings_.push({at_s, stage});
    }

    const std::vector<PartCost>& costs_;
    const Rules& rules_;
    PipelineSchedule schedule_;
    std::vector<Stage> stages_;
    std::vector<std::vector<double>> inputs_s_;     // by part, then micro batch: the time when the
                                                    // inputs arrive
    std::vector<std::vector<double>> gradients_s_;  // the same for gradients of the outputs
    std::priority_queue<Waking, std::vector<Waking>, std::greater<>> wakings_;
};

// Fills in the fields of OPTION. Throws Error{kConfig} if the model or the memory limit forbids it.
void fill_in(PipelineOption& option, StageRequest request, const PipelineWish& wish) {
    request.schedule = option.kind;
    request.shape = option.shape;
    option.choice = wish.first_segments.empty() ? choose_stages(request)
                                                : given_stages(request, wish.first_segments);
    option.schedule = schedule_for(option.kind, option.shape, option.choice.costs);
    option.run = simulate_pipeline(option.schedule, option.choice.costs);
}

}  // namespace

PipelineSchedule best_zero_bubble_v(const PipelineShape& shape,
                                    const std::vector<PartCost>& costs) {
    DSL_CHECK(std::ssize(costs) == shape.parts(), "costs of {} parts were given, but {} are needed",
              costs.size(), shape.parts());
    PipelineSchedule best = make_schedule(ScheduleKind::kZeroBubbleV, shape);
    double best_s = simulate_pipeline(best, costs).step_s;
    for (const bool forward_first : {false, true})
        for (const double patience : {0.0, 0.5}) {
            const Rules rules{forward_first, patience};
            PipelineSchedule tried = GreedyStep(shape, costs, rules).run();
            const double tried_s = simulate_pipeline(tried, costs).step_s;
            if (tried_s >= best_s) continue;
            best_s = tried_s;
            best = std::move(tried);
        }
    return best;
}

PipelineSchedule schedule_for(ScheduleKind kind, const PipelineShape& shape,
                              const std::vector<PartCost>& costs) {
    return kind == ScheduleKind::kZeroBubbleV ? best_zero_bubble_v(shape, costs)
                                              : make_schedule(kind, shape);
}

int chunks_of(ScheduleKind kind, const PipelineWish& wish) {
    if (kind == ScheduleKind::kZeroBubbleV) return 2;
    return kind == ScheduleKind::kInterleaved ? wish.chunks : 1;
}

std::vector<PipelineOption> pipeline_options(const StageRequest& costs, const PipelineWish& wish) {
    std::vector<PipelineOption> options;
    for (const ScheduleKind kind : kScheduleKinds) {
        if (wish.schedule && *wish.schedule != kind) continue;
        PipelineOption option;
        option.kind = kind;
        option.shape = {wish.stages, chunks_of(kind, wish), wish.micro_batches};
        try {
            fill_in(option, costs, wish);
        } catch (const Error& error) {
            if (wish.schedule) throw;
            option.why_not = error.what();
        }
        options.push_back(std::move(option));
    }
    return options;
}

int fastest_of(const std::vector<PipelineOption>& options) {
    int fastest = -1;
    for (size_t i = 0; i < options.size(); ++i) {
        if (!options[i].why_not.empty()) continue;
        if (fastest < 0 || options[i].run.step_s < options[fastest].run.step_s)
            fastest = static_cast<int>(i);
    }
    return fastest;
}

}  // namespace dslaunch::plan
