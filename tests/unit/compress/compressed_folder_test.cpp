// A folder that is compressed: its files, read again; a run that was killed; folders that are
// refused.
#include "compress/compressed_folder.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/error.h"
#include "decoder/decode/row_math.h"
#include "decoder/weights/decoder_weights.h"
#include "storage/huggingface/folder_weights.h"
#include "support/catch.h"
#include "support/places.h"
#include "support/temporary_folder.h"
#include "support/write_safetensors.h"

namespace dslaunch::compress {
namespace {

namespace fs = std::filesystem;

// A model of two layers, width 16, an MLP of 24, in four files.
std::string fixture(const std::string& name = "llama") {
    return std::string(test::source_dir()) + "/tests/fixtures/huggingface/" + name;
}

struct Made {
    FolderResult result;
    std::map<std::string, std::string> files;  // by name
};

std::map<std::string, std::string> files_of(const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(folder)) {
        std::ifstream file(entry.path(), std::ios::binary);
        files[entry.path().filename().string()] = {std::istreambuf_iterator<char>(file), {}};
    }
    return files;
}

FolderForm int4_form(bool has_minimum = true) {
    return {"int4", {4, false, has_minimum, 16, true, DType::kF16}};
}

std::vector<std::vector<int32_t>> some_texts() {
    std::vector<std::vector<int32_t>> texts;
    for (int32_t length = 3; length < 40; length += 4) {
        texts.emplace_back();
        for (int32_t i = 0; i < length; ++i) texts.back().push_back((i * 7 + length * 5) % 61);
    }
    return texts;
}

Made make(const std::string& from, const std::string& out, const FolderForm& form,
          const std::vector<std::vector<int32_t>>& texts, int threads = 1,
          const std::function<void(int64_t)>& progress = {}) {
    const storage::ModelFolder folder = storage::open_model_folder(from);
    kernels::ThreadTeam team(threads);
    FolderTask task{from, &folder, out, form, texts, {}, false, progress};
    task.frequencies.all = {1, 0.01};  // theta 10000, two pairs in a head
    Made made{compress_folder(task, team), {}};
    made.files = files_of(out);
    return made;
}

std::string refusal(const std::function<void()>& act) {
    try {
        act();
    } catch (const Error& error) {
        return error.what();
    }
    return "nothing was refused";
}

TEST_CASE("a compressed folder has the original's files and is read as a model") {
    const test::TemporaryFolder folder;
    const std::string out = folder.path() + "/out";
    for (const bool calibrates : {false, true}) {
        const std::string to = out + (calibrates ? "-calibrated" : "");
        const Made made = make(fixture(), to, int4_form(),
                               calibrates ? some_texts() : std::vector<std::vector<int32_t>>());
        CHECK(made.result.errors.size() == 14);
        // Each layer: 16 x (16 + 8 + 8 + 16) for attention, 3 x 16 x 24 for the MLP, fp32.
        CHECK(made.result.weights == 2 * (16 * 48 + 3 * 16 * 24));
        CHECK(made.result.weight_bytes_before == 4 * made.result.weights);
        for (const auto& [name, error] : made.result.errors) {
            INFO(name);
            CHECK(error > 0);
            CHECK(error < 0.2);
        }
        CHECK(made.files.contains("model-00003-of-00004.safetensors"));
        CHECK_FALSE(fs::exists(to + ".partial"));
        const auto config = nlohmann::json::parse(made.files.at("config.json"));
        CHECK(config["quantization_config"]["ignore"] == nlohmann::json{"lm_head"});
        // Columns of 16 have groups of 16; the 24 of down_proj are divided by 8.
        CHECK(config["quantization_config"]["config_groups"].size() == 2);
        const auto index = nlohmann::json::parse(made.files.at("model.safetensors.index.json"));
        CHECK(index["weight_map"]["model.layers.1.mlp.down_proj.weight_scale"] ==
              "model-00003-of-00004.safetensors");

        const storage::ModelFolder written = storage::open_model_folder(to);
        const storage::ModelFolder original = storage::open_model_folder(fixture());
        storage::FolderWeights rounded(written, storage::MapMode::kReadOnly);
        storage::FolderWeights exact(original, storage::MapMode::kReadOnly);
        const int64_t sizes[] = {16, 24};
        const std::string name = "model.layers.1.mlp.down_proj.weight";
        CHECK(rounded.is_rounded(name));
        const storage::FolderWeight a = rounded.take(name, sizes), b = exact.take(name, sizes);
        std::vector<float> x(384), y(384);
        decoder::to_fp32(a.entry.bytes.data(), a.entry.dtype, 384, x.data());
        decoder::to_fp32(b.entry.bytes.data(), b.entry.dtype, 384, y.data());
        double error = 0, whole = 0;
        for (size_t i = 0; i < 384; ++i) {
            error += (x[i] - y[i]) * (x[i] - y[i]);
            whole += y[i] * y[i];
        }
        // Half a step of 15 in a group's range of about 3.5 deviations each way: 0.07 at most.
        CHECK(error > 0);
        CHECK(std::sqrt(error / whole) < 0.15);
        kernels::ThreadTeam team(1);
        decoder::WeightSource source(written, std::nullopt, team);
        CHECK(load_decoder(written.config, {0, 2, 0, 1}, source).layers.size() == 2);
    }
}

TEST_CASE("layers of a folder with 8-bit activations round their inputs by token") {
    const test::TemporaryFolder folder;
    const FolderForm form{
        "w8a8", {8, false, false, 0, false, DType::kF16}, storage::InputRounding::kInt8, false};
    const Made made = make(fixture(), folder.path() + "/out", form, some_texts());
    const auto config = nlohmann::json::parse(made.files.at("config.json"));
    CHECK(config["quantization_config"]["format"] == "int-quantized");
    const storage::ModelFolder written = storage::open_model_folder(folder.path() + "/out");
    REQUIRE(written.config.quantization->inputs == storage::InputRounding::kInt8);
    kernels::ThreadTeam team(1);
    decoder::WeightSource source(written, std::nullopt, team);
    const decoder::DecoderWeights weights = load_decoder(written.config, {0, 2, 0, 1}, source);
    const decoder::LinearWeights& layer = weights.layers[1].query;
    CHECK(layer.inputs == storage::InputRounding::kInt8);
    CHECK(weights.head.inputs == storage::InputRounding::kNone);
    // The largest input is 12.75, so that the scale is 0.1: the others become multiples of it.
    std::vector<float> x(16), rounded(16), y(16), expected(16);
    for (size_t i = 0; i < 16; ++i) x[i] = 0.037F * static_cast<float>(i);
    x[3] = -12.75F;
    for (size_t i = 0; i < 16; ++i) rounded[i] = 0.1F * std::nearbyint(x[i] / 0.1F);
    decoder::RowMath math(written.config, team);
    const decoder::RowMath::Use use{&layer, y.data()};
    math.multiply({&use, 1}, x.data(), 16, 1);
    decoder::LinearWeights exact;
    exact.weight.matrix = layer.weight.matrix;
    const decoder::RowMath::Use of_exact{&exact, expected.data()};
    math.multiply({&of_exact, 1}, rounded.data(), 16, 1);
    // -12.75 is halfway between two codes and becomes the even one, -128.
    for (size_t i = 0; i < 16; ++i) CHECK(y[i] == Approx(expected[i]).margin(1e-4));
    CHECK_THROWS_AS(load_decoder(written.config, {0, 2, 0, 2}, source), Error);
}

TEST_CASE("a run that was killed continues with the same bytes") {
    const test::TemporaryFolder folder;
    const FolderForm form = int4_form();
    const Made whole = make(fixture(), folder.path() + "/whole", form, some_texts());
    const std::string out = folder.path() + "/killed";
    struct Killed {};
    const auto kill = [](int64_t layers) {
        if (layers == 1) throw Killed();
    };
    CHECK_THROWS_AS(make(fixture(), out, form, some_texts(), 1, kill), Killed);
    CHECK_FALSE(fs::exists(out + "/config.json"));
    SECTION("with the same options") {
        const Made again = make(fixture(), out, form, some_texts(), 3);
        CHECK(again.result.layers_kept == 1);
        CHECK(again.files == whole.files);
        CHECK(again.result.errors == whole.result.errors);
        CHECK(again.result.bytes_after == whole.result.bytes_after);
    }
    SECTION("other options begin again") {
        const Made again = make(fixture(), out, int4_form(false), some_texts());
        CHECK(again.result.layers_kept == 0);
        CHECK(again.files != whole.files);
    }
    SECTION("a damaged layer is made again") {
        std::ofstream(out + ".partial/layer-00000.safetensors", std::ios::trunc) << "half";
        const Made again = make(fixture(), out, form, some_texts());
        CHECK(again.result.layers_kept == 0);
        CHECK(again.files == whole.files);
    }
}

TEST_CASE("experts that no token reaches are rounded to nearest") {
    const test::TemporaryFolder folder;
    const Made made =
        make(fixture("mixtral"), folder.path() + "/out", int4_form(), {{1, 2, 3}, {4}});
    CHECK(made.result.errors.size() > 14);
    const auto config = nlohmann::json::parse(made.files.at("config.json"));
    // Routers keep their numbers.
    const std::string ignored = config["quantization_config"]["ignore"].dump();
    CHECK_THAT(ignored, Catch::Contains("layers.0.") && Catch::Contains("gate"));
}

TEST_CASE("folders that cannot be compressed are refused by name") {
    const test::TemporaryFolder folder;
    const std::string out = folder.path() + "/out";
    const auto refused = [&](const std::string& from, const std::string& to) {
        return refusal([&] { make(from, to, int4_form(), {}); });
    };
    CHECK_THAT(refused(fixture("gpt2"), out), Catch::Contains("Conv1D"));
    CHECK_THAT(refused(fixture("gemma3-images"), out), Catch::Contains("text part"));
    CHECK_THAT(refused(fixture(), fixture()), Catch::Contains("is the model itself"));
    make(fixture(), out, int4_form(), {});
    CHECK_THAT(refused(out, out + "2"), Catch::Contains("rounded already (compressed-tensors)"));
    CHECK_THAT(refused(fixture(), out), Catch::Contains("already exists") ||
                                            Catch::Contains("not empty") ||
                                            Catch::Contains("--force"));

    const std::string broken = folder.path() + "/broken";
    fs::copy(fixture(), broken);
    const std::string file = broken + "/model-00001-of-00004.safetensors";
    std::vector<storage::SafetensorsEntry> entries;
    {
        const storage::SafetensorsFile original(file);
        entries = original.entries();
        const std::vector<float> nan(128, NAN);  // for the keys and values, [8, 16]
        for (storage::SafetensorsEntry& entry : entries)
            if (entry.bytes.size() == 512) entry.bytes = std::as_bytes(std::span(nan));
        test::write_safetensors(file + ".new", entries);
    }
    fs::rename(file + ".new", file);
    CHECK_THAT(refused(broken, out + "3"),
               Catch::Contains("_proj.weight") && Catch::Contains("NaN or infinity"));
}

}  // namespace
}  // namespace dslaunch::compress
