// Universal checkpoints that DeepSpeed's own ds_to_universal.py made of the fixtures of
// import_test.cpp. The import must have what DeepSpeed's converters read out of those.
#include "storage/foreign/universal_source.h"

#include <filesystem>
#include <functional>

#include "base/error.h"
#include "base/text_bytes.h"
#include "deepspeed_fixtures.h"
#include "storage/checkpoint/checkpoint_reader.h"
#include "storage/foreign/import.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;
namespace fs = std::filesystem;

namespace {

const std::string kUniversal = kFixtures + "/universal";
constexpr const char* kTag = "global_step3_universal";

// A copy of a fixture that a test changes.
class Copy {
  public:
    explicit Copy(const char* name) {
        fs::copy(fmt::format("{}/{}", kUniversal, name), folder_.path(),
                 fs::copy_options::recursive | fs::copy_options::overwrite_existing);
    }
    [[nodiscard]] std::string path() const { return folder_.path(); }
    [[nodiscard]] std::string tag() const { return fmt::format("{}/{}", folder_.path(), kTag); }
    // Returns the message with which it is refused.
    [[nodiscard]] std::string refusal() const {
        return error_of(ExitCode::kInput,
                        [&] { static_cast<void>(open_deepspeed(path(), "", {})); });
    }

  private:
    TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("a universal checkpoint has what the checkpoint has from which it was made") {
    struct Fixture {
        const char* name;
        int stage;
    };
    for (const Fixture& fixture : {Fixture{"bf16-2", 2}, Fixture{"fp32-3", 3}}) {
        INFO(fixture.name);
        const std::string root = fmt::format("{}/{}", kUniversal, fixture.name);
        const auto source = open_deepspeed(root, "", {});
        CHECK(source->notes().empty());
        CHECK(source->writer() ==
              fmt::format("DeepSpeed 0.19.8, universal, from ZeRO stage {}", fixture.stage));
        const Checkpoint& checkpoint = *source->checkpoint();
        CHECK(checkpoint.training.step == 3);
        CHECK(checkpoint.training.updates == 3);
        CHECK(checkpoint.training.samples_seen == 24);
        CHECK(checkpoint.optimizer == "adam");
        CHECK(checkpoint.states == std::vector<std::string>{"exp_avg", "exp_avg_sq"});
        CHECK(source->tensors().size() == 9 + 2 + 2);
        check_values(*source, fmt::format("{}/{}.safetensors", kFixtures, fixture.name));
        const auto about = [&](const char* name) -> const CheckpointTensor& {
            return source->tensors()[static_cast<size_t>(find(*source, name))];
        };
        CHECK(about("head.weight").name == "embed.weight");
        CHECK(about("embed.weight").updates == 3);
        CHECK(about("embed.weight").kind == TensorKind::kTrained);
        CHECK(about("fixed.bias").kind == TensorKind::kFrozen);
        CHECK(about("offset").kind == TensorKind::kBuffer);
        // The folder of the tag, and its name, are the same.
        CHECK(open_deepspeed(fmt::format("{}/{}", root, kTag), "", {})->tensors().size() == 13);
        CHECK(open_deepspeed(root, kTag, {})->tensors().size() == 13);
    }
}

TEST_CASE("a universal checkpoint is imported like the one from which it was made") {
    const TemporaryFolder folder;
    const auto tree = make_disk_tree();
    for (const char* name : {"bf16-2", "fp32-3"}) {
        INFO(name);
        const auto import = [&](const std::string& from, const std::string& to) {
            const std::string root = fmt::format("{}/{}", folder.path(), to);
            const ImportReport report = import_checkpoint(*tree, {from, "", {}, root});
            CHECK(report.has_states);
            return std::make_unique<CheckpointReader>(*tree, report.folder);
        };
        const auto made = import(fmt::format("{}/{}", kUniversal, name), "universal");
        const auto own = import(fmt::format("{}/{}", kFixtures, name), "own");
        REQUIRE(made->checkpoint().tensors.size() == own->checkpoint().tensors.size());
        for (int i = 0; i < std::ssize(own->checkpoint().tensors); ++i) {
            const CheckpointTensor& tensor = own->checkpoint().tensors[static_cast<size_t>(i)];
            INFO(tensor.name);
            const int other = made->checkpoint().find(tensor.name);
            REQUIRE(other >= 0);
            for (int state = kWeights; state < (has_states(tensor) ? 2 : 0); ++state) {
                std::string a, b;
                const auto add_to = [](std::string& text) {
                    return [&text](const Range&, std::span<const std::byte> part) {
                        text += text_in(part);
                    };
                };
                own->for_each(i, state, {0, tensor.numel()}, add_to(a));
                made->for_each(other, state, {0, tensor.numel()}, add_to(b));
                CHECK(a == b);
            }
        }
    }
}

TEST_CASE("the original checkpoint is read if both are there, the other one by its tag") {
    const Copy copy("bf16-2");
    fs::copy(kFixtures + "/bf16-2", copy.path(), fs::copy_options::recursive);
    CHECK(open_deepspeed(copy.path(), "", {})->writer() ==
          "DeepSpeed 0.19.8, ZeRO stage 2, 2 ranks");
    CHECK(open_deepspeed(copy.path(), kTag, {})->writer().find("universal") != std::string::npos);
}

TEST_CASE("a universal checkpoint that is not whole is refused by the file's name") {
    const auto says = [](const char* name, const std::function<void(const Copy&)>& change,
                         const std::string& what) {
        const Copy copy(name);
        change(copy);
        const std::string said = copy.refusal();
        INFO(said << " instead of " << what);
        CHECK(said.find(what) != std::string::npos);
    };
    const auto removes = [](const char* file) {
        return [file](const Copy& copy) { fs::remove_all(copy.tag() + "/" + file); };
    };
    says("bf16-2", removes("zero/mix.bias/fp32.pt"), "has no fp32.pt");
    says("bf16-2", removes("zero/mix.bias/exp_avg.pt"), "a file is missing");
    says("bf16-2", removes("zero/mix.bias"), "has no folder of `mix.bias`");
    says("bf16-2", removes("zero/optimizer_state.pt"), "optimizer_state.pt");
    says("bf16-2", removes("mp_rank_00_model_states.pt"), "is incomplete");
    says("fp32-3", removes("zero_pp_rank_0_mp_rank_00_model_states.pt"),
         "zero_pp_rank_0_mp_rank_00_model_states.pt");
    const auto cuts = [](const char* file) {
        return [file](const Copy& copy) {
            const std::string path = copy.tag() + "/" + file;
            fs::resize_file(path, fs::file_size(path) / 2);
        };
    };
    says("bf16-2", cuts("zero/mix.bias/exp_avg_sq.pt"), "mix.bias/exp_avg_sq.pt");
    says("bf16-2", cuts("zero/mix.bias/step.pt"), "mix.bias/step.pt");
    const auto moves = [](const char* from, const char* to) {
        return [from, to](const Copy& copy) {
            fs::copy_file(copy.tag() + "/" + from, copy.tag() + "/" + to,
                          fs::copy_options::overwrite_existing);
        };
    };
    // A parameter of the same length, and one of another.
    says("bf16-2", moves("zero/norm.bias/fp32.pt", "zero/norm.weight/fp32.pt"),
         "fp32.pt, rounded to the same type");
    says("bf16-2", moves("zero/mix.bias/exp_avg.pt", "zero/norm.bias/exp_avg.pt"),
         "has 7 elements, but the weights have 5");
    says("fp32-3", moves("zero/mix.bias/fp32.pt", "zero/norm.bias/fp32.pt"),
         "has 7 elements, but `norm.bias` has 5");
    says("bf16-2", moves("zero/mix.bias/exp_avg.pt", "zero/mix.bias/momentum_buffer.pt"),
         "treat all parameters alike");
}

TEST_CASE("a universal checkpoint without counts of updates has the model's count") {
    const Copy copy("bf16-2");
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(copy.tag() + "/zero"))
        fs::remove(entry.path() / "step.pt", ignored);
    const auto source = open_deepspeed(copy.path(), "", {});
    REQUIRE(source->notes().size() == 1);
    CHECK(source->notes()[0].find("the model's count, 3, is used") != std::string::npos);
    for (const CheckpointTensor& tensor : source->tensors())
        CHECK(tensor.updates == (tensor.kind == TensorKind::kTrained ? 3 : 0));
    const Copy other("bf16-2");
    fs::copy_file(other.tag() + "/zero/optimizer_state.pt", other.tag() + "/zero/mix.bias/step.pt",
                  fs::copy_options::overwrite_existing);
    CHECK(other.refusal().find("its step is no number") != std::string::npos);
}

TEST_CASE("a universal checkpoint of a split model is read whole, or refused") {
    const auto tensor = open_deepspeed(kUniversal + "/tensor-3", "", {});
    CHECK(tensor->notes().empty());
    CHECK(tensor->tensors().size() == 16);
    check_values(*tensor, kFixtures + "/split/tensor-3.safetensors");
    const auto pipe = open_deepspeed(kUniversal + "/pipe-bf16", "", {});
    REQUIRE(pipe->notes().size() == 2);
    CHECK(pipe->notes()[0].find("1.offset, 2.offset, 3.offset") != std::string::npos);
    CHECK(pipe->tensors().size() == 19);
    check_values(*pipe, kFixtures + "/split/pipe-bf16.safetensors");
    // A parameter that never had a gradient: DeepSpeed's converter takes only rank 0's part.
    const Copy part("tensor-3");
    for (const char* file : {"exp_avg.pt", "exp_avg_sq.pt", "step.pt"})
        fs::remove(fmt::format("{}/zero/blocks.0.up.bias/{}", part.tag(), file));
    fs::copy_file(part.tag() + "/zero/blocks.0.norm.bias/fp32.pt",
                  part.tag() + "/zero/blocks.0.up.bias/fp32.pt",
                  fs::copy_options::overwrite_existing);
    CHECK(part.refusal().find("stored only the part of the first of 2 tensor ranks") !=
          std::string::npos);
    const Copy lacks("pipe-bf16");
    fs::remove_all(lacks.tag() + "/zero/3.up.weight");
    CHECK(lacks.refusal().find("has no folder of `3.up.weight`") != std::string::npos);
    const Copy alone("pipe-bf16");
    fs::remove(alone.tag() + "/mp_rank_01_model_states.pt");
    CHECK(alone.refusal().find("2 model ranks wrote the checkpoint") != std::string::npos);
}
