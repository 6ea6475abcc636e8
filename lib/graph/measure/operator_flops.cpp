#include "graph/measure/operator_flops.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace dslaunch::graph {

namespace {

using Inputs = c10::ArrayRef<const c10::IValue>;

int64_t product_flops(Inputs inputs, size_t a, size_t b) {
    if (inputs.size() <= b || !inputs[a].isTensor() || !inputs[b].isTensor()) return 0;
    return 2 * inputs[a].toTensor().numel() * inputs[b].toTensor().size(-1);
}

// Counts the products [.., T, d] x [.., S, d] and [.., T, S] x [.., S, d].
int64_t attention_flops(Inputs inputs) {
    if (inputs.size() < 3 || !inputs[0].isTensor() || !inputs[2].isTensor()) return 0;
    const at::Tensor& query = inputs[0].toTensor();
    const int64_t keys = inputs[1].toTensor().size(-2);
    return 2 * query.numel() * keys +
           2 * query.numel() / query.size(-1) * keys * inputs[2].toTensor().size(-1);
}

// The FLOPs of a convolution. For a transposed convolution, `whole` is the total. For any other
// convolution, `per_output` is the FLOPs for each output element. The other field is 0.
struct KernelFlops {
    int64_t per_output = 0;
    int64_t whole = 0;
};

KernelFlops kernel_flops(Inputs inputs) {
    constexpr size_t kTransposed = 6;
    if (inputs.size() < 2 || !inputs[1].isTensor()) return {};
    const at::Tensor& weight = inputs[1].toTensor();
    const int64_t flops = 2 * weight.numel() / std::max<int64_t>(1, weight.size(0));
    const bool is_transposed =
        inputs.size() > kTransposed && inputs[kTransposed].isBool() && inputs[kTransposed].toBool();
    if (!is_transposed) return {flops, 0};
    return {0, inputs[0].isTensor() ? flops * inputs[0].toTensor().numel() : 0};
}

}  // namespace

c10::ArrayRef<const c10::IValue> own_inputs(const at::RecordFunction& call) {
    const Inputs shown = call.inputs();
    return shown.slice(shown.size() - std::min(shown.size(), call.num_inputs()));
}

c10::ArrayRef<const c10::IValue> own_outputs(const at::RecordFunction& call) {
    const Inputs shown(call.outputs().data(), call.outputs().size());
    return shown.slice(shown.size() - std::min(shown.size(), call.num_outputs()));
}

bool OperatorFlops::enter(const at::RecordFunction& call) {
    const std::string_view name = call.name();
    // Under autocast an operator calls itself again, with its inputs cast.
    const bool again = !calls_.empty() && calls_.back() == name;
    calls_.push_back(name);
    if (again && attention_depth_ == 0) return false;
    if (attention_depth_ > 0 || name == "aten::scaled_dot_product_attention") {
        // Attention is counted as a whole, because its parts differ between kernels.
        if (attention_depth_++ == 0) flops_ += attention_flops(own_inputs(call));
        return false;
    }
    if (name == "aten::mm") flops_ += product_flops(own_inputs(call), 0, 1);
    if (name == "aten::addmm") flops_ += product_flops(own_inputs(call), 1, 2);
    if (name == "aten::bmm") flops_ += product_flops(own_inputs(call), 0, 1);
    if (name == "aten::baddbmm") flops_ += product_flops(own_inputs(call), 1, 2);
    if (name == "aten::convolution") {
        const KernelFlops work = kernel_flops(own_inputs(call));
        flops_ += work.whole;
        flops_per_output_ = work.per_output;
    }
    return true;
}

void OperatorFlops::leave(const at::RecordFunction& call) {
    if (calls_.empty()) return;  // the operator began before the count
    const std::string_view name = call.name();
    calls_.pop_back();
    const bool again = !calls_.empty() && calls_.back() == name;
    if (attention_depth_ > 0) --attention_depth_;
    if (name != "aten::convolution" || again) return;
    const Inputs outputs = own_outputs(call);
    if (!outputs.empty() && outputs[0].isTensor())
        flops_ += flops_per_output_ * outputs[0].toTensor().numel();
}

}  // namespace dslaunch::graph
