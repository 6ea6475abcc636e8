#include "plan/pipeline/pipeline_schedule.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace dslaunch::plan {
namespace {

constexpr std::array<std::string_view, 4> kWorkNames = {"forward", "backward", "backward_input",
                                                        "backward_weight"};

using Works = std::vector<PipelineWork>;

Works gpipe(const PipelineShape& shape) {
    Works works;
    for (int m = 0; m < shape.micro_batches; ++m) works.push_back({WorkKind::kForward, 0, m});
    for (int m = 0; m < shape.micro_batches; ++m) works.push_back({WorkKind::kBackward, 0, m});
    return works;
}

// Returns WARM_UP forwards, then one backward after each further forward, then the remaining
// backwards.
Works alternate(const Works& forwards, const Works& backwards, int warm_up) {
    Works works;
    size_t forward = 0;
    const auto begin = std::min(static_cast<size_t>(warm_up), forwards.size());
    while (forward < begin) works.push_back(forwards[forward++]);
    for (const PipelineWork& backward : backwards) {
        if (forward < forwards.size()) works.push_back(forwards[forward++]);
        works.push_back(backward);
    }
    return works;
}

// Returns the sizes of the groups in which micro batches pass through the chunks. With as many
// micro batches in a group as there are stages, the first micro batch comes back from the last
// stage just when the first stage has sent the group's last micro batch. In a smaller group, every
// stage would wait once per chunk, so the remaining micro batches are added to these groups.
std::vector<int> group_sizes(const PipelineShape& shape) {
    const int groups = std::max(1, shape.micro_batches / shape.stages);
    std::vector<int> sizes(static_cast<size_t>(groups), shape.micro_batches / groups);
    for (int g = 0; g < shape.micro_batches % groups; ++g) ++sizes[g];
    return sizes;
}

int interleaved_warm_up(const PipelineShape& shape, int stage) {
    const int behind = shape.stages - 1 - stage;
    return shape.chunks == 1 ? behind
                             : 2 * behind + (shape.chunks - 1) * group_sizes(shape).front();
}

Works interleaved(const PipelineShape& shape, int stage) {
    Works forwards;
    Works backwards;
    int first = 0;
    for (const int group : group_sizes(shape)) {
        for (int chunk = 0; chunk < shape.chunks; ++chunk)
            for (int m = first; m < first + group; ++m) {
                forwards.push_back({WorkKind::kForward, chunk, m});
                backwards.push_back({WorkKind::kBackward, shape.chunks - 1 - chunk, m});
            }
        first += group;
    }
    return alternate(forwards, backwards, interleaved_warm_up(shape, stage));
}

// Returns the works of STAGE. Stage s delays s of its backward_weights until the end. Later stages
// begin later, so all stages hold as many activations as the first stage.
Works zero_bubble_h1(const PipelineShape& shape, int stage) {
    Works works;
    int forward = 0;
    while (forward < std::min(shape.stages - 1 - stage, shape.micro_batches))
        works.push_back({WorkKind::kForward, 0, forward++});
    int weight = 0;
    for (int m = 0; m < shape.micro_batches; ++m) {
        if (forward < shape.micro_batches) works.push_back({WorkKind::kForward, 0, forward++});
        works.push_back({WorkKind::kBackwardInput, 0, m});
        if (m >= stage) works.push_back({WorkKind::kBackwardWeight, 0, weight++});
    }
    while (weight < shape.micro_batches) works.push_back({WorkKind::kBackwardWeight, 0, weight++});
    return works;
}

// The order that is best if forward, backward_input and backward_weight take equally long. The
// regular order needs at least `2 * stages - 1` micro batches. If there are fewer, the order is
// made for `2 * stages - 1` micro batches, and the works of the missing ones are left out.
class ZeroBubbleV {
  public:
    ZeroBubbleV(const PipelineShape& shape, int stage)
        : stages_(shape.stages),
          stage_(stage),
          micro_batches_(shape.micro_batches),
          regular_(std::max(2 * shape.stages - 1, shape.micro_batches)) {}

    [[nodiscard]] Works make() {
        for (int i = 0; i < 2 * (stages_ - stage_) - 1; ++i) forward(0);
        for (int i = 0; i < stage_; ++i) {
            forward(1);
            forward(0);
        }
        for (int i = 0; i < stages_ - stage_; ++i) {
            forward(1);
            backward(1);
        }
        while (forwards_[1] < regular_) {
            if (forwards_[0] < regular_) forward(0);
            backward(0);
            forward(1);
            backward(1);
        }
        for (int i = 0; i < stage_; ++i) {
            input(0);
            input(1);
        }
        for (int i = 0; i < stages_ - stage_; ++i) backward(0);
        while (weights_[1] < inputs_[1]) weight(1);
        while (weights_[0] < inputs_[0]) weight(0);
        return std::move(works_);
    }

  private:
    void add(WorkKind kind, int chunk, int micro_batch) {
        if (micro_batch < micro_batches_) works_.push_back({kind, chunk, micro_batch});
    }
    void forward(size_t chunk) {
        add(WorkKind::kForward, static_cast<int>(chunk), forwards_[chunk]++);
    }
    void input(size_t chunk) {
        add(WorkKind::kBackwardInput, static_cast<int>(chunk), inputs_[chunk]++);
    }
    void weight(size_t chunk) {
        add(WorkKind::kBackwardWeight, static_cast<int>(chunk), weights_[chunk]++);
    }
    void backward(size_t chunk) {
        input(chunk);
        weight(chunk);
    }

    int stages_;
    int stage_;
    int micro_batches_;
    int regular_;
    std::array<int, 2> forwards_{};
    std::array<int, 2> inputs_{};
    std::array<int, 2> weights_{};
    Works works_;
};

Works works_of(ScheduleKind kind, const PipelineShape& shape, int stage) {
    switch (kind) {
        case ScheduleKind::kGPipe:
            return gpipe(shape);
        case ScheduleKind::k1F1B:
        case ScheduleKind::kInterleaved:
            return interleaved(shape, stage);
        case ScheduleKind::kZeroBubbleH1:
            return zero_bubble_h1(shape, stage);
        case ScheduleKind::kZeroBubbleV:
            return ZeroBubbleV(shape, stage).make();
    }
    DSL_CHECK(false, "schedule {}", static_cast<int>(kind));
}

}  // namespace

std::string_view work_name(WorkKind kind) {
    return kWorkNames[static_cast<size_t>(kind)];
}

PartPlace place_of_part(ScheduleKind kind, const PipelineShape& shape, int part) {
    const PartPlace round{part % shape.stages, part / shape.stages};
    const bool back = kind == ScheduleKind::kZeroBubbleV && round.chunk == 1;
    return back ? PartPlace{shape.stages - 1 - round.stage, 1} : round;
}

int part_of(ScheduleKind kind, const PipelineShape& shape, PartPlace place) {
    const bool back = kind == ScheduleKind::kZeroBubbleV && place.chunk == 1;
    return place.chunk * shape.stages + (back ? shape.stages - 1 - place.stage : place.stage);
}

std::string why_no_schedule(ScheduleKind kind, const PipelineShape& shape) {
    if (shape.stages < 1 || shape.chunks < 1 || shape.micro_batches < 1)
        return fmt::format("a pipeline cannot have {} stages, {} chunks and {} micro batches",
                           shape.stages, shape.chunks, shape.micro_batches);
    if (kind == ScheduleKind::kZeroBubbleV && shape.chunks != 2)
        return fmt::format("zb-v needs 2 chunks per stage, not {}", shape.chunks);
    const bool several = kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kZeroBubbleV;
    if (!several && shape.chunks != 1)
        return fmt::format("{} needs 1 chunk per stage, not {}", schedule_name(kind), shape.chunks);
    return "";
}

PipelineSchedule make_schedule(ScheduleKind kind, const PipelineShape& shape) {
    const std::string why_not = why_no_schedule(kind, shape);
    DSL_CHECK(why_not.empty(), "{}", why_not);
    PipelineSchedule schedule{kind, shape, {}};
    for (int stage = 0; stage < shape.stages; ++stage)
        schedule.stages.push_back(works_of(kind, shape, stage));
    return schedule;
}

}  // namespace dslaunch::plan
