#include "graph/measure/shapes_only.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <tuple>

#include "graph/lower/wide_products.h"

namespace dslaunch::graph {

namespace {

at::Tensor mm(const at::Tensor& a, const at::Tensor& b) {
    return at::zeros({a.size(0), b.size(1)}, a.options());
}

at::Tensor addmm(const at::Tensor&, const at::Tensor& a, const at::Tensor& b, const at::Scalar&,
                 const at::Scalar&) {
    return mm(a, b);
}

at::Tensor bmm(const at::Tensor& a, const at::Tensor& b) {
    return at::zeros({a.size(0), a.size(1), b.size(2)}, a.options());
}

at::Tensor baddbmm(const at::Tensor&, const at::Tensor& a, const at::Tensor& b, const at::Scalar&,
                   const at::Scalar&) {
    return bmm(a, b);
}

// [.., T, d] x [.., S, d] x [.., S, v] -> [.., T, v], laid out as LibTorch's kernel does: heads lie
// beside each other.
std::tuple<at::Tensor, at::Tensor> attention(const at::Tensor& query, const at::Tensor&,
                                             const at::Tensor& value, double, bool,
                                             const std::optional<at::Tensor>&,
                                             std::optional<double>) {
    const int64_t rows = query.size(0), heads = query.size(1), positions = query.size(2);
    const at::ScalarType sums = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return {at::zeros({rows, positions, heads, value.size(3)}, query.options()).transpose(1, 2),
            at::zeros({rows, positions, heads}, query.options().dtype(sums)).transpose(1, 2)};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor&, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor&, const at::Tensor&, double, bool, const std::optional<at::Tensor>&,
    std::optional<double>) {
    return {at::zeros_like(query), at::zeros_like(key), at::zeros_like(value)};
}

}  // namespace

ShapesOnly::ShapesOnly() {
    use_wide_products();  // begins before these, so that they are used
    kernels_.replace("mm", mm);
    kernels_.replace("addmm", addmm);
    kernels_.replace("bmm", bmm);
    kernels_.replace("baddbmm", baddbmm);
    kernels_.replace("_scaled_dot_product_flash_attention_for_cpu", attention);
    kernels_.replace("_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward);
}

}  // namespace dslaunch::graph
