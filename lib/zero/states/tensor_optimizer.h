// The update of a whole tensor by its owner, for optimizers in which an element's update depends on
// all elements: LAMB (You et al. 2020, arXiv:1904.00962, in the form of DeepSpeed's FusedLamb),
// 1-bit LAMB (Li et al. 2021, arXiv:2104.06069), Adafactor (Shazeer & Stern 2018, arXiv:1804.04235,
// in the form of transformers), Muon (Jordan et al. 2024, with the Newton-Schulz iteration of
// Bernstein & Newhouse; the products with the Gram matrix after Dao 2026). Data path: ZeRO state ->
// [here] -> the device's queue. One thread at a time.
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

// One update of a tensor: update number STEP (from 1), with the learning rate LR.
struct TensorStep {
    const config::OptimizerConfig* config = nullptr;
    double lr = 0;
    int64_t step = 1;
    std::optional<config::Betas> betas = {};  // replace the config's betas if set
    // 1-bit LAMB: the step's exchange between hosts. Unless it is kExact, the variance does not
    // change. If it is kMomentum, update() gets the next momentum in place of gradients.
    plan::Exchange exchange = plan::Exchange::kExact;
    TensorStates::Values states = {};  // in addition to moments
};

// Updates whole tensors; see the top of this file.
class TensorOptimizer {
  public:
    // NUMEL_MAX is the number of elements of the largest tensor, 0 if there is none. DEVICE and
    // QUEUE must outlive this object. REQUIRES: the device is the host, except for LAMB.
    TensorOptimizer(device::Device& device, device::Queue& queue, int64_t numel_max);

    // Returns memory for the sum of a tensor's gradients, to be filled before update(), which
    // overwrites it.
    [[nodiscard]] float* gradients() { return gradients_.floats().data(); }

    // Updates the whole tensor RANGE. Its gradients must be in one array. LIKE has the tensor's
    // sizes and strides. If range.parameters is empty, another rank writes the parameters, and this
    // call does nothing.
    void update(const kernels::FlatRange& range, const at::Tensor& like, const TensorStep& step);

  private:
    struct Ratio {
        double value = 1;
        bool defined = false;  // true if neither norm is 0
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

// Returns the nearest orthogonal matrix for each matrix in X's last two dimensions. The result is
// approximate, with singular values from 0.7 to 1.2. Makes five steps of a quintic iteration. Both
// methods give the same result, up to rounding.
[[nodiscard]] at::Tensor orthogonal(const at::Tensor& x, config::NewtonSchulz method);

}  // namespace dslaunch::zero
