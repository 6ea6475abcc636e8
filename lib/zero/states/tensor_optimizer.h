// The update of a whole tensor by its owner, where an element's update depends on all others: LAMB
// (You et al. 2020, arXiv:1904.00962, in the form of DeepSpeed's FusedLamb), Muon (Jordan et al.
// 2024, with the Newton-Schulz iteration of Bernstein & Newhouse; its products of the Gram matrix
// after Dao 2026). Data path: ZeRO state -> [here] -> the device's queue. One thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "config/run/run_config.h"
#include "device/device.h"
#include "device/queue.h"
#include "kernels/flat_optimizer.h"

namespace dslaunch::zero {

class TensorOptimizer {
  public:
    // NUMEL_MAX: elements of the largest tensor; 0: none comes. Both must outlive this. REQUIRES,
    // for Muon: the device is the host.
    TensorOptimizer(device::Device& device, device::Queue& queue, int64_t numel_max);

    // Where the caller sums a tensor's gradients before update(), which spoils them.
    [[nodiscard]] float* gradients() { return gradients_.floats().data(); }
    [[nodiscard]] Bytes memory_bytes() const {
        return Bytes{std::ssize(gradients_.bytes()) + std::ssize(direction_.bytes())};
    }

    // Updates all of a tensor, RANGE, whose gradients are those of gradients(), as its STEP-th
    // update (from 1) with the rate LR. Without range.parameters only the states move. LIKE has the
    // tensor's sizes and strides. BETAS, if given, take the place of the config's.
    void update(const kernels::FlatRange& range, const at::Tensor& like,
                const config::OptimizerConfig& config, double lr, int64_t step,
                const std::optional<config::Betas>& betas);

  private:
    void lamb(const kernels::FlatRange& range, const config::OptimizerConfig& config, double lr,
              int64_t step);
    void muon(const kernels::FlatRange& range, const at::Tensor& like,
              const config::OptimizerConfig& config, double lr);
    [[nodiscard]] double norm_of(const float* values, int64_t numel);

    device::Queue& queue_;
    device::Memory gradients_;
    device::Memory direction_;
};

// The nearest matrix to X whose singular values are about 1 (from 0.7 to 1.2), by five steps of a
// quintic iteration; of each matrix of X's last two dimensions. Both methods compute the same, up
// to rounding.
[[nodiscard]] at::Tensor orthogonal(const at::Tensor& x, config::NewtonSchulz method);

}  // namespace dslaunch::zero
