// Checkpoints that DeepSpeed itself wrote (tests/fixtures/make_deepspeed.py). The import's output
// is compared with the output of DeepSpeed's own converter.
#include "storage/foreign/import.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/text_bytes.h"
#include "deepspeed_fixtures.h"
#include "storage/checkpoint/checkpoint_reader.h"
#include "storage/foreign/deepspeed_model.h"
#include "storage/foreign/torch_file.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "support/write_safetensors.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;
namespace fs = std::filesystem;

namespace {

std::string contents(const CheckpointReader& reader, int tensor, int state) {
    std::string bytes;
    const int64_t numel = reader.checkpoint().tensors[tensor].numel();
    reader.for_each(tensor, state, {0, numel}, [&](const Range&, std::span<const std::byte> part) {
        bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
    });
    return bytes;
}

std::string refusal(const ImportOptions& options) {
    const auto tree = make_disk_tree();
    return error_of(ExitCode::kInput,
                    [&] { static_cast<void>(import_checkpoint(*tree, options)); });
}

}  // namespace

namespace {

struct Fixture {
    const char* name;
    int64_t ranks = 2;
    int64_t updates = 3;  // FP16_Optimizer and its kind add one of zeros before the first
    double loss_scale = 1;
    std::vector<std::string> frozen = {};
};

// The loss scale of fp16 is 2^8, doubled after two steps without an overflow. Updates are the
// optimizer's own count of steps.
const std::array kFixtureList = {Fixture{.name = "fp32-0", .frozen = {"fixed.*"}},
                                 Fixture{.name = "fp32-0-torch", .frozen = {"fixed.*"}},
                                 Fixture{"fp32-0-flat"},
                                 Fixture{.name = "bf16-0", .updates = 4},
                                 Fixture{.name = "bf16-0-torch", .updates = 4},
                                 Fixture{.name = "fp16-0", .updates = 4, .loss_scale = 512},
                                 Fixture{.name = "fp16-0-torch", .updates = 4, .loss_scale = 512},
                                 Fixture{"fp32-1"},
                                 Fixture{"bf16-1-accumulate"},
                                 Fixture{"fp32-2"},
                                 Fixture{"fp32-2-torch"},
                                 Fixture{"bf16-2"},
                                 Fixture{.name = "fp16-2", .loss_scale = 512},
                                 Fixture{"fp32-3"},
                                 Fixture{.name = "fp32-3-sub", .ranks = 3},
                                 Fixture{"bf16-3"}};

}  // namespace

TEST_CASE("What DeepSpeed saved is what the import holds, bit for bit") {
    for (const Fixture& fixture : kFixtureList) {
        const char* name = fixture.name;
        INFO(name);
        const TemporaryFolder folder;
        const auto tree = make_disk_tree();
        const std::string root = folder.path() + "/checkpoints";
        const ImportReport report = import_checkpoint(
            *tree, {fmt::format("{}/{}", kFixtures, name), "", {}, root, fixture.frozen});
        CHECK(report.step == 3);
        CHECK(report.has_states);
        CHECK(report.is_finite);
        CHECK(report.notes.empty());
        CHECK(report.folder == root + "/step-3");
        CHECK(report.writer ==
              fmt::format("DeepSpeed 0.19.8, ZeRO stage {}, {} ranks", name[5], fixture.ranks));
        const CheckpointReader reader(*tree, report.folder);
        const Checkpoint& checkpoint = reader.checkpoint();
        for (size_t i = 0; i < checkpoint.files.size(); ++i) CHECK(reader.verify_file(i).empty());
        CHECK(checkpoint.training.updates == 3);
        CHECK(checkpoint.training.samples_seen == 12 * fixture.ranks);
        CHECK(checkpoint.training.loss_scale == fixture.loss_scale);
        const SafetensorsFile expected(fmt::format("{}/{}.safetensors", kFixtures, name));
        size_t compared = 0;
        for (const SafetensorsEntry& entry : expected.entries()) {
            INFO(entry.name);
            std::string tensor = entry.name;
            int state = kWeights;
            for (int k = 0; k < std::ssize(checkpoint.states); ++k) {
                const std::string ending = fmt::format(".{}", checkpoint.states[k]);
                if (!entry.name.ends_with(ending)) continue;
                state = k;
                tensor.resize(tensor.size() - ending.size());
            }
            const int index = checkpoint.find(tensor);
            REQUIRE(index >= 0);
            CHECK(checkpoint.tensors[index].shape == entry.shape);
            CHECK(contents(reader, index, state) == text_in(entry.bytes));
            ++compared;
        }
        // 9 trained with two states each, 2 frozen, 2 buffers and 1 tied name.
        CHECK(compared == 9 * 3 + 2 + 2 + 1);
        CHECK(report.tensor_count == 9 + 2 + 2);
        const auto& embed = checkpoint.tensors[checkpoint.find("head.weight")];
        CHECK(embed.name == "embed.weight");
        CHECK(embed.kind == TensorKind::kTrained);
        CHECK(embed.updates == fixture.updates);
        const auto kind = [&](const char* of) {
            return checkpoint.tensors[checkpoint.find(of)].kind;
        };
        CHECK(kind("fixed.bias") == TensorKind::kFrozen);
        CHECK(kind("seen") == TensorKind::kBuffer);
        CHECK(kind("unused.weight") == TensorKind::kTrained);
    }
}

TEST_CASE("A tensor without elements has no storage to be beyond") {
    const TorchFile file(kFixtures + "/empty.pt");
    const TorchTensor empty = file.tensor(file.root().find("empty"), "empty");
    CHECK(empty.shape == std::vector<int64_t>{0, 3});
    CHECK(empty.numel() == 0);
    CHECK(file.tensor(file.root().find("full"), "full").numel() == 6);
}

TEST_CASE("A DeepSpeed checkpoint that is not whole is refused by the file's name") {
    const TemporaryFolder folder;
    const std::string step = folder.path() + "/global_step3";
    const ImportOptions options{folder.path(), "", {}, folder.path() + "/out"};
    const auto afresh = [&](const char* name) {
        fs::remove_all(step);
        fs::copy(fmt::format("{}/{}", kFixtures, name), folder.path(),
                 fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    };
    const auto says = [&](const char* what) {
        const std::string said = refusal(options);
        INFO(said);
        CHECK(said.find(what) != std::string::npos);
        CHECK_FALSE(fs::exists(options.root));
    };
    afresh("fp32-2");
    fs::remove(step + "/zero_pp_rank_1_mp_rank_00_optim_states.pt");
    says("2 ranks wrote it, but there are files of 1 ranks");
    afresh("fp32-2");
    fs::remove(step + "/zero_pp_rank_0_mp_rank_00_optim_states.pt");
    says("zero_pp_rank_0_mp_rank_00_optim_states.pt: is missing");
    afresh("fp32-3");
    fs::remove(step + "/zero_pp_rank_1_mp_rank_00_model_states.pt");
    says("zero_pp_rank_1_mp_rank_00_model_states.pt: is missing");
    afresh("fp32-2");
    fs::copy_file(kFixtures + "/fp32-1/global_step3/zero_pp_rank_1_mp_rank_00_optim_states.pt",
                  step + "/zero_pp_rank_1_mp_rank_00_optim_states.pt",
                  fs::copy_options::overwrite_existing);
    says("was saved with ZeRO stage 1, but rank 0's file with stage 2");
    afresh("fp32-2");
    // The first rank's part twice: 74 + 74 elements instead of 74 + 73 are within the alignment,
    // and so are 15 + 15 instead of 14 + 12. Half a file is not.
    fs::resize_file(step + "/zero_pp_rank_1_mp_rank_00_optim_states.pt", 3000);
    says("zero_pp_rank_1_mp_rank_00_optim_states.pt: not a usable archive");
    afresh("fp32-2");
    fs::copy_file(step + "/mp_rank_00_model_states.pt", step + "/mp_rank_01_model_states.pt");
    says("the ranks' files are missing");
    afresh("fp32-2");
    std::ofstream(step + "/layer_00-model_states.pt") << "x";
    says("layer_00-model_states.pt");
    afresh("fp32-2");
    std::ofstream(step + "/layer_0_expert_0_mp_rank_00_model_states.pt") << "x";
    says("a mixture of experts");
    afresh("fp32-2");
    std::ofstream(folder.path() + "/latest") << "../elsewhere";
    says("is not a tag");
    std::ofstream(folder.path() + "/latest") << "global_step9";
    says(
        "names the folder `global_step9`, which does not exist; the folders beside it are "
        "global_step3");
}

TEST_CASE("Files of different saves in one DeepSpeed folder are refused by the file's name") {
    const TemporaryFolder folder;
    const std::string step = folder.path() + "/global_step3";
    const auto refused = [&](const char* name, const char* file, const char* what) {
        INFO(name << " " << file);
        fs::remove_all(step);
        fs::copy(fmt::format("{}/{}", kFixtures, name), folder.path(),
                 fs::copy_options::recursive | fs::copy_options::overwrite_existing);
        // The later folder is the same run, one step further.
        const std::string later = fmt::format("{}/later/{}/{}", kFixtures, name, file);
        REQUIRE(fs::exists(later));
        fs::copy_file(later, fmt::format("{}/{}", step, file),
                      fs::copy_options::overwrite_existing);
        const std::string said = refusal({folder.path(), "", {}, folder.path() + "/out"});
        INFO(said);
        CHECK(said.find(file) != std::string::npos);
        CHECK(said.find(what) != std::string::npos);
        CHECK(said.find("different saves") != std::string::npos);
    };
    refused("fp32-2", "zero_pp_rank_1_mp_rank_00_optim_states.pt", "has made 4, 4 updates");
    refused("fp32-2", "mp_rank_00_model_states.pt", "`embed.weight` differs from");
    refused("bf16-2", "mp_rank_00_model_states.pt",
            "differs from the optimizer's master weights, rounded");
    refused("fp32-3", "zero_pp_rank_1_mp_rank_00_optim_states.pt", "has made 4, 4 updates");
    refused("fp32-3", "zero_pp_rank_1_mp_rank_00_model_states.pt", "global_steps");
}

TEST_CASE("A DeepSpeed checkpoint of stage 0 whose parameters cannot be told apart is refused") {
    const TemporaryFolder folder;
    // fixed.bias is frozen and not a parameter of the optimizer. It has the length of norm's two.
    const std::string said = refusal({kFixtures + "/fp32-0", "", {}, folder.path() + "/out"});
    INFO(said);
    CHECK(said.find(
              "does not name its 9 parameters, and they cannot be matched to the 11 parameters") !=
          std::string::npos);
    CHECK(said.find("--frozen") != std::string::npos);
    CHECK_FALSE(fs::exists(folder.path() + "/out"));
    // The folder has stage 2's model without the ranks' files.
    fs::copy(kFixtures + "/fp32-2", folder.path() + "/cut", fs::copy_options::recursive);
    for (const char* rank : {"0", "1"})
        fs::remove(fmt::format("{}/cut/global_step3/zero_pp_rank_{}_mp_rank_00_optim_states.pt",
                               folder.path(), rank));
    CHECK(refusal({folder.path() + "/cut", "", {}, folder.path() + "/out"})
              .find("the ranks' files are missing") != std::string::npos);
}

TEST_CASE("The weights alone of a checkpoint of stage 0 need no word of what is frozen") {
    for (const Fixture& fixture : kFixtureList) {
        if (fixture.name[5] != '0') continue;
        INFO(fixture.name);
        const auto opened =
            open_deepspeed(fmt::format("{}/{}", kFixtures, fixture.name), "", {}, true);
        const DeepSpeedModel& source = *opened;
        const SafetensorsFile expected(fmt::format("{}/{}.safetensors", kFixtures, fixture.name));
        size_t compared = 0;
        for (const CheckpointTensor& tensor : source.tensors()) {
            INFO(tensor.name);
            const auto entry =
                std::ranges::find(expected.entries(), tensor.name, &SafetensorsEntry::name);
            REQUIRE(entry != expected.entries().end());
            CHECK(tensor.shape == entry->shape);
            if (tensor.dtype != entry->dtype) continue;  // 16 bits that become fp32 when written
            std::string text;
            source.for_each(
                static_cast<int>(&tensor - source.tensors().data()), kWeights, {0, tensor.numel()},
                [&](const Range&, std::span<const std::byte> part) { text += text_in(part); });
            CHECK(text == text_in(entry->bytes));
            ++compared;
        }
        CHECK(source.tensors().size() == 9 + 2 + 2);
        CHECK(compared >= 9);
    }
}

TEST_CASE("Weights of a .safetensors file become a checkpoint of step 0") {
    const TemporaryFolder folder;
    // 1, -2.5, the smallest subnormal and the largest number of each 16-bit type; by hand.
    const std::array<uint16_t, 4> half = {0x3C00, 0xC100, 0x0001, 0x7BFF};
    const std::array<uint16_t, 4> brain = {0x3F80, 0xC020, 0x0001, 0x7F7F};
    const std::array<float, 4> half_wide = {1, -2.5F, 0x1p-24F, 65504};
    const std::array<float, 4> brain_wide = {1, -2.5F, 0x1p-133F, 0x1.FEp127F};
    const std::array<int64_t, 1> count = {7};
    const auto entry = [](const char* name, DType dtype, const auto& values) {
        return SafetensorsEntry{
            name, dtype, {std::ssize(values)}, std::as_bytes(std::span(values))};
    };
    const std::vector<SafetensorsEntry> entries = {
        entry("model.half", DType::kF16, half), entry("model.brain", DType::kBF16, brain),
        entry("model.full", DType::kF32, half_wide), entry("count", DType::kI64, count)};
    const std::string file = folder.path() + "/model.safetensors";
    write_safetensors(file, entries);
    const auto tree = make_disk_tree();
    for (const std::string& source : {file, folder.path()}) {
        const ImportReport report =
            import_checkpoint(*tree, {source, "", {"model.", "net."}, folder.path() + "/out"});
        CHECK(report.step == 0);
        CHECK_FALSE(report.has_states);
        CHECK(report.format == ForeignFormat::kSafetensors);
        const CheckpointReader reader(*tree, report.folder);
        const Checkpoint& checkpoint = reader.checkpoint();
        CHECK(checkpoint.states.empty());
        const auto holds = [&](const char* name, DType dtype, const auto& values) {
            const int index = checkpoint.find(name);
            REQUIRE(index >= 0);
            CHECK(checkpoint.tensors[index].dtype == dtype);
            CHECK(contents(reader, index, kWeights) == text_in(std::as_bytes(std::span(values))));
        };
        holds("net.half", DType::kF32, half_wide);
        holds("net.brain", DType::kF32, brain_wide);
        holds("net.full", DType::kF32, half_wide);
        holds("net.count", DType::kI64, count);
    }
    const std::string said = refusal({file, "", {"transformer.", ""}, folder.path() + "/other"});
    CHECK(said.find("does not begin with the prefix `transformer.`") != std::string::npos);
    CHECK_FALSE(fs::exists(folder.path() + "/other"));
}

TEST_CASE("A source of no known kind is refused with what would be one") {
    const TemporaryFolder folder;
    const auto says = [&](const std::string& source, const char* what) {
        const std::string said = refusal({source, "", {}, folder.path() + "/out"});
        INFO(said);
        CHECK(said.find(what) != std::string::npos);
    };
    says(folder.path() + "/none", "no such file or folder");
    says(folder.path(), "a folder with model.safetensors");
    std::ofstream(folder.path() + "/pytorch_model.bin") << "x";
    says(folder.path(), "s.save_file");
    says(folder.path() + "/pytorch_model.bin", "s.save_file");
}
