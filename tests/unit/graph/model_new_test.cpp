#include <ATen/TensorIndexing.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/all.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/erf.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "graph/archive/model.h"
#include "graph/models/models.h"
#include "graph/models/module_builder.h"
#include "graph/models/save_archive.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace dslaunch {

using namespace graph;
namespace {

constexpr GptOptions kLittle{.vocab = 11, .width = 8, .heads = 2, .layers = 2, .context = 6};

std::map<std::string, at::Tensor> parameters_of(const torch::jit::Module& module) {
    std::map<std::string, at::Tensor> parameters;
    for (const auto& parameter : module.named_parameters())
        parameters[parameter.name] = parameter.value;
    return parameters;
}

at::Tensor some_tokens(const GptOptions& options, int64_t rows, int64_t length) {
    return at::arange(rows * length, at::kLong)
        .mul(7)
        .remainder(options.vocab)
        .view({rows, length});
}

// Computes the GPT's logits head by head, with an explicit mask. It shares only the parameters'
// names with gpt.torchscript.
at::Tensor reference_logits(const std::map<std::string, at::Tensor>& weights,
                            const GptOptions& options, const at::Tensor& tokens) {
    const auto linear = [&](const std::string& name, const at::Tensor& x) {
        return x.matmul(weights.at(name + ".weight").t()) + weights.at(name + ".bias");
    };
    const auto norm = [&](const std::string& name, const at::Tensor& x) {
        const at::Tensor centred = x - x.mean(-1, true);
        const at::Tensor variance = centred.pow(2).mean(-1, true);
        return centred / (variance + 1e-5).sqrt() * weights.at(name + ".weight") +
               weights.at(name + ".bias");
    };
    const int64_t length = tokens.size(1), head_width = options.width / options.heads;
    const at::Tensor future = at::ones({length, length}, at::kBool).triu(1);
    at::Tensor x =
        weights.at("wte.weight").index({tokens}) + weights.at("wpe.weight").slice(0, 0, length);
    for (int64_t layer = 0; layer < options.layers; ++layer) {
        const std::string block = "blocks." + std::to_string(layer) + ".";
        const at::Tensor qkv = linear(block + "qkv", norm(block + "ln1", x));
        std::vector<at::Tensor> heads;
        for (int64_t head = 0; head < options.heads; ++head) {
            const auto part = [&](int64_t which) {
                return qkv.narrow(2, which * options.width + head * head_width, head_width);
            };
            const at::Tensor scores =
                part(0).matmul(part(1).transpose(1, 2)) / std::sqrt(head_width);
            heads.push_back(scores.masked_fill(future, -INFINITY).softmax(-1).matmul(part(2)));
        }
        x = x + linear(block + "proj", at::cat(heads, 2));
        const at::Tensor inner = linear(block + "fc", norm(block + "ln2", x));
        const at::Tensor gelu = inner * 0.5 * (1 + at::erf(inner / std::sqrt(2.0)));
        x = x + linear(block + "out", gelu);
    }
    return norm("ln_f", x).matmul(weights.at(options.is_tied ? "wte.weight" : "head.weight").t());
}

// Makes a new model's weights larger, so that every part matters to the result.
void scale_up(const torch::jit::Module& module) {
    for (const auto& parameter : module.parameters()) parameter.detach().mul_(5).add_(0.03);
}

}  // namespace

TEST_CASE("class text is cut, moved left and written out once per child") {
    const auto bodies = class_bodies(
        "# about\nclass A:\n    pass\n\nclass B:\n    def f(self, x):\n"
        "        for a in self.$many:\n            x = a.f(x)\n        return x\n"
        "\nclass C:\n    def f(self, x):\n        for i, a in enumerate(self.few):\n"
        "            x = a.f(x, i)\n        return x\n",
        {{"many", "as"}});
    REQUIRE(bodies.size() == 3);
    CHECK(bodies.at("A").empty());
    const auto written_out = [&](const char* name) {
        return with_loops_written_out(bodies.at(name), {{"as", 2}, {"few", 1}});
    };
    CHECK(written_out("A").empty());
    CHECK(written_out("B") ==
          "def f(self, x):\n    a = getattr(self.as, \"0\")\n    x = a.f(x)\n"
          "    a = getattr(self.as, \"1\")\n    x = a.f(x)\n    return x\n");
    CHECK(written_out("C") ==
          "def f(self, x):\n    i = 0\n    a = getattr(self.few, \"0\")\n    x = a.f(x, i)\n"
          "    return x\n");
}

TEST_CASE("a GPT has the usual parameter names and shapes") {
    GptOptions options = kLittle;
    options.layers = 1;
    options.is_tied = GENERATE(false, true);
    std::vector<std::pair<std::string, std::vector<int64_t>>> expected = {
        {"wte.weight", {11, 8}},
        {"wpe.weight", {6, 8}},
        {"blocks.0.ln1.weight", {8}},
        {"blocks.0.ln1.bias", {8}},
        {"blocks.0.qkv.weight", {24, 8}},
        {"blocks.0.qkv.bias", {24}},
        {"blocks.0.proj.weight", {8, 8}},
        {"blocks.0.proj.bias", {8}},
        {"blocks.0.ln2.weight", {8}},
        {"blocks.0.ln2.bias", {8}},
        {"blocks.0.fc.weight", {32, 8}},
        {"blocks.0.fc.bias", {32}},
        {"blocks.0.out.weight", {8, 32}},
        {"blocks.0.out.bias", {8}},
        {"ln_f.weight", {8}},
        {"ln_f.bias", {8}}};
    if (!options.is_tied) expected.push_back({"head.weight", {11, 8}});
    std::vector<std::pair<std::string, std::vector<int64_t>>> found;
    for (const auto& parameter : make_gpt(options).named_parameters()) {
        CHECK(parameter.value.requires_grad());
        found.push_back({parameter.name, parameter.value.sizes().vec()});
    }
    CHECK(found == expected);
}

TEST_CASE("logits and loss of a GPT equal the formulas written out") {
    GptOptions options = kLittle;
    options.is_tied = GENERATE(false, true);
    torch::jit::Module module = make_gpt(options);
    scale_up(module);
    const at::Tensor tokens = some_tokens(options, 3, 6), targets = tokens.roll({1}, {1});
    const at::Tensor logits = reference_logits(parameters_of(module), options, tokens);
    // fp32 sums of at most 32 terms, five layers deep: far below 1e-4 of values of order 1.
    CHECK(at::allclose(module.get_method("logits")({tokens}).toTensor(), logits, 1e-4, 1e-5));
    const at::Tensor likelihood = logits.log_softmax(-1).gather(2, targets.unsqueeze(2));
    CHECK(module.forward({tokens, targets}).toTensor().item<double>() ==
          Approx(-likelihood.mean().item<double>()).epsilon(1e-5));
}

TEST_CASE("fresh weights are normal with the documented deviations, and the seed decides them") {
    GptOptions options{.vocab = 64, .width = 64, .heads = 4, .layers = 8, .context = 64};
    const auto weights = parameters_of(make_gpt(options));
    // The deviation of n samples is off by a factor 1 +- 1/sqrt(2n): 1.1 % for n = 4096, so 6 % is
    // five sigma.
    for (const char* name :
         {"wte.weight", "wpe.weight", "blocks.3.qkv.weight", "blocks.7.fc.weight", "head.weight"})
        CHECK(weights.at(name).std().item<double>() == Approx(0.02).epsilon(0.06));
    for (const char* name : {"blocks.0.proj.weight", "blocks.7.out.weight"})
        CHECK(weights.at(name).std().item<double>() == Approx(0.02 / 4).epsilon(0.06));
    for (const auto& [name, tensor] : weights) {
        INFO(name);
        if (name.ends_with("bias")) CHECK(tensor.count_nonzero().item<int64_t>() == 0);
        if (name.find("ln") != std::string::npos && name.ends_with("weight"))
            CHECK(at::all(tensor == 1).item<bool>());
    }
    const auto again = parameters_of(make_gpt(options));
    options.seed = 1235;
    const auto other = parameters_of(make_gpt(options));
    CHECK(weights.at("head.weight").equal(again.at("head.weight")));
    CHECK_FALSE(weights.at("head.weight").equal(other.at("head.weight")));
    CHECK_FALSE(weights.at("blocks.0.fc.weight").equal(weights.at("blocks.1.fc.weight")));
}

TEST_CASE("dropout is absent at 0, acts in train mode, and is off in eval mode") {
    const auto graph_text = [](const torch::jit::Module& module) {
        const auto graph = module.get_method("forward").graph()->copy();
        for (int level = 0; level < 8; ++level) torch::jit::Inline(*graph);
        return graph->toString();
    };
    GptOptions options = kLittle;
    torch::jit::Module plain = make_gpt(options);
    options.dropout = 0.5;
    torch::jit::Module dropping = make_gpt(options);
    CHECK(graph_text(plain).find("aten::dropout") == std::string::npos);
    CHECK(graph_text(plain).find("prim::If") == std::string::npos);
    CHECK(graph_text(dropping).find("aten::dropout") != std::string::npos);
    scale_up(plain);
    scale_up(dropping);
    const at::Tensor tokens = some_tokens(options, 2, 6);
    const double whole = plain.forward({tokens, tokens}).toTensor().item<double>();
    CHECK(dropping.forward({tokens, tokens}).toTensor().item<double>() != whole);
    dropping.eval();
    CHECK(dropping.forward({tokens, tokens}).toTensor().item<double>() == whole);
}

TEST_CASE("a saved GPT loads with the same loss, and every parameter gets a gradient") {
    const test::TemporaryFolder folder;
    const std::string path = folder.path() + "/gpt.pt";
    torch::jit::Module module = make_gpt(kLittle);
    scale_up(module);
    save_archive(module, path);
    Model loaded = Model::load(path);
    const at::Tensor tokens = some_tokens(kLittle, 2, 6), targets = tokens.roll({1}, {1});
    const at::Tensor loss = loaded.module().forward({tokens, targets}).toTensor();
    CHECK(loss.item<double>() == module.forward({tokens, targets}).toTensor().item<double>());
    loss.backward();
    CHECK(loaded.parameters().size() == 4 + 1 + 2 * 12);
    for (const ModelParameter& parameter : loaded.parameters()) {
        INFO(parameter.name);
        REQUIRE(parameter.tensor.grad().defined());
        CHECK(parameter.tensor.grad().abs().sum().item<double>() > 0);
    }
    std::filesystem::remove(path);
}

TEST_CASE("impossible GPTs and MLPs are refused by option") {
    const auto refused = [](const std::function<void(GptOptions&)>& spoil,
                            const std::string& option) {
        GptOptions options = kLittle;
        spoil(options);
        try {
            (void)make_gpt(options);
            FAIL("made with a bad " << option);
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kUsage);
            CHECK(std::string(error.what()).find(option) != std::string::npos);
        }
    };
    refused([](GptOptions& options) { options.vocab = 0; }, "--vocab");
    refused([](GptOptions& options) { options.heads = 3; }, "--heads");
    refused([](GptOptions& options) { options.heads = -2; }, "--heads");
    refused([](GptOptions& options) { options.layers = 0; }, "--layers");
    refused([](GptOptions& options) { options.context = -1; }, "--context");
    refused([](GptOptions& options) { options.dropout = 1.0; }, "--dropout");
    refused([](GptOptions& options) { options.dropout = NAN; }, "--dropout");
    CHECK_THROWS_AS(gpt_options("huge"), Error);
    CHECK_THROWS_AS(make_mlp({.widths = {5}}), Error);
    CHECK_THROWS_AS(make_mlp({.widths = {5, 0, 2}}), Error);
}

TEST_CASE("an MLP is linear layers with ReLU between, for any number of layers") {
    const std::vector<int64_t> widths =
        GENERATE(std::vector<int64_t>{4, 3}, std::vector<int64_t>{4, 5, 3},
                 std::vector<int64_t>{4, 6, 5, 3});
    const torch::jit::Module module = make_mlp({.widths = widths});
    const auto weights = parameters_of(module);
    REQUIRE(weights.size() == 2 * (widths.size() - 1));
    const at::Tensor input = at::linspace(-1, 1, 8).view({2, 4});
    at::Tensor x = input;
    for (size_t layer = 0; layer + 1 < widths.size(); ++layer) {
        const bool last = layer + 2 == widths.size();
        const std::string name = last ? "out" : "hidden." + std::to_string(layer);
        CHECK(weights.at(name + ".weight").abs().max().item<double>() <=
              1 / std::sqrt(widths[layer]));
        x = x.matmul(weights.at(name + ".weight").t()) + weights.at(name + ".bias");
        if (!last) x = x.clamp_min(0);
    }
    // fp32 sums of at most 6 terms.
    CHECK(at::allclose(torch::jit::Module(module).forward({input}).toTensor(), x, 1e-5, 1e-6));
}

}  // namespace dslaunch
