// Archives as they come: tied, overlapping, missing, broken.
#include "graph/archive/model.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/module.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "graph/models/archive.h"
#include "support/catch.h"
#include "support/fixtures.h"
#include "support/job_process.h"
#include "support/script_module.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace graph;
namespace {

std::string load_error(const std::string& path) {
    try {
        static_cast<void>(Model::load(path));
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kInput);
        return error.what();
    }
    return "nothing was thrown";
}

}  // namespace

TEST_CASE("a tied parameter is one tensor with all its names") {
    for (const std::string& name : test::fixture_names()) {
        const nlohmann::json facts = test::fixture_facts(name);
        const Model model = Model::load(test::model_path(name));
        INFO(name);
        int64_t numel = 0;
        size_t groups = 0;
        for (const ModelParameter& parameter : model.parameters()) {
            numel += parameter.tensor.numel();
            if (!parameter.aliases.empty()) ++groups;
        }
        CHECK(numel == facts.at("parameter_numel").get<int64_t>());
        CHECK(groups == facts.at("tied").size());
    }
}

TEST_CASE("a parameter knows the classes of the modules that have it, in every kind of model") {
    using Classes = std::vector<std::string>;
    const std::string linear = "torch.nn.modules.linear.Linear";
    const std::string embedding = "torch.nn.modules.sparse.Embedding";
    const auto classes = [](const Model& model, const std::string& name) {
        for (const ModelParameter& parameter : model.parameters())
            if (parameter.name == name) return parameter.module_classes;
        FAIL("no parameter " << name);
        return Classes{};
    };
    const Model scripted = Model::load(test::model_path("gpt"));
    CHECK(classes(scripted, "blocks.2.fc.weight") == Classes{linear});
    CHECK(classes(scripted, "blocks.2.fc.bias") == Classes{linear});
    CHECK(classes(scripted, "wte.weight") == Classes{embedding});
    CHECK(classes(scripted, "ln_f.weight") == Classes{"torch.nn.modules.normalization.LayerNorm"});
    const Model tied = Model::load(test::model_path("gpt-tied"));
    CHECK(classes(tied, "wte.weight") == Classes{embedding, linear});
    const Model traced = Model::load(test::model_path("llama"));
    CHECK(classes(traced, "model.model.layers.1.mlp.up_proj.weight") == Classes{linear});
    const Model exported = Model::load(test::model_path("exported-llama"));
    CHECK(classes(exported, "model.model.layers.1.mlp.up_proj.weight") == Classes{linear});
    CHECK(classes(exported, "model.model.embed_tokens.weight") == Classes{embedding, linear});
    const Model convolutions = Model::load(test::model_path("exported-convnet"));
    CHECK(classes(convolutions, "stages.1.conv2.weight") ==
          Classes{"torch.nn.modules.conv.Conv2d"});
    CHECK(classes(convolutions, "stages.1.bn1.weight") ==
          Classes{"torch.nn.modules.batchnorm.BatchNorm2d"});
}

TEST_CASE("parameters that overlap without being equal get storages of their own") {
    torch::jit::Module module("Overlap");
    const at::Tensor whole = at::arange(10, at::kFloat);
    module.register_parameter("low", whole.slice(0, 0, 6).set_requires_grad(true), false);
    module.register_parameter("high", whole.slice(0, 4, 10).set_requires_grad(true), false);
    module.define(
        "def forward(self, x: Tensor) -> Tensor:\n    return ((self.low + self.high) * x).sum()\n");
    const Model model = Model::adopt(module);
    REQUIRE(model.parameters().size() == 2);
    const at::Tensor low = model.parameters()[0].tensor, high = model.parameters()[1].tensor;
    CHECK(low.storage().data() != high.storage().data());
    CHECK(at::equal(low, at::arange(6, at::kFloat)));
    CHECK(at::equal(high, at::arange(4, 10, at::kFloat)));
    // Writing to one must not move the other.
    const at::NoGradGuard no_grad;
    at::Tensor(low).fill_(-1);
    CHECK(at::equal(high, at::arange(4, 10, at::kFloat)));
}

TEST_CASE("what is no TorchScript archive is refused by name") {
    const test::TemporaryFolder folder;
    const std::string archive = test::content_of(test::fixture_path("models/mlp.pt"));
    const auto write = [&](const std::string& name, const std::string& bytes) {
        std::ofstream(folder.path() + "/" + name, std::ios::binary) << bytes;
        return folder.path() + "/" + name;
    };
    torch::jit::Module silent("Silent");
    silent.register_parameter("w", at::ones({1}), false);
    save_archive(silent, folder.path() + "/silent.pt");
    struct Row {
        std::string path;
        std::string message;
    };
    const Row rows[] = {
        {folder.path() + "/absent.pt", "No such file or directory"},
        {folder.path(), "is a folder without a config.json, not a model"},
        {write("empty.pt", ""), "is not a model that can be loaded"},
        {write("garbage.pt", std::string(5000, '\x5a')), "is not a model that can be loaded"},
        {write("text.pt", "import torch\n"), "is not a model that can be loaded"},
        {write("truncated.pt", archive.substr(0, archive.size() / 2)),
         "is not a model that can be loaded"},
        {write("cut-end.pt", archive.substr(0, archive.size() - 10)),
         "is not a model that can be loaded"},
        {folder.path() + "/silent.pt", "has no forward method"},
    };
    for (const Row& row : rows) {
        const std::string message = load_error(row.path);
        INFO(message);
        CHECK(message.find(row.message) != std::string::npos);
        CHECK(message.find(row.path) != std::string::npos);
        CHECK(message.find('\n') == std::string::npos);
    }
}

TEST_CASE(
    "an archive with any one of its bytes cut off is refused or loads whole, and never crashes") {
    const test::TemporaryFolder folder;
    const std::string archive = test::content_of(test::fixture_path("models/mlp.pt"));
    for (size_t length = 0; length < archive.size(); length += archive.size() / 23) {
        const std::string path = folder.path() + "/cut.pt";
        std::ofstream(path, std::ios::binary | std::ios::trunc) << archive.substr(0, length);
        CHECK(load_error(path).find("cut.pt") != std::string::npos);
    }
}

}  // namespace dslaunch
