// The interface between `dslaunch verify` and ZeRO: a witness sees the inputs and results of each
// update. Implemented in lib/job/verify; called by lib/zero.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "base/range.h"
#include "config/run/optimizer_config.h"
#include "config/run/scheduler_config.h"

namespace dslaunch::runtime {

// The values of some elements of a parameter, either before or after an update.
struct SeenUpdate {
    int parameter = -1;  // index into the model's parameters
    int bucket = -1;
    int chunk = -1;
    Range elements;      // in the order of the memory of the parameter, or of this rank's share
    int64_t update = 1;  // number of the parameter's update, from 1
    const config::OptimizerConfig* optimizer = nullptr;  // the optimizer of the parameter's group
    double lr = 0;
    std::optional<config::Betas> betas;  // replace the optimizer's betas if set
    double loss_scale = 1;
    // GRADIENTS are gradients of the scaled loss, averaged over the ranks, [elements.numel]. The
    // update multiplies them by FACTOR, which undoes the loss scale and clips.
    std::span<const float> gradients;
    float factor = 1;
    // The values that training keeps in fp32, [elements.numel]. A state that the optimizer does not
    // have is empty.
    std::span<const float> parameters;
    std::span<const float> first, second, third;
    // Only for Adafactor: the factors of a whole tensor (zero/states/tensor_states.h).
    std::array<std::span<const float>, 3> factors;
    std::span<const uint16_t> half;  // 16-bit copy that segments read, if there is one
};

// An observer of updates. The communication lane calls it.
class UpdateWitness {
  public:
    virtual ~UpdateWitness() = default;
    // Called before and after each update of a range of elements.
    virtual void before_update(const SeenUpdate& update) = 0;
    virtual void after_update(const SeenUpdate& update) = 0;
};

}  // namespace dslaunch::runtime
