// The arrays and the numbers of an optimizer's step. flat_optimizer.h runs the step on processors,
// device/queue.h on any device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/kinds/dtype.h"
#include "base/kinds/state_packing.h"

namespace dslaunch::kernels {

// States that are packed to fewer bits than fp32 in memory, tile by tile (tiled_bytes). An update
// unpacks a tile, updates it and packs it again with stochastic rounding, seeded by `seed`
// (packing.h).
struct PackedStates {
    std::array<StatePacking, kMomentsMax> packings = {};
    std::array<std::byte*, kMomentsMax> states = {};  // one for each state; null: it is not packed
    int64_t numel = 0;                                // the number of elements of each state
    int64_t begin = 0;  // the element of the states at which the range begins
    uint32_t seed = 0;
    // The bf16 parameters of the range; they too are rounded stochastically. Null if FlatRange has
    // the parameters in fp32.
    uint16_t* parameters = nullptr;

    // Returns true if a state is packed or the parameters are in bf16.
    [[nodiscard]] bool any() const {
        return states != std::array<std::byte*, kMomentsMax>{} || parameters != nullptr;
    }
};

// The arrays of one update, which reads and writes elements [begin, begin + numel) of each of them.
// An empty span means that the update does not use this array. A caller may update a shard in
// parts, in any order and from any number of threads; the result always has the same bits.
// REQUIRES: every array that is not empty has at least begin + numel elements; no arrays overlap,
// except `decay_parameters` and `parameters`.
struct FlatRange {
    int64_t begin = 0;
    int64_t numel = 0;
    // One array per rank; they are summed in this order in fp32. At least one is required, here or
    // in half_gradients.
    std::span<const float* const> gradients = {};
    std::span<const uint16_t* const> half_gradients = {};
    DType gradient_dtype = DType::kBF16;  // half_gradients' type: kBF16 or kF16
    float gradient_scale = 1.0F;  // multiplies the sum (1 / ranks, the clip factor, 1 / loss scale)
    // The parameters, which are read and written. If empty, only the states are updated: at stage
    // 0, another rank writes the parameters of this replica.
    std::span<float> parameters = {};
    // The parameters from before the step. They are only read, for L2 decay, if `parameters` is
    // empty because another rank writes the parameters of this replica.
    std::span<const float> decay_parameters = {};
    // The 16-bit copy of mixed-precision training: each updated element of `parameters`, rounded to
    // half_dtype as to_half does. If it is given, `parameters` is the fp32 master copy.
    std::span<uint16_t> half_parameters = {};
    DType half_dtype = DType::kBF16;  // kBF16 or kF16
    // The fp32 states: `first` is the momentum of Adam, Lion and SGD, or Adagrad's sum of squares.
    std::span<float> first = {};
    std::span<float> second = {};  // Adam's variance
    std::span<float> third = {};   // the largest variance so far, with amsgrad
    PackedStates packed = {};      // used instead of first, second and third
};

// One step of Adam or AdamW (Kingma & Ba 2015, Loshchilov & Hutter 2019).
struct AdamStep {
    double lr = 0;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0;
    bool decoupled_decay = true;  // AdamW
    bool bias_correction = true;
    int64_t step = 1;  // counted from 1
    // The number of past steps that this update makes up for, including the current one. The
    // moments decay once for each of them before the gradient is added. `step` counts all of them.
    int64_t steps = 1;
    // If true, the variance is only read. An element whose variance is 0 has never had a gradient,
    // so it gets no momentum, and only weight decay changes it. REQUIRES: decoupled decay, no bias
    // correction.
    bool frozen_variance = false;
    // If true, the update divides by the root of the largest variance so far, which is the third
    // state (Reddi et al. 2018, in the form of torch.optim).
    bool amsgrad = false;
    // If true, eps is added to the variance, not to its root. REQUIRES: no bias correction.
    bool eps_inside_sqrt = false;
};

// A range together with the step that updates it.
struct AdamUpdate {
    FlatRange range;
    AdamStep step;
};

// One step of Adagrad (Duchi et al. 2011).
struct AdagradStep {
    double lr = 0;
    double lr_decay = 0;  // the rate is lr / (1 + (step - 1) * lr_decay)
    double eps = 1e-10;
    double weight_decay = 0;  // L2
    int64_t step = 1;         // counted from 1
};

// One step of Lion (Chen et al. 2023).
struct LionStep {
    double lr = 0;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double weight_decay = 0;  // decoupled
};

// One step of stochastic gradient descent with momentum, as in torch.optim.SGD.
struct SgdStep {
    double lr = 0;
    double momentum = 0;
    double dampening = 0;
    double weight_decay = 0;  // L2
    bool nesterov = false;
    bool first_step = false;  // the momentum buffer takes the gradient itself
};

}  // namespace dslaunch::kernels
