// Exports of checkpoints that the store has written, compared with the values that were saved:
// files, names, orders, dtypes, shards, refusals.
#include "storage/export/weight_export.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "storage/export/source_diff.h"
#include "storage/export/source_of_path.h"
#include "storage/files/safetensors.h"
#include "support/catch.h"
#include "support/stored_model.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;
namespace fs = std::filesystem;

namespace {

struct Place {
    TemporaryFolder folder;
    std::unique_ptr<FileTree> tree = make_disk_tree();
    [[nodiscard]] std::string root() const { return folder.path() + "/run/checkpoints"; }
    [[nodiscard]] std::string out() const { return folder.path() + "/out"; }
    [[nodiscard]] ExportOptions options() const {
        ExportOptions options;
        options.out = out();
        return options;
    }
};

std::vector<double> doubles(const SafetensorsEntry& entry) {
    std::vector<double> values;
    const int64_t width = dtype_bytes(entry.dtype);
    for (size_t i = 0; i < entry.bytes.size(); i += static_cast<size_t>(width)) {
        if (entry.dtype == DType::kI64) {
            int64_t value = 0;
            std::memcpy(&value, entry.bytes.data() + i, 8);
            values.push_back(static_cast<double>(value));
        } else {
            uint32_t bits = 0;
            std::memcpy(&bits, entry.bytes.data() + i, static_cast<size_t>(width));
            if (entry.dtype == DType::kBF16) bits <<= 16;
            float value = 0;
            std::memcpy(&value, &bits, 4);
            values.push_back(value);
        }
    }
    return values;
}

// Returns the values that were saved, in the order of rows.
std::vector<double> expected(const StoredModel& model, int tensor) {
    const CheckpointTensor& facts = model.checkpoint.tensors[tensor];
    std::vector<double> values;
    for (int64_t row_major = 0; row_major < facts.numel(); ++row_major) {
        int64_t place = row_major;
        if (!facts.strides.empty()) {
            const int64_t row = row_major / facts.shape[1], column = row_major % facts.shape[1];
            place = row * facts.strides[0] + column * facts.strides[1];
        }
        const float value = model.value(tensor, kWeights, place);
        values.push_back(facts.dtype == DType::kI64 ? std::trunc(8 * value) : value);
    }
    return values;
}

}  // namespace

TEST_CASE("an export of any world size has every value under every name, in the order of rows") {
    for (const int world : {1, 2, 3, 5, 7, 17}) {
        INFO("world " << world);
        Place place;
        StoredModel model = StoredModel::small();
        const auto source =
            open_tensor_source(*place.tree, model.save(*place.tree, place.root(), world));
        const ExportReport report = export_weights(*source, place.options());
        CHECK(report.files == std::vector<std::string>{place.out() + "/model.safetensors"});
        const SafetensorsFile file(report.files[0]);
        CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
        REQUIRE(file.entries().size() == 8);
        const std::vector<std::pair<const char*, int>> names = {
            {"wte.weight", 0},    {"lm_head.weight", 0}, {"h.0.weight", 1}, {"h.0.bias", 2},
            {"frozen.weight", 3}, {"steps", 4},          {"scale", 5},      {"nothing", 6}};
        for (const auto& [name, tensor] : names) {
            INFO(name);
            const SafetensorsEntry* entry = file.find(name);
            REQUIRE(entry != nullptr);
            CHECK(entry->shape == model.checkpoint.tensors[tensor].shape);
            CHECK(doubles(*entry) == expected(model, tensor));
        }
    }
}

TEST_CASE("a view is exported with its own shape, and what a state_dict leaves out is not") {
    Place place;
    StoredModel model = StoredModel::small();
    // Transposed rows of the table, and a column of a tensor whose memory is column by column.
    model.checkpoint.tensors[0].views = {{"head", {4, 6}, {1, 4}, 0}, {"last", {4}, {1}, 20}};
    model.checkpoint.tensors[1].views = {{"column", {4}, {1}, 8}};
    model.checkpoint.tensors[4].is_persistent = false;
    model.checkpoint.format = model.checkpoint.least_format();
    CHECK(model.checkpoint.format == 3);
    const auto source = open_tensor_source(*place.tree, model.save(*place.tree, place.root(), 2));
    const ExportReport report = export_weights(*source, place.options());
    CHECK(report.left_out == std::vector<std::string>{"steps"});
    const SafetensorsFile file(report.files[0]);
    CHECK(file.find("steps") == nullptr);
    const auto check = [&](const char* name, int tensor, const std::vector<int64_t>& places) {
        const SafetensorsEntry* entry = file.find(name);
        REQUIRE(entry != nullptr);
        std::vector<double> values;
        for (const int64_t at : places) values.push_back(model.value(tensor, kWeights, at));
        INFO(name);
        CHECK(doubles(*entry) == values);
    };
    std::vector<int64_t> transposed;
    for (int64_t column = 0; column < 4; ++column)
        for (int64_t row = 0; row < 6; ++row) transposed.push_back(4 * row + column);
    check("head", 0, transposed);
    check("last", 0, {20, 21, 22, 23});
    check("column", 1, {8, 9, 10, 11});
    // The same values under the names of a state_dict count as equal, on either side.
    const auto exported = open_tensor_source(*place.tree, report.files[0]);
    for (const bool turned : {false, true}) {
        const SourceDiff diff =
            turned ? diff_sources(*exported, *source, {}) : diff_sources(*source, *exported, {});
        REQUIRE(diff.tensors.size() == 1);
        CHECK(diff.tensors[0].name == "steps");
    }
}

TEST_CASE(
    "for transformers a tied tensor has the embedding's name, and made buffers are left out") {
    Place place;
    StoredModel model = StoredModel::small();
    std::swap(model.checkpoint.tensors[0].name, model.checkpoint.tensors[0].aliases[0]);
    for (const char* name : {"model.rotary_emb.inv_freq", "h.0.attn.bias"})
        model.checkpoint.tensors.push_back(StoredModel::tensor(name, {4}, TensorKind::kBuffer));
    // A parameter with the name of a buffer is not computed again.
    model.checkpoint.tensors.push_back(StoredModel::tensor("h.1.attn.bias", {4}));
    const auto source = open_tensor_source(*place.tree, model.save(*place.tree, place.root(), 2));
    ExportOptions options = place.options();
    options.is_for_transformers = true;
    options.writes_all_names = false;
    const ExportReport report = export_weights(*source, options);
    CHECK(report.names == std::vector<std::string>{"wte.weight", "h.0.weight", "h.0.bias",
                                                   "frozen.weight", "steps", "scale", "nothing",
                                                   "h.1.attn.bias"});
    CHECK(report.left_out ==
          std::vector<std::string>{"model.rotary_emb.inv_freq", "h.0.attn.bias"});
}

TEST_CASE("names lose and gain a prefix, globs and frozen parameters are left out") {
    Place place;
    StoredModel model = StoredModel::small();
    for (CheckpointTensor& tensor : model.checkpoint.tensors) {
        tensor.name.insert(0, "model.");
        for (std::string& alias : tensor.aliases) alias.insert(0, "model.");
    }
    const auto source = open_tensor_source(*place.tree, model.save(*place.tree, place.root(), 2));
    ExportOptions options = place.options();
    options.strip_prefix = "model.";
    options.add_prefix = "net.";
    options.excludes_frozen = true;
    options.exclude = {"*.bias", "model.nothing"};
    const ExportReport report = export_weights(*source, options);
    CHECK(report.names == std::vector<std::string>{"net.wte.weight", "net.lm_head.weight",
                                                   "net.h.0.weight", "net.steps", "net.scale"});

    options.is_forced = true;
    options.strip_prefix = "module.";
    std::string what;
    CHECK(test::code_of([&] { (void)export_weights(*source, options); }, &what) ==
          ExitCode::kUsage);
    CHECK_THAT(what, Catch::Contains("model.wte.weight"));
    options.strip_prefix = "";
    options.exclude = {"*"};
    CHECK(test::code_of([&] { (void)export_weights(*source, options); }, &what) ==
          ExitCode::kUsage);
    CHECK_THAT(what, Catch::Contains("nothing is left"));
}

TEST_CASE("floating tensors take the dtype that was asked for, others stay") {
    Place place;
    StoredModel model = StoredModel::small();
    const auto source = open_tensor_source(*place.tree, model.save(*place.tree, place.root(), 3));
    ExportOptions options = place.options();
    options.dtype = DType::kBF16;
    (void)export_weights(*source, options);
    const SafetensorsFile file(place.out() + "/model.safetensors");
    CHECK(file.find("steps")->dtype == DType::kI64);
    CHECK(file.find("h.0.weight")->dtype == DType::kBF16);
    const std::vector<double> exact = expected(model, 1),
                              rounded = doubles(*file.find("h.0.weight"));
    REQUIRE(rounded.size() == exact.size());
    // bfloat16 has 8 significant bits: half of the last is at most 2^-8 of the value.
    for (size_t i = 0; i < exact.size(); ++i)
        CHECK(std::abs(rounded[i] - exact[i]) <= exact[i] * 0x1p-8);
}

TEST_CASE("a value that the dtype cannot hold is refused with its place, and no file is left") {
    Place place;
    StoredModel model = StoredModel::small();
    model.value = [](int tensor, int, int64_t element) {
        return tensor == 2 && element == 5 ? 1e5F : 1.0F;
    };
    const auto source = open_tensor_source(*place.tree, model.save(*place.tree, place.root(), 2));
    ExportOptions options = place.options();
    options.dtype = DType::kF16;
    std::string what;
    CHECK(test::code_of([&] { (void)export_weights(*source, options); }, &what) ==
          ExitCode::kInput);
    CHECK_THAT(what, Catch::Contains("element 5 of `h.0.bias`"));
    CHECK(fs::is_empty(place.out()));
    options.dtype = DType::kBF16;
    (void)export_weights(*source, options);
}

TEST_CASE("shards hold at most what was asked for, and the index names the file of each tensor") {
    Place place;
    StoredModel model = StoredModel::small();
    model.checkpoint.tensors = {StoredModel::tensor("a", {10}), StoredModel::tensor("b", {10}),
                                StoredModel::tensor("c", {30}), StoredModel::tensor("d", {5}),
                                StoredModel::tensor("e", {5})};
    const auto source = open_tensor_source(*place.tree, model.save(*place.tree, place.root(), 2));
    ExportOptions options = place.options();
    options.shard_max = Bytes{80};
    const ExportReport report = export_weights(*source, options);
    std::ifstream in(place.out() + "/model.safetensors.index.json");
    const auto index = nlohmann::json::parse(in);
    CHECK(index["metadata"]["total_size"] == 4 * 60);
    // Shards are made as in huggingface_hub: a tensor larger than a shard has a shard of its own,
    // and the open shard goes on.
    const std::vector<std::pair<const char*, const char*>> expected_files = {
        {"a", "model-00002-of-00003.safetensors"},
        {"b", "model-00002-of-00003.safetensors"},
        {"c", "model-00001-of-00003.safetensors"},
        {"d", "model-00003-of-00003.safetensors"},
        {"e", "model-00003-of-00003.safetensors"}};
    for (const auto& [name, file] : expected_files) {
        CHECK(index["weight_map"][name] == file);
        CHECK(SafetensorsFile(place.out() + "/" + file).find(name) != nullptr);
    }
    CHECK(report.files.size() == 4);
    // A reader sees the files as one model.
    const auto read = open_tensor_source(*place.tree, place.out());
    CHECK(read->tensors().size() == 5);
}

TEST_CASE("an earlier model is never replaced unasked, and wholly when asked") {
    Place place;
    StoredModel model = StoredModel::small();
    const auto source = open_tensor_source(*place.tree, model.save(*place.tree, place.root(), 2));
    ExportOptions options = place.options();
    options.shard_max = Bytes{64};
    (void)export_weights(*source, options);
    std::string what;
    options.shard_max.reset();
    CHECK(test::code_of([&] { (void)export_weights(*source, options); }, &what) ==
          ExitCode::kInput);
    CHECK_THAT(what, Catch::Contains("--force"));
    options.is_forced = true;
    (void)export_weights(*source, options);
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(place.out()))
        files.push_back(entry.path().filename());
    CHECK(files == std::vector<std::string>{"model.safetensors"});

    options.out = place.folder.path() + "/one.safetensors";
    CHECK(export_weights(*source, options).files == std::vector<std::string>{options.out});
    options.is_forced = false;
    CHECK(test::code_of([&] { (void)export_weights(*source, options); }) == ExitCode::kInput);
    options.out = "/proc/nowhere";
    CHECK(test::code_of([&] { (void)export_weights(*source, options); }) == ExitCode::kDisk);
}

TEST_CASE("a byte that the disk has changed is found before anything is written") {
    Place place;
    StoredModel model = StoredModel::small();
    const std::string folder = model.save(*place.tree, place.root(), 2);
    const std::string path = folder + "/weights-00001-of-00002.safetensors";
    const auto bytes = static_cast<int64_t>(fs::file_size(path));
    {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(bytes - 3);
        const char changed = static_cast<char>(file.peek() ^ 1);
        file.seekp(bytes - 3);
        file.put(changed);
    }
    const auto source = open_tensor_source(*place.tree, folder);
    std::string what;
    CHECK(test::code_of([&] { (void)export_weights(*source, place.options()); }, &what) ==
          ExitCode::kCheckpoint);
    CHECK_THAT(what, Catch::Contains("weights-00001-of-00002.safetensors"));
    CHECK(fs::is_empty(place.out()));
}

TEST_CASE("sizes of shards are read as huggingface_hub reads them") {
    const std::vector<std::pair<const char*, int64_t>> good = {
        {"5GB", 5'000'000'000},     {"500MB", 500'000'000}, {"1.5KB", 1500},
        {"5GiB", int64_t{5} << 30}, {"120000", 120'000},    {" 2 tb ", 2'000'000'000'000}};
    for (const auto& [text, bytes] : good)
        CHECK(parse_shard_bytes(text, "--max-shard-size").value == bytes);
    for (const char* bad : {"", "GB", "-1GB", "0", "5", "5XB", "nan", "1e300TB"}) {
        INFO(bad);
        CHECK(test::code_of([&] { (void)parse_shard_bytes(bad, "--max-shard-size"); }) ==
              ExitCode::kUsage);
    }
}

TEST_CASE("what belongs to a model beside its weights is copied byte for byte") {
    Place place;
    const std::string from = place.folder.path() + "/hf";
    fs::create_directories(from + "/additional_chat_templates");
    fs::create_directories(place.out());
    CHECK(test::code_of([&] { check_model_config(from); }) == ExitCode::kInput);
    const std::string odd("{\"a\": 1}\r\n\0x", 12);
    for (const char* name :
         {"config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
          "additional_chat_templates/tool_use.jinja", "additional_chat_templates/notes.txt",
          "model.safetensors", "notes.txt"})
        std::ofstream(from + "/" + name, std::ios::binary) << odd << name;
    CHECK(copy_model_config(from, place.out()) ==
          std::vector<std::string>{"additional_chat_templates/tool_use.jinja",
                                   "chat_template.jinja", "config.json", "tokenizer.json",
                                   "tokenizer_config.json"});
    CHECK(place.folder.read("out/additional_chat_templates/tool_use.jinja") ==
          odd + "additional_chat_templates/tool_use.jinja");
    CHECK(place.folder.read("out/tokenizer.json") == odd + "tokenizer.json");
}
