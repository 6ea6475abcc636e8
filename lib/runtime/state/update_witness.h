// The seam between `dslaunch verify` and ZeRO: a witness of updates sees what goes into each and
// what comes out. Implemented in lib/job/verify; called by lib/zero.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "base/range.h"
#include "config/run/optimizer_config.h"
#include "config/run/scheduler_config.h"

namespace dslaunch::runtime {

// An update of some elements of a parameter: its values before it, or after it.
struct SeenUpdate {
    int parameter = -1;  // index into the model's parameters
    int bucket = -1;
    int chunk = -1;
    Range elements;      // in the order of the memory of the parameter, or of this rank's share
    int64_t update = 1;  // number of the parameter's update, from 1
    const config::OptimizerConfig* optimizer = nullptr;  // the parameter's group has it
    double lr = 0;
    std::optional<config::Betas> betas;  // in place of the optimizer's
    double loss_scale = 1;
    // The mean over the ranks of the scaled loss's gradients, [elements.numel]; and the number by
    // which the update multiplies them, which undoes the loss scale and clips.
    std::span<const float> gradients;
    float factor = 1;
    // The values that training keeps in fp32, [elements.numel]; a state that the optimizer lacks is
    // empty.
    std::span<const float> parameters;
    std::span<const float> first, second;
    // Adafactor: its factors of a whole tensor (zero/states/tensor_states.h).
    std::array<std::span<const float>, 3> factors;
    std::span<const uint16_t> half;  // the copy in 16 bits that segments read; empty: they read
                                     // fp32
};

// Thread: the communication lane.
class UpdateWitness {
  public:
    virtual ~UpdateWitness() = default;
    virtual void before_update(const SeenUpdate& update) = 0;
    virtual void after_update(const SeenUpdate& update) = 0;
};

}  // namespace dslaunch::runtime
