// Rounds all weights of a layer together, so that the layer's outputs change least: AutoRound
// (Cheng et al. 2023, arXiv:2309.05516). In each step, the signs of gradients say which weights are
// rounded up in place of down, and which groups get a narrower range. Data path: compensation.h or
// rounding.h -> [here] -> packed_tensors.h. One thread calls; the team's threads compute.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/compensation.h"
#include "compress/rounding.h"
#include "kernels/thread_team.h"

namespace dslaunch::compress {

// A text before and after a layer.
struct LayerText {
    std::span<const float> inputs;   // [rows, width]: what the layer reads
    std::span<const float> outputs;  // [rows, width]: what it should compute
    int64_t rows = 0;
};

// A layer as a function of some of its weights, with gradients. The memory of weights and gradients
// is valid as long as the object.
class LayerFunction {
  public:
    virtual ~LayerFunction() = default;

    // Returns the memory of weight INDEX, [out, in]. The caller writes the weight into it.
    [[nodiscard]] virtual std::span<float> weight(size_t index) = 0;
    // Returns the sum of the squared differences between TEXT.outputs and the outputs that the
    // weights give.
    [[nodiscard]] virtual double difference(const LayerText& text) = 0;
    // Has the effect of difference(), and adds the gradients of the difference to the gradients.
    virtual double add_gradients(const LayerText& text) = 0;
    // Returns the gradient of weight INDEX, [out, in].
    [[nodiscard]] virtual std::span<const float> gradient(size_t index) = 0;
    // Sets the gradients to 0.
    virtual void clear_gradients() = 0;
};

// The size of a descent.
struct DescentOptions {
    int64_t steps = 200;
    int64_t rows = 512;  // of a step: texts are added until they have this many rows
};

// A weight before the descent.
struct DescentWeight {
    RoundingForm form;                 // of integers
    std::vector<float> numbers;        // [out, in]: the numbers that are rounded
    std::vector<GroupRange> ranges;    // [out, groups]: the widest range of each group
    std::vector<GroupRange> narrowed;  // [out, groups]: the range at the beginning
    int64_t out = 0, in = 0;
};

// Returns the weight whose exact numbers are NUMBERS, [OUT, in]. INPUTS: if it is not null, the
// numbers to round have changed to make up for the errors of earlier ones.
[[nodiscard]] DescentWeight descent_weight(const RoundingForm& form,
                                           const std::vector<float>& numbers, int64_t out,
                                           const InputOrder* inputs, kernels::ThreadTeam& team);

// The weights after the descent.
struct DescentResult {
    std::vector<RoundedMatrix> weights;  // in the order of the weights
    // The errors of the layer's outputs on all texts: the square root of the sum of squared
    // differences, divided by the root of the sum of squared outputs. `after` is at most `before`.
    double before = 0, after = 0;
};

// Rounds WEIGHTS, the weights of LAYER in its order. The descent begins with each number rounded to
// nearest, and its result is the best of the states that were tried on all TEXTS. The result is a
// function of the arguments if LAYER is. REQUIRES: TEXTS have rows; the numbers are finite.
[[nodiscard]] DescentResult descend(LayerFunction& layer, std::vector<DescentWeight> weights,
                                    std::span<const LayerText> texts, const DescentOptions& options,
                                    kernels::ThreadTeam& team);

}  // namespace dslaunch::compress
