#include "graph/models/text_model.h"
#include "base/error.h"
#include "base/fd.h"
#include "graph/models/archive.h"
#include "graph/models/models.h"
#include "graph/models/packed_config.h"
#include "support/catch.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/script.h>

#include <cmath>
#include <filesystem>

namespace dslaunch {
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
    // At temperature 1/2 the odds are squared: P(1) = 9/10, deviation 19, five of them 95.
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

TEST_CASE("extra files are added and replaced while every other record stays byte-equal") {
    const std::string source = scratch("plain.pt"), packed = scratch("packed.pt");
    save_archive(make_mlp({.widths = {4, 3}}), source);
    CHECK_FALSE(read_extra_file(source, "ds_config.json"));
    write_with_extra_files(source, packed, {{"ds_config.json", "{}"}, {"notes/a.txt", "one"}});
    write_with_extra_files(packed, packed, {{"ds_config.json", "{\"steps\": 1}"}});
    CHECK(read_extra_file(packed, "ds_config.json") == "{\"steps\": 1}");
    CHECK(read_extra_file(packed, "notes/a.txt") == "one");
    auto before = records_of(source), after = records_of(packed);
    after.erase("extra/ds_config.json");
    after.erase("extra/notes/a.txt");
    for (const char* own : {".data/serialization_id"}) before.erase(own), after.erase(own);
    CHECK(before == after);
    const at::Tensor x = at::ones({1, 4});
    CHECK(torch::jit::load(packed).forward({x}).toTensor().equal(
        torch::jit::load(source).forward({x}).toTensor()));

    CHECK_THROWS_AS(write_with_extra_files(source, "/no/such/folder/x.pt", {{"a", "b"}}), Error);
    CHECK_THROWS_AS(read_extra_file("/no/such/file.pt", "a"), Error);
    write_file_atomically(packed, "no archive at all");
    CHECK_THROWS_AS(read_extra_file(packed, "a"), Error);
    std::filesystem::remove(source);
    std::filesystem::remove(packed);
}

TEST_CASE("a data reference goes into the config and everything else keeps its order") {
    CHECK(
        with_data(
            R"({"z": 1, "dslaunch": {"steps": 2, "data": {"train": "old", "context": 8}}, "a": 2})",
            "c", {.train = "new", .eval = "held"}) ==
        "{\n  \"z\": 1,\n  \"dslaunch\": {\n    \"steps\": 2,\n    \"data\": {\n      \"train\": "
        "\"new\",\n"
        "      \"context\": 8,\n      \"eval\": \"held\"\n    }\n  },\n  \"a\": 2\n}\n");
    CHECK(with_data("{}", "c", {}) == "{}\n");
    for (const char* bad :
         {"", "[1]", "{\"a\": 1, \"a\": 2}", "{\"dslaunch\": 3}", "{\"dslaunch\": {\"data\": []}}",
          "{\"x\": {\"a\": 1, \"a\": 2}}", "train: 1"}) {
        INFO(bad);
        try {
            (void)with_data(bad, "conf.json", {.train = "t"});
            FAIL("accepted");
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kConfig);
            CHECK(std::string(error.what()).starts_with("conf.json"));
        }
    }
}

TEST_CASE("a packed data path is relative to the archive's folder") {
    CHECK(relative_to_archive("data/kjv.tokens", "train.pt") == "data/kjv.tokens");
    CHECK(relative_to_archive("data/kjv.tokens", "data/train.pt") == "kjv.tokens");
    CHECK(relative_to_archive("kjv.tokens", "out/train.pt") == "../kjv.tokens");
    CHECK(relative_to_archive("/data/kjv.tokens", "out/train.pt") == "/data/kjv.tokens");
}

}  // namespace dslaunch
