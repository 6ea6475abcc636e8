// Modules that a test writes: TorchScript text and parameters.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/archive/model.h"
#include "support/catch.h"

namespace dslaunch::test {

using namespace graph;

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Returns a module with PARAMETERS to train, buffers, and TEXT with its methods.
inline torch::jit::Module script_module(const std::string& text, const NamedTensors& parameters,
                                        const NamedTensors& buffers = {}) {
    torch::jit::Module module("Scripted");
    for (const auto& [name, tensor] : parameters) {
        module.register_parameter(name, tensor.clone().set_requires_grad(true),
                                  /*is_buffer=*/false);
    }
    for (const auto& [name, tensor] : buffers) module.register_buffer(name, tensor.clone());
    module.define(text);
    return module;
}

inline Model script_model(const std::string& text, const NamedTensors& parameters,
                          const NamedTensors& buffers = {}) {
    return Model::adopt(script_module(text, parameters, buffers));
}

inline const ModelParameter& parameter_of(const Model& model, const std::string& name) {
    for (const ModelParameter& parameter : model.parameters())
        if (parameter.name == name) return parameter;
    FAIL("no parameter " << name);
    return model.parameters().front();
}

// Returns the sines of START, START + 3, … in fp32.
inline at::Tensor wave(std::vector<int64_t> shape, double start) {
    int64_t numel = 1;
    for (const int64_t extent : shape) numel *= extent;
    return (at::arange(numel, at::kDouble) * 3.0 + start).sin().view(shape).to(at::kFloat);
}

// Returns [1, 2, … n] / n in fp32.
inline at::Tensor ramp(int64_t n) {
    return at::arange(1, n + 1, at::kFloat) / static_cast<double>(n);
}

}  // namespace dslaunch::test
