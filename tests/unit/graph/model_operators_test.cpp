// Models whose code would reach beyond tensors, and archives whose objects have other types than
// their code says. All of them must be refused before any of their code runs.
#include "graph/trust/model_operators.h"

#include <ATen/ops/ones.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/csrc/jit/runtime/print_handler.h>
#include <torch/library.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "base/error.h"
#include "graph/archive/mapped_archive.h"
#include "graph/archive/model.h"
#include "graph/models/save_archive.h"
#include "graph/trust/operator_policy.h"
#include "support/catch.h"
#include "support/fixtures.h"
#include "support/script_module.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace graph;
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

// Saves a module with METHODS and one parameter at PATH.
void save_script(const std::string& path, const std::string& methods) {
    torch::jit::Module module("Scripted");
    module.register_attribute("training", c10::BoolType::get(), true);
    module.register_parameter("w", at::ones({4}), false);
    module.define(methods);
    save_archive(module, path);
}

std::string refusal(const std::string& path) {
    return test::error_of(ExitCode::kInput, [&] { static_cast<void>(Model::load(path)); });
}

std::string with_victim(std::string code, const std::string& victim) {
    const std::string mark = "VICTIM";
    for (size_t at = 0; (at = code.find(mark, at)) != std::string::npos; at += victim.size())
        code.replace(at, mark.size(), victim);
    return code;
}

using Edit = std::function<void(caffe2::serialize::PyTorchStreamWriter& writer,
                                const std::string& record, std::string content)>;

// Writes the records of the archive at PATH to TO, each changed by EDIT.
void edit_archive(const std::string& path, const std::string& to, const Edit& edit) {
    caffe2::serialize::PyTorchStreamReader reader(path);
    caffe2::serialize::PyTorchStreamWriter writer(to);
    for (const std::string& name : reader.getAllRecords()) {
        if (name == "version" || name == "byteorder" || name.starts_with(".data")) continue;
        const auto [data, bytes] = reader.getRecord(name);
        edit(writer, name, std::string(static_cast<const char*>(data.get()), bytes));
    }
    writer.writeEndOfFile();
}

// An operator on texts and numbers only, which LibTorch calls while it compiles code.
int64_t write_file(c10::string_view path) {
    test::write_file(std::string(path), "written");
    return 1;
}

bool folds(const c10::Type& type) {
    switch (type.kind()) {
        case c10::TypeKind::TensorType:
        case c10::TypeKind::ListType:
        case c10::TypeKind::DictType:
        case c10::TypeKind::ClassType:
        case c10::TypeKind::FutureType:
        case c10::TypeKind::RRefType:
        case c10::TypeKind::StreamObjType:
        case c10::TypeKind::GeneratorType:
        case c10::TypeKind::StorageType:
            return false;
        default:
            return std::ranges::all_of(type.containedTypes(),
                                       [](const c10::TypePtr& inner) { return folds(*inner); });
    }
}

bool all_fold(const std::vector<c10::Argument>& arguments) {
    return std::ranges::all_of(
        arguments, [](const c10::Argument& argument) { return folds(*argument.type()); });
}

}  // namespace

TEST_CASE("LibTorch folds no operator that a model may not use as it compiles the model's code") {
    torch::Library library(torch::Library::DEF, "dsl_fold", std::nullopt, __FILE__, __LINE__);
    library.def("write(str path) -> int", write_file);
    library.def("twice(int a) -> int", [](int64_t a) { return 2 * a; });
    const test::TemporaryFolder folder;
    const std::string plain = folder.path() + "/plain.pt", path = folder.path() + "/model.pt",
                      victim = folder.path() + "/victim";
    save_script(plain, "def forward(self, x: Tensor) -> Tensor:\n    return x + 4242\n");
    const auto with = [&](const std::string& call) {
        edit_archive(plain, path, [&](auto& writer, const std::string& name, std::string content) {
            const size_t at = content.find("4242");
            if (name.ends_with(".py") && at != std::string::npos) content.replace(at, 4, call);
            writer.writeRecord(name, content.data(), content.size());
        });
    };
    const std::string write = "ops.dsl_fold.write(\"" + victim + "\")";
    const std::string calls[] = {write, "getattr(ops.dsl_fold, \"write\")(\"" + victim + "\")",
                                 "torch.mul(2, " + write + ")",
                                 "ops.dsl_fold.twice(" + write + ")"};
    for (const std::string& call : calls) {
        with(call);
        const std::string said = refusal(path);
        INFO(call << said);
        CHECK(test::mentions(said, "the model uses dsl_fold::write"));
        CHECK(test::mentions(said, "it takes a string argument `path`"));
        CHECK_FALSE(fs::exists(victim));
    }
    // With full trust, LibTorch loads the archive as usual.
    static_cast<void>(Model::load(path, Weights::kRequired, Trust::kFull));
    CHECK(fs::exists(victim));
    with("ops.dsl_fold.twice(4)");
    CHECK(refusal(path) == "accepted");
}

// Operators of the dispatcher are guarded. LibTorch folds no operator of aten, and none with
// declared effects (prim::AddStatValue, BailoutTemplate, IgnoredPythonOp, TimePoint). The others
// need a graph or types in their node, which code cannot give it. A new LibTorch may have others.
TEST_CASE("TorchScript's own operators that are refused and take constants are these") {
    std::set<std::string> folded;
    for (const auto& operation : torch::jit::getAllOperators()) {
        const c10::FunctionSchema& schema = operation->schema();
        if (!operation->isC10Op() && !why_refused(schema).empty() && all_fold(schema.arguments()) &&
            all_fold(schema.returns()) &&
            operation->aliasAnalysisKind() != c10::AliasAnalysisKind::CONSERVATIVE)
            folded.insert(schema.name());
    }
    std::string names;
    for (const std::string& name : folded) names += name + " ";
    INFO(names);
    CHECK(folded == std::set<std::string>{"aten::manual_seed",
                                          "aten::save",
                                          "prim::AddStatValue",
                                          "prim::BailoutTemplate",
                                          "prim::BroadcastMKLDNNTensors",
                                          "prim::ConstantMKLDNNTensor",
                                          "prim::DifferentiableGraph",
                                          "prim::FallbackGraph",
                                          "prim::FusedConcat",
                                          "prim::FusionGroup",
                                          "prim::IgnoredPythonOp",
                                          "prim::MMBatchSide",
                                          "prim::RequiresGradCheck",
                                          "prim::StaticSubgraph",
                                          "prim::TensorExprDynamicGroup",
                                          "prim::TensorExprDynamicGuard",
                                          "prim::TensorExprGroup",
                                          "prim::TimePoint",
                                          "prim::TypeCheck",
                                          "prim::id",
                                          "prim::oneDNNFusionGroup",
                                          "prim::oneDNNFusionGuard",
                                          "prim::profile",
                                          "prim::profile_ivalue"});
}

TEST_CASE("an archive whose records differ in case alone is not given to LibTorch's loader") {
    const test::TemporaryFolder folder;
    const std::string plain = folder.path() + "/plain.pt", path = folder.path() + "/model.pt";
    save_script(plain, "def forward(self, x: Tensor) -> Tensor:\n    return x * 2\n");
    edit_archive(plain, path, [](auto& writer, std::string name, const std::string& content) {
        writer.writeRecord(name, content.data(), content.size());
        if (!name.ends_with(".py")) return;
        std::ranges::replace(name, 't', 'T');
        writer.writeRecord(name, content.data(), content.size());
    });
    CHECK(refusal(path) == "accepted");
    CHECK_THAT(test::error_of(ExitCode::kInput, [&] { static_cast<void>(load_by_libtorch(path)); }),
               Catch::Contains("two of its records have the name code/__torch__"));
    CHECK(load_by_libtorch(plain).find_method("forward"));
}

TEST_CASE("a model that writes files is refused wherever it does so, and the file stays") {
    const test::TemporaryFolder folder;
    const std::string path = folder.path() + "/model.pt", victim = folder.path() + "/victim";
    const std::string content(256, 'v');
    const char* models[] = {
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    return x + torch.from_file(\"VICTIM\", True, 64).fill_(1.0).sum()\n",
        "def other(self, x: Tensor) -> Tensor:\n"
        "    if bool(x.sum() > 0):\n"
        "        for i in range(3):\n"
        "            x = x + torch.from_file(\"VICTIM\", True, 64).fill_(1.0).sum()\n"
        "    return x\n"
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    return self.other(x)\n",
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    torch.save(x, \"VICTIM\")\n"
        "    return x\n",
        "def logits(self, x: Tensor) -> Tensor:\n"
        "    torch.save(x, \"VICTIM\")\n"
        "    return x\n"
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    return x\n",
        // Runs while the archive is loaded.
        "def __getstate__(self) -> Tuple[Tensor, bool]:\n"
        "    return (self.w, self.training)\n"
        "def __setstate__(self, state: Tuple[Tensor, bool]) -> None:\n"
        "    self.w = state[0] + torch.from_file(\"VICTIM\", True, 64).fill_(1.0).sum()\n"
        "    self.training = state[1]\n"
        "def forward(self, x: Tensor) -> Tensor:\n"
        "    return x * self.w\n",
    };
    for (const char* model : models) {
        test::write_file(victim, content);
        save_script(path, with_victim(model, victim));
        const std::string said = refusal(path);
        INFO(model << said);
        CHECK(test::mentions(said, "the model uses aten::"));
        CHECK(test::mentions(said, "--trust-model"));
        CHECK(said.starts_with(path));
        CHECK(test::content_of(victim) == content);
        // With full trust it is loaded; this runs only __setstate__.
        Model trusted = Model::load(path, Weights::kRequired, Trust::kFull);
        CHECK(trusted.module().find_method("forward"));
        CHECK((test::content_of(victim) == content) != test::mentions(model, "__setstate__"));
    }
}

TEST_CASE("code that takes no memory to write down takes none to load") {
    const test::TemporaryFolder folder;
    const std::string path = folder.path() + "/model.pt";
    std::string doubled, nested;
    for (int i = 0; i < 40; ++i)
        doubled = "def m" + std::to_string(i) + "(self, x: Tensor) -> Tensor:\n    return self.m" +
                  std::to_string(i + 1) + "(self.m" + std::to_string(i + 1) + "(x))\n" + doubled;
    save_script(path, "def m40(self, x: Tensor) -> Tensor:\n    return x + 1\n" + doubled +
                          "def forward(self, x: Tensor) -> Tensor:\n    return self.m0(x)\n");
    CHECK_THAT(refusal(path), Contains("more than 2000000 operators"));
    for (int i = 0; i < 400; ++i)
        nested = "def m" + std::to_string(i) + "(self, x: Tensor) -> Tensor:\n    return self.m" +
                 std::to_string(i + 1) + "(x)\n" + nested;
    save_script(path, "def m400(self, x: Tensor) -> Tensor:\n    return x + 1\n" + nested +
                          "def forward(self, x: Tensor) -> Tensor:\n    return self.m0(x)\n");
    CHECK_THAT(refusal(path), Contains("calls are nested more than 300 deep"));
}

TEST_CASE("what a model prints does not go to stdout") {
    const test::TemporaryFolder folder;
    const std::string path = folder.path() + "/model.pt";
    save_script(path,
                "def forward(self, x: Tensor) -> Tensor:\n    print(\"odd\")\n    return x\n");
    CHECK(refusal(path) == "accepted");
    CHECK(torch::jit::getPrintHandler() != torch::jit::getDefaultPrintHandler());
}

TEST_CASE("every fixture is let in, whatever made it") {
    for (const std::string& name : test::fixture_names()) {
        INFO(name);
        CHECK(refusal(test::fixture_archive(name)) == "accepted");
    }
}

}  // namespace dslaunch
