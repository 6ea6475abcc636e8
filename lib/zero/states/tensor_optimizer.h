// The update of a whole tensor by its owner, where an element's update depends on all others: LAMB
// (You et al. 2020, arXiv:1904.00962, in the form of DeepSpeed's FusedLamb), 1-bit LAMB (Li et al.
// 2021, arXiv:2104.06069), Adafactor (Shazeer & Stern 2018, arXiv:1804.04235, in the form of
// transformers), Muon (Jordan et al. 2024, with the Newton-Schulz iteration of Bernstein &
// Newhouse; its products of the Gram matrix after Dao 2026). Data path: ZeRO state -> [here] -> the
// device's queue. One thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "config/run/run_config.h"
#include "device/device.h"
#include "device/queue.h"
#include "kernels/flat_optimizer.h"
#include "plan/exchange/exchange.h"
#include "zero/states/tensor_states.h"

namespace dslaunch::zero {

// An update of a tensor: its STEP-th (from 1) with the rate LR.
struct TensorStep {
    const config::OptimizerConfig* config = nullptr;
    double lr = 0;
    int64_t step = 1;
    std::optional<config::Betas> betas = {};  // in the place of the config's
    // 1-bit LAMB: the step's exchange between hosts. Unless it is kExact the variance stays, and
    // with kMomentum the gradients are the next momentum.
    plan::Exchange exchange = plan::Exchange::kExact;
    TensorStates::Values states = {};  // beside the moments
};

class TensorOptimizer {
  public:
    // NUMEL_MAX: elements of the largest tensor; 0: there is none. DEVICE and QUEUE must outlive
    // this. REQUIRES, but for LAMB: the device is the host.
    TensorOptimizer(device::Device& device, device::Queue& queue, int64_t numel_max);

    // Returns memory for the sum of a tensor's gradients before update(), which spoils them.
    [[nodiscard]] float* gradients() { return gradients_.floats().data(); }

    // Updates all of a tensor, RANGE, which has one array of gradients. LIKE has the tensor's sizes
    // and strides. Nothing moves without range.parameters, which another rank writes then.
    void update(const kernels::FlatRange& range, const at::Tensor& like, const TensorStep& step);

  private:
    struct Ratio {
        double value = 1;
        bool defined = false;  // no norm is 0
    };
    Ratio mix_for_lamb(const kernels::FlatRange& range, const config::OptimizerConfig& config,
                       int64_t step);
    Ratio decayed(const kernels::FlatRange& range, const config::OptimizerConfig& config);
    void move(const kernels::FlatRange& range, const kernels::SgdStep& step, float scale = 1);
    void lamb(const kernels::FlatRange& range, const config::OptimizerConfig& config, double lr,
              int64_t step);
    void one_bit_lamb(const kernels::FlatRange& range, const config::OptimizerConfig& config,
                      const TensorStep& step);
    void frozen_lamb(const kernels::FlatRange& range, const config::OptimizerConfig& config,
                     const TensorStep& step);
    const float* mixed(const kernels::FlatRange& range, double beta1);
    void adafactor(const kernels::FlatRange& range, const at::Tensor& like,
                   const config::OptimizerConfig& config, const TensorStep& step);
    void muon(const kernels::FlatRange& range, const at::Tensor& like,
              const config::OptimizerConfig& config, double lr);
    [[nodiscard]] double norm_of(const float* values, int64_t numel);

    device::Queue& queue_;
    device::Memory gradients_;
    device::Memory direction_;
};

// Returns the nearest matrix to X whose singular values are about 1 (from 0.7 to 1.2), by five
// steps of a quintic iteration, for each matrix of X's last two dimensions. Both methods compute
// the same, up to rounding.
[[nodiscard]] at::Tensor orthogonal(const at::Tensor& x, config::NewtonSchulz method);

}  // namespace dslaunch::zero
