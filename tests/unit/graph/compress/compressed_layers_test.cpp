// Compressed layers in a lowered graph, compared with the same graph whose weights were changed
// beforehand: with gradients that pass straight through, loss and gradients are equal bit for bit.
#include "graph/compress/compressed_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros_like.h>

#include <functional>
#include <limits>
#include <map>

#include "base/error.h"
#include "graph/lower/lower.h"
#include "graph/segment/compute_context.h"
#include "graph/segment/segmented_model.h"
#include "support/catch.h"
#include "support/script_module.h"

namespace dslaunch::compress_tests {

using namespace graph;
using config::CompressedGroup;
using config::CompressionConfig;
using test::wave;

namespace {

// A table that is also the head, a layer that stores its weight as [in, out], a convolution, and a
// linear layer with a bias.
Model model() {
    return test::script_model(
        "def forward(self, tokens: Tensor) -> Tensor:\n"
        "    h = torch.embedding(self.table_weight, tokens)\n"
        "    h = torch.tanh(torch.addmm(self.turned_bias, h, self.turned_weight))\n"
        "    h = torch.linear(h, self.plain_weight, self.plain_bias)\n"
        "    h = torch.conv2d(h.view(2, 2, 2, 6), self.conv_weight, self.conv_bias, [1, 1], [1, "
        "1])\n"
        "    h = torch.tanh(h).reshape(-1, 6)\n"
        "    return torch.matmul(h, self.table_weight.t()).square().mean()\n",
        {{"table_weight", wave({5, 6}, 1)},
         {"turned_weight", wave({6, 8}, 2)},
         {"turned_bias", wave({8}, 3)},
         {"plain_weight", wave({12, 8}, 4)},
         {"plain_bias", wave({12}, 5)},
         {"conv_weight", wave({3, 2, 3, 3}, 6)},
         {"conv_bias", wave({3}, 7)}});
}

at::Tensor tokens() {
    return at::arange(4, at::kLong);
}

CompressedGroup group(std::vector<std::string> modules) {
    CompressedGroup made;
    made.name = "g";
    made.modules = std::move(modules);
    made.bits = 8;
    made.start_bits = made.target_bits = 4;
    made.period = 1;
    made.dense_ratio = 0.5;
    return made;
}

LowerOptions with(const CompressionConfig& config, bool trains = true) {
    LowerOptions options;
    options.compression = config;
    options.adapter_seed = 5;
    options.trains = trains;
    return options;
}

using Tensors = std::map<std::string, at::Tensor>;

// Returns the loss and the gradients of the parameters, after UPDATES updates. Cuts the model into
// SEGMENTS pieces.
Tensors step(Model& made, const LowerOptions& options, int64_t updates, int64_t segments = 1) {
    const SegmentedModel segmented = SegmentedModel::make(made, options, segments);
    const ComputeContext context(true, segmented.lowered().compute_dtype);
    std::vector<Boundary> boundaries;
    std::vector<c10::IValue> values = segmented.first_inputs({tokens()});
    for (size_t s = 0; s < segmented.segments().size(); ++s) {
        boundaries.push_back(segmented.forward(s, values, {3, 0, 0, updates}));
        values = boundaries.back().values;
    }
    Tensors found;
    found["loss"] = loss_tensor(boundaries.back()).detach().clone();
    SegmentedModel::backward_loss(boundaries.back(), 1);
    for (size_t s = boundaries.size() - 1; s-- > 0;) SegmentedModel::backward(boundaries[s]);
    for (const ModelParameter& parameter : made.parameters()) {
        at::Tensor tensor = parameter.tensor;
        if (!tensor.grad().defined()) continue;
        found[parameter.name] = tensor.grad().clone();
        tensor.mutable_grad().reset();
    }
    return found;
}

// Returns step() of a model whose parameters CHANGE has changed, without compression.
Tensors step_of(const std::function<void(const std::string&, at::Tensor&)>& change) {
    Model plain = model();
    for (const ModelParameter& parameter : plain.parameters()) {
        const at::NoGradGuard no_grad;
        at::Tensor tensor = parameter.tensor.detach();
        at::Tensor values = tensor.clone();
        change(parameter.name, values);
        tensor.copy_(values);
    }
    return step(plain, {}, 0);
}

void check_same(const Tensors& found, const Tensors& expected) {
    for (const auto& [name, tensor] : expected) {
        INFO(name);
        REQUIRE(found.count(name) == 1);
        CHECK(found.at(name).equal(tensor));
    }
}

CompressionConfig rounding(std::vector<std::string> modules, int64_t bits) {
    CompressionConfig config;
    config.weights.in_forward = true;
    config.weights.groups = 2;
    config.weights.parts = {group(std::move(modules))};
    config.weights.parts[0].target_bits = bits;
    return config;
}

}  // namespace

TEST_CASE("layers read rounded weights, and gradients pass straight through, bit for bit") {
    for (const int64_t bits : {8, 4, 2, 1})
        for (const int64_t segments : {1, 4}) {
            INFO(bits << " bits, " << segments << " segments");
            Model made = model();
            const Tensors found = step(made, with(rounding({"weight"}, bits)), 0, segments);
            const Tensors expected = step_of([&](const std::string& name, at::Tensor& values) {
                if (name == "table_weight") values = on_grid(values, {bits, 5});  // row by row
                if (name == "turned_weight")
                    values = on_grid(values.t(), {bits, 2}).t().contiguous();
                if (name == "plain_weight" || name == "conv_weight")
                    values = on_grid(values, {bits, 2});
            });
            check_same(found, expected);
            Model whole = model();
            CHECK_FALSE(found.at("loss").equal(step(whole, {}, 0).at("loss")));
        }
}

TEST_CASE("patterns choose layers as DeepSpeed's do, and `*` leaves tables out") {
    Model made = model();
    const Tensors found = step(made, with(rounding({"^plain_wei", "conv"}, 3)), 0);
    check_same(found, step_of([](const std::string& name, at::Tensor& values) {
                   if (name == "plain_weight" || name == "conv_weight")
                       values = on_grid(values, {3, 2});
               }));
    Model table = test::script_model(
        "def forward(self, tokens: Tensor) -> Tensor:\n"
        "    h = torch.embedding(self.table_weight, tokens)\n"
        "    return torch.linear(h, self.head_weight).square().mean()\n",
        {{"table_weight", wave({5, 6}, 1)}, {"head_weight", wave({3, 6}, 2)}});
    const SegmentedModel cut = SegmentedModel::make(table, with(rounding({"*"}, 3)), 1);
    REQUIRE(cut.lowered().compressed.size() == 1);
    CHECK(table.parameters()[cut.lowered().compressed[0].parameter].name == "head_weight");
    Model bad = model();
    CHECK_THROWS_WITH(SegmentedModel::make(bad, with(rounding({"plian"}, 3)), 1),
                      Catch::Matchers::Contains("`plian` is found in the name of no") &&
                          Catch::Matchers::Contains("turned_weight"));
    CompressionConfig twice = rounding({"plain"}, 3);
    twice.weights.parts.push_back(group({"weight"}));
    twice.weights.parts.back().name = "h";
    CHECK_THROWS_WITH(SegmentedModel::make(bad, with(twice), 1),
                      Catch::Matchers::Contains("`plain_weight` is also in the group `g`"));
    CompressionConfig odd = rounding({"conv"}, 3);
    odd.weights.groups = 7;
    CHECK_THROWS_WITH(SegmentedModel::make(bad, with(odd), 1),
                      Catch::Matchers::Contains("54 elements, which cannot be divided into 7"));
}

TEST_CASE("bits follow the number of updates, also in evaluation") {
    CompressionConfig config = rounding({"plain"}, 3);
    config.weights.in_forward = false;
    config.weights.offset = 2;
    config.weights.parts[0].start_bits = 5;
    config.weights.parts[0].period = 2;
    for (const bool trains : {true, false})
        for (const auto& [updates, bits] : std::vector<std::pair<int64_t, int64_t>>{
                 {2, 0}, {3, 5}, {4, 4}, {5, 4}, {6, 3}, {90, 3}, {-1, 3}}) {
            INFO("after " << updates << " updates");
            Model made = model();
            check_same(step(made, with(config, trains), updates),
                       step_of([bits = bits](const std::string& name, at::Tensor& values) {
                           if (name == "plain_weight" && bits > 0)
                               values = on_grid(values, {bits, 2});
                       }));
        }
}

TEST_CASE("rounding by chance is the same for each micro batch of a step, and new in each step") {
    CompressionConfig config = rounding({"plain"}, 4);
    config.weights.in_forward = false;
    config.weights.is_stochastic = true;
    Model made = model(), same = model(), later = model();
    const Tensors found = step(made, with(config), 7);
    check_same(step(same, with(config), 7, 4), found);
    CHECK_FALSE(step(later, with(config), 8).at("loss").equal(found.at("loss")));
}

TEST_CASE("masks of the first weights hide elements, rows, channels, and their gradients") {
    CompressionConfig config;
    config.sparse.parts = {group({"turned"})};
    config.rows.parts = {group({"plain"})};
    config.channels.parts = {group({"conv"})};
    Model made = model();
    const Tensors found = step(made, with(config), 0);
    const at::Tensor turned = largest(wave({6, 8}, 2).t().abs(), 0.5).t();
    const at::Tensor rows =
        largest(at::linalg_vector_norm(wave({12, 8}, 4), 1, {1}), 0.5).view({12, 1});
    const at::Tensor channels =
        largest(at::linalg_vector_norm(wave({3, 2, 3, 3}, 6).view({3, -1}), 1, {1}), 0.5);
    CHECK(channels.sum().item<int64_t>() == 2);  // the ceiling of half of three
    std::map<std::string, at::Tensor> masks = {{"turned_weight", turned},
                                               {"plain_weight", rows},
                                               {"plain_bias", rows.view({12})},
                                               {"conv_weight", channels.view({3, 1, 1, 1})},
                                               {"conv_bias", channels}};
    Tensors expected = step_of([&](const std::string& name, at::Tensor& values) {
        if (masks.count(name) > 0) values = values * masks.at(name);
    });
    for (const auto& [name, mask] : masks) expected.at(name) = expected.at(name) * mask;
    check_same(found, expected);
    // The masks stay when weights change, and are not part of a state_dict.
    for (const ModelParameter& parameter : made.parameters()) {
        const at::NoGradGuard no_grad;
        parameter.tensor.detach().neg_().add_(0.1);
    }
    const int buffer = made.buffer_named("plain_weight.row_pruning_mask");
    REQUIRE(buffer >= 0);
    static_cast<void>(step(made, with(config, false), 1));
    CHECK(made.buffers()[buffer].tensor.equal(rows.view({12})));
    CHECK_FALSE(made.buffers()[buffer].is_persistent);
    CHECK(made.buffers().size() == 3);
}

TEST_CASE("scores that are trained get the gradient of the elements that they hide or show") {
    CompressionConfig config;
    config.heads.learns = config.rows.learns = config.sparse.learns = true;
    config.heads.heads = 2;
    config.heads.parts = {group({"plain"})};
    config.rows.parts = {group({"plain"})};
    config.sparse.parts = {group({"turned"})};
    Model made = model();
    const Tensors found = step(made, with(config), 0);
    const auto named = [&](const std::string& name) -> at::Tensor {
        for (const ModelParameter& parameter : made.parameters())
            if (parameter.name == name) {
                CHECK(parameter.is_helper);
                return parameter.tensor.detach();
            }
        FAIL("no parameter " << name);
        return {};
    };
    const at::Tensor rows = named("plain_weight.row_mask_scores");
    const at::Tensor heads = named("plain_weight.head_pruning_scores");
    const at::Tensor elements = named("turned_weight.sparse_mask_scores");
    CHECK(rows.sizes() == at::IntArrayRef({12, 1}));
    CHECK(heads.sizes() == at::IntArrayRef({1, 2}));
    CHECK(elements.sizes() == at::IntArrayRef({8, 6}));
    CHECK(elements.abs().max().item<double>() <= 1 / std::sqrt(6.0));
    const at::Tensor row_bits = largest(rows, 0.5).to(at::kFloat);
    const at::Tensor head_bits =
        largest(heads, 0.5).to(at::kFloat).view({-1}).repeat_interleave(4).view({1, 8});
    const at::Tensor element_bits = largest(elements, 0.5).to(at::kFloat).t();
    const at::Tensor plain = wave({12, 8}, 4), bias = wave({12}, 5), turned = wave({6, 8}, 2);
    const Tensors masked = step_of([&](const std::string& name, at::Tensor& values) {
        if (name == "plain_weight") values = values * row_bits * head_bits;
        if (name == "plain_bias") values = values * row_bits.view({12});
        if (name == "turned_weight") values = values * element_bits;
    });
    const at::Tensor of_weight = masked.at("plain_weight"), of_bias = masked.at("plain_bias");
    CHECK(found.at("loss").equal(masked.at("loss")));
    CHECK(found.at("plain_weight").equal(of_weight * head_bits * row_bits));
    CHECK(found.at("plain_bias").equal(of_bias * row_bits.view({12})));
    const at::Tensor to_rows =
        (of_weight * head_bits * plain).sum(1, true) + (of_bias * bias).view({12, 1});
    CHECK(found.at("plain_weight.row_mask_scores").allclose(to_rows, 1e-6, 1e-7));
    const at::Tensor to_heads = (of_weight * plain * row_bits).sum(0).view({2, 4}).sum(1);
    CHECK(found.at("plain_weight.head_pruning_scores").view({2}).allclose(to_heads, 1e-6, 1e-7));
    const at::Tensor to_elements = (masked.at("turned_weight") * turned).t();
    CHECK(found.at("turned_weight.sparse_mask_scores").allclose(to_elements, 1e-6, 1e-7));
    // Before the offset, scores get no gradient and nothing is hidden.
    config.rows.offset = config.heads.offset = config.sparse.offset = 4;
    Model early = model();
    const Tensors before = step(early, with(config), 3);
    Model plain_model = model();
    check_same(before, step(plain_model, {}, 0));
}

TEST_CASE("inputs of layers are rounded row by row, sample by sample, or in an averaged range") {
    const std::string text =
        "def forward(self, tokens: Tensor) -> Tensor:\n"
        "    h = torch.embedding(self.table_weight, tokens)\n"
        "    return torch.linear(h, self.head_weight).square().mean()\n";
    const at::Tensor table = wave({5, 6}, 1), head = wave({3, 6}, 2);
    const test::NamedTensors parameters = {{"table_weight", table}, {"head_weight", head}};
    CompressionConfig config;
    config.activations.parts = {group({"head"})};
    config.activations.parts[0].bits = 4;
    const at::Tensor rows = table.narrow(0, 0, 4);
    const auto loss = [&](const at::Tensor& inputs) {
        return inputs.matmul(head.t()).square().mean();
    };
    for (const bool symmetric : {true, false}) {
        config.activations.is_symmetric = symmetric;
        Model made = test::script_model(text, parameters);
        const Tensors found = step(made, with(config), 0);
        CHECK(found.at("loss").item<double>() ==
              Approx(loss(on_grid(rows, {4, 4, symmetric})).item<double>()));
    }
    config.activations.is_symmetric = true;
    config.activations.is_static = true;
    Model made = test::script_model(text, parameters);
    static_cast<void>(step(made, with(config), 0));
    const int buffer = made.buffer_named("head_weight.activation_quantizer.x_min_max");
    REQUIRE(buffer >= 0);
    at::Tensor range = made.buffers()[buffer].tensor;
    CHECK(range[0].item<float>() == Approx(rows.min().item<float>()));
    CHECK(range[1].item<float>() == Approx(rows.max().item<float>()));
    {
        const at::NoGradGuard no_grad;
        range[0] = -2.0;
        range[1] = 2.0;
    }
    static_cast<void>(step(made, with(config), 0));
    CHECK(range[0].item<float>() == Approx(-2 * 0.95 + rows.min().item<double>() * 0.05));
    // Evaluation uses the range and leaves it alone.
    const at::Tensor before = range.clone();
    const Tensors evaluated = step(made, with(config, false), 0);
    CHECK(range.equal(before));
    CHECK(evaluated.at("loss").item<double>() ==
          Approx(loss(on_grid_of_range(rows, range, 4, true)).item<double>()));
}

TEST_CASE("compression under bf16 rounds what the layers multiply") {
    LowerOptions options = with(rounding({"plain"}, 4));
    options.compute_dtype = at::kBFloat16;
    options.keeps_fp32_parameters = true;
    Model made = model(), plain = model();
    const Tensors found = step(made, options, 0);
    {
        const at::NoGradGuard no_grad;
        for (const ModelParameter& parameter : plain.parameters())
            if (parameter.name == "plain_weight")
                parameter.tensor.detach().copy_(on_grid(parameter.tensor.detach(), {4, 2}));
    }
    options.compression = {};
    check_same(found, step(plain, options, 0));
}

namespace {

// Returns what becomes smaller in a model of modules in the order a_fc, a_out, b_fc, b_out, whose
// forward runs `b` first. THIN: rows of b_fc.
std::vector<std::string> cuts_of(const CompressionConfig& config, int64_t thin = 8) {
    torch::jit::Module root("Root");
    const auto add = [&](const std::string& name, std::vector<int64_t> sizes, double start) {
        torch::jit::Module module("Module_" + name);
        module.register_parameter("weight", wave(std::move(sizes), start).set_requires_grad(true),
                                  false);
        root.register_module(name, module);
    };
    add("table", {5, 6}, 1);
    add("a_fc", {8, 6}, 2);
    add("a_out", {6, 8}, 3);
    add("b_fc", {thin, 6}, 4);
    add("b_out", {6, thin}, 5);
    root.define(
        "def forward(self, tokens: Tensor) -> Tensor:\n"
        "    h = torch.embedding(self.table.weight, tokens)\n"
        "    h = torch.linear(torch.linear(h, self.b_fc.weight), self.b_out.weight)\n"
        "    h = torch.linear(torch.linear(h, self.a_fc.weight), self.a_out.weight)\n"
        "    return h.square().mean()\n");
    Model made = Model::adopt(root);
    const SegmentedModel cut = SegmentedModel::make(made, with(config), 1);
    std::vector<std::string> cuts;
    for (const Shrink& shrink : cut.lowered().shrinks) {
        std::string text;
        for (const Cut& one : shrink.cuts)
            text += made.parameters()[one.index].name + "." + std::to_string(one.dim) + " ";
        cuts.push_back(text);
    }
    return cuts;
}

CompressionConfig pruned_rows(std::vector<std::string> modules,
                              std::vector<std::vector<std::string>> related) {
    CompressionConfig config;
    config.rows.parts = {group(std::move(modules))};
    config.rows.parts[0].related = std::move(related);
    return config;
}

}  // namespace

TEST_CASE("related modules are counted in the model's order, as layers are") {
    CHECK(
        cuts_of(pruned_rows({"_fc"}, {{"_out"}})) ==
        std::vector<std::string>{"a_fc.weight.0 a_out.weight.1 ", "b_fc.weight.0 b_out.weight.1 "});
    CompressionConfig elements = pruned_rows({"_fc"}, {{"_out"}});
    std::swap(elements.sparse, elements.rows);
    CHECK(cuts_of(elements).empty());
}

TEST_CASE("related modules that do not fit are refused before the training") {
    CHECK_THROWS_WITH(cuts_of(pruned_rows({"b_fc"}, {{"_out"}}), 4),
                      Catch::Matchers::Contains("row_pruning.different_groups.g.related_modules: "
                                                "`a_out.weight` has 8 elements in dimension 1"));
    CHECK_THROWS_WITH(cuts_of(pruned_rows({"a_fc", "b_fc"}, {{"a_out"}, {"a_out"}})),
                      Catch::Matchers::Contains("`a_out.weight` would become smaller in "
                                                "dimension 1 by two masks"));
    // Four heads of two columns; the keys have half as many rows.
    CompressionConfig heads = pruned_rows({"a_out"}, {{"b_fc"}});
    std::swap(heads.heads, heads.rows);
    heads.heads.learns = true;
    heads.heads.heads = 4;
    CHECK(cuts_of(heads) == std::vector<std::string>{"a_out.weight.1 b_fc.weight.0 "});
    CHECK_THROWS_WITH(cuts_of(heads, 4),
                      Catch::Matchers::Contains("`b_fc.weight` has 4 elements in dimension 0"));
}

TEST_CASE("a batch that is not finite leaves a static range as it is") {
    const at::Tensor head = wave({3, 6}, 2);
    Model made = test::script_model(
        "def forward(self, tokens: Tensor) -> Tensor:\n"
        "    h = torch.embedding(self.table_weight, tokens)\n"
        "    return torch.linear(h, self.head_weight).square().mean()\n",
        {{"table_weight", wave({5, 6}, 1)}, {"head_weight", head}});
    CompressionConfig config;
    config.activations.parts = {group({"head"})};
    config.activations.is_static = true;
    static_cast<void>(step(made, with(config), 0));
    const at::Tensor range =
        made.buffers()[made.buffer_named("head_weight.activation_quantizer.x_min_max")].tensor;
    const at::Tensor before = range.clone();
    {
        const at::NoGradGuard no_grad;
        at::Tensor table = made.parameters()[0].tensor.detach();
        table[1][2] = std::numeric_limits<float>::infinity();
    }
    static_cast<void>(step(made, with(config), 1));
    CHECK(range.equal(before));
}

}  // namespace dslaunch::compress_tests
