#include "graph/models/text_model.h"
#include "base/error.h"
#include "base/fd.h"
#include "graph/models/archive.h"
#include "graph/models/models.h"
#include "storage/files/zip_archive.h"
#include "support/catch.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <cmath>
#include <filesystem>

namespace dslaunch {

using namespace graph;
using namespace storage;
namespace {

std::map<std::string, std::string> records_of(const std::string& path) {
    caffe2::serialize::PyTorchStreamReader reader(path);
    std::map<std::string, std::string> records;
    for (const std::string& name : reader.getAllRecords()) {
        const auto [data, bytes] = reader.getRecord(name);
        records[name] = std::string(static_cast<const char*>(data.get()), bytes);
    }
    return records;
}

std::string scratch(const std::string& name) {
    return (std::filesystem::temp_directory_path() / fmt::format("dsl-{}-{}", getpid(), name))
        .string();
}

std::vector<int64_t> greedy(TextModel& model, std::vector<int64_t> prompt, int64_t tokens) {
    std::vector<int64_t> made;
    model.generate(std::move(prompt), {.tokens = tokens, .temperature = 0},
                   [&](int64_t token) { made.push_back(token); });
    return made;
}

}  // namespace

TEST_CASE("a token is the likeliest at temperature 0 and among the top k otherwise") {
    at::Generator generator = at::detail::createCPUGenerator(3);
    const at::Tensor logits = at::tensor({0.0, std::log(3.0), -9.0, 0.0 - 8.0});
    CHECK(draw_token(logits, {.temperature = 0}, generator) == 1);
    int64_t drawn[4] = {};
    constexpr int kDraws = 4000;
    for (int i = 0; i < kDraws; ++i)
        ++drawn[draw_token(logits, {.temperature = 1, .top_k = 2}, generator)];
    CHECK(drawn[2] + drawn[3] == 0);
    // P(1) = 3/4 exactly; 4000 draws have a deviation of sqrt(4000 * 3/16) = 27, five of them 137.
    CHECK(std::abs(drawn[1] - 3000) < 137);
    // The odds are squared at temperature 1/2: P(1) = 9/10, deviation 19, five of them 95.
    int64_t ones = 0;
    for (int i = 0; i < kDraws; ++i)
        ones += draw_token(logits, {.temperature = 0.5, .top_k = 2}, generator) == 1;
    CHECK(std::abs(ones - 3600) < 95);
}

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
    CHECK_THROWS_AS(greedy(model, {13}, 1), Error);
    CHECK_THROWS_AS(greedy(model, {-1}, 1), Error);
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

TEST_CASE("byte tokens print as text that cannot drive a terminal") {
    const std::pair<int64_t, std::string> table[] = {
        {'A', "A"},      {'\n', "\n"},    {'\t', "\t"},   {27, "\\x1b"},
        {0x7f, "\\x7f"}, {'\r', "\\x0d"}, {0xc3, "\xc3"}, {256, "<256>"}};
    for (const auto& [token, text] : table) CHECK(byte_token_text(token) == text);
}

TEST_CASE("LibTorch reads a packed archive, and every record but the extra files is byte-equal") {
    const std::string source = scratch("plain.pt"), packed = scratch("packed.pt");
    save_archive(make_mlp({.widths = {4, 3}}), source);
    pack_archive(source, packed, {{"ds_config.json", "{}"}, {"notes/a.txt", "one"}});
    pack_archive(packed, packed, {{"ds_config.json", "{\"steps\": 1}"}});
    CHECK(ZipArchive(packed).extra("ds_config.json") == "{\"steps\": 1}");
    CHECK(ZipArchive(packed).extra("notes/a.txt") == "one");
    auto before = records_of(source), after = records_of(packed);
    after.erase("extra/ds_config.json");
    after.erase("extra/notes/a.txt");
    for (const char* own : {".data/serialization_id"}) before.erase(own), after.erase(own);
    CHECK(before == after);
    const at::Tensor x = at::ones({1, 4});
    CHECK(torch::jit::load(packed).forward({x}).toTensor().equal(
        torch::jit::load(source).forward({x}).toTensor()));
    std::filesystem::remove(source);
    std::filesystem::remove(packed);
}

}  // namespace dslaunch
