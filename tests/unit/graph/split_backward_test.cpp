#include "graph/segment/split_backward.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv1d.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "graph/measure/tensor_meter.h"
#include "support/catch.h"
#include "support/script_module.h"

namespace dslaunch {

using namespace graph;
namespace {

using test::wave;

at::Tensor leaf(std::vector<int64_t> shape, double start) {
    return wave(std::move(shape), start).set_requires_grad(true);
}

using Leaves = std::vector<at::Tensor>;
// Computes a segment's outputs from its inputs and parameters.
using Body = std::function<Leaves(const Leaves& inputs, const Leaves& parameters)>;

Leaves gradients_of(const Leaves& leaves) {
    Leaves gradients;
    for (const at::Tensor& leaf : leaves) gradients.push_back(leaf.grad());
    return gradients;
}

void check_same(const Leaves& a, const Leaves& b) {
    REQUIRE(a.size() == b.size());
    for (size_t i = 0; i < a.size(); ++i) {
        INFO("leaf " << i);
        REQUIRE(a[i].defined() == b[i].defined());
        if (a[i].defined()) CHECK(at::equal(a[i], b[i]));
    }
}

// Compares both ways over several micro steps. All micro steps run their halves separately.
void check_split(const Body& body, const std::function<Leaves()>& make_inputs,
                 const std::function<Leaves()>& make_parameters) {
    constexpr int kMicroSteps = 3;
    const Leaves whole_parameters = make_parameters();
    const Leaves split_parameters = make_parameters();
    std::vector<WeightHalf> halves;
    for (int m = 0; m < kMicroSteps; ++m) {
        const Leaves whole_inputs = make_inputs();
        const Leaves split_inputs = make_inputs();
        const Leaves whole = body(whole_inputs, whole_parameters);
        const Leaves split = body(split_inputs, split_parameters);
        Leaves gradients;
        for (const at::Tensor& root : whole) gradients.push_back(wave(root.sizes().vec(), 0.7 + m));
        torch::autograd::backward(whole, gradients);
        halves.push_back(backward_inputs(split, gradients, split_inputs));
        check_same(gradients_of(split_inputs), gradients_of(whole_inputs));
    }
    for (const at::Tensor& parameter : split_parameters) CHECK(!parameter.grad().defined());
    for (WeightHalf& half : halves) half.run();
    for (WeightHalf& half : halves) half.run();
    check_same(gradients_of(split_parameters), gradients_of(whole_parameters));
}

}  // namespace

TEST_CASE("a backward in two halves has the bits of a whole one") {
    const auto inputs = [] { return Leaves{leaf({2, 5, 8}, 0.1), leaf({2, 5, 8}, 0.2)}; };
    const auto parameters = [] {
        return Leaves{leaf({12, 8}, 1.0), leaf({12}, 1.1), leaf({8, 12}, 1.2),
                      leaf({8}, 1.3),     leaf({8}, 1.4),  leaf({5, 5, 3}, 1.5)};
    };
    SECTION("linear layers, norms, a residual") {
        check_split(
            [](const Leaves& x, const Leaves& p) {
                const at::Tensor norm = at::layer_norm(x[0], {8}, p[3], p[4]);
                const at::Tensor h = at::gelu(at::linear(norm, p[0], p[1]));
                return Leaves{x[0] + at::linear(h, p[2]), x[1] * 2.0};
            },
            inputs, parameters);
    }
    SECTION("a parameter used twice, one of another, one not at all") {
        check_split(
            [](const Leaves& x, const Leaves& p) {
                const at::Tensor weight = p[0] * p[1].unsqueeze(1);  // a product of parameters
                const at::Tensor h = at::tanh(at::linear(x[0], weight));
                return Leaves{at::tanh(at::linear(h, p[2])) + at::linear(at::relu(h), p[2])};
            },
            inputs, parameters);
    }
    SECTION("a product of what comes from inputs and what comes from parameters") {
        check_split(
            [](const Leaves& x, const Leaves& p) {
                const at::Tensor gate = at::sigmoid(p[3] + p[4]);
                return Leaves{(x[0] * gate + x[1] * gate).relu(), gate.sum()};
            },
            inputs, parameters);
    }
    SECTION("attention and a convolution") {
        check_split(
            [](const Leaves& x, const Leaves& p) {
                const at::Tensor query = at::linear(x[0], p[0], p[1]).narrow(-1, 0, 8);
                const at::Tensor mixed = at::scaled_dot_product_attention(query, x[1], x[1]);
                return Leaves{at::conv1d(mixed, p[5], {}, 1, 1)};
            },
            inputs, parameters);
    }
    SECTION("no input wants a gradient: all is the second half") {
        check_split(
            [](const Leaves&, const Leaves& p) {
                return Leaves{at::linear(wave({3, 8}, 0.4), p[0], p[1])};
            },
            [] { return Leaves{}; }, parameters);
    }
    SECTION("an input that goes nowhere has none") {
        check_split([](const Leaves& x, const Leaves& p) { return Leaves{at::linear(x[0], p[0])}; },
                    inputs, parameters);
    }
}

TEST_CASE("what only the first half needs is gone after it") {
    constexpr int64_t kRows = 512, kWidth = 256;
    const at::Tensor weight = leaf({kWidth, kWidth}, 1.0);
    TensorMeter meter;
    const at::Tensor input = leaf({kRows, kWidth}, 0.1);
    // Each tanh keeps its result; the one product keeps its operand and the gradient that comes.
    at::Tensor h = input;
    for (int i = 0; i < 8; ++i) h = at::tanh(h * 1.5);
    h = at::linear(h, weight);
    for (int i = 0; i < 8; ++i) h = at::tanh(h * 1.5);
    const at::Tensor gradient = at::ones_like(h);
    std::vector<at::Tensor> roots = {std::exchange(h, at::Tensor())};
    WeightHalf half = backward_inputs(roots, {gradient}, {input});
    roots.clear();
    const int64_t activation = kRows * kWidth * 4;
    const auto live = [&] {
        const TensorMeter::Counts counts = meter.live();
        return counts.small_bytes + counts.large_bytes;
    };
    // The five are the input, its gradient, the root's gradient, the operand and its gradient.
    CHECK(live() == 5 * activation);
    half.run();
    CHECK(live() == 3 * activation + static_cast<int64_t>(weight.nbytes()));
}

}  // namespace dslaunch
