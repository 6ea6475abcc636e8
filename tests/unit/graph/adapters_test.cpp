// Adapters in a lowered graph, compared with products that are written out by hand. Also adapters
// under the names that PEFT expects: they are read back by the code that reads PEFT's own adapters,
// and unit/decoder/rotary/decoder_test.cpp compares that code with PEFT.
#include "graph/adapter/adapters.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "graph/adapter/adapter_folder.h"
#include "graph/adapter/linear_layers.h"
#include "graph/lower/lower.h"
#include "graph/segment/segmented_model.h"
#include "storage/adapter/adapter_changes.h"
#include "storage/huggingface/model_folder.h"
#include "support/catch.h"
#include "support/script_module.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace graph;

namespace {

at::Tensor wave(const std::vector<int64_t>& sizes, double phase) {
    int64_t numel = 1;
    for (const int64_t size : sizes) numel *= size;
    return (at::arange(numel, at::kFloat) * 1.7 + phase).sin().mul(0.5).view(sizes);
}

// Returns a model of two layers and a head. One layer stores its weight as [in, out].
Model model() {
    return test::script_model(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    h = torch.tanh(torch.linear(x, self.first_weight))\n"
        "    h = torch.tanh(torch.addmm(self.bias, h, self.second_weight))\n"
        "    return torch.matmul(h, self.head_weight.t()).square().mean()\n",
        {{"first_weight", wave({5, 3}, 1)},
         {"second_weight", wave({5, 4}, 2)},
         {"bias", wave({4}, 3)},
         {"head_weight", wave({2, 4}, 4)}});
}

LowerOptions with(const config::LoraConfig& lora) {
    LowerOptions options;
    options.lora = lora;
    options.adapter_seed = 7;
    return options;
}

config::LoraConfig rank_2() {
    config::LoraConfig lora;
    lora.r = 2;
    lora.alpha = 6;
    return lora;
}

at::Tensor loss_of(const SegmentedModel& segmented, const at::Tensor& x) {
    return segmented.forward(0, segmented.first_inputs({x}), {}, c10::kCPU)
        .values.front()
        .toTensor();
}

std::string peft_fixture(const std::string& name) {
    return test::fixture_path("huggingface/" + name);
}

at::Tensor product_of(const storage::LowRankPair& pair) {
    const at::Tensor a = at::tensor(pair.read_a()).view({pair.r, -1});
    return at::matmul(at::tensor(pair.read_b()).view({-1, pair.r}), a) * pair.scale;
}

// Returns the description of the adapter that LORA gives to the model of fixture NAME.
storage::AdapterConfig described(const std::string& name, const config::LoraConfig& lora) {
    Model model = Model::load(peft_fixture(name));
    LowerOptions options;
    options.lora = lora;
    static_cast<void>(lower(model, options));
    return describe_adapters(model, lora);
}

}  // namespace

TEST_CASE("a weight that forward multiplies with both ways gets no adapter") {
    Model both_ways = test::script_model(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    h = torch.tanh(torch.linear(x, self.first_weight))\n"
        "    h = torch.tanh(torch.linear(h, self.second_weight))\n"
        "    return torch.matmul(h, self.first_weight).square().mean()\n",
        {{"first_weight", wave({5, 3}, 1)}, {"second_weight", wave({5, 5}, 2)}});
    const LoweredGraph lowered = lower(both_ways, {});
    const std::vector<LinearLayer> layers = find_linear_layers(both_ways, lowered);
    REQUIRE(layers.size() == 1);
    CHECK(layers[0].name == "second_weight");
}

TEST_CASE("an adapter beside a product is a product with B A, and begins as nothing") {
    Model plain = model(), adapted = model();
    const at::Tensor x = wave({6, 3}, 5);
    const SegmentedModel before = SegmentedModel::make(plain, {}, 1);
    const SegmentedModel after = SegmentedModel::make(adapted, with(rank_2()), 1);
    CHECK(loss_of(before, x).equal(loss_of(after, x)));
    // The last product has no adapter.
    CHECK(adapted.parameters().size() == 8);
    for (const ModelParameter& parameter : adapted.parameters())
        CHECK(parameter.tensor.requires_grad() == is_of_adapter(parameter.name));
    const at::Tensor a = test::parameter_of(adapted, "first_weight.lora_A.weight").tensor;
    CHECK(a.sizes() == at::IntArrayRef({2, 3}));
    CHECK(a.abs().max().item<float>() <= 1 / std::sqrt(3.0F));
    CHECK(a.abs().max().item<float>() > 0.2F);
    CHECK(test::parameter_of(adapted, "second_weight.lora_A.weight").tensor.sizes() ==
          at::IntArrayRef({2, 5}));
    CHECK(test::parameter_of(adapted, "second_weight.lora_B.weight").tensor.sizes() ==
          at::IntArrayRef({4, 2}));
    {
        const at::NoGradGuard no_grad;
        test::parameter_of(adapted, "first_weight.lora_B.weight").tensor.copy_(wave({5, 2}, 6));
        test::parameter_of(adapted, "second_weight.lora_B.weight").tensor.copy_(wave({4, 2}, 7));
        for (const auto& [layer, transposed] :
             {std::pair("first_weight", false), std::pair("second_weight", true)}) {
            const std::string name = layer;
            const at::Tensor change =
                at::matmul(test::parameter_of(adapted, name + ".lora_B.weight").tensor,
                           test::parameter_of(adapted, name + ".lora_A.weight").tensor) *
                3;  // alpha / r
            test::parameter_of(plain, name).tensor.add_(transposed ? change.t() : change);
        }
    }
    CHECK(at::allclose(loss_of(before, x), loss_of(after, x), 1e-5));
}

TEST_CASE("layers are chosen by pattern or by the end of a name, and what fits none is refused") {
    config::LoraConfig lora = rank_2();
    lora.targets = {"first*"};
    lora.modules_to_save = {};
    Model first = model();
    static_cast<void>(lower(first, with(lora)));
    CHECK(first.parameters().size() == 6);
    lora.targets = {"head_weight"};  // the last one may be named
    Model head = model();
    static_cast<void>(lower(head, with(lora)));
    CHECK(test::parameter_of(head, "head_weight.lora_A.weight").tensor.sizes() ==
          at::IntArrayRef({2, 4}));
    lora.targets = {"frist_weight"};
    Model none = model();
    CHECK_THROWS_WITH(
        lower(none, with(lora)),
        Catch::Contains("dslaunch.lora.targets: `frist_weight` matches no linear layer "
                        "of the model; did you mean `first_weight`?"));
}

TEST_CASE("a graph that is lowered again has the same adapters, and evaluation no dropout") {
    config::LoraConfig lora = rank_2();
    lora.dropout = 0.5;
    Model made = model();
    static_cast<void>(lower(made, with(lora)));
    const at::Tensor a = test::parameter_of(made, "first_weight.lora_A.weight").tensor;
    LowerOptions options = with(lora);
    options.trains = false;
    const LoweredGraph again = lower(made, options);
    CHECK(made.parameters().size() == 8);
    CHECK(test::parameter_of(made, "first_weight.lora_A.weight").tensor.is_same(a));
    CHECK(again.graph->toString().find("aten::dropout") == std::string::npos);
    // Another process begins with the same values if its seed is the same, and with others if not.
    Model other = model();
    options.lora.dropout = 0;
    static_cast<void>(lower(other, options));
    CHECK(test::parameter_of(other, "first_weight.lora_A.weight").tensor.equal(a));
    options.adapter_seed = 8;
    Model third = model();
    static_cast<void>(lower(third, options));
    CHECK_FALSE(test::parameter_of(third, "first_weight.lora_A.weight").tensor.equal(a));
}

TEST_CASE("an adapter's folder is read as it was written, and another model's is refused") {
    const test::TemporaryFolder folder;
    config::LoraConfig lora = rank_2();
    Model made = model();
    static_cast<void>(lower(made, with(lora)));
    AdapterFolder adapter;
    adapter.config = describe_adapters(made, lora);
    CHECK(adapter.config.targets == std::vector<std::string>{"first_weight", "second_weight"});
    for (const ModelParameter& parameter : made.parameters())
        if (is_of_adapter(parameter.name))
            adapter.tensors[parameter.name] = parameter.tensor.detach() + 1;
    write_adapter(adapter, folder.path());
    lora.init = folder.path();
    Model begun = model();
    static_cast<void>(lower(begun, with(lora)));
    CHECK(test::parameter_of(begun, "second_weight.lora_B.weight")
              .tensor.equal(adapter.tensors["second_weight.lora_B.weight"]));
    config::LoraConfig fewer = lora;
    fewer.targets = {"first_weight"};
    Model refused = model();
    CHECK_THROWS_WITH(
        lower(refused, with(fewer)),
        Catch::Contains("does not belong to any layer that dslaunch.lora.targets name"));
    fewer = lora;
    fewer.alpha = 2;
    Model other = model();
    CHECK_THROWS_WITH(lower(other, with(fewer)),
                      Catch::Contains("has the scale 3, but dslaunch.lora gives the scale 1"));
}

TEST_CASE("pairs of some experts' matrices are one pair of all of them, and give the same") {
    struct Case {
        const char* model;
        std::vector<std::string> layers;  // of the MLP's experts
        bool rslora;
        bool joined;
    };
    const std::vector<Case> cases = {
        {"qwen2-moe", {"0.gate_proj", "1.up_proj", "2.down_proj"}, false, true},
        {"qwen2-moe", {"1.down_proj"}, true, true},
        {"mixtral", {"0.w1", "1.w1", "2.w1"}, true, true},
        {"mixtral", {"0.w2", "1.w2", "2.w2"}, false, false},  // which PEFT joins itself
    };
    for (const Case& one : cases) {
        INFO(one.model << " " << one.layers.front());
        const storage::TransformerConfig facts =
            storage::open_model_folder(peft_fixture(one.model)).config;
        AdapterFolder adapter;
        adapter.config.r = 2;
        adapter.config.alpha = 6;
        adapter.config.dropout = 0.5;
        adapter.config.is_rslora = one.rslora;
        const std::string experts =
            "model.layers.1." + facts.names.at("mlp") + "." + facts.names.at("experts") + ".";
        std::map<std::string, at::Tensor> expected;
        double phase = 0;
        for (const std::string& layer : one.layers) {
            const bool down = layer.ends_with("down_proj") || layer.ends_with("w2");
            const int64_t in = down ? facts.expert_width : facts.width;
            const int64_t out = down ? facts.width : facts.expert_width;
            const at::Tensor a = wave({2, in}, ++phase), b = wave({out, 2}, ++phase);
            adapter.config.targets.push_back(experts + layer);
            adapter.tensors[experts + layer + ".lora_A.weight"] = a;
            adapter.tensors[experts + layer + ".lora_B.weight"] = b;
            expected[experts + layer] = at::matmul(b, a) * adapter.config.scale();
        }
        to_peft_form(adapter, facts);
        CHECK(adapter.config.target_parameters.empty() != one.joined);
        CHECK(adapter.config.targets.empty() == one.joined);
        // PEFT loads no adapter of joined parameters if the adapter has dropout.
        CHECK(adapter.config.dropout == (one.joined ? 0 : 0.5));
        const test::TemporaryFolder folder;
        write_adapter(adapter, folder.path());
        const storage::AdapterChanges read(folder.path(), &facts);
        for (const auto& [layer, change] : read.all()) {
            INFO(layer);
            REQUIRE(change.pair);
            const auto found = expected.find(layer);
            const at::Tensor made = product_of(*change.pair);
            CHECK(at::allclose(made, found == expected.end() ? at::zeros_like(made) : found->second,
                               1e-5, 1e-6));
            if (found != expected.end()) expected.erase(found);
        }
        CHECK(expected.empty());
    }
}

TEST_CASE("whole experts, routers and renamed output layers have the names of transformers 5") {
    const storage::TransformerConfig mixtral =
        storage::open_model_folder(peft_fixture("mixtral")).config;
    AdapterFolder adapter;
    const std::string mlp = "model.layers.0.block_sparse_moe.";
    adapter.config.modules_to_save = {mlp + "gate"};
    adapter.tensors[mlp + "gate.weight"] = wave({3, 16}, 1);
    for (const char* expert : {"0", "1", "2"})
        for (const char* name : {"w1", "w2", "w3"}) {
            const std::string module = mlp + "experts." + expert + "." + name;
            adapter.config.modules_to_save.push_back(module);
            adapter.tensors[module + ".weight"] =
                name == std::string("w2") ? wave({16, 24}, 2) : wave({24, 16}, 3);
        }
    to_peft_form(adapter, mixtral);
    CHECK(adapter.config.modules_to_save ==
          std::vector<std::string>{"model.layers.0.mlp.gate", "model.layers.0.mlp.experts"});
    CHECK(adapter.tensors.size() == 3);
    CHECK(adapter.tensors.at("model.layers.0.mlp.experts.gate_up_proj").sizes() ==
          at::IntArrayRef({3, 48, 16}));
    CHECK(adapter.tensors.at("model.layers.0.mlp.experts.down_proj").sizes() ==
          at::IntArrayRef({3, 16, 24}));

    AdapterFolder neox;
    neox.config.targets = {"embed_out"};
    neox.tensors["embed_out.lora_A.weight"] = wave({2, 16}, 1);
    to_peft_form(neox, storage::open_model_folder(peft_fixture("gpt-neox")).config);
    CHECK(neox.config.targets == std::vector<std::string>{"lm_head"});
    CHECK(neox.tensors.contains("lm_head.lora_A.weight"));
}

TEST_CASE("an output layer that is the table of tokens is adapted and saved by PEFT's names") {
    config::LoraConfig lora;
    lora.r = 2;
    lora.alpha = 4;
    lora.targets = {"lm_head"};
    CHECK(described("qwen2", lora).targets == std::vector<std::string>{"lm_head"});
    lora.targets = {"q_proj"};
    for (const char* name : {"embed_tokens", "lm_head"}) {
        lora.modules_to_save = {name};
        const storage::AdapterConfig config = described("qwen2", lora);
        CHECK(config.modules_to_save == std::vector<std::string>{"model.embed_tokens"});
        CHECK(config.is_tied);
    }
    // Saved modules include the modules inside them, and get no adapter.
    lora.targets = {"q_proj", "up_proj"};
    lora.modules_to_save = {"layers.0.mlp", "layers.1.self_attn"};
    const storage::AdapterConfig config = described("llama", lora);
    CHECK(config.targets == std::vector<std::string>{"model.layers.0.self_attn.q_proj",
                                                     "model.layers.1.mlp.up_proj"});
    CHECK(config.modules_to_save.size() == 7);
    CHECK_FALSE(config.is_tied);
    lora.modules_to_save = {"self_attn", "mlp"};
    CHECK_THROWS_WITH(described("llama", lora), Catch::Contains("no layer is left for an adapter"));
    lora.targets = {"all-linear"};
    lora.modules_to_save = {};
    CHECK(described("llama", lora).targets.size() == 14);
}

}  // namespace dslaunch
