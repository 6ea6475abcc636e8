// Products of 16-bit tensors on processors that have no instructions for them. They are compared
// with the same numbers in fp64, in every shape, layout and cut, and with LibTorch's own kernels
// for everything else.
#include "graph/lower/cpu_products.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>

#include <cmath>

#include "support/catch.h"

namespace dslaunch {

using graph::WideProducts;
namespace {

at::Tensor numbers(at::IntArrayRef sizes, at::ScalarType type) {
    return at::randn(sizes).to(type);
}

at::Tensor exact(const at::Tensor& tensor) {
    return tensor.to(at::kDouble);
}

// Returns the largest difference, as a multiple of the largest rounding of a number as large as the
// largest expected one.
double roundings(const at::Tensor& got, const at::Tensor& expected) {
    const double step = got.scalar_type() == at::kHalf ? 0x1p-11 : 0x1p-8;
    return (exact(got) - expected).abs().max().item<double>() /
           (expected.abs().max().item<double>() * step);
}

constexpr at::ScalarType kNarrow[] = {at::kBFloat16, at::kHalf};

}  // namespace

TEST_CASE("widened products are the exact ones, rounded once") {
    const WideProducts wide(true, true);
    struct Sizes {
        int64_t m, k, n;
    };
    for (const at::ScalarType type : kNarrow) {
        // The last three are cut: along k, along n, along m.
        for (const auto& [m, k, n] :
             {Sizes{1, 1, 1}, Sizes{3, 5, 7}, Sizes{64, 33, 17}, Sizes{5, 1 << 20, 6},
              Sizes{2, 16, 300'000}, Sizes{300'000, 16, 2}}) {
            INFO(type << ": " << m << " x " << k << " x " << n);
            const at::Tensor a = numbers({m, k}, type), b = numbers({k, n}, type);
            const at::Tensor expected = at::mm(exact(a), exact(b));
            CHECK(roundings(at::mm(a, b), expected) < 1.01);
            // Operands that are stored transposed.
            const at::Tensor left = a.t().contiguous().t(), right = b.t().contiguous().t();
            CHECK(roundings(at::mm(left, right), expected) < 1.01);
            const at::Tensor bias = numbers({n}, type), whole = numbers({m, n}, type);
            CHECK(roundings(at::addmm(bias, a, b), exact(bias) + expected) < 1.01);
            CHECK(roundings(at::addmm(whole, a, b, 0.5, 2), 0.5 * exact(whole) + 2 * expected) <
                  1.01);
        }
    }
}

TEST_CASE("nothing is read of what a factor of 0 takes away") {
    const WideProducts wide(true, true);
    const at::Tensor a = numbers({4, 3}, at::kBFloat16), b = numbers({3, 5}, at::kBFloat16);
    const at::Tensor bad = at::full({4, 5}, NAN, a.options());
    CHECK(at::equal(at::addmm(bad, a, b, 0), at::mm(a, b)));
    CHECK(std::isnan(at::addmm(bad, a, b).sum().item<float>()));
}

TEST_CASE("widened batches of products are the exact ones, rounded once") {
    const WideProducts wide(true, true);
    for (const at::ScalarType type : kNarrow) {
        for (const int64_t batches : {1, 3, 700}) {  // 700 of 80 x 90 are cut
            const at::Tensor a = numbers({batches, 80, 20}, type);
            const at::Tensor b = numbers({batches, 20, 90}, type);
            const at::Tensor expected = at::bmm(exact(a), exact(b));
            CHECK(roundings(at::bmm(a, b), expected) < 1.01);
            const at::Tensor self = numbers({batches, 1, 90}, type);
            CHECK(roundings(at::baddbmm(self, a, b, 2, 0.5), 2 * exact(self) + 0.5 * expected) <
                  1.01);
        }
    }
}

TEST_CASE("widened attention and its gradients are near the exact ones") {
    const WideProducts wide(true, true);
    for (const at::ScalarType type : kNarrow) {
        for (const bool causal : {true, false}) {
            at::Tensor narrow[3], whole[3];
            for (int i = 0; i < 3; ++i) {
                const at::Tensor values = numbers({2, 3, 20, 8}, type);
                narrow[i] = values.clone().requires_grad_();
                whole[i] = exact(values).requires_grad_();
            }
            const auto attend = [&](at::Tensor* x) {
                return at::scaled_dot_product_attention(x[0], x[1], x[2], {}, 0.0, causal);
            };
            const at::Tensor got = attend(narrow), expected = attend(whole);
            CHECK(roundings(got.detach(), expected.detach()) < 1.01);
            const at::Tensor weights = numbers({2, 3, 20, 8}, type);
            (got * weights).sum().backward();
            (expected * exact(weights)).sum().backward();
            // The gradient is computed from rounded values and weights.
            for (int i = 0; i < 3; ++i) CHECK(roundings(narrow[i].grad(), whole[i].grad()) < 2);
        }
    }
}

TEST_CASE("other types, and what is not widened, keep LibTorch's own kernels") {
    const at::Tensor a = numbers({33, 65}, at::kFloat), b = numbers({65, 17}, at::kFloat);
    const at::Tensor c = numbers({7}, at::kBFloat16);
    const at::Tensor before = at::mm(a, b), wrong = numbers({3, 2}, at::kBFloat16);
    {
        const WideProducts wide(true, false);
        CHECK(at::equal(at::mm(a, b), before));
        CHECK(at::equal(at::addmm(at::zeros({17}), a, b), before));
        const at::Tensor empty = at::mm(numbers({0, 3}, at::kBFloat16), wrong);
        CHECK(empty.sizes() == at::IntArrayRef{0, 2});
        // Errors come from LibTorch.
        CHECK_THROWS(at::mm(wrong, wrong));
        CHECK_THROWS(at::mm(wrong, numbers({2, 3}, at::kFloat)));
    }
    CHECK(at::equal(at::mm(a, b), before));
}

}  // namespace dslaunch
