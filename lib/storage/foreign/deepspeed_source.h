// Reads a DeepSpeed checkpoint as a TensorSource: ZeRO stages 1 to 3, whose parameters are
// assembled from the ranks' flat groups, and stage 0, with everything in one file.
// docs/guide/checkpoints.md says which checkpoints are read. Files stay mapped; nothing is
// executed. Threads: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "storage/export/tensor_source.h"
#include "storage/foreign/deepspeed_parts.h"
#include "storage/foreign/torch_file.h"

namespace dslaunch::storage {

// An open checkpoint of DeepSpeed.
class DeepSpeedSource : public TensorSource {
  public:
    // PATH is the folder that contains `latest`, or the folder of a tag. If TAG is empty, the tag
    // in `latest` is used. Throws Error{kInput} naming the file and its fault: files of some ranks
    // are missing or come from different saves, sizes do not add up, or the checkpoint is of a kind
    // that is not read. FROZEN: globs of parameters that are not trained. Only a checkpoint of
    // stage 0 in fp32 may need them, because its optimizer does not name its parameters. If
    // WEIGHTS_ALONE, such a checkpoint does not need them: it is read without states and with
    // nothing frozen.
    DeepSpeedSource(const std::string& path, const std::string& tag,
                    std::vector<std::string> frozen = {}, bool weights_alone = false);

    [[nodiscard]] const std::string& path() const override { return folder_; }
    [[nodiscard]] const std::vector<CheckpointTensor>& tensors() const override {
        return about_.tensors;
    }
    // Returns a checkpoint whose list of files is empty, since dslaunch did not write them.
    [[nodiscard]] const Checkpoint* checkpoint() const override { return &about_; }
    void for_each(int tensor, int state, const Range& elements, const Use& use) const override;
    [[nodiscard]] std::vector<HashedRange> hashes(int, int) const override { return {}; }

    // Returns a text such as "DeepSpeed 0.19.8, ZeRO stage 2, 8 ranks".
    [[nodiscard]] const std::string& writer() const { return writer_; }
    // Returns a sentence for each part of the checkpoint that is not read or was derived.
    [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

  private:
    // One rank's flat groups: master weights, exp_avg and exp_avg_sq of each group. At stage 0 each
    // parameter may be a group by itself, without master weights if the module's weights are fp32.
    struct RankGroups {
        std::vector<std::array<std::span<const std::byte>, 3>> groups;
        std::vector<std::vector<int64_t>> shapes;  // exp_avg's shapes, by group; empty: no states
        std::vector<int64_t> updates;              // one for each group
        std::vector<int64_t> sizes;                // how many groups each optimizer group has
    };
    // A parameter of the module at stage 0.
    struct WholeParameter {
        std::string name;
        TorchTensor tensor;
    };

    void open(const std::string& path, const std::string& tag);
    void open_models();
    void read_stage();
    void read_rank_stage(const TorchFile& file, const PickleValue& state);
    void read_training();
    void read_loss_scale(const PickleValue& kept);
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

    // Functions for stage 0: deepspeed_stage0.cpp.
    void place_replicated();
    [[nodiscard]] RankGroups read_replicated(const TorchFile& file, const PickleValue& state) const;
    [[nodiscard]] std::vector<WholeParameter> whole_parameters();
    [[nodiscard]] bool is_frozen(const std::string& name) const;
    void place_weights(const std::vector<WholeParameter>& parameters);
    void place_flat(const std::vector<WholeParameter>& parameters, const RankGroups& rank);
    void place_flat_group(const std::vector<WholeParameter>& parameters, const RankGroups& rank,
                          size_t group);
    void place_each(const std::vector<WholeParameter>& parameters, const RankGroups& rank);

    // Checks that all files come from the same save: deepspeed_mix.cpp.
    void check_one_save() const;
    void check_models() const;
    void check_optimizers() const;
    void check_weights() const;

    std::string folder_, writer_;
    std::vector<std::string> frozen_;
    bool reads_weights_alone_;
    // One file of each kind for each rank. Below stage 3 there is only one model file, and at stage
    // 0 no optimizer file.
    std::vector<std::unique_ptr<TorchFile>> models_, optimizers_;
    std::vector<std::pair<std::string, std::string>> aliases_;  // name, other name of that
                                                                // tensor
    int64_t stage_ = 0;
    std::vector<RankGroups> ranks_;
    Checkpoint about_;
    std::vector<std::array<Chunks, 3>> chunks_;  // each tensor's weights and states
    std::map<std::string, int> places_;          // tensors' places by name
    std::vector<std::string> notes_;
};

}  // namespace dslaunch::storage
