#include "graph/segment/new_values.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <ATen/ops/arange.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/text/torch_reason.h"
#include "graph/segment/compute_context.h"

namespace dslaunch::graph {

namespace {

at::Tensor in_fp32(const at::Tensor& tensor) {
    const at::ScalarType type = tensor.scalar_type();
    return at::isReducedFloatingType(type) ? tensor.detach().to(at::kFloat) : tensor.detach();
}

// TENSOR times FACTOR and a little beside it, so that no value stays by luck where it is.
at::Tensor moved(const at::Tensor& tensor, double factor) {
    if (!tensor.is_floating_point()) return tensor;
    const at::Tensor ripple = at::arange(tensor.numel(), tensor.options()).sin_().mul_(factor);
    return tensor * factor + ripple.view(tensor.sizes());
}

// True if A and B are equal but for rounding. A NaN is equal to itself.
bool is_close(const at::Tensor& a, const at::Tensor& b) {
    constexpr double kRoundings = 16;
    if (a.numel() == 0) return true;
    if (!a.is_floating_point()) return a.equal(b);
    const at::Tensor wide_a = a.to(at::kDouble), wide_b = b.to(at::kDouble);
    if (!wide_a.isfinite().equal(wide_b.isfinite())) return false;
    const double epsilon = a.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                          : std::numeric_limits<float>::epsilon();
    const at::Tensor off = (wide_a - wide_b).abs().nan_to_num(0, 0, 0);
    const at::Tensor size = wide_a.abs().nan_to_num(0, 0, 0);
    return off.max().item<double>() <= kRoundings * epsilon * size.max().item<double>();
}

}  // namespace

std::vector<at::Tensor> new_values(const Model& model, const ParameterWrites& writes,
                                   const std::vector<at::Tensor>& parameters) {
    const ComputeContext context(false);
    torch::jit::Stack stack;
    for (const at::Tensor& parameter : parameters) stack.emplace_back(in_fp32(parameter));
    for (const int buffer : writes.buffers)
        stack.emplace_back(in_fp32(model.buffers()[buffer].tensor));
    try {
        torch::jit::InterpreterState(torch::jit::Code(writes.graph, "new values")).run(stack);
    } catch (const std::exception& error) {
        fail(ExitCode::kInput, "{}: forward's new value of parameter `{}` failed: {}",
             writes.nodes.front(), model.parameters()[writes.written.front()].name,
             torch_reason(error));
    }
    std::vector<at::Tensor> values;
    for (const c10::IValue& value : stack) values.push_back(value.toTensor());
    return values;
}

bool is_projection(const Model& model, const ParameterWrites& writes) {
    for (const double factor : {1.0, 7.0, 0.03}) {
        std::vector<at::Tensor> values;
        for (const int parameter : writes.parameters) {
            const at::Tensor value = in_fp32(model.parameters()[parameter].tensor);
            values.push_back(factor == 1.0 ? value : moved(value, factor));
        }
        const std::vector<at::Tensor> once = new_values(model, writes, values);
        for (size_t o = 0; o < once.size(); ++o) {
            const auto read = std::ranges::find(writes.parameters, writes.written[o]);
            if (read != writes.parameters.end()) values[read - writes.parameters.begin()] = once[o];
        }
        const std::vector<at::Tensor> twice = new_values(model, writes, values);
        for (size_t o = 0; o < once.size(); ++o)
            if (!is_close(once[o], twice[o])) return false;
    }
    return true;
}

}  // namespace dslaunch::graph
