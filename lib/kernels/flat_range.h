// The arrays of an optimizer's step, and its numbers; flat_optimizer.h carries the step out on
// processors, device/queue.h on any device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/kinds/dtype.h"
#include "base/kinds/state_packing.h"

namespace dslaunch::kernels {

// States in memory in fewer bits than fp32, in tiles (tiled_bytes). An update unpacks a tile,
// updates it and packs it again, with rounding drawn from SEED (packing.h).
struct PackedStates {
    std::array<StatePacking, 2> packings = {};
    std::array<std::byte*, 2> states = {};  // the first and the second state; null: not packed
    int64_t numel = 0;                      // elements of the states
    int64_t begin = 0;                      // the range's first element among them
    uint32_t seed = 0;
    // The parameters, bf16, from the range's first element on, where there are no fp32 ones: they
    // are rounded by drawn numbers too. Null: FlatRange has them.
    uint16_t* parameters = nullptr;

    [[nodiscard]] bool any() const {
        return states[0] != nullptr || states[1] != nullptr || parameters != nullptr;
    }
};

// One update reads and writes elements [begin, begin + numel) of every array given. A caller may
// feed the parts of a shard in any order, from any number of threads; the cuts change no bit. An
// empty span stands for an array that the update does not have. REQUIRES: every array given is at
// least begin + numel long; no arrays overlap, except `decay_parameters` and `parameters`.
struct FlatRange {
    int64_t begin = 0;
    int64_t numel = 0;
    // One array per rank, summed in this order in fp32; at least one, here or in half_gradients.
    std::span<const float* const> gradients = {};
    std::span<const uint16_t* const> half_gradients = {};
    DType gradient_dtype = DType::kBF16;  // half_gradients' type: kBF16 or kF16
    float gradient_scale = 1.0F;  // multiplies the sum (1 / ranks, the clip factor, 1 / loss scale)
    // The parameters are read and written; empty: only the states move (stage 0's private
    // replicas).
    std::span<float> parameters = {};
    // They are read for L2 decay when `parameters` is empty: a replica whose parameters another
    // rank writes. They must be the values from before the step.
    std::span<const float> decay_parameters = {};
    // The 16-bit copy of mixed precision takes each element of `parameters` as the step leaves it,
    // rounded to half_dtype as to_half does. With it `parameters` is the fp32 master copy.
    std::span<uint16_t> half_parameters = {};
    DType half_dtype = DType::kBF16;  // kBF16 or kF16
    // States, fp32: Adam's, Lion's and SGD's momentum, Adagrad's sum of squares …
    std::span<float> first = {};
    std::span<float> second = {};  // … and Adam's variance
    PackedStates packed = {};      // in the place of these
};

struct AdamStep {
    double lr = 0;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = 0;
    bool decoupled_decay = true;  // AdamW
    bool bias_correction = true;
    int64_t step = 1;  // it counts from 1
    // The number of steps that this one stands for: the moments decay so many times, and then take
    // the gradient. `step` counts them all.
    int64_t steps = 1;
    // The variance is only read. An element whose variance is 0 has never had a gradient, so it
    // gets no momentum and moves by weight decay alone. REQUIRES: decoupled decay, no bias
    // correction.
    bool frozen_variance = false;
};

// A range of its own, with the step that updates it.
struct AdamUpdate {
    FlatRange range;
    AdamStep step;
};

struct AdagradStep {
    double lr = 0;
    double lr_decay = 0;  // the rate is lr / (1 + (step - 1) * lr_decay)
    double eps = 1e-10;
    double weight_decay = 0;  // L2
    int64_t step = 1;         // it counts from 1
};

struct LionStep {
    double lr = 0;
    double beta1 = 0.9;
    double beta2 = 0.999;
    double weight_decay = 0;  // decoupled
};

struct SgdStep {
    double lr = 0;
    double momentum = 0;
    double dampening = 0;
    double weight_decay = 0;  // L2
    bool nesterov = false;
    bool first_step = false;  // the momentum buffer takes the gradient itself
};

}  // namespace dslaunch::kernels
