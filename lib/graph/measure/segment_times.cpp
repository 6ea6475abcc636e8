#include "graph/measure/segment_times.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>

#include "base/check.h"
#include "base/error.h"
#include "base/median.h"
#include "base/text/torch_reason.h"
#include "graph/lower/device_rewrite.h"
#include "graph/lower/parameters_as.h"
#include "graph/measure/trial.h"
#include "graph/segment/compute_context.h"

namespace dslaunch::graph {

namespace {

template <typename Action>
double seconds_of(Action&& action) {
    const auto begin = std::chrono::steady_clock::now();
    action();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median_s(const std::vector<double>& values) {
    return median_of(values, Middle::kUpper);
}

class SegmentTimer {
  public:
    SegmentTimer(const SegmentedModel& segmented, const SegmentTimesOptions& options)
        : segmented_(segmented), options_(options) {}

    std::vector<plan::SegmentTimes> run(const std::vector<IValue>& arguments) {
        std::vector<IValue> inputs = segmented_.first_inputs(arguments);
        const size_t count = segmented_.segments().size();
        for (size_t begin = 0; begin < count;) {
            const size_t end = end_of_window(begin);
            inputs = time_window({begin, end}, inputs);
            begin = end;
        }
        std::vector<plan::SegmentTimes> times;
        for (size_t s = 0; s < sort_of_.size(); ++s) {
            const Samples& took = samples_.at(sort_of_[s]);
            const double whole_s = took.whole_s.empty() ? 0 : median_s(took.whole_s);
            double input_s = took.input_s.empty() ? 0 : median_s(took.input_s);
            // If one half of the backward has nothing to do, the other half gets the whole time.
            if (std::get<kLeaves>(sort_of_[s]) == 0) input_s = 0;
            if (!has_trainable(segmented_.segments()[s])) input_s = whole_s;
            times.push_back({median_s(took.forward_s), input_s, std::max(0.0, whole_s - input_s)});
        }
        return times;
    }

  private:
    // Equal layers share one Code.
    using Sort = std::tuple<const Code*, int64_t, int64_t, size_t>;
    static constexpr size_t kLeaves = 3;  // place in Sort: inputs with gradients
    struct Samples {
        std::vector<double> forward_s;
        std::vector<double> input_s;  // until the inputs' gradients are complete
        std::vector<double> whole_s;  // of the whole backward
    };
    struct Window {
        size_t begin = 0;
        size_t end = 0;
    };

    [[nodiscard]] size_t end_of_window(size_t begin) const {
        if (options_.kept.empty()) return segmented_.segments().size();
        Bytes held;
        size_t end = begin;
        while (end < options_.kept.size() && (end == begin || held < kTimedBytesMax)) {
            held += options_.kept[end];
            for (const int parameter : segmented_.parameters_of(segmented_.segments()[end]))
                held += Bytes{static_cast<int64_t>(tensor_of(parameter).nbytes())};
            ++end;
        }
        return end;
    }

    // Times the segments of WINDOW on INPUTS, and returns the outputs of the last segment.
    std::vector<IValue> time_window(const Window& window, const std::vector<IValue>& inputs) {
        std::vector<int> parameters;
        for (size_t s = window.begin; s < window.end; ++s)
            for (const int parameter : segmented_.parameters_of(segmented_.segments()[s]))
                if (std::ranges::find(parameters, parameter) == parameters.end())
                    parameters.push_back(parameter);
        const ParametersAs brought(segmented_.model(), parameters, segmented_.lowered());
        std::vector<IValue> outputs;
        for (int round = 0; round <= options_.rounds; ++round)
            for (const bool inputs_only : {false, true})
                outputs = pass(window, inputs, inputs_only, round > 0);
        for (const int parameter : parameters)
            static_cast<void>(segmented_.model().release_pages(parameter));
        return outputs;
    }

    // Runs all forwards of WINDOW and then all backwards, in the order of a step.
    std::vector<IValue> pass(const Window& window, std::vector<IValue> values, bool inputs_only,
                             bool counts) {
        std::vector<std::vector<IValue>> inputs;
        std::vector<Boundary> boundaries;
        for (size_t s = window.begin; s < window.end; ++s) {
            Boundary boundary;
            const double forward_s =
                seconds_of([&] { boundary = segmented_.forward(s, values, {}, c10::kCPU); });
            if (sort_of_.size() == s) sort_of_.push_back(sort_of(s, values, boundary));
            if (counts) samples_[sort_of_[s]].forward_s.push_back(forward_s);
            inputs.push_back(std::move(values));
            values = boundary.values;
            boundaries.push_back(std::move(boundary));
        }
        for (size_t s = window.end; s-- > window.begin;) {
            if (boundaries.back().producers.empty()) {
                boundaries.pop_back();
                continue;
            }
            Boundary boundary = std::move(boundaries.back());
            boundaries.pop_back();
            const double backward_s =
                time_backward(s, std::move(boundary), inputs[s - window.begin], inputs_only);
            Samples& samples = samples_[sort_of_[s]];
            if (counts) (inputs_only ? samples.input_s : samples.whole_s).push_back(backward_s);
        }
        return values;
    }

    [[nodiscard]] Sort sort_of(size_t index, const std::vector<IValue>& inputs,
                               const Boundary& boundary) const {
        Boundary fed;
        fed.values = inputs;
        return {segmented_.segments()[index].code.get(), fed.bytes(), boundary.bytes(),
                leaves_in(inputs).size()};
    }

    [[nodiscard]] const at::Tensor& tensor_of(int parameter) const {
        return segmented_.model().parameters()[parameter].tensor;
    }

    [[nodiscard]] bool has_trainable(const Segment& segment) const {
        const std::vector<int> parameters = segmented_.parameters_of(segment);
        return std::ranges::any_of(parameters, [&](int p) { return tensor_of(p).requires_grad(); });
    }

    // Returns the seconds until the backward ends; with INPUTS_ONLY, until the gradients of the
    // inputs are complete.
    double time_backward(size_t index, Boundary boundary, const std::vector<IValue>& inputs,
                         bool inputs_only) {
        const Segment& segment = segmented_.segments()[index];
        const std::vector<int> parameters = segmented_.parameters_of(segment);
        TrialBackward trial{
            segmented_.model(), parameters, index + 1 == segmented_.segments().size(), inputs, {}};
        const auto begin = std::chrono::steady_clock::now();
        auto end = begin;
        if (inputs_only) trial.between = [&](Bytes) { end = std::chrono::steady_clock::now(); };
        try {
            const auto backward = [&] { trial.run(std::move(boundary)); };
            options_.around_backward ? options_.around_backward(backward) : backward();
        } catch (const c10::Error& error) {
            fail(ExitCode::kInput, "the backward of segment {} ({}) failed: {}", index,
                 segment.name, torch_reason(error));
        }
        if (!inputs_only) end = std::chrono::steady_clock::now();
        return std::chrono::duration<double>(end - begin).count();
    }

    const SegmentedModel& segmented_;
    const SegmentTimesOptions& options_;
    std::vector<Sort> sort_of_;  // by segment
    std::map<Sort, Samples> samples_;
};

}  // namespace

std::vector<plan::SegmentTimes> measure_times(const SegmentedModel& segmented,
                                              const std::vector<IValue>& arguments,
                                              const SegmentTimesOptions& options) {
    DSL_CHECK(options.rounds > 0, "{} rounds", options.rounds);
    DSL_CHECK(options.kept.empty() || options.kept.size() == segmented.segments().size(),
              "kept values were given for {} segments, but the model has {} segments",
              options.kept.size(), segmented.segments().size());
    const ComputeContext context(true, segmented.lowered().compute_dtype,
                                 segmented.lowered().device.type());
    const KeptBuffers buffers(segmented.model(), segmented.lowered());
    std::vector<plan::SegmentTimes> times = SegmentTimer(segmented, options).run(arguments);
    // A call that needs the module may reach parameters that its segment does not list.
    for (const ModelParameter& parameter : segmented.model().parameters())
        parameter.tensor.mutable_grad().reset();
    return times;
}

}  // namespace dslaunch::graph
