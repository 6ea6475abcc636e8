// A model whose parameters all have gradients in each step: as a job of training_world.h, and once
// more in ATen.
#pragma once

#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>

#include <vector>

#include "unit/zero/training_world.h"

namespace dslaunch::testing {

// The model of small_batch() without its branch, so that all parameters have gradients in each
// step.
inline const char* const kPlainText =
    "def forward(self, x: Tensor, y: Tensor) -> Tensor:\n"
    "    h = torch.tanh(torch.matmul(x, self.w1) + self.b1)\n"
    "    h = torch.tanh(torch.matmul(h * self.gain, self.w2))\n"
    "    z = torch.matmul(h, self.w3)\n"
    "    return ((z - y) * (z - y)).mean()\n";

inline test::NamedTensors plain_parameters() {
    test::NamedTensors all = initial_parameters();
    std::erase_if(all, [](const auto& one) { return one.first == "extra"; });
    return all;
}

inline TrainedModel plain_model() {
    return {test::script_model(kPlainText, plain_parameters()),
            {},
            [](const SegmentedModel&, int64_t micro_batch) { return small_batch(micro_batch); }};
}

inline at::Tensor plain_loss(const Parameters& p, int64_t micro_batch) {
    const std::vector<c10::IValue> batch = small_batch(micro_batch);
    const at::Tensor x = batch[0].toTensor(), y = batch[1].toTensor();
    at::Tensor h = at::tanh(at::matmul(x, p.at("w1")) + p.at("b1"));
    h = at::tanh(at::matmul(h * p.at("gain"), p.at("w2")));
    const at::Tensor z = at::matmul(h, p.at("w3"));
    return ((z - y) * (z - y)).mean();
}

}  // namespace dslaunch::testing
