#include "graph/segment/new_values.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/stack.h>
#include <ATen/ops/arange.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/text/torch_reason.h"
#include "graph/nodes/graph_nodes.h"
#include "graph/segment/compute_context.h"

namespace dslaunch::graph {

namespace {

// Returns TENSOR in TYPE if it is floating-point, otherwise unchanged.
at::Tensor in_type(const at::Tensor& tensor, at::ScalarType type) {
    return tensor.is_floating_point() ? tensor.detach().to(type) : tensor.detach();
}

// Returns TENSOR in fp32 if it has 16 bits or fewer, otherwise unchanged.
at::Tensor in_fp32(const at::Tensor& tensor) {
    const at::ScalarType type = tensor.scalar_type();
    return at::isReducedFloatingType(type) ? tensor.detach().to(at::kFloat) : tensor.detach();
}

// Returns TENSOR times FACTOR plus a small ripple, so that no value stays the same by chance.
at::Tensor moved(const at::Tensor& tensor, double factor) {
    if (!tensor.is_floating_point()) return tensor;
    const at::Tensor ripple = at::arange(tensor.numel(), tensor.options()).sin_().mul_(factor);
    return tensor * factor + ripple.view(tensor.sizes());
}

// Returns true if A and B are equal except for rounding. A NaN is equal to itself.
bool is_close(const at::Tensor& a, const at::Tensor& b) {
    constexpr double kRoundings = 16;
    if (a.numel() == 0) return true;
    if (!a.is_floating_point()) return a.equal(b);
    const at::Tensor wide_a = a.to(at::kDouble), wide_b = b.to(at::kDouble);
    if (!wide_a.isfinite().equal(wide_b.isfinite())) return false;
    const bool is_double = a.scalar_type() == at::kDouble && b.scalar_type() == at::kDouble;
    const double epsilon =
        is_double ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
    const at::Tensor off = (wide_a - wide_b).abs().nan_to_num(0, 0, 0);
    const at::Tensor size = wide_a.abs().nan_to_num(0, 0, 0);
    return off.max().item<double>() <= kRoundings * epsilon * size.max().item<double>();
}

// Returns the results of WRITES' graph on the inputs VALUES.
std::vector<at::Tensor> values_of(const ParameterWrites& writes,
                                  const std::vector<at::Tensor>& values) {
    const ComputeContext context(false);
    torch::jit::Stack stack(values.begin(), values.end());
    torch::jit::InterpreterState(Code(writes.graph, "new values")).run(stack);
    std::vector<at::Tensor> results;
    for (const IValue& result : stack) results.push_back(result.toTensor());
    return results;
}

// Returns true if GRAPH casts tensors to types that it names, or contains constant tensors.
bool names_types(const Graph& graph) {
    static const std::set<std::string_view> names = {
        "aten::to",   "aten::_to_copy", "aten::float",      "aten::half",
        "aten::type", "aten::bfloat16", "aten::_cast_Float"};
    return find_node(*graph.block(), [](const Node& node) {
               return names.count(node.kind().toQualString()) > 0 ||
                      (node.kind() == prim::Constant && is_tensor(*node.output()));
           }) != nullptr;
}

// Returns true if writing twice, computed in TYPE, gives the same values as writing once. Throws
// what a node throws.
bool repeats(const Model& model, const ParameterWrites& writes, at::ScalarType type) {
    std::vector<at::Tensor> buffers;
    for (const int buffer : writes.buffers)
        buffers.push_back(in_type(model.buffers()[buffer].tensor, type));
    for (const double factor : {1.0, 7.0, 0.03}) {
        std::vector<at::Tensor> values;
        for (const int parameter : writes.parameters) {
            const at::Tensor value = in_type(model.parameters()[parameter].tensor, type);
            values.push_back(factor == 1.0 ? value : moved(value, factor));
        }
        values.insert(values.end(), buffers.begin(), buffers.end());
        const std::vector<at::Tensor> once = values_of(writes, values);
        for (size_t o = 0; o < once.size(); ++o) {
            const auto read = std::ranges::find(writes.parameters, writes.written[o]);
            if (read != writes.parameters.end()) values[read - writes.parameters.begin()] = once[o];
        }
        const std::vector<at::Tensor> twice = values_of(writes, values);
        for (size_t o = 0; o < once.size(); ++o)
            if (!is_close(once[o], twice[o])) return false;
    }
    return true;
}

}  // namespace

std::vector<at::Tensor> new_values(const Model& model, const ParameterWrites& writes,
                                   const std::vector<at::Tensor>& parameters) {
    std::vector<at::Tensor> values;
    for (const at::Tensor& parameter : parameters) values.push_back(in_fp32(parameter));
    for (const int buffer : writes.buffers)
        values.push_back(in_fp32(model.buffers()[buffer].tensor));
    try {
        return values_of(writes, values);
    } catch (const std::exception& error) {
        fail(ExitCode::kInput, "{}: forward's new value of parameter `{}` failed: {}",
             writes.nodes.front(), model.parameters()[writes.written.front()].name,
             torch_reason(error));
    }
}

bool is_projection(const Model& model, const ParameterWrites& writes) {
    // Computes in fp64, because in fp32 a decay by one millionth looks like a rounding error. A
    // graph that names types itself still computes in these types, or fails; such a graph is tried
    // in fp32.
    bool stays = false;
    try {
        stays = repeats(model, writes, at::kDouble);
    } catch (const std::exception&) {
        return repeats(model, writes, at::kFloat);
    }
    return stays || (names_types(*writes.graph) && repeats(model, writes, at::kFloat));
}

}  // namespace dslaunch::graph
