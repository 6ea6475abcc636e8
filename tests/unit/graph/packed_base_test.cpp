// A base model in 8 and 4 bits in a lowered graph, compared with the same graph with weights that
// were rounded beforehand. The products must be the same numbers, and only the memory may differ.
#include "graph/adapter/packed_base.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <utility>

#include "graph/lower/lower.h"
#include "graph/lower/parameters_as.h"
#include "graph/measure/measure.h"
#include "graph/packed/packed_weight.h"
#include "graph/segment/compute_context.h"
#include "graph/segment/segmented_model.h"
#include "support/catch.h"
#include "support/script_module.h"

namespace dslaunch {

using namespace graph;
using config::LoraBase;
using kernels::MatrixForm;

namespace {

at::Tensor small_wave(const std::vector<int64_t>& sizes, double phase) {
    int64_t numel = 1;
    for (const int64_t size : sizes) numel *= size;
    return (at::arange(numel, at::kFloat) * 1.7 + phase).sin().mul(0.2).view(sizes);
}

// Returns a model of several layers and a head. One layer stores its weight as [in, out], one has
// no bias, and the weight of one is the table of rows too.
Model model() {
    return test::script_model(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    h = torch.tanh(torch.linear(x, self.first_weight, self.first_bias))\n"
        "    h = torch.tanh(torch.addmm(self.bias, h, self.second_weight))\n"
        "    h = torch.tanh(torch.matmul(h, self.plain_weight.t()))\n"
        "    h = torch.tanh(torch.linear(h, self.table) + self.table.sum(1))\n"
        "    return torch.matmul(h, self.head_weight.t()).square().mean()\n",
        {{"first_weight", small_wave({85, 70}, 1)},
         {"first_bias", small_wave({85}, 2)},
         {"second_weight", small_wave({85, 66}, 3)},
         {"bias", small_wave({66}, 4)},
         {"plain_weight", small_wave({66, 66}, 9)},
         {"table", small_wave({20, 66}, 5)},
         {"head_weight", small_wave({3, 20}, 6)}});
}

LowerOptions with(LoraBase base, at::ScalarType compute = at::kFloat) {
    LowerOptions options;
    options.lora.r = 2;
    options.lora.alpha = 6;
    options.base = base;
    options.adapter_seed = 7;
    options.compute_dtype = compute;
    return options;
}

// Sets B to values other than zero, so that A has a gradient.
void begin_adapters(Model& model) {
    const at::NoGradGuard no_grad;
    for (const ModelParameter& parameter : model.parameters())
        if (parameter.name.ends_with(".lora_B.weight"))
            parameter.tensor.detach().copy_(small_wave(parameter.tensor.sizes().vec(), 7));
}

// Puts the elements into the place from which the model reads them, as zero/parameters does.
void bring_packed(Model& model) {
    for (const ModelParameter& parameter : model.parameters()) {
        if (!parameter.packed) continue;
        const at::Tensor elements =
            at::empty({parameter.packed->numel()}, parameter.tensor.options());
        parameter.packed->read({0, elements.numel()}, static_cast<std::byte*>(elements.data_ptr()));
        at::Tensor tensor = parameter.tensor;
        tensor.set_data(elements);
    }
}

// Returns the loss, and the gradients of all trained parameters.
std::vector<at::Tensor> step(const Model& model, const SegmentedModel& segmented,
                             const at::Tensor& x) {
    const ComputeContext context(true, segmented.lowered().compute_dtype);
    Boundary boundary = segmented.forward(0, segmented.first_inputs({x}), {});
    std::vector<at::Tensor> found = {loss_tensor(boundary).detach().clone()};
    SegmentedModel::backward_loss(boundary, 1);
    for (const ModelParameter& parameter : model.parameters()) {
        if (!parameter.tensor.requires_grad()) continue;
        REQUIRE(parameter.tensor.grad().defined());
        found.push_back(parameter.tensor.grad().clone());
        at::Tensor tensor = parameter.tensor;
        tensor.mutable_grad().reset();
    }
    return found;
}

const std::vector<std::pair<LoraBase, MatrixForm>> kBases = {{LoraBase::kInt8, MatrixForm::kInt8},
                                                             {LoraBase::kInt4, MatrixForm::kInt4},
                                                             {LoraBase::kNf4, MatrixForm::kNf4}};

}  // namespace

TEST_CASE("a packed base gives the loss and gradients of the rounded weights, bit for bit") {
    for (const auto& [base, form] : kBases)
        for (const at::ScalarType compute : {at::kFloat, at::kBFloat16}) {
            INFO(kernels::matrix_form_name(form) << " in " << c10::toString(compute));
            Model packed = model(), rounded = model();
            const SegmentedModel small = SegmentedModel::make(packed, with(base, compute), 1);
            for (const char* name : {"first_weight", "second_weight", "plain_weight"}) {
                const ModelParameter& weight = test::parameter_of(packed, name);
                REQUIRE(weight.packed);
                CHECK(weight.packed->shape().form == form);
                CHECK(weight.packed->is_transposed() == (weight.name == "second_weight"));
                const at::Tensor before = test::parameter_of(rounded, name).tensor;
                const at::Tensor values = weight.packed->rounded();
                REQUIRE(values.sizes() == before.sizes());
                CHECK_FALSE(values.equal(before));
                CHECK((values - before).abs().max().item<float>() < 0.06F);
                at::Tensor tensor = before;
                tensor.set_data(values);
            }
            const SegmentedModel large =
                SegmentedModel::make(rounded, with(LoraBase::kAsIs, compute), 1);
            begin_adapters(packed);
            begin_adapters(rounded);
            bring_packed(packed);
            const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
            REQUIRE(packed.parameters().size() == all.size());
            const ParametersAs of_packed(packed, all, small.lowered());
            const ParametersAs of_rounded(rounded, all, large.lowered());
            const at::Tensor x = small_wave({9, 70}, 8);
            const std::vector<at::Tensor> mine = step(packed, small, x);
            const std::vector<at::Tensor> theirs = step(rounded, large, x);
            REQUIRE(mine.size() == 9);
            REQUIRE(theirs.size() == mine.size());
            for (size_t i = 0; i < mine.size(); ++i) CHECK(mine[i].equal(theirs[i]));
        }
}

TEST_CASE("the last layer, what is trained and what is read otherwise stay as they are") {
    Model made = model();
    LowerOptions options = with(LoraBase::kNf4);
    options.lora.modules_to_save = {"*"};  // parameters here belong to no module of their own
    CHECK_THROWS_WITH(
        lower(made, options),
        Catch::Contains("dslaunch.lora.modules_to_save: it contains every layer that") &&
            Catch::Contains("so no layer is left for an adapter"));
    Model other = model();
    options.lora.modules_to_save.clear();
    const LoweredGraph lowered = lower(other, options);
    CHECK_FALSE(test::parameter_of(other, "table").packed);
    CHECK_FALSE(test::parameter_of(other, "head_weight").packed);
    const std::string text = lowered.graph->toString();
    size_t count = 0;
    for (size_t at = 0; (at = text.find("dslaunch::packed_linear", at)) != std::string::npos; ++at)
        ++count;
    CHECK(count == 3);
    // Evaluation lowers the model again, and reads the same elements.
    options.trains = false;
    const auto* const before = test::parameter_of(other, "first_weight").packed.get();
    const LoweredGraph again = lower(other, options);
    CHECK(test::parameter_of(other, "first_weight").packed.get() == before);
    CHECK(again.graph->toString().find("dslaunch::packed_linear") != std::string::npos);
    CHECK(again.parameters == lowered.parameters);
}

TEST_CASE("a packed weight takes its bytes, and its backward keeps no other") {
    Model packed = model(), plain = model();
    const SegmentedModel small = SegmentedModel::make(packed, with(LoraBase::kNf4), 1);
    const SegmentedModel large = SegmentedModel::make(plain, with(LoraBase::kAsIs), 1);
    const at::Tensor x = small_wave({9, 70}, 8);
    const plan::ModelInfo less = measure(small, {x}), more = measure(large, {x});
    CHECK(less.segments.front().activation_bytes == more.segments.front().activation_bytes);
    // 70 inputs fill three groups of 32, with 4 bits each and a scale; 85 rows fill 96.
    const ModelParameter& first = test::parameter_of(packed, "first_weight");
    CHECK(std::cmp_equal(first.tensor.nbytes(), kernels::matrix_bytes(first.packed->shape())));
    CHECK(first.tensor.dim() == 1);
}

TEST_CASE("any part of a packed weight is what the whole has there") {
    for (const auto& [base, form] : kBases)
        for (const at::ScalarType element : {at::kFloat, at::kHalf}) {
            const PackedWeight weight(small_wave({50, 40}, 1), false, form, element);
            const size_t size = c10::elementSize(element);
            std::vector<std::byte> whole(static_cast<size_t>(weight.numel()) * size);
            weight.read({0, weight.numel()}, whole.data());
            for (const int64_t parts : {2, 3, 7, 50}) {
                std::vector<std::byte> joined(whole.size());
                for (int64_t part = 0; part < parts; ++part) {
                    const int64_t begin = weight.numel() * part / parts;
                    const int64_t end = weight.numel() * (part + 1) / parts;
                    weight.read({begin, end - begin},
                                joined.data() + static_cast<size_t>(begin) * size);
                }
                CHECK((joined == whole));
            }
        }
}

}  // namespace dslaunch
