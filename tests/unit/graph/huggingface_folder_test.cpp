// Hugging Face folders as modules: each family's logits, loss and gradients are compared with the
// results of transformers, which wrote the folder. HUGGINGFACE_FOLDERS names another folder of such
// folders.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "base/error.h"
#include "graph/archive/mapped_archive.h"
#include "graph/archive/model.h"
#include "graph/archive/scalar_types.h"
#include "storage/files/safetensors.h"
#include "storage/huggingface/model_folder.h"
#include "support/catch.h"
#include "support/fixtures.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "unit/graph/torch_reference.h"

namespace dslaunch::graph {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;
using storage::SafetensorsEntry;
using storage::SafetensorsFile;
using test::difference;
using test::tensor_of;

std::string folders() {
    const char* other = std::getenv("HUGGINGFACE_FOLDERS");
    return other != nullptr ? other : test::fixture_path("huggingface");
}

std::vector<std::string> folder_names() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folders()))
        if (entry.is_directory()) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
}

TEST_CASE("a family's folder gives the logits, loss and gradients of transformers") {
    const std::vector<std::string> names = folder_names();
    REQUIRE(names.size() >= (std::getenv("HUGGINGFACE_FOLDERS") == nullptr ? 43 : 1));
    for (const std::string& name : names) {
        INFO(name);
        const std::string folder = folders() + "/" + name;
        const SafetensorsFile expected(folder + "/expected.safetensors");
        Model model = Model::load(folder);
        torch::jit::Module& module = model.module();
        module.eval();
        const at::Tensor tokens = tensor_of(*expected.find("tokens"));
        const at::Tensor logits = module.get_method("logits")({tokens}).toTensor();
        CHECK(difference(logits, tensor_of(*expected.find("logits"))) < 1e-5);
        const at::Tensor loss =
            module.forward({tokens, tensor_of(*expected.find("targets"))}).toTensor();
        CHECK(difference(loss, tensor_of(*expected.find("loss"))) < 1e-5);
        loss.backward();
        size_t compared = 0;
        for (const ModelParameter& parameter : model.parameters()) {
            const SafetensorsEntry* theirs = expected.find("gradient." + parameter.name);
            INFO(parameter.name);
            REQUIRE(theirs != nullptr);
            CHECK(difference(parameter.tensor.grad(), tensor_of(*theirs)) < 1e-4);
            ++compared;
        }
        size_t gradients = 0;
        for (const SafetensorsEntry& entry : expected.entries())
            if (entry.name.starts_with("gradient.")) ++gradients;
        CHECK(compared == gradients);
    }
}

TEST_CASE("documents that share a row have the losses that each has alone") {
    constexpr int64_t kNotLearned = -100;
    for (const auto& entry : fs::directory_iterator(test::fixture_path("huggingface"))) {
        const std::string path = entry.path().string();
        // The frequencies of these models depend on the length of the row.
        if (path.ends_with("-long") || path.ends_with("/llama-dynamic")) continue;
        INFO(path);
        const c10::InferenceMode no_gradients;
        Model model = Model::load(path);
        torch::jit::Module& module = model.module();
        module.eval();
        const SafetensorsFile expected(path + "/expected.safetensors");
        const at::Tensor tokens = tensor_of(*expected.find("tokens"));
        // Two documents of 7 and 9 tokens, and padding, from which the model learns nothing.
        const std::vector<at::Tensor> documents = {tokens[0].slice(0, 0, 7),
                                                   tokens[1].slice(0, 2, 11)};
        const auto targets_of = [&](const at::Tensor& document) {
            at::Tensor targets = document.roll({-1}, {0}).clone();
            targets[-1].fill_(kNotLearned);
            return targets;
        };
        const at::Tensor padding = at::zeros({3}, at::kLong);
        double sum = 0;
        int64_t counted = 0;
        for (const at::Tensor& document : documents) {
            const int64_t count = document.numel() - 1;
            sum += static_cast<double>(count) *
                   module.forward({document.unsqueeze(0), targets_of(document).unsqueeze(0)})
                       .toTensor()
                       .item<double>();
            counted += count;
        }
        const at::Tensor row = at::cat({documents[0], documents[1], padding}).unsqueeze(0);
        const at::Tensor targets =
            at::cat({targets_of(documents[0]), targets_of(documents[1]), padding + kNotLearned})
                .unsqueeze(0);
        const at::Tensor numbers =
            at::cat({at::zeros({7}, at::kLong), at::ones({9}, at::kLong), padding + 2})
                .unsqueeze(0);
        const auto loss = module.forward({row, targets, numbers}).toTensor().item<double>();
        CHECK(std::abs(loss - sum / static_cast<double>(counted)) < 1e-5);
        // Without document numbers, the second document sees the first.
        const auto mixed = module.forward({row, targets}).toTensor().item<double>();
        CHECK(std::abs(loss - mixed) > 1e-4);
    }
}

// Copies the folder NAME, so that a test may change it. Returns the copy's path.
std::string copy_of(const std::string& name, const test::TemporaryFolder& into) {
    const std::string to = into.path() + "/" + name;
    fs::copy(test::fixture_path("huggingface/" + name), to);
    fs::remove(to + "/expected.safetensors");
    return to;
}

std::string refusal(const std::string& path) {
    return test::error_of(ExitCode::kInput, [&] { static_cast<void>(Model::load(path)); });
}

// Writes the tensors of FILE again, after CHANGE.
template <typename Change>
void rewrite(const std::string& file, const Change& change) {
    std::vector<SafetensorsEntry> entries;
    std::map<std::string, std::vector<std::byte>> bytes;
    {
        const SafetensorsFile old(file);
        for (const SafetensorsEntry& entry : old.entries()) {
            bytes[entry.name].assign(entry.bytes.begin(), entry.bytes.end());
            entries.push_back({entry.name, entry.dtype, entry.shape, {}});
        }
    }
    for (SafetensorsEntry& entry : entries) entry.bytes = bytes.at(entry.name);
    change(entries);
    storage::SafetensorsWriter writer(file, entries);
    for (size_t i = 0; i < entries.size(); ++i) writer.write(i, entries[i].bytes);
    writer.commit();
}

TEST_CASE("a folder whose files do not belong together is refused by the weight's name") {
    const test::TemporaryFolder temporary;
    SECTION("a weight is missing") {
        const std::string folder = copy_of("qwen3", temporary);
        rewrite(folder + "/model.safetensors", [](auto& entries) {
            std::erase_if(entries, [](const auto& entry) {
                return entry.name == "model.layers.1.self_attn.q_norm.weight";
            });
        });
        CHECK_THAT(refusal(folder), Contains("no weight `model.layers.1.self_attn.q_norm.weight`, "
                                             "which a Qwen3ForCausalLM needs"));
    }
    SECTION("a weight belongs to no module") {
        const std::string folder = copy_of("qwen3", temporary);
        rewrite(folder + "/model.safetensors",
                [](auto& entries) { entries[0].name = "model.layers.0.lora_A.weight"; });
        const std::string message = refusal(folder);
        CHECK_THAT(message, Contains("no weight `"));
    }
    SECTION("one more weight") {
        const std::string folder = copy_of("gemma", temporary);
        rewrite(folder + "/model.safetensors", [](auto& entries) {
            entries.push_back(entries[0]);
            entries.back().name = "model.layers.0.lora_A.weight";
        });
        CHECK_THAT(refusal(folder),
                   Contains("`model.layers.0.lora_A.weight` belongs to no module"));
    }
    SECTION("buffers that older releases saved are left out") {
        const std::string folder = copy_of("gemma", temporary);
        rewrite(folder + "/model.safetensors", [](auto& entries) {
            entries.push_back(entries[0]);
            entries.back().name = "model.layers.0.self_attn.rotary_emb.inv_freq";
        });
        CHECK(Model::load(folder).buffers().empty());
    }
    SECTION("a weight of another shape") {
        const std::string folder = copy_of("qwen3", temporary);
        rewrite(folder + "/model.safetensors", [](auto& entries) {
            for (SafetensorsEntry& entry : entries)
                if (entry.name == "model.norm.weight") entry.shape = {4, 4};
        });
        CHECK_THAT(
            refusal(folder),
            Contains("`model.norm.weight` has shape [4, 4], but by config.json it must have [16]"));
    }
    SECTION("no weights") {
        const std::string folder = copy_of("qwen3", temporary);
        fs::remove(folder + "/model.safetensors");
        CHECK_THAT(refusal(folder), Contains("has no weights: expected model.safetensors"));
        fs::create_directories(folder + "/checkpoints");
        CHECK_THAT(refusal(folder), Contains("has no weights: expected model.safetensors"));
        fs::create_directory(folder + "/checkpoints/step-2");
        CHECK_THAT(refusal(folder), Contains("has no weights: expected model.safetensors"));
        std::ofstream(folder + "/checkpoints/step-2/manifest.json") << "{}";
        CHECK_THAT(refusal(folder),
                   Contains("dslaunch ckpt export " + folder + " NEW --format hf"));
        fs::remove_all(folder + "/checkpoints");
        std::ofstream(folder + "/pytorch_model.bin") << "x";
        CHECK_THAT(refusal(folder), Contains("its weights are pickles (pytorch_model.bin)"));
        // Their shapes are known nevertheless.
        const Model shapes = Model::load(folder, Weights::kIfThere);
        const Model alone = Model::load(folder + "/config.json", Weights::kIfThere);
        REQUIRE(shapes.parameters().size() == alone.parameters().size());
        const Model whole = Model::load(test::fixture_path("huggingface/qwen3"));
        REQUIRE(shapes.parameters().size() == whole.parameters().size());
        for (size_t i = 0; i < whole.parameters().size(); ++i) {
            CHECK(shapes.parameters()[i].name == whole.parameters()[i].name);
            CHECK(shapes.parameters()[i].tensor.sizes() == whole.parameters()[i].tensor.sizes());
        }
    }
    SECTION("files that were not fetched") {
        const std::string folder = copy_of("qwen3", temporary);
        std::ofstream(folder + "/tokenizer.json") << "";
        CHECK_THAT(refusal(folder), Contains("tokenizer.json: is empty"));
        fs::remove(folder + "/tokenizer.json");
        fs::remove(folder + "/model.safetensors");
        fs::create_symlink("../../blobs/abc", folder + "/model.safetensors");
        CHECK_THAT(
            refusal(folder),
            Contains("model.safetensors: is a link to ../../blobs/abc, which does not exist"));
    }
    SECTION("no config.json") {
        const std::string folder = copy_of("qwen3", temporary);
        fs::remove(folder + "/config.json");
        CHECK_THAT(refusal(folder), Contains("has weights but no config.json"));
    }
    SECTION("a file that is cut off") {
        const std::string folder = copy_of("qwen3", temporary);
        fs::resize_file(folder + "/model.safetensors", 5000);
        CHECK_THAT(refusal(folder), Contains("model.safetensors"));
    }
}

// Returns the logits that FOLDER gives for the tokens of a fixture's batch.
at::Tensor logits_of(const std::string& folder, const std::string& fixture) {
    const c10::InferenceMode no_gradients;
    Model model = Model::load(folder);
    const SafetensorsFile expected(test::fixture_path("huggingface/" + fixture) +
                                   "/expected.safetensors");
    model.module().eval();
    return model.module().get_method("logits")({tensor_of(*expected.find("tokens"))}).toTensor();
}

TEST_CASE("a tied output layer in the file is the embedding where both are the same, or one is") {
    const test::TemporaryFolder temporary;
    const std::string folder = copy_of("qwen2", temporary);
    constexpr const char* kEmbedding = "model.embed_tokens.weight";
    const auto config_of = [&] {
        return storage::config_for_weights(folder, test::content_of(folder + "/config.json"));
    };
    const auto entry_named = [](auto& entries, const std::string& name) {
        return std::ranges::find(entries, name, &SafetensorsEntry::name);
    };
    SECTION("the same twice") {
        rewrite(folder + "/model.safetensors", [&](auto& entries) {
            entries.push_back(*entry_named(entries, kEmbedding));
            entries.back().name = "lm_head.weight";
        });
        CHECK(storage::open_model_folder(folder).config.is_tied);
        CHECK(config_of() == test::content_of(folder + "/config.json"));
    }
    SECTION("the output layer alone") {
        rewrite(folder + "/model.safetensors",
                [&](auto& entries) { entry_named(entries, kEmbedding)->name = "lm_head.weight"; });
        CHECK(storage::open_model_folder(folder).config.is_tied);
    }
    SECTION("neither") {
        rewrite(folder + "/model.safetensors",
                [&](auto& entries) { entries.erase(entry_named(entries, kEmbedding)); });
        CHECK_THAT(refusal(folder), Contains("no weight `model.embed_tokens.weight`"));
        return;
    }
    CHECK(difference(logits_of(folder, "qwen2"),
                     logits_of(test::fixture_path("huggingface/qwen2"), "qwen2")) == 0);
}

TEST_CASE("weights that are not tied as config.json says are written with one that says so") {
    const std::string own = test::fixture_path("huggingface/qwen2-own-head");
    const std::string text =
        storage::config_for_weights(own, test::content_of(own + "/config.json"));
    CHECK_THAT(text, Contains("\"tie_word_embeddings\": false"));
    const std::string images = test::fixture_path("huggingface/gemma3-images");
    const std::string part =
        storage::config_for_weights(images, test::content_of(images + "/config.json"));
    const storage::TransformerConfig config = storage::parse_transformer_config("c", part);
    CHECK(config.architecture == "Gemma3ForCausalLM");
    CHECK(config.outer.empty());
    CHECK(config.layers.size() == 6);
    // If this version does not read a model, its config is not changed.
    CHECK(storage::config_for_weights("/no/such/folder", "{}") == "{}");
}

TEST_CASE("files are those that transformers reads") {
    const test::TemporaryFolder temporary;
    const std::string folder = copy_of("llama", temporary);  // four files with an index
    const at::Tensor before = logits_of(folder, "llama");
    SECTION("an index into folders below") {
        fs::create_directory(folder + "/part");
        for (const std::string& file : storage::safetensors_files_of(folder))
            fs::rename(file, folder + "/part/" + fs::path(file).filename().string());
        const std::string path = folder + "/model.safetensors.index.json";
        auto index = nlohmann::json::parse(test::content_of(path));
        for (auto& file : index["weight_map"]) file = "part/" + file.get<std::string>();
        test::write_file(path, index.dump());
        CHECK(difference(logits_of(folder, "llama"), before) == 0);
    }
    SECTION("a whole file beside an older index") {
        fs::copy(test::fixture_path("huggingface/llama-dynamic/model.safetensors"), folder);
        const storage::ModelFolder opened = storage::open_model_folder(folder);
        CHECK(opened.files() ==
              std::vector{folder + "/config.json", folder + "/model.safetensors"});
        CHECK(difference(logits_of(folder, "llama"), before) > 0.01);
    }
}

TEST_CASE("weights lie in the files of the folder, and names without the outer module are found") {
    const test::TemporaryFolder temporary;
    const std::string folder = copy_of("gpt2", temporary);
    rewrite(folder + "/model.safetensors", [](auto& entries) {
        for (SafetensorsEntry& entry : entries)
            entry.name = entry.name.substr(std::string_view("transformer.").size());
    });
    const LoadedArchive loaded = load_huggingface(folder, false);
    REQUIRE(loaded.files.size() == 1);
    const std::span<const std::byte> file = loaded.files[0]->bytes();
    for (const auto& parameter : loaded.module.named_parameters()) {
        CHECK(parameter.name.starts_with("transformer."));
        const auto* begin = static_cast<const std::byte*>(parameter.value.const_data_ptr());
        CHECK((begin >= file.data() && begin < file.data() + file.size()));
    }
}

}  // namespace
}  // namespace dslaunch::graph
