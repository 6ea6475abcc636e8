// A small model in checkpoints, written through the store's own API. Its values can be computed
// from the indices of tensor, state and element.
#pragma once

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/range.h"
#include "storage/checkpoint/checkpoint_store.h"
#include "storage/checkpoint/shard_writer.h"

namespace dslaunch::test {

using namespace storage;

// Returns a float that is different for each tensor, state and element.
inline float stored_value(int tensor, int state, int64_t element) {
    return static_cast<float>(tensor * 7 + state * 3 + 1) / 8.0F +
           static_cast<float>(element % 1024) / 1024.0F;
}

struct StoredModel {
    using Value = std::function<float(int tensor, int state, int64_t element)>;
    Checkpoint checkpoint;
    Value value = stored_value;

    static CheckpointTensor tensor(const std::string& name, std::vector<int64_t> shape,
                                   TensorKind kind = TensorKind::kTrained) {
        CheckpointTensor made;
        made.name = name;
        made.shape = std::move(shape);
        made.kind = kind;
        made.updates = kind == TensorKind::kTrained ? 3 : 0;
        return made;
    }

    // Returns a model that has a tied tensor, a tensor in another order of memory, a frozen tensor,
    // a buffer of integers, an odd number of elements, a scalar and an empty tensor.
    static StoredModel small(int64_t step = 3) {
        StoredModel model;
        Checkpoint& checkpoint = model.checkpoint;
        checkpoint.version = "0.1.0";
        checkpoint.created = "2026-01-02T03:04:05Z";
        checkpoint.training.step = step;
        checkpoint.training.updates = step;
        checkpoint.training.samples_seen = 8 * step;
        checkpoint.training.seed = 1234;
        checkpoint.training.loss = 2.5;
        checkpoint.optimizer = "adamw";
        checkpoint.states = {"exp_avg", "exp_avg_sq"};
        checkpoint.config_json = R"({"train_batch_size":8})";
        checkpoint.tensors = {tensor("wte.weight", {6, 4}),
                              tensor("h.0.weight", {4, 3}),
                              tensor("h.0.bias", {7}),
                              tensor("frozen.weight", {2, 5}, TensorKind::kFrozen),
                              tensor("steps", {3}, TensorKind::kBuffer),
                              tensor("scale", {}),
                              tensor("nothing", {0, 4})};
        checkpoint.tensors[0].aliases = {"lm_head.weight"};
        checkpoint.tensors[1].strides = {1, 4};
        checkpoint.tensors[4].dtype = DType::kI64;
        return model;
    }

    // Returns the bytes of PIECE in the order of memory.
    [[nodiscard]] std::vector<std::byte> bytes_of(const CheckpointPiece& piece) const {
        const CheckpointTensor& tensor = checkpoint.tensors[piece.tensor];
        const bool integers = piece.state == kWeights && tensor.dtype == DType::kI64;
        std::vector<std::byte> bytes;
        const auto put = [&](const auto& element) {
            const size_t end = bytes.size();
            bytes.resize(end + sizeof(element));
            std::memcpy(bytes.data() + end, &element, sizeof(element));
        };
        for (int64_t i = piece.elements.begin; i < piece.elements.end(); ++i) {
            const float number = value(piece.tensor, piece.state, i);
            integers ? put(static_cast<int64_t>(8 * number)) : put(number);
        }
        return bytes;
    }

    // Saves the model below ROOT as WORLD ranks would do. Returns the folder.
    std::string save(FileTree& tree, const std::string& root, int world) {
        checkpoint.world_size = world;
        checkpoint.id = fmt::format("save-{}", checkpoint.training.step);
        CheckpointStore store(tree, root, 0);
        const std::string folder = store.begin(checkpoint.training.step, checkpoint.id, Bytes{});
        checkpoint.files.clear();
        for (int rank = 0; rank < world; ++rank) {
            for (const bool weights : {true, false}) {
                const ShardPlan plan = plan_of(rank, world, weights);
                ShardWriter writer(tree, folder, plan, checkpoint);
                for (const CheckpointPiece& piece : plan.pieces) writer.write(bytes_of(piece));
                checkpoint.files.push_back(writer.finish());
            }
        }
        tree.sync_folder(folder);
        return store.commit(checkpoint);
    }

  private:
    [[nodiscard]] ShardPlan plan_of(int rank, int world, bool weights) const {
        ShardPlan plan{fmt::format("{}-{:05}-of-{:05}.safetensors",
                                   weights ? "weights" : "optimizer", rank, world),
                       {}};
        for (size_t i = 0; i < checkpoint.tensors.size(); ++i) {
            const CheckpointTensor& tensor = checkpoint.tensors[i];
            const Range all{0, tensor.numel()};
            const bool trained = tensor.kind == TensorKind::kTrained;
            Range part = rank == 0 ? all : Range{};
            if (trained) {  // pieces that are not aligned begin in the middle of rows
                const int64_t begin = tensor.numel() * rank / world;
                part = {begin, tensor.numel() * (rank + 1) / world - begin};
            }
            if (part.numel == 0) continue;
            const int states = static_cast<int>(checkpoint.states.size());
            for (int state = weights ? kWeights : 0; state < (weights ? 0 : states); ++state)
                if (weights || trained) plan.pieces.push_back({static_cast<int>(i), state, part});
        }
        return plan;
    }
};

}  // namespace dslaunch::test
