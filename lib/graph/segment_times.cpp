#include "graph/segment_times.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <tuple>

#include "base/check.h"
#include "base/error.h"
#include "graph/compute_context.h"
#include "graph/kept_buffers.h"
#include "graph/precision.h"
#include "graph/torch_reason.h"
#include "graph/trial_backward.h"

namespace dslaunch {

using c10::IValue;

namespace {

template <typename Action>
double seconds_of(Action&& action) {
    const auto begin = std::chrono::steady_clock::now();
    action();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

size_t leaf_count(const std::vector<IValue>& inputs) {
    size_t leaves = 0;
    for (const IValue& input : inputs) {
        static_cast<void>(map_tensors(input, [&](const at::Tensor& tensor) {
            leaves += tensor.requires_grad();
            return tensor;
        }));
    }
    return leaves;
}

class SegmentTimer {
  public:
    SegmentTimer(const SegmentedModel& segmented, int rounds)
        : segmented_(segmented), rounds_(rounds) {}

    std::vector<SegmentTimes> run(const std::vector<IValue>& arguments) {
        std::vector<IValue> inputs = segmented_.first_inputs(arguments);
        for (size_t s = 0; s < segmented_.segments().size(); ++s) inputs = visit(s, inputs);
        std::vector<SegmentTimes> times;
        for (const Sort& sort : sort_of_) {
            const Shortest& took = shortest_.at(sort);
            times.push_back(
                {took.forward_s, took.input_s, std::max(0.0, took.whole_s - took.input_s)});
        }
        return times;
    }

  private:
    // Equal layers share one Code.
    using Sort = std::tuple<const torch::jit::Code*, int64_t, int64_t, size_t>;
    struct Shortest {
        double forward_s = std::numeric_limits<double>::infinity();
        double input_s = std::numeric_limits<double>::infinity();  // backward for inputs
        double whole_s = std::numeric_limits<double>::infinity();  // backward
    };

    // Gives the segment's outputs.
    std::vector<IValue> visit(size_t index, const std::vector<IValue>& inputs) {
        const Segment& segment = segmented_.segments()[index];
        const std::vector<int> parameters = parameters_of(segment);
        const ParametersAs half(segmented_.model(), parameters, segmented_.lowered().compute_dtype);
        Boundary fed;
        fed.values = inputs;
        std::vector<IValue> outputs;
        for (int round = 0; round <= rounds_; ++round) {
            Boundary boundary;
            const auto forward = [&] {
                boundary = segmented_.forward(index, inputs, {}, c10::kCPU);
            };
            const double forward_s = seconds_of(forward);
            outputs = boundary.values;
            if (round == 0)
                sort_of_.push_back(
                    {segment.code.get(), fed.bytes(), boundary.bytes(), leaf_count(inputs)});
            const double whole_s = time_backward(index, std::move(boundary), inputs, false);
            forward();
            const double input_s = time_backward(index, std::move(boundary), inputs, true);
            if (round == 0) continue;
            Shortest& took = shortest_[sort_of_.back()];
            took.forward_s = std::min(took.forward_s, forward_s);
            took.input_s = std::min(took.input_s, input_s);
            took.whole_s = std::min(took.whole_s, whole_s);
        }
        for (const int parameter : parameters)
            static_cast<void>(segmented_.model().release_pages(parameter));
        return outputs;
    }

    [[nodiscard]] std::vector<int> parameters_of(const Segment& segment) const {
        std::vector<int> parameters = segment.parameters;
        const std::vector<int>& opaque = segmented_.lowered().opaque_parameters;
        if (segment.module_input) parameters.insert(parameters.end(), opaque.begin(), opaque.end());
        return parameters;
    }

    // Seconds until the end, or until the gradients of the inputs are there.
    double time_backward(size_t index, Boundary boundary, const std::vector<IValue>& inputs,
                         bool inputs_only) {
        if (boundary.producers.empty()) return 0;
        const Segment& segment = segmented_.segments()[index];
        const std::vector<int> parameters = parameters_of(segment);
        TrialBackward trial{
            segmented_.model(), parameters, index + 1 == segmented_.segments().size(), inputs, {}};
        const auto begin = std::chrono::steady_clock::now();
        auto end = begin;
        if (inputs_only) trial.between = [&](Bytes) { end = std::chrono::steady_clock::now(); };
        try {
            trial.run(std::move(boundary));
        } catch (const c10::Error& error) {
            fail(ExitCode::kInput, "the backward of segment {} ({}) failed: {}", index,
                 segment.name, torch_reason(error.what()));
        }
        if (!inputs_only) end = std::chrono::steady_clock::now();
        return std::chrono::duration<double>(end - begin).count();
    }

    const SegmentedModel& segmented_;
    int rounds_;
    std::vector<Sort> sort_of_;  // of each segment
    std::map<Sort, Shortest> shortest_;
};

}  // namespace

std::vector<SegmentTimes> measure_times(const SegmentedModel& segmented,
                                        const std::vector<IValue>& arguments, int rounds) {
    DSL_CHECK(rounds > 0, "{} rounds", rounds);
    const ComputeContext context(true, segmented.lowered().compute_dtype);
    const KeptBuffers buffers(segmented.model());
    return SegmentTimer(segmented, rounds).run(arguments);
}

}  // namespace dslaunch
