// The tensors of an adapter's file and its config: complete adapters, and adapters that are refused
// by name.
#include "storage/adapter/adapter_changes.h"

#include <filesystem>

#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace storage;

namespace {

struct Given {
    std::string name;
    std::vector<int64_t> shape;
    DType dtype = DType::kF32;
};

// Writes an adapter of TENSORS of zeros, and a config with FIELDS.
void write_adapter(const std::string& folder, const std::vector<Given>& tensors,
                   const std::string& fields) {
    std::vector<SafetensorsEntry> entries;
    for (const Given& tensor : tensors)
        entries.push_back({tensor.name, tensor.dtype, tensor.shape, {}});
    SafetensorsWriter writer(folder + "/adapter_model.safetensors", entries);
    for (size_t i = 0; i < tensors.size(); ++i) {
        int64_t bytes = dtype_bytes(tensors[i].dtype);
        for (const int64_t size : tensors[i].shape) bytes *= size;
        writer.write(i, std::vector<std::byte>(static_cast<size_t>(bytes)));
    }
    writer.commit();
    test::write_file(folder + "/adapter_config.json",
                     R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8)" + fields + "}");
}

// Returns a small decoder with experts and tied tables.
TransformerConfig model() {
    TransformerConfig config;
    config.names = {{"decoder", "model"},   {"embed", "embed_tokens"},
                    {"head", "lm_head"},    {"norm", "norm"},
                    {"layers", "layers"},   {"mlp", "block_sparse_moe"},
                    {"experts", "experts"}, {"gate", "w1"},
                    {"up", "w3"},           {"down", "w2"},
                    {"router", "gate"}};
    config.vocabulary = 10;
    config.width = 8;
    config.experts = 2;
    config.expert_width = 6;
    config.layers.resize(1);
    config.layers[0].has_experts = true;
    config.is_tied = true;
    return config;
}

std::string verdict(const std::vector<Given>& tensors, const std::string& fields) {
    const test::TemporaryFolder folder;
    write_adapter(folder.path(), tensors, fields);
    const TransformerConfig config = model();
    return test::error_of(ExitCode::kInput, [&] { AdapterChanges(folder.path(), &config); });
}

const Given kA{"base_model.model.model.layers.0.q.lora_A.weight", {4, 8}};
const Given kB{"base_model.model.model.layers.0.q.lora_B.weight", {16, 4}};
const Given kTable{"base_model.model.model.embed_tokens.weight", {10, 8}};

}  // namespace

TEST_CASE("an adapter of another base than the model is noticed, by weights or by name") {
    namespace fs = std::filesystem;
    const test::TemporaryFolder folder;
    // Writes MODEL's tensors `a` and `b`, of which the last byte is LAST, into one file or two.
    const auto put = [&](const std::string& name, std::byte last, bool in_two = false) {
        const std::string path = folder.path() + "/" + name;
        fs::create_directories(path);
        test::write_file(path + "/config.json", "{}");
        const SafetensorsEntry a{"a", DType::kF32, {30'000}, {}}, b{"b", DType::kF32, {3}, {}};
        std::vector<std::byte> of_a(120'000), of_b(12);
        of_a.back() = last;
        const auto write = [&](const std::string& file,
                               const std::vector<SafetensorsEntry>& entries) {
            SafetensorsWriter writer(path + "/" + file, entries);
            for (size_t i = 0; i < entries.size(); ++i)
                writer.write(i, entries[i].name == "a" ? of_a : of_b);
            writer.commit();
        };
        if (!in_two) {
            write("model.safetensors", {a, b});
            return path;
        }
        write("model-00001-of-00002.safetensors", {a});
        write("model-00002-of-00002.safetensors", {b});
        test::write_file(path + "/model.safetensors.index.json",
                         R"({"weight_map": {"a": "model-00001-of-00002.safetensors",
                                            "b": "model-00002-of-00002.safetensors"}})");
        return path;
    };
    const std::byte w{1}, v{2};
    const std::string base = put("base", w), copy = put("renamed", w);
    const std::string shards = put("shards", w, true), other_shards = put("other-shards", v, true);
    const std::string other = put("other", v);
    const std::string cached = put("models--org--Name/snapshots/0a1b", v);
    const auto told = [&](const std::string& named, const std::string& model) {
        write_adapter(folder.path(), {kA, kB},
                      R"(, "base_model_name_or_path": ")" + named + R"(")");
        return other_base_text(folder.path(), model);
    };
    CHECK(told(base, base).empty());
    CHECK(told(base, copy).empty());
    CHECK(told(base, shards).empty());
    CHECK_THAT(told(base, other), Catch::Contains("other has different weights"));
    CHECK_THAT(told(base, other_shards), Catch::Contains("other-shards has different weights"));
    fs::remove(other_shards + "/model-00002-of-00002.safetensors");
    CHECK(told(base, other_shards).empty());  // its reader says what is missing
    CHECK(told("org/renamed", copy).empty());
    CHECK(told("org/name", cached).empty());
    CHECK(told("", other).empty());
    CHECK_THAT(told("org/name", other), Catch::Contains("trained with org/name, but "));
    CHECK_THAT(told("org/name", other), Catch::Contains("other has a different name"));
}

TEST_CASE("an adapter is whole with both halves of each layer, of the rank in its config") {
    CHECK(verdict({kA, kB}, "") == "accepted");
    CHECK(verdict({kB, kA, {"base_model.model.model.norm.weight", {8}, DType::kBF16}},
                  R"(, "modules_to_save": ["norm"])") == "accepted");
    struct Case {
        std::vector<Given> tensors;
        std::string says;
        std::string fields = "";
    };
    const std::string q = "base_model.model.model.layers.0.q.";
    const std::vector<Case> cases = {
        {{kA}, "`base_model.model.model.layers.0.q.lora_A.weight` has no matching lora_B"},
        {{kB}, "`base_model.model.model.layers.0.q.lora_B.weight` has no matching lora_A"},
        {{kA, {"base_model.model.model.layers.0.k.lora_B.weight", {16, 4}}}, "half of the adapter"},
        {{{q + "lora_A.weight", {2, 8}}, {q + "lora_B.weight", {16, 2}}},
         "has rank 2 and the matching lora_B has rank 2, but adapter_config.json says 4"},
        {{kA, kB}, "adapter_config.json says 6", R"(, "rank_pattern": {"layers.0.q": 6})"},
        {{kA, {q + "lora_B.weight", {16, 8}}}, "the matching lora_B has rank 8"},
        {{{q + "lora_A.weight", {4}}, kB}, "has 1 dimension, expected 2"},
        {{{q + "lora_A.weight", {4, 0}}, kB}, "was saved while its values were on other ranks"},
        {{{q + "lora_A.weight", {4, 8}, DType::kI32}, kB}, "has type"},
        {{kA, kB, {q + "lora_diag", {4}}}, "does not belong to a supported kind of LoRA"},
        {{kA, kB, {q + "lora_A.default.weight", {4, 8}}}, "appears twice"},
        {{kA, kB},
         "lacks a module that modules_to_save in adapter_config.json names (`norm`)",
         R"(, "modules_to_save": ["norm"])"},
        {{kA, kB, kTable},
         "lacks a module that modules_to_save in adapter_config.json names (`lm_head`)",
         R"(, "modules_to_save": ["embed_tokens", "lm_head"])"},
        {{kA, kB}, "leaves out (target_modules", R"(, "target_modules": ["v"])"},
        {{kA, kB},
         "leaves out (target_modules",
         R"(, "target_modules": "all-linear", "exclude_modules": ["q"])"},
        {{kA, kB, {q + "lora_magnitude_vector", {16}}}, "belongs to DoRA, but use_dora"},
        {{kA, kB}, "needs a lora_magnitude_vector of 16 elements", R"(, "use_dora": true)"},
        {{{q + "lora_magnitude_vector", {3}}},
         "belongs to a layer without lora_A and lora_B",
         R"(, "use_dora": true)"},
        {{kA, kB, {"base_model.model.model.layers.0.k.lora_B.bias", {16}}},
         "belongs to a layer without lora_A and lora_B"},
        {{{"base_model.model.lm_head.lora_A.weight", {4, 8}},
          {"base_model.model.lm_head.lora_B.weight", {10, 4}}},
         "so init_lora_weights changed both",
         R"(, "init_lora_weights": "pissa")"},
        {{{q + "lora_embedding_A", {4, 10}}, kB}, "appears twice"},
        {{{"base_model.model.model.layers.0.mlp.experts.lora_A.weight", {8, 8}},
          {"base_model.model.model.layers.0.mlp.experts.lora_B.weight", {10, 8}}},
         "a layer of 2 experts needs [2 * r, 8] and 12 rows, or [2 * r, 6] and 8 rows"},
        {{{"base_model.model.model.embed_tokens.lora_A.weight", {4, 8}},
          {"base_model.model.model.embed_tokens.lora_B.weight", {10, 4}}},
         "is an adapter of a linear layer, but has the name of the token embedding"},
    };
    for (const Case& one : cases) {
        const std::string said = verdict(one.tensors, one.fields);
        INFO(said);
        CHECK_THAT(said,
                   Catch::Contains("adapter_model.safetensors: ") && Catch::Contains(one.says));
    }
}

TEST_CASE("modules to save that the model does not have are passed over, as PEFT does") {
    CHECK(verdict({kA, kB}, R"(, "modules_to_save": ["embed_in", "score"])") == "accepted");
    CHECK_THAT(verdict({kA, kB}, R"(, "modules_to_save": ["embed_in", "model.norm"])"),
               Catch::Contains("(`model.norm`)"));
}

TEST_CASE("what an adapter has for the part that sees images is passed over") {
    const std::vector<Given> tensors = {
        kA,
        kB,
        {"base_model.model.model.vision_tower.layers.0.q.lora_A.weight", {4, 8}},
        {"base_model.model.visual.blocks.0.q.lora_B.weight", {16, 4}},
        {"base_model.model.multi_modal_projector.linear.weight", {8, 8}}};
    const test::TemporaryFolder folder;
    write_adapter(folder.path(), tensors, R"(, "modules_to_save": ["multi_modal_projector"])");
    TransformerConfig config = model();
    config.outer = "LlavaForConditionalGeneration";
    CHECK(AdapterChanges(folder.path(), &config).all().size() == 1);
    config.outer.clear();
    CHECK_THAT(test::error_of(ExitCode::kInput, [&] { AdapterChanges(folder.path(), &config); }),
               Catch::Contains("has no matching lora_"));
}

TEST_CASE("an adapter unties the output layer where it changes one of the two alone") {
    struct Case {
        std::vector<Given> tensors;
        bool tied;
        int64_t vocabulary = 10;
        std::string fields = "";
    };
    const Given head{"base_model.model.lm_head.weight", {10, 8}};
    const std::vector<Case> cases = {
        {{kA, kB}, true},
        // A trained copy belongs to one module alone; the base's own weight belongs to both.
        {{kTable}, false, 10, R"(, "modules_to_save": ["embed_tokens"])"},
        {{head}, false, 10, R"(, "modules_to_save": ["lm_head"])"},
        {{kTable}, true},
        {{head}, true},
        {{kTable, {"base_model.model.lm_head.weight", {10, 8}}}, true},
        {{{"base_model.model.lm_head.lora_A.weight", {4, 8}},
          {"base_model.model.lm_head.lora_B.weight", {10, 4}}},
         false},
        // If there are more rows than the model has, they belong to both.
        {{{"base_model.model.model.embed_tokens.weight", {12, 8}}}, true, 12},
        {{{"base_model.model.lm_head.base_layer.weight", {12, 8}}}, true, 12},
        {{{"base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta", {1, 8}},
          {"base_model.model.lm_head.token_adapter.trainable_tokens_delta", {1, 8}}},
         true,
         10,
         R"(, "trainable_token_indices": {"embed_tokens": [3]})"},
    };
    for (const Case& one : cases) {
        INFO(one.tensors.front().name);
        const test::TemporaryFolder folder;
        write_adapter(folder.path(), one.tensors, one.fields);
        TransformerConfig config = model();
        AdapterChanges(folder.path(), &config).adapt(config);
        CHECK(config.is_tied == one.tied);
        CHECK(config.vocabulary == one.vocabulary);
    }
}

TEST_CASE("a pickle of an adapter is refused with what to do") {
    const test::TemporaryFolder folder;
    test::write_file(folder.path() + "/adapter_config.json", R"({"peft_type": "LORA"})");
    test::write_file(folder.path() + "/adapter_model.bin", "x");
    CHECK_THAT(test::error_of(ExitCode::kInput, [&] { AdapterChanges(folder.path(), nullptr); }),
               Catch::Contains(
                   "adapter_model.bin: is a pickle, which is not supported; convert it in Python"));
}

TEST_CASE("tensors' names say the layer and what they are, whoever saved them") {
    struct Case {
        const char* name;
        AdapterRole role;
        const char* path;
        int wraps = 0;
    };
    const std::vector<Case> cases = {
        {"base_model.model.h.0.q.lora_A.weight", AdapterRole::kA, "h.0.q"},
        {"h.0.q.lora_A.weight", AdapterRole::kA, "h.0.q"},
        {"base_model.model.h.0.q.lora_B.default.weight", AdapterRole::kB, "h.0.q"},
        {"h.0.q.lora_B.bias", AdapterRole::kBiasOfB, "h.0.q"},
        {"e.lora_embedding_A", AdapterRole::kTableA, "e"},
        {"e.lora_embedding_B.default", AdapterRole::kTableB, "e"},
        {"h.q.lora_magnitude_vector", AdapterRole::kMagnitude, "h.q"},
        {"h.q.lora_magnitude_vector.default.weight", AdapterRole::kMagnitude, "h.q"},
        {"h.experts.base_layer.lora_A.weight", AdapterRole::kA, "h.experts", 1},
        {"lm_head.base_layer.weight", AdapterRole::kWhole, "lm_head.weight", 1},
        {"lm_head.modules_to_save.default.weight", AdapterRole::kWhole, "lm_head.weight"},
        {"lm_head.modules_to_save.weight", AdapterRole::kWhole, "lm_head.weight"},
        {"lm_head.original_module.weight", AdapterRole::kCopy, "lm_head"},
        {"e.token_adapter.trainable_tokens_delta", AdapterRole::kTokenRows, "e"},
        {"base_model.model.norm.weight", AdapterRole::kWhole, "norm.weight"},
        {"base_model.model._orig_mod.h.q.lora_A.weight", AdapterRole::kA, "h.q"},
        {"h.q.lora_E", AdapterRole::kUnknown, "h.q"},
        {"", AdapterRole::kUnknown, ""},
    };
    for (const Case& one : cases) {
        INFO(one.name);
        const AdapterName read = read_adapter_name(one.name);
        CHECK(read.role == one.role);
        CHECK(read.path == one.path);
        CHECK(read.wraps == one.wraps);
    }
    CHECK(name_in_adapter("h.0.q.lora_A.weight") == "base_model.model.h.0.q.lora_A.weight");
    const TransformerConfig config = model();
    for (const auto& [path, here] : std::vector<std::pair<std::string, std::string>>{
             {"model.layers.0.mlp.gate", "model.layers.0.block_sparse_moe.gate"},
             {"layers.0.self_attn.q", "model.layers.0.self_attn.q"},
             {"model.language_model.layers.0.q", "model.layers.0.q"},
             {"language_model.model.layers.0.q", "model.layers.0.q"},
             {"language_model.lm_head", "lm_head"},
             {"embed_out.weight", "lm_head.weight"}})
        CHECK(path_in_model(config, path) == here);
}

}  // namespace dslaunch
