// A folder that is compressed: its files, read again; a run that was killed; folders that are
// refused.
#include "compress/compressed_folder.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/error.h"
#include "base/kinds/half_arrays.h"
#include "decoder/decode/row_math.h"
#include "decoder/weights/decoder_weights.h"
#include "storage/huggingface/folder_weights.h"
#include "support/catch.h"
#include "support/places.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "support/write_safetensors.h"

namespace dslaunch::compress {
namespace {

namespace fs = std::filesystem;

// A model of two layers, width 16, an MLP of 24, in four files.
std::string fixture(const std::string& name = "llama") {
    return test::fixture_path("huggingface/" + name);
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
          const std::function<void(int64_t)>& progress = {}, bool is_forced = false) {
    const storage::ModelFolder folder = storage::open_model_folder(from);
    kernels::ThreadTeam team(threads);
    FolderTask task{from, &folder, out, form, texts, {}, is_forced, progress};
    task.frequencies.all = {1, 0.01};  // theta 10000, two pairs in a head
    Made made{compress_folder(task, team), {}};
    made.files = files_of(out);
    return made;
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
        for (const WeightError& weight : made.result.errors) {
            INFO(weight.name);
            CHECK(weight.error > 0);
            CHECK(weight.error < 0.2);
            CHECK(weight.is_of_outputs == calibrates);
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
        to_fp32(a.entry.bytes.data(), a.entry.dtype, 384, x.data());
        to_fp32(b.entry.bytes.data(), b.entry.dtype, 384, y.data());
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

// Writes the tensors of FILE again after EDIT has changed them. Their bytes must outlive the call.
void rewrite(const std::string& file,
             const std::function<void(std::vector<storage::SafetensorsEntry>&)>& edit) {
    {
        const storage::SafetensorsFile original(file);
        std::vector<storage::SafetensorsEntry> entries = original.entries();
        edit(entries);
        test::write_safetensors(file + ".new", entries);
    }
    fs::rename(file + ".new", file);
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
    SECTION("other options do not replace its layers, which may have taken hours") {
        CHECK_THROWS_WITH(make(fixture(), out, int4_form(false), some_texts()),
                          Catch::Contains("1 finished layer of a stopped run"));
        CHECK(fs::exists(out + ".partial/layer-00000.safetensors"));
        const Made again =
            make(fixture(), out, int4_form(false), some_texts(), 1, {}, /*is_forced=*/true);
        CHECK(again.result.layers_kept == 0);
        CHECK(again.files != whole.files);
    }
    SECTION("a damaged layer is made again") {
        std::ofstream(out + ".partial/layer-00000.safetensors", std::ios::trunc) << "half";
        const Made again = make(fixture(), out, form, some_texts());
        CHECK(again.result.layers_kept == 0);
        CHECK(again.files == whole.files);
    }
    SECTION("a layer's file without its errors is made again") {
        const std::string layer = out + ".partial/layer-00000.safetensors";
        const storage::SafetensorsFile file(layer);
        test::write_safetensors(layer + ".new", file.entries(),
                                {{"options", file.metadata().at("options")}});
        fs::rename(layer + ".new", layer);
        const Made again = make(fixture(), out, form, some_texts());
        CHECK(again.result.layers_kept == 0);
        CHECK(again.files == whole.files);
    }
}

TEST_CASE("experts that no token reaches are rounded to nearest") {
    const test::TemporaryFolder folder;
    const std::string from = fixture("mixtral");
    // One token reaches two of three experts of each layer.
    const std::vector<std::vector<int32_t>> one_token = {{4}};
    const Made made = make(from, folder.path() + "/out", int4_form(), one_token);
    const Made nearest = make(from, folder.path() + "/nearest", int4_form(), {});
    REQUIRE(made.result.errors.size() == nearest.result.errors.size());
    const storage::SafetensorsFile own(folder.path() + "/out/model.safetensors");
    const storage::SafetensorsFile other(folder.path() + "/nearest/model.safetensors");
    int64_t unreached = 0;
    for (size_t i = 0; i < made.result.errors.size(); ++i) {
        const WeightError& weight = made.result.errors[i];
        INFO(weight.name);
        if (weight.is_of_outputs) continue;
        ++unreached;
        CHECK(weight.name.find("experts") != std::string::npos);
        CHECK(weight.error == nearest.result.errors[i].error);
        const std::string codes = weight.name + "_packed";
        REQUIRE(own.find(codes) != nullptr);
        CHECK(std::ranges::equal(own.find(codes)->bytes, other.find(codes)->bytes));
    }
    CHECK(unreached == 2 * 3);  // one expert of each layer, three weights
    const auto config = nlohmann::json::parse(made.files.at("config.json"));
    // Routers keep their numbers.
    const std::string ignored = config["quantization_config"]["ignore"].dump();
    CHECK_THAT(ignored, Catch::Contains("layers.0.") && Catch::Contains("gate"));
}

TEST_CASE(
    "a layer that is observed in portions gets the same bytes, and too little memory is refused") {
    const test::TemporaryFolder folder;
    for (const char* const family : {"mixtral", "llama"}) {
        const std::string from = fixture(family), out = folder.path() + "/" + family;
        const Made whole = make(from, out + "-whole", int4_form(), some_texts());
        const storage::ModelFolder model = storage::open_model_folder(from);
        kernels::ThreadTeam team(1);
        FolderTask task{from, &model, out, int4_form(), some_texts(), {}, true, {}};
        task.frequencies.all = {1, 0.01};
        // Finds the least memory that is not refused, where each portion has one input.
        int64_t refused = 0, accepted = int64_t{64} << 20;
        while (accepted - refused > 1) {
            const int64_t left = (refused + accepted) / 2;
            task.memory = MemoryLimit{"the memory of a test", {left}};
            const std::string why =
                test::error_of([&] { static_cast<void>(compress_folder(task, team)); });
            const bool is_refused = why != "accepted";
            if (is_refused) CHECK_THAT(why, Catch::Contains("is free (the memory of a test)"));
            (is_refused ? refused : accepted) = left;
        }
        CHECK(refused > 4 * 24 * 24);  // one input's moments
        task.memory->left = {accepted};
        const FolderResult made = compress_folder(task, team);
        CHECK(made.errors == whole.result.errors);
        CHECK(files_of(out) == whole.files);
    }
}

TEST_CASE("a model in OUT that would be read instead of the new shards is refused") {
    const test::TemporaryFolder folder;
    const std::string out = folder.path() + "/out";
    const auto forced = [&] {
        return test::error_of([&] { make(fixture(), out, int4_form(), {}, 1, {}, true); });
    };
    make(fixture(), out, int4_form(), {});
    CHECK(forced() == "accepted");  // the same files are replaced
    for (const char* const name :
         {"model.safetensors", "adapter_config.json", "model-00001-of-00007.safetensors"}) {
        std::ofstream(out + "/" + name) << "older";
        CHECK_THAT(forced(), Catch::Contains(name) && Catch::Contains("another model"));
        fs::remove(out + "/" + name);
    }
}

TEST_CASE("slashes at the end of OUT change nothing") {
    const test::TemporaryFolder folder;
    const std::string out = folder.path() + "/out";
    struct Killed {};
    const auto kill = [](int64_t) { throw Killed(); };
    CHECK_THROWS_AS(make(fixture(), out + "//", int4_form(), some_texts(), 1, kill), Killed);
    CHECK(fs::exists(out + ".partial/layer-00000.safetensors"));
    CHECK_FALSE(fs::exists(out));
    CHECK(make(fixture(), out + "/", int4_form(), some_texts()).result.layers_kept == 1);
}

TEST_CASE("a run that was killed while it wrote the files continues") {
    const test::TemporaryFolder folder;
    const std::string out = folder.path() + "/out";
    const Made whole = make(fixture(), folder.path() + "/whole", int4_form(), some_texts());
    struct Killed {};
    const auto kill = [](int64_t layers) {
        if (layers == 2) throw Killed();
    };
    CHECK_THROWS_AS(make(fixture(), out, int4_form(), some_texts(), 1, kill), Killed);
    fs::create_directory(out);
    fs::copy(folder.path() + "/whole/model-00001-of-00004.safetensors", out);
    CHECK_THAT(test::error_of([&] { make(fixture(), out, int4_form(false), some_texts()); }),
               Catch::Contains("--force"));
    const Made again = make(fixture(), out, int4_form(), some_texts());
    CHECK(again.result.layers_kept == 2);
    CHECK(again.files == whole.files);
}

TEST_CASE("a model that changes meanwhile is refused, and OUT stays without a config.json") {
    const test::TemporaryFolder folder;
    const std::string from = folder.path() + "/model", out = folder.path() + "/out";
    fs::copy(fixture(), from);
    const auto change = [&](int64_t layers) {
        const std::string file = from + "/model-00004-of-00004.safetensors";
        if (layers == 2) fs::last_write_time(file, fs::file_time_type::clock::now());
    };
    CHECK_THAT(test::error_of([&] { make(from, out, int4_form(), {}, 1, change); }),
               Catch::Contains("changed while it was compressed"));
    CHECK_FALSE(fs::exists(out + "/config.json"));
}

TEST_CASE("damaged inputs, and numbers too large for their scales, are refused by name") {
    const test::TemporaryFolder folder;
    const std::string from = folder.path() + "/model";
    fs::copy(fixture(), from);
    const std::vector<float> nan(16, NAN), huge(128, 3e6F);
    const auto edit = [&](std::string_view ending, std::span<const float> numbers) {
        for (const auto& file : fs::directory_iterator(from))
            if (file.path().extension() == ".safetensors")
                rewrite(file.path().string(), [&](auto& entries) {
                    for (storage::SafetensorsEntry& entry : entries)
                        if (entry.name.ends_with(ending)) entry.bytes = std::as_bytes(numbers);
                });
    };
    const auto refused = [&](const std::vector<std::vector<int32_t>>& texts) {
        return test::error_of([&] { make(from, folder.path() + "/out", int4_form(), texts); });
    };
    SECTION("a norm with NaN") {
        edit("layers.1.input_layernorm.weight", nan);
        CHECK_THAT(refused(some_texts()), Catch::Contains("the inputs of `model.layers.1.") &&
                                              Catch::Contains("contain NaN or infinity"));
    }
    SECTION("a weight whose scales are infinite in 16 bits") {
        edit("layers.0.self_attn.k_proj.weight", huge);
        CHECK_THAT(refused({}), Catch::Contains("layers.0.self_attn.k_proj.weight") &&
                                    Catch::Contains("too large for scales of 16 bits"));
    }
}

TEST_CASE("a tensor that the model does not have is refused before work begins") {
    const test::TemporaryFolder folder;
    const std::string from = folder.path() + "/model";
    fs::copy(fixture(), from);
    const std::vector<float> scale(16, 1);
    rewrite(from + "/model-00001-of-00004.safetensors", [&](auto& entries) {
        entries.push_back({"model.layers.0.self_attn.q_proj.weight_scale",
                           DType::kF32,
                           {16, 1},
                           std::as_bytes(std::span(scale))});
    });
    CHECK_THAT(test::error_of([&] { make(from, folder.path() + "/out", int4_form(), {}); }),
               Catch::Contains("q_proj.weight_scale") && Catch::Contains("belongs to no module"));
    CHECK_FALSE(fs::exists(folder.path() + "/out.partial/layer-00000.safetensors"));
}

TEST_CASE("a group that divides no layer's inputs is refused if it was asked for") {
    const test::TemporaryFolder folder;
    const storage::ModelFolder model = storage::open_model_folder(fixture());
    kernels::ThreadTeam team(1);
    FolderForm form = int4_form();
    form.rounding.group = 20;  // 20 and 10 divide neither 16 nor 24
    FolderTask task{fixture(), &model, folder.path() + "/out", form, {}, {}, false, {}};
    task.requires_groups = true;
    CHECK_THAT(test::error_of([&] { static_cast<void>(compress_folder(task, team)); }),
               Catch::Contains("--group 20") && Catch::Contains("layers.0."));
    CHECK_FALSE(fs::exists(folder.path() + "/out.partial"));
    task.requires_groups = false;
    CHECK(compress_folder(task, team).weights > 0);
}

TEST_CASE("folders that cannot be compressed are refused by name") {
    const test::TemporaryFolder folder;
    const std::string out = folder.path() + "/out";
    const auto refused = [&](const std::string& from, const std::string& to) {
        return test::error_of([&] { make(from, to, int4_form(), {}); });
    };
    CHECK_THAT(refused(fixture("gpt2"), out), Catch::Contains("Conv1D"));
    CHECK_THAT(refused(fixture("gemma3-images"), out), Catch::Contains("text part"));
    CHECK_THAT(refused(fixture(), fixture()), Catch::Contains("is the model itself"));
    std::ofstream(folder.path() + "/file") << "text";
    CHECK_THAT(refused(fixture(), folder.path() + "/file"), Catch::Contains("is a file"));
    make(fixture(), out, int4_form(), {});
    CHECK_THAT(refused(out, out + "2"), Catch::Contains("already quantized (compressed-tensors)"));
    CHECK_THAT(refused(fixture(), out), Catch::Contains("already exists") ||
                                            Catch::Contains("not empty") ||
                                            Catch::Contains("--force"));

    const std::string broken = folder.path() + "/broken";
    fs::copy(fixture(), broken);
    const std::vector<float> nan(128, NAN);  // for the keys and values, [8, 16]
    rewrite(broken + "/model-00001-of-00004.safetensors", [&](auto& entries) {
        for (storage::SafetensorsEntry& entry : entries)
            if (entry.bytes.size() == 512) entry.bytes = std::as_bytes(std::span(nan));
    });
    CHECK_THAT(refused(broken, out + "3"),
               Catch::Contains("_proj.weight") && Catch::Contains("NaN or infinity"));
}

}  // namespace
}  // namespace dslaunch::compress
