// One Adam or AdamW update by ATen's fused kernel, on any device that has one: the GPU for the
// plugin, the CPU for its test. Data path: DeviceAdam -> [here] -> the current stream. Does not
// block.
#pragma once

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>

#include <array>
#include <limits>
#include <optional>

#include "runtime/comm/device_backend.h"

namespace dslaunch::runtime {

// REQUIRES: ADAM's pointers lie on DEVICE.
inline void fused_adam(const DeviceAdam& adam, c10::Device device) {
    const at::TensorOptions options = at::TensorOptions().dtype(at::kFloat).device(device);
    const auto flat = [&](float* data) { return at::from_blob(data, {adam.numel}, options); };
    const std::array<at::Tensor, 4> buffers = {flat(adam.parameters), flat(adam.gradients),
                                               flat(adam.momentum), flat(adam.variance)};
    const at::TensorList all(buffers);
    // The kernel divides by 1 - beta^step. An infinite step makes that 1, so nothing is corrected.
    const double step = adam.bias_correction ? static_cast<double>(adam.step)
                                             : std::numeric_limits<double>::infinity();
    const at::Tensor steps = at::full({1}, step, options);
    const auto scalar = [&](float* data) -> std::optional<at::Tensor> {
        if (data == nullptr) return std::nullopt;
        return at::from_blob(data, {1}, options);
    };
    const auto update = [&](auto&& fused) {
        fused(all.slice(0, 1), all.slice(1, 1), all.slice(2, 1), all.slice(3, 1), at::TensorList{},
              at::TensorList(steps), adam.lr, adam.beta1, adam.beta2, adam.weight_decay, adam.eps,
              /*amsgrad=*/false, /*maximize=*/false, scalar(adam.gradient_divisor),
              scalar(adam.skip));
    };
    if (adam.decoupled_decay) {
        update([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
    } else {
        update([](auto&&... arguments) { at::_fused_adam_(arguments...); });
    }
}

}  // namespace dslaunch::runtime
