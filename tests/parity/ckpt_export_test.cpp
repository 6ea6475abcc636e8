// A checkpoint of each fixture model is exported into the model's own archive. Stock torch::jit, or
// the reader of exported programs, then reads the checkpoint's values in every parameter and
// buffer.
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include "base/error.h"
#include "fixture_runs.h"
#include "graph/archive/model.h"
#include "storage/checkpoint/checkpoint_store.h"
#include "storage/checkpoint/shard_writer.h"

namespace dslaunch::test {

using namespace graph;
using namespace storage;
namespace {

// Returns TENSOR as if training had changed it: other values, the same in every run.
at::Tensor changed(const at::Tensor& tensor) {
    return tensor.is_floating_point() ? tensor.detach() * 1.5 + 0.25 : tensor.detach();
}

struct Saving {
    Checkpoint checkpoint;
    std::vector<at::Tensor> values;  // values by tensor of the checkpoint

    void add(const std::string& name, const std::vector<std::string>& aliases,
             const at::Tensor& tensor, TensorKind kind) {
        CheckpointTensor facts;
        facts.name = name;
        facts.aliases = aliases;
        facts.kind = kind;
        facts.dtype = tensor.is_floating_point() ? DType::kF32 : DType::kI64;
        REQUIRE((tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kLong));
        facts.shape = tensor.sizes().vec();
        values.push_back(changed(tensor));  // keeps the order of the elements in memory
        if (!values.back().is_contiguous()) facts.strides = values.back().strides().vec();
        checkpoint.tensors.push_back(facts);
    }

    // Saves a third of each parameter in each of three files.
    std::string save(FileTree& tree, const std::string& root) {
        constexpr int kWorld = 3;
        checkpoint.id = "export-test";
        checkpoint.version = "0.1.0";
        checkpoint.created = "2026-01-02T03:04:05Z";
        checkpoint.world_size = kWorld;
        checkpoint.optimizer = "sgd";
        checkpoint.config_json = "{}";
        CheckpointStore store(tree, root, 0);
        const std::string folder = store.begin(0, checkpoint.id, Bytes{});
        for (int rank = 0; rank < kWorld; ++rank) {
            ShardPlan plan{fmt::format("weights-{:05}-of-{:05}.safetensors", rank, kWorld), {}};
            for (size_t i = 0; i < values.size(); ++i) {
                const int64_t numel = values[i].numel(), begin = numel * rank / kWorld;
                const Range part{begin, numel * (rank + 1) / kWorld - begin};
                if (part.numel > 0) plan.pieces.push_back({static_cast<int>(i), kWeights, part});
            }
            ShardWriter writer(tree, folder, plan, checkpoint);
            for (const CheckpointPiece& piece : plan.pieces) {
                const at::Tensor& tensor = values[piece.tensor];
                const auto width = static_cast<int64_t>(tensor.element_size());
                const auto* memory = static_cast<const std::byte*>(tensor.const_data_ptr());
                writer.write({memory + piece.elements.begin * width,
                              static_cast<size_t>(piece.elements.numel * width)});
            }
            checkpoint.files.push_back(writer.finish());
        }
        tree.sync_folder(folder);
        return store.commit(checkpoint);
    }
};

// Returns the exported file's name; its ending tells readers the format.
std::string out_name(const std::string& archive) {
    return archive.ends_with(".pt2") ? "out.pt2" : "out.pt";
}

int exported(const TemporaryFolder& folder, const std::string& step, const std::string& archive,
             std::string* says = nullptr) {
    JobProcess process(folder,
                       {kDslaunch, "ckpt", "export", step, folder.path() + "/" + out_name(archive),
                        "--format", "torchscript", "--model", archive});
    const int code = process.wait();
    if (says != nullptr) *says = process.err();
    return code;
}

struct Named {
    std::string name;
    at::Tensor value;
};

// Returns the parameters and buffers of ARCHIVE, including aliases.
std::vector<Named> tensors_of(const std::string& archive) {
    std::vector<Named> found;
    if (archive.ends_with(".pt2")) {
        const Model model = Model::load(archive);
        const auto add = [&](const auto& one) {
            found.push_back({one.name, one.tensor});
            for (const std::string& alias : one.aliases) found.push_back({alias, one.tensor});
        };
        for (const ModelParameter& one : model.parameters()) add(one);
        for (const ModelBuffer& one : model.buffers()) add(one);
        return found;
    }
    const torch::jit::Module module = torch::jit::load(archive);
    for (const auto& item : module.named_parameters()) found.push_back({item.name, item.value});
    for (const auto& item : module.named_buffers()) found.push_back({item.name, item.value});
    return found;
}

}  // namespace

TEST_CASE("a checkpoint's weights go into the archive that was trained, of every fixture model") {
    for (const std::string& name : fixture_names()) {
        INFO(name);
        const TemporaryFolder folder;
        const std::unique_ptr<FileTree> tree = make_disk_tree();
        const Model model = Model::load(fixture_archive(name));
        Saving saving;
        for (const ModelParameter& one : model.parameters())
            saving.add(one.name, one.aliases, one.tensor,
                       one.tensor.requires_grad() ? TensorKind::kTrained : TensorKind::kFrozen);
        for (const ModelBuffer& one : model.buffers())
            saving.add(one.name, one.aliases, one.tensor, TensorKind::kBuffer);
        std::string says;
        const std::string step = saving.save(*tree, folder.path() + "/checkpoints");
        const int code = exported(folder, step, fixture_archive(name), &says);
        INFO(says);
        REQUIRE(code == 0);

        std::map<std::string, at::Tensor> found;
        for (const Named& one : tensors_of(folder.path() + "/" + out_name(fixture_archive(name))))
            found[one.name] = one.value;
        const std::vector<Named> before = tensors_of(fixture_archive(name));
        for (const Named& one : before) {
            INFO(one.name);
            REQUIRE(found.count(one.name) == 1);
            CHECK(at::equal(found.at(one.name), changed(one.value)));
            CHECK(found.at(one.name).requires_grad() == one.value.requires_grad());
        }
        CHECK(found.size() == before.size());
    }
}

TEST_CASE("an archive of another model is refused, with every tensor that does not fit") {
    const TemporaryFolder folder;
    const std::unique_ptr<FileTree> tree = make_disk_tree();
    Saving saving;
    saving.add("wte.weight", {}, at::ones({3}), TensorKind::kTrained);
    saving.add("stranger", {}, at::ones({3}), TensorKind::kTrained);
    const std::string step = saving.save(*tree, folder.path() + "/checkpoints");
    std::string says;
    CHECK(exported(folder, step, fixture_archive("gpt"), &says) ==
          static_cast<int>(ExitCode::kInput));
    for (const char* what :
         {"wte.weight: shape [3] in the checkpoint", "stranger: missing in the archive",
          "wpe.weight: missing in the checkpoint"})
        CHECK_THAT(says, Catch::Contains(what));
    std::ifstream out(folder.path() + "/out.pt");
    CHECK_FALSE(out.good());
}

}  // namespace dslaunch::test
