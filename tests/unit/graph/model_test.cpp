// Archives of many kinds: tied, overlapping, missing, broken.
#include "graph/archive/model.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/module.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "graph/lower/lower.h"
#include "graph/models/save_archive.h"
#include "graph/segment/segmented_model.h"
#include "support/catch.h"
#include "support/fixtures.h"
#include "support/job_process.h"
#include "support/script_module.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace graph;
namespace {

std::string load_error(const std::string& path) {
    return test::error_of(ExitCode::kInput, [&] { static_cast<void>(Model::load(path)); });
}

}  // namespace

TEST_CASE("a tied parameter is one tensor with all its names") {
    for (const std::string& name : test::fixture_names()) {
        const nlohmann::json facts = test::fixture_facts(name);
        const Model model = Model::load(test::fixture_archive(name));
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
    const Model scripted = Model::load(test::fixture_archive("gpt"));
    CHECK(classes(scripted, "blocks.2.fc.weight") == Classes{linear});
    CHECK(classes(scripted, "blocks.2.fc.bias") == Classes{linear});
    CHECK(classes(scripted, "wte.weight") == Classes{embedding});
    CHECK(classes(scripted, "ln_f.weight") == Classes{"torch.nn.modules.normalization.LayerNorm"});
    const Model tied = Model::load(test::fixture_archive("gpt-tied"));
    CHECK(classes(tied, "wte.weight") == Classes{embedding, linear});
    const Model traced = Model::load(test::fixture_archive("llama"));
    CHECK(classes(traced, "model.model.layers.1.mlp.up_proj.weight") == Classes{linear});
    const Model exported = Model::load(test::fixture_archive("exported-llama"));
    CHECK(classes(exported, "model.model.layers.1.mlp.up_proj.weight") == Classes{linear});
    CHECK(classes(exported, "model.model.embed_tokens.weight") == Classes{embedding, linear});
    const Model convolutions = Model::load(test::fixture_archive("exported-convnet"));
    CHECK(classes(convolutions, "stages.1.conv2.weight") ==
          Classes{"torch.nn.modules.conv.Conv2d"});
    CHECK(classes(convolutions, "stages.1.bn1.weight") ==
          Classes{"torch.nn.modules.batchnorm.BatchNorm2d"});
}

TEST_CASE("parameters that overlap in part are refused, and neighbours in a storage are parted") {
    const auto module_of = [](int64_t end, int64_t begin) {
        torch::jit::Module module("Overlap");
        const at::Tensor whole = at::arange(10, at::kFloat);
        module.register_parameter("low", whole.slice(0, 0, end).set_requires_grad(true), false);
        module.register_parameter("high", whole.slice(0, begin, 10).set_requires_grad(true), false);
        module.define(
            "def forward(self, x: Tensor) -> Tensor:\n"
            "    return (self.low.sum() + self.high.sum()) * x.sum()\n");
        return module;
    };
    try {
        static_cast<void>(Model::adopt(module_of(6, 4)));
        FAIL("nothing was thrown");
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kInput);
        CHECK_THAT(error.what(), Catch::Contains("`low`") && Catch::Contains("`high`"));
    }
    const Model model = Model::adopt(module_of(4, 4));
    REQUIRE(model.parameters().size() == 2);
    const at::Tensor low = model.parameters()[0].tensor, high = model.parameters()[1].tensor;
    CHECK(low.storage().data() != high.storage().data());
    CHECK(at::equal(low, at::arange(4, at::kFloat)));
    CHECK(at::equal(high, at::arange(4, 10, at::kFloat)));
}

TEST_CASE("forward reads a view of a parameter as the parameter, one of a buffer as the buffer") {
    const at::Tensor weight = test::wave({3, 4}, 1), table = test::wave({2, 3}, 2);
    torch::jit::Module module("Tied");
    module.register_parameter("w", weight.clone().set_requires_grad(true), false);
    const at::Tensor w = module.attr("w").toTensor().detach();
    module.register_parameter("t", w.t().set_requires_grad(true), false);
    module.register_parameter("frozen", w, false);
    module.register_buffer("row", w[1]);
    module.register_buffer("first", table[0]);
    module.register_buffer("table", table);
    module.register_attribute("plain", c10::TensorType::get(), w.select(1, 2));
    module.define(
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    h = torch.matmul(x, self.w)\n"
        "    self.table.add_(0.5)\n"
        "    return (torch.matmul(h, self.t) * self.first * torch.matmul(self.frozen, self.row)"
        " + self.plain).sum()\n");
    Model model = Model::adopt(module);
    REQUIRE(model.parameters().size() == 1);
    REQUIRE(model.buffers().size() == 1);
    CHECK(model.buffers()[0].name == "table");
    CHECK(model.views().size() == 5);
    const auto segmented = SegmentedModel::make(model, {}, 1);
    const at::Tensor x = test::wave({5, 3}, 3);
    // Computed by hand: `t` passes gradients on, the others do not, and `first` sees `table`'s new
    // values.
    at::Tensor own = weight.clone().set_requires_grad(true);
    const at::Tensor still = own.detach(), start = table.clone();
    const auto loss_of_step = [&](double added) {
        const at::Tensor h = at::matmul(x, own);
        return (at::matmul(h, own.t()) * (start[0] + added) * at::matmul(still, still[1]) +
                still.select(1, 2))
            .sum();
    };
    for (int step = 1; step <= 2; ++step) {
        Boundary boundary = segmented.forward(0, segmented.first_inputs({x}), {});
        const at::Tensor expected = loss_of_step(0.5 * step);
        CHECK(loss_of(boundary) == Approx(expected.item<double>()).epsilon(1e-5));
        SegmentedModel::backward_loss(boundary, 1);
        own.mutable_grad().reset();
        expected.backward();
        at::Tensor trained = model.parameters()[0].tensor;
        CHECK(at::allclose(trained.grad(), own.grad(), 1e-4, 1e-5));
        const at::NoGradGuard no_grad;
        trained.sub_(trained.grad(), 0.1);
        own.sub_(own.grad(), 0.1);
        trained.mutable_grad().reset();
    }
    // The module's own tensors follow when they are asked to.
    at::Tensor moved = model.parameters()[0].tensor;
    moved.set_data(moved.detach().clone());
    model.renew_views();
    CHECK(module.attr("t").toTensor().equal(moved.t()));
    CHECK(module.attr("row").toTensor().const_data_ptr() == moved.const_data_ptr<float>() + 4);
}

TEST_CASE(
    "a new tensor for one name of a shared buffer, or a write to overlapping ones, is refused") {
    const at::Tensor memory = at::arange(10, at::kFloat);
    const auto with = [&](const at::Tensor& a, const at::Tensor& b, const std::string& line) {
        torch::jit::Module module("Shared");
        module.register_parameter("w", at::ones({1}).set_requires_grad(true), false);
        module.register_buffer("a", a);
        module.register_buffer("b", b);
        module.define("def forward(self, x: Tensor) -> Tensor:\n    " + line +
                      "\n    return ((self.a.sum() + self.b.sum()) * x * self.w).sum()\n");
        Model model = Model::adopt(module);
        return test::error_of(ExitCode::kInput, [&] { static_cast<void>(lower(model, {})); });
    };
    const at::Tensor low = memory.slice(0, 0, 6), high = memory.slice(0, 4, 10);
    CHECK_THAT(with(low, low, "self.a = self.a + 1"),
               Catch::Contains("a new tensor to attribute `a`") &&
                   Catch::Contains("`b` shares the memory"));
    CHECK(with(low, low, "self.a.add_(1)") == "accepted");
    CHECK_THAT(with(low, high, "self.a.add_(1)"), Catch::Contains("forward writes `a`"));
    CHECK(with(low, high, "self.w") == "accepted");
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
    const std::string no_directory =
        "not a usable archive: it has no zip directory at its end; the file is truncated or not a "
        "TorchScript archive";
    const Row rows[] = {
        {folder.path() + "/absent.pt", "No such file or directory"},
        {folder.path(), "is a folder with models in it: give one of them: "},
        {write("empty.pt", ""), "not a usable archive: 0 bytes are too few for a zip"},
        {write("garbage.pt", std::string(5000, '\x5a')), no_directory},
        {write("text.pt", "import torch\n"),
         "not a usable archive: 13 bytes are too few for a zip"},
        {write("empty.gguf", ""), "is empty"},
        {write("zeros.gguf", std::string(64, '\0')), "contains only zero bytes"},
        {write("other.gguf", std::string(5000, '\x5a')), "is text, not a GGUF file"},
        {write("damaged.gguf", std::string(5000, '\xfe')),
         "is a file of unknown type, not a GGUF file: it is damaged"},
        {write("tensors.gguf", std::string("\x02\0\0\0\0\0\0\0{}", 10)),
         "is a .safetensors file, not a GGUF file; weights in this form belong in the folder"},
        {write("truncated.pt", archive.substr(0, archive.size() / 2)), no_directory},
        {write("cut-end.pt", archive.substr(0, archive.size() - 10)), no_directory},
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
