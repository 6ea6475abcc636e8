// A checkpoint of ours as a TensorSource: each piece is hashed once before any of it is used.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "storage/checkpoint/checkpoint_reader.h"
#include "storage/export/tensor_source.h"

namespace dslaunch::storage {

class CheckpointSource : public TensorSource {
  public:
    // Throws as CheckpointReader does. TREE must outlive it.
    CheckpointSource(const FileTree& tree, std::string folder);

    [[nodiscard]] const std::string& path() const override { return reader_.folder(); }
    [[nodiscard]] const std::vector<CheckpointTensor>& tensors() const override {
        return reader_.checkpoint().tensors;
    }
    [[nodiscard]] const Checkpoint* checkpoint() const override { return &reader_.checkpoint(); }
    void for_each(int tensor, int state, const Range& elements, const Use& use) const override;
    [[nodiscard]] std::vector<HashedRange> hashes(int tensor, int state) const override;

  private:
    struct Place {
        const CheckpointFile* file = nullptr;
        const WrittenPiece* piece = nullptr;
        mutable bool checked = false;
    };
    [[nodiscard]] const std::vector<Place>& places(int tensor, int state) const;
    // Reads in parts of a MiB or so.
    void read(int tensor, int state, const Range& elements, const Use& use) const;
    void check(const Place& place) const;

    CheckpointReader reader_;
    // The places of each tensor, and in it of each state + 1, are sorted by their elements.
    std::vector<std::vector<std::vector<Place>>> places_;
};

}  // namespace dslaunch::storage
