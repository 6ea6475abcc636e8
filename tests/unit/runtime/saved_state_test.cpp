// Weights that another program wrote under more names than the model has.
#include "runtime/save/saved_state.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "storage/checkpoint/checkpoint_reader.h"
#include "storage/files/safetensors.h"
#include "storage/foreign/import.h"
#include "support/catch.h"
#include "support/fixtures.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "support/write_safetensors.h"

namespace dslaunch::test {
namespace {

constexpr const char* kTable = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

// The state_dict of a model whose output layer uses the table of tokens, as a checkpoint. PyTorch's
// state_dict has that tensor under both names.
struct TiedState {
    explicit TiedState(bool are_equal) {
        const storage::SafetensorsFile stored(model + "/model.safetensors");
        std::vector<storage::SafetensorsEntry> entries = stored.entries();
        for (const storage::SafetensorsEntry& entry : stored.entries()) {
            if (entry.name != kTable) continue;
            entries.push_back(entry);
            entries.back().name = kHead;
            head.assign(entry.bytes.begin(), entry.bytes.end());
        }
        if (!are_equal) head.front() ^= std::byte{1};
        entries.back().bytes = head;
        write_safetensors(folder.path() + "/state.safetensors", entries);
        storage::ImportOptions options;
        options.source = folder.path() + "/state.safetensors";
        options.root = folder.path() + "/checkpoints";
        step = storage::import_checkpoint(*tree, options).folder;
    }

    TemporaryFolder folder;
    std::string model = fixture_path("huggingface/qwen2");
    std::vector<std::byte> head;
    std::unique_ptr<storage::FileTree> tree = storage::make_disk_tree();
    std::string step;
};

}  // namespace

TEST_CASE("a tied output layer may be in a state_dict under its own name too, with equal values") {
    const TiedState saved(/*are_equal=*/true);
    const graph::Model model = graph::Model::load(saved.model);
    const storage::CheckpointReader reader(*saved.tree, saved.step);
    REQUIRE(reader.checkpoint().find(kHead) >= 0);
    runtime::SavedState state(reader, model, {});
    const graph::ModelParameter& table = model.parameters().front();
    REQUIRE(table.name == kTable);
    std::vector<float> read(static_cast<size_t>(table.tensor.numel()));
    state.read_weights(0, {0, table.tensor.numel()}, reinterpret_cast<std::byte*>(read.data()),
                       DType::kF32);
    const at::Tensor expected = table.tensor.detach().to(at::kFloat).contiguous();
    CHECK(std::equal(read.begin(), read.end(), expected.const_data_ptr<float>()));
}

TEST_CASE("a tied output layer with other values than the table is refused, and both are named") {
    const TiedState saved(/*are_equal=*/false);
    const graph::Model model = graph::Model::load(saved.model);
    const storage::CheckpointReader reader(*saved.tree, saved.step);
    const std::string why =
        error_of(ExitCode::kCheckpoint, [&] { runtime::SavedState state(reader, model, {}); });
    CHECK_THAT(why, Catch::Contains(std::string(kTable) + " and " + kHead +
                                    " are one tensor in the model, but have different values"));
}

TEST_CASE("an output layer of its own is not taken for a second name of the table") {
    const TiedState saved(/*are_equal=*/true);
    const graph::Model model = graph::Model::load(fixture_path("huggingface/qwen2-own-head"));
    const storage::CheckpointReader reader(*saved.tree, saved.step);
    runtime::SavedState state(reader, model, {});
    int head = -1;
    for (int p = 0; p < std::ssize(model.parameters()); ++p)
        if (model.parameters()[p].name == kHead) head = p;
    REQUIRE(head > 0);
    std::vector<std::byte> read(saved.head.size());
    const at::Tensor& tensor = model.parameters()[head].tensor;
    const DType stored = reader.checkpoint().tensors[reader.checkpoint().find(kHead)].dtype;
    REQUIRE(read.size() == static_cast<size_t>(tensor.numel() * dtype_bytes(stored)));
    state.read_weights(head, {0, tensor.numel()}, read.data(), stored);
    CHECK(std::ranges::equal(read, saved.head));
}

}  // namespace dslaunch::test
