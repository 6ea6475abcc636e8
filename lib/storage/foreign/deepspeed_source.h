// A checkpoint of DeepSpeed's ZeRO stages 1, 2 or 3 as a TensorSource: each parameter is put
// together out of the ranks' flat groups. docs/checkpoints.md says which are read. Files stay
// mapped; nothing is executed. Threads: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "storage/export/tensor_source.h"
#include "storage/foreign/torch_file.h"

namespace dslaunch {

class DeepSpeedSource : public TensorSource {
  public:
    // PATH: the folder that `latest` lies in, or a tag's folder itself. TAG: empty for what
    // `latest` names. Throws Error{kInput} naming the file and what is wrong: files of ranks
    // missing, sizes that do not add up, or a kind of checkpoint that is not read.
    DeepSpeedSource(const std::string& path, const std::string& tag);

    [[nodiscard]] const std::string& path() const override { return folder_; }
    [[nodiscard]] const std::vector<CheckpointTensor>& tensors() const override {
        return about_.tensors;
    }
    // Its files are empty: they are not ours.
    [[nodiscard]] const Checkpoint* checkpoint() const override { return &about_; }
    void for_each(int tensor, int state, const Range& elements, const Use& use) const override;
    [[nodiscard]] std::vector<HashedRange> hashes(int, int) const override { return {}; }

    // "DeepSpeed 0.19.8, ZeRO stage 2, 8 ranks".
    [[nodiscard]] const std::string& writer() const { return writer_; }
    [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

  private:
    using Bytes1 = std::span<const std::byte>;
    // Neighbours in the order of elements.
    using Chunks = std::vector<Bytes1>;
    // The flat groups of one rank: masters, exp_avg, exp_avg_sq of each group.
    struct RankGroups {
        std::vector<std::array<Bytes1, 3>> groups;
        std::vector<int64_t> updates;  // by group
    };

    void open(const std::string& path, const std::string& tag);
    void read_stage();
    void read_training();
    void read_groups();
    [[nodiscard]] RankGroups read_rank(const TorchFile& file) const;
    void read_states(const TorchFile& file, const PickleValue& optimizer, RankGroups& rank) const;
    void place_shared_groups();  // stages 1 and 2
    void place_sharded();        // stage 3
    void add_trained(const std::string& name, const PickleValue& shape, int64_t updates);
    void add_others();
    void add_frozen(const std::string& name, const PickleValue& value);
    void add_aliases();
    void add(CheckpointTensor tensor, std::array<Chunks, 3> chunks);
    [[nodiscard]] const PickleValue& need(const TorchFile& file, const PickleValue& dict,
                                          const char* key) const;

    std::string folder_, writer_;
    std::vector<std::unique_ptr<TorchFile>> models_, optimizers_;  // by rank; below stage 3 one
                                                                   // model
    int64_t stage_ = 0;
    std::vector<RankGroups> ranks_;
    Checkpoint about_;
    std::vector<std::array<Chunks, 3>> chunks_;  // by tensor: weights and states
    std::map<std::string, int> places_;          // of tensors by name
    std::vector<std::string> notes_;
};

}  // namespace dslaunch
