// Models whose code would reach beyond tensors, and archives whose objects are of other types than
// their code says. All of them are refused before any of their code runs.
#include "graph/trust/model_operators.h"

#include <ATen/ops/ones.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/print_handler.h>

#include <filesystem>
#include <string>

#include "base/error.h"
#include "graph/archive/model.h"
#include "graph/models/archive.h"
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

// A module with METHODS beside a parameter, saved at PATH.
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

}  // namespace

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
        // Who trusts it has it loaded; nothing but __setstate__ runs by that.
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
    CHECK_THAT(refusal(path), Contains("calls nest deeper than 300"));
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
        CHECK(refusal(test::model_path(name)) == "accepted");
    }
}

}  // namespace dslaunch
