#include "graph/models/text_model.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include "base/error.h"
#include "base/fd.h"
#include "graph/models/models.h"
#include "graph/models/save_archive.h"
#include "storage/files/zip_archive.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "unit/graph/torch_reference.h"

namespace dslaunch {

using namespace graph;
using namespace storage;
namespace {

std::vector<int64_t> greedy(TextModel& model, std::vector<int64_t> prompt, int64_t tokens) {
    std::vector<int64_t> made;
    for (int64_t i = 0; i < tokens; ++i) {
        made.push_back(model.next_logits(prompt).argmax().item<int64_t>());
        prompt.push_back(made.back());
    }
    return made;
}

}  // namespace

TEST_CASE("a language model sees only its last context tokens") {
    torch::jit::Module module =
        make_gpt({.vocab = 13, .width = 8, .heads = 2, .layers = 1, .context = 4});
    for (const auto& parameter : module.parameters()) parameter.detach().mul_(20);
    TextModel model(module, at::Device(at::kCPU), 0);
    CHECK(model.context() == 4);
    CHECK(model.vocab() == 13);
    CHECK(greedy(model, {9, 9, 9, 1, 2, 3, 4}, 6) == greedy(model, {1, 2, 3, 4}, 6));
    TextModel shorter(module, at::Device(at::kCPU), 2);
    CHECK(greedy(shorter, {1, 2, 3, 4}, 3) == greedy(shorter, {3, 4}, 3));
}

TEST_CASE("forward(tokens) serves as logits, and other forwards are refused") {
    torch::jit::Module bigram("bigram");
    bigram.register_attribute("training", c10::BoolType::get(), true);
    bigram.register_parameter("table", at::eye(5).roll({1}, {1}), false);
    bigram.define("def forward(self, tokens):\n    return torch.embedding(self.table, tokens)\n");
    TextModel model(bigram, at::Device(at::kCPU), 0);
    CHECK(model.context() == 0);
    CHECK(greedy(model, {3}, 4) == std::vector<int64_t>{4, 0, 1, 2});

    torch::jit::Module loss_only("loss_only");
    loss_only.register_attribute("training", c10::BoolType::get(), true);
    loss_only.define(
        "def forward(self, tokens, targets):\n    return (tokens - targets).float().mean()\n");
    try {
        TextModel refused(loss_only, at::Device(at::kCPU), 0);
        FAIL("accepted a forward that wants targets");
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kInput);
        CHECK(std::string(error.what()).find("logits(tokens)") != std::string::npos);
    }
    CHECK_THROWS_AS(TextModel(make_mlp({.widths = {4, 3}}), at::Device(at::kCPU), 0), Error);
}

TEST_CASE("LibTorch reads a packed archive, and every record but the extra files is byte-equal") {
    const test::TemporaryFolder folder;
    const std::string source = folder.path() + "/plain.pt", packed = folder.path() + "/packed.pt";
    save_archive(make_mlp({.widths = {4, 3}}), source);
    pack_archive(source, packed, {{"ds_config.json", "{}"}, {"notes/a.txt", "one"}});
    pack_archive(packed, packed, {{"ds_config.json", "{\"steps\": 1}"}});
    CHECK(ZipArchive(packed).extra("ds_config.json") == "{\"steps\": 1}");
    CHECK(ZipArchive(packed).extra("notes/a.txt") == "one");
    auto before = test::records_of(source), after = test::records_of(packed);
    after.erase("extra/ds_config.json");
    after.erase("extra/notes/a.txt");
    for (const char* own : {".data/serialization_id"}) before.erase(own), after.erase(own);
    CHECK(before == after);
    const at::Tensor x = at::ones({1, 4});
    CHECK(torch::jit::load(packed).forward({x}).toTensor().equal(
        torch::jit::load(source).forward({x}).toTensor()));
}

}  // namespace dslaunch
