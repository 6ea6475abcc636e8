// A small checkpoint of two ranks. All of its bytes follow from its id.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "storage/checkpoint/checkpoint_reader.h"
#include "storage/checkpoint/checkpoint_store.h"
#include "storage/checkpoint/shard_writer.h"

namespace dslaunch::test {

using namespace storage;

inline constexpr int kRanks = 2;

// Returns a checkpoint with tensor w [7, 3], trained with one state, and tensor f [5], frozen and
// bf16.
inline Checkpoint small_checkpoint(int64_t step, const std::string& id) {
    Checkpoint checkpoint;
    checkpoint.version = "0.1.0";
    checkpoint.id = id;
    checkpoint.created = "2026-01-02T03:04:05Z";
    checkpoint.training.step = step;
    checkpoint.world_size = kRanks;
    checkpoint.optimizer = "adamw";
    checkpoint.states = {"exp_avg"};
    checkpoint.config_json = "{\"a\":1}";
    checkpoint.tensors.resize(2);
    checkpoint.tensors[0].name = "w";
    checkpoint.tensors[0].shape = {7, 3};
    checkpoint.tensors[1].name = "f";
    checkpoint.tensors[1].kind = TensorKind::kFrozen;
    checkpoint.tensors[1].dtype = DType::kBF16;
    checkpoint.tensors[1].shape = {5};
    return checkpoint;
}

inline std::vector<ShardPlan> small_plans(int rank) {
    const Range part = rank == 0 ? Range{0, 9} : Range{9, 12};
    std::vector<ShardPlan> plans(2);
    plans[0].name = fmt::format("weights-{:05}-of-{:05}.safetensors", rank, kRanks);
    plans[0].pieces = {{0, kWeights, part}};
    if (rank == 0) plans[0].pieces.push_back({1, kWeights, {0, 5}});
    plans[1].name = fmt::format("optimizer-{:05}-of-{:05}.safetensors", rank, kRanks);
    plans[1].pieces = {{0, 0, part}};
    return plans;
}

// Returns a finite value that is different for each element of each save.
inline uint32_t small_value(const std::string& id, const CheckpointPiece& piece, int64_t element) {
    const std::string key = fmt::format("{} {} {} {}", id, piece.tensor, piece.state, element);
    return static_cast<uint32_t>(hash_of(key).low) & 0x3F7F'3F7F;
}

inline std::string small_bytes(const Checkpoint& checkpoint, const CheckpointPiece& piece) {
    const bool weights = piece.state == kWeights;
    const DType dtype = weights ? checkpoint.tensors[piece.tensor].dtype : DType::kF32;
    const auto length = static_cast<size_t>(dtype_bytes(dtype));
    std::string bytes;
    for (int64_t i = piece.elements.begin; i < piece.elements.end(); ++i) {
        const uint32_t value = small_value(checkpoint.id, piece, i);
        bytes.append(reinterpret_cast<const char*>(&value), length);
    }
    return bytes;
}

inline CheckpointFile write_shard(FileTree& tree, const std::string& folder, const ShardPlan& plan,
                                  const Checkpoint& checkpoint) {
    ShardWriter writer(tree, folder, plan, checkpoint);
    for (const CheckpointPiece& piece : plan.pieces) {
        const std::string bytes = small_bytes(checkpoint, piece);
        writer.write(std::as_bytes(std::span(bytes).first(5)));
        writer.write(std::as_bytes(std::span(bytes).subspan(5)));
    }
    return writer.finish();
}

// Makes a whole save. If it fails, the save is given up and the error is thrown.
inline std::string save(FileTree& tree, CheckpointStore& store, int64_t step, const std::string& id,
                        const EvalRecord& evals = {}) {
    Checkpoint checkpoint = small_checkpoint(step, id);
    checkpoint.training.evals = evals;
    try {
        const std::string folder = store.begin(step, id, kib(64));
        for (int rank = 0; rank < kRanks; ++rank)
            for (const ShardPlan& plan : small_plans(rank))
                checkpoint.files.push_back(write_shard(tree, folder, plan, checkpoint));
        return store.commit(checkpoint);
    } catch (const Error&) {
        store.abandon(step, id);
        throw;
    }
}

// Returns a text about the first fault in FOLDER. It is empty if FOLDER passes its verification and
// each element has the value that follows from the checkpoint's id.
inline std::string fault_in(const FileTree& tree, const std::string& folder) {
    try {
        const CheckpointReader reader(tree, folder);
        const Checkpoint& checkpoint = reader.checkpoint();
        for (size_t i = 0; i < checkpoint.files.size(); ++i)
            if (const std::string fault = reader.verify_file(i); !fault.empty()) return fault;
        for (const CheckpointPiece& piece : std::vector<CheckpointPiece>{
                 {0, kWeights, {0, 21}}, {0, 0, {0, 21}}, {1, kWeights, {0, 5}}}) {
            std::string bytes;
            reader.for_each(piece.tensor, piece.state, piece.elements,
                            [&](const Range&, std::span<const std::byte> part) {
                                bytes.append(reinterpret_cast<const char*>(part.data()),
                                             part.size());
                            });
            if (bytes != small_bytes(checkpoint, piece)) return "other values than were saved";
        }
        return "";
    } catch (const Error& error) {
        return error.what();
    }
}

}  // namespace dslaunch::test
