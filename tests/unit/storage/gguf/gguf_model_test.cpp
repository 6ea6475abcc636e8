#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "storage/files/safetensors.h"
#include "storage/gguf/gguf_file.h"
#include "storage/gguf_model/gguf_file_types.h"
#include "storage/gguf_model/gguf_model_reader.h"
#include "storage/gguf_model/gguf_model_writer.h"
#include "storage/huggingface/gguf_names.h"
#include "storage/huggingface/model_folder.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "text/tokenizer/tokenizer.h"
#include "unit/storage/gguf/gguf_folders.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

std::map<std::string, std::vector<std::byte>> weights_in(const std::string& folder) {
    const SafetensorsFile file(folder + "/model.safetensors");
    std::map<std::string, std::vector<std::byte>> all;
    for (const SafetensorsEntry& entry : file.entries())
        all[entry.name].assign(entry.bytes.begin(), entry.bytes.end());
    return all;
}

}  // namespace

TEST_CASE("a folder of each family is the same after it was a GGUF file") {
    for (const auto& [architecture, fields] : family_rows()) {
        INFO(architecture);
        const TemporaryFolder place;
        const std::string from = place.path() + "/from", to = place.path() + "/to";
        const std::string file = place.path() + "/model.gguf";
        write_folder(from, config_of(architecture, fields));
        const GgufWritten written =
            write_gguf(open_model_folder(from), file, plainly(GgufFileType::kF32));
        CHECK(written.losses.empty());
        CHECK(written.bytes_after == static_cast<int64_t>(std::filesystem::file_size(file)));
        static_cast<void>(import_gguf(file, to, {}));
        CHECK(weights_in(to) == weights_in(from));
        // The texts say the same: the file that the second folder gives is equal but for its name.
        const std::string again = place.path() + "/again.gguf";
        static_cast<void>(write_gguf(open_model_folder(to), again, plainly(GgufFileType::kF32)));
        const GgufFile first(file), second(again);
        for (const auto& [key, value] : first.metadata().values()) {
            if (key == "general.name") continue;
            INFO(key);
            REQUIRE(second.metadata().has(key));
            CHECK(std::ranges::equal(second.metadata().values().find(key)->second.bytes,
                                     value.bytes));
        }
        // A folder that stands for the file has the same weights.
        const GgufFolder standing(file);
        const ModelFolder opened = open_model_folder(standing.path());
        CHECK(opened.weights.size() == 1);
        CHECK(opened.config.is_tied == open_model_folder(from).config.is_tied);
    }
}

TEST_CASE("neighbours rotate together in the families in which llama.cpp rotates them") {
    // The names of llama.cpp's table of rope types, with LLAMA_ROPE_TYPE_NORM.
    const std::set<std::string> neighbours{"llama",   "olmo", "command-r", "cohere2", "smollm3",
                                           "granite", "glm4", "ernie4_5",  "arcee"};
    for (const GgufFamily& family : gguf_families()) {
        INFO(family.name);
        CHECK(family.turns_neighbours == neighbours.contains(family.name));
    }
}

TEST_CASE("rows of queries and keys are turned, and fused rows gathered, as llama.cpp has them") {
    // Two heads of width 4: pairs (0, 2) and (1, 3) become neighbours.
    GgufWeight turned{"t", {"a"}, {8, 1}, GgufChange::kTurn, 2, 0};
    std::vector<float> numbers{0, 1, 2, 3, 4, 5, 6, 7};
    change_for_gguf(turned, numbers);
    CHECK(numbers == std::vector<float>{0, 2, 1, 3, 4, 6, 5, 7});
    change_from_gguf(turned, numbers);
    CHECK(numbers == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7});
    // Two key heads, each with two queries (width 1): q q k v, q q k v.
    GgufWeight fused{"t", {"a"}, {8, 1}, GgufChange::kByKey, 4, 2};
    change_for_gguf(fused, numbers);
    CHECK(numbers == std::vector<float>{0, 1, 4, 5, 2, 6, 3, 7});
    change_from_gguf(fused, numbers);
    CHECK(numbers == std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7});
    GgufWeight transposed{"t", {"a"}, {2, 3}, GgufChange::kTranspose, 0, 0};
    numbers = {0, 1, 2, 3, 4, 5};
    change_for_gguf(transposed, numbers);
    CHECK(numbers == std::vector<float>{0, 3, 1, 4, 2, 5});
    CHECK(transposed.file_sizes() == std::vector<int64_t>{3, 2});
}

TEST_CASE("each kind of file gives tensors the forms that llama.cpp's quantizer gives them") {
    TransformerConfig config;
    config.architecture = "LlamaForCausalLM";
    config.width = 4096;
    config.heads = 32;
    config.key_heads = 8;
    config.head_width = 128;
    config.layers.resize(32);
    const GgufFamily& family = gguf_family_of(config, "here");
    const auto form = [&](GgufFileType type, const char* tensor, int64_t in, bool tied = false) {
        config.is_tied = tied;
        const std::vector<GgufWeight> one{{tensor, {"a"}, {64, in}, GgufChange::kNone, 0, 0}};
        return gguf_forms(type, config, family, one, false).front();
    };
    using enum GgufForm;
    const GgufFileType four = GgufFileType::kQ4KM, two = GgufFileType::kQ2K;
    // Layers 0 to 3, 28 to 31, and from layer 4 on each third have more bits.
    for (const int layer : {0, 3, 6, 9, 27, 28, 31})
        CHECK(form(four, fmt::format("blk.{}.ffn_down.weight", layer).c_str(), 256) == kQ6K);
    for (const int layer : {4, 5, 7, 8, 26})
        CHECK(form(four, fmt::format("blk.{}.attn_v.weight", layer).c_str(), 256) == kQ4K);
    CHECK(form(four, "blk.6.attn_v.weight", 256) == kQ6K);
    CHECK(form(four, "blk.0.attn_q.weight", 256) == kQ4K);
    CHECK(form(four, "blk.0.attn_q.weight", 288) == kQ5_0);
    CHECK(form(four, "blk.0.attn_v.weight", 288) == kQ8_0);
    CHECK(form(four, "blk.0.attn_q.weight", 40) == kF16);
    CHECK(form(four, "output.weight", 256) == kQ6K);
    CHECK(form(four, "output.weight", 288) == kQ8_0);
    CHECK(form(four, "token_embd.weight", 256) == kQ4K);
    CHECK(form(four, "token_embd.weight", 256, true) == kQ6K);
    CHECK(form(four, "blk.0.attn_norm.weight", 256) == kF32);
    CHECK(form(two, "blk.0.attn_v.weight", 256) == kQ4K);
    CHECK(form(two, "blk.0.attn_output.weight", 256) == kQ3K);
    CHECK(form(two, "blk.0.ffn_down.weight", 256) == kQ3K);
    CHECK(form(two, "blk.0.ffn_up.weight", 256) == kQ2K);
    CHECK(form(two, "blk.0.ffn_up.weight", 288) == kQ4_0);
    CHECK(form(GgufFileType::kQ3KS, "blk.0.ffn_down.weight", 256) == kQ3K);
    CHECK(form(GgufFileType::kQ8_0, "output.weight", 256) == kQ8_0);
    CHECK(form(GgufFileType::kBf16, "blk.0.ffn_gate_inp.weight", 256) == kF32);
    CHECK(form(GgufFileType::kBf16, "blk.0.ffn_up.weight", 7) == kBf16);
    // A Llama of 80 layers counts as Llama 70B if its heads share keys and values.
    config.layers.resize(80);
    CHECK(form(four, "blk.11.attn_v.weight", 256) == kQ5K);
    config.key_heads = config.heads;
    CHECK(form(four, "blk.11.attn_v.weight", 256) == kQ4K);
    CHECK(gguf_file_type("q4_k_m") == four);
    CHECK_FALSE(gguf_file_type("q4").has_value());
}

TEST_CASE("models that llama.cpp would compute otherwise are refused before a file is written") {
    const Json dynamic = {{"rope_type", "dynamic"}, {"factor", 2.0}};
    struct Row {
        const char* architecture;
        Json fields;
        const char* why;
    };
    const Row rows[] = {
        {"LlamaForCausalLM", {{"rope_scaling", dynamic}}, "no `dynamic`"},
        {"LlamaForCausalLM", {{"hidden_act", "relu"}}, "another activation"},
        {"Gemma2ForCausalLM",
         {{"head_dim", 8}, {"query_pre_attn_scalar", 99}, {"sliding_window", 16}},
         "scales attention by the width of a head only"},
        {"OlmoeForCausalLM",
         {{"num_experts", 3},
          {"num_experts_per_tok", 2},
          {"num_key_value_heads", 4},
          {"norm_topk_prob", true}},
         "norm_topk_prob"},
    };
    for (const Row& row : rows) {
        INFO(row.why);
        const TemporaryFolder place;
        write_folder(place.path(), config_of(row.architecture, row.fields));
        const std::string out = place.path() + "/x.gguf";
        CHECK(mentions(refusal_of(place.path(), out), row.why));
        CHECK_FALSE(std::filesystem::exists(out));
    }
    const TemporaryFolder place;
    write_folder(place.path(), config_of("LlamaForCausalLM", Json::object()));
    Json odd = kByteTokenizer;
    odd["pre_tokenizer"]["pretokenizers"][0] = {{"type", "Punctuation"}, {"behavior", "Isolated"}};
    write_file(place.path() + "/tokenizer.json", odd.dump());
    CHECK(mentions(refusal_of(place.path(), place.path() + "/x.gguf"),
                   "pre-tokenizer `Punctuation`"));
    write_file(place.path() + "/config.json",
               config_of("HeliumForCausalLM", {{"head_dim", 8}}).dump());
    CHECK(mentions(refusal_of(place.path(), place.path() + "/x.gguf"),
                   "llama.cpp has no HeliumForCausalLM"));
}

TEST_CASE("a GGUF model with a tensor too few, too many or of another shape is refused by name") {
    const TemporaryFolder place;
    GgufValues values;
    values.add("general.architecture", "llama");
    for (const auto& [key, number] : std::map<std::string, int64_t>{{"context_length", 8},
                                                                    {"embedding_length", 4},
                                                                    {"block_count", 1},
                                                                    {"feed_forward_length", 4},
                                                                    {"attention.head_count", 1}})
        values.add("llama." + key, number);
    values.add("llama.attention.layer_norm_rms_epsilon", 1e-5F);
    std::vector<GgufTensor> tensors{{"token_embd.weight", GgufForm::kF32, {3, 4}, {}},
                                    {"output_norm.weight", GgufForm::kF32, {4}, {}}};
    for (const char* matrix :
         {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"})
        tensors.push_back({fmt::format("blk.0.{}.weight", matrix), GgufForm::kF32, {4, 4}, {}});
    for (const char* norm : {"attn_norm", "ffn_norm"})
        tensors.push_back({fmt::format("blk.0.{}.weight", norm), GgufForm::kF32, {4}, {}});
    const auto fault = [&](const std::vector<GgufTensor>& all) {
        const std::string path = place.path() + "/x.gguf";
        GgufWriter writer(path, values, all);
        for (const GgufTensor& tensor : all) {
            int64_t numel = 1;
            for (const int64_t size : tensor.shape) numel *= size;
            writer.append(std::vector<std::byte>(static_cast<size_t>(numel) * 4));
        }
        writer.commit();
        return error_of(ExitCode::kInput, [&] { const GgufFolder folder(path); });
    };
    CHECK(fault(tensors) == "accepted");
    std::vector<GgufTensor> fewer = tensors;
    fewer.pop_back();
    CHECK(mentions(fault(fewer), "has no tensor `blk.0.ffn_norm.weight`"));
    std::vector<GgufTensor> more = tensors;
    more.push_back({"blk.0.attn_sinks.weight", GgufForm::kF32, {4}, {}});
    CHECK(mentions(fault(more), "`blk.0.attn_sinks.weight` belongs to no part"));
    std::vector<GgufTensor> other = tensors;
    other[2].shape = {4, 5};
    CHECK(mentions(fault(other), "`blk.0.attn_q.weight` has shape [4, 5]"));
    values.add("split.count", int64_t{2});
    CHECK(mentions(fault(tensors), "split over several files"));
}
