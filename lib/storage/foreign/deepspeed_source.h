// Reads a DeepSpeed checkpoint as a TensorSource: ZeRO stages 1 to 3, whose parameters are
// assembled from the ranks' flat groups, and stage 0, with everything in one file. If the model was
// split among tensor or pipeline ranks, it reads the part of one of them (deepspeed_split.h joins
// the parts). docs/guide/checkpoints.md says which checkpoints are read. Files stay mapped; nothing
// is executed. Threads: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "storage/foreign/deepspeed_model.h"
#include "storage/foreign/torch_file.h"

namespace dslaunch::storage {

// The options of DeepSpeedSource.
struct DeepSpeedOptions {
    // Globs of parameters that are not trained. They are needed only for a checkpoint of stage 0 in
    // fp32, because its optimizer does not name its parameters.
    std::vector<std::string> frozen = {};
    // True if a checkpoint of stage 0 in fp32 is read without optimizer states. No parameter is
    // then frozen, and no globs are needed.
    bool weights_alone = false;
    int64_t model_rank = 0;  // the tensor or pipeline rank whose part is read
    bool is_part = false;    // true if the model has several tensor or pipeline ranks
};

// An open checkpoint of DeepSpeed, or the part of one model rank.
class DeepSpeedSource : public DeepSpeedModel {
  public:
    // FOLDER is the folder of a tag. Throws Error{kInput} naming the file and its fault: files of
    // some ranks are missing or come from different saves, sizes do not add up, or the checkpoint
    // is of a kind that is not read.
    explicit DeepSpeedSource(const std::string& folder, DeepSpeedOptions options = {});

    // Returns the value of KEY in the model's file; null if it has none.
    [[nodiscard]] const PickleValue* value_of(const char* key) const {
        return models_.front()->root().find(key);
    }
    [[nodiscard]] const TorchFile& model_file() const { return *models_.front(); }
    // Return the weights and states of a tensor, and the index of the tensor NAME (-1 if missing).
    [[nodiscard]] const TensorChunks& chunks(int tensor) const { return chunks_.at(tensor); }
    [[nodiscard]] int find(const std::string& name) const;

  private:
    // One rank's flat groups: master weights, exp_avg and exp_avg_sq of each group. At stage 0 each
    // parameter may be a group by itself, without master weights if the module's weights are fp32.
    struct RankGroups {
        std::vector<std::array<std::span<const std::byte>, 3>> groups;
        std::vector<std::vector<int64_t>> shapes;  // exp_avg's shapes, by group; empty if none
        std::vector<int64_t> updates;              // one for each group
        std::vector<int64_t> sizes;                // number of flat groups in each optimizer group
    };
    // A parameter of the module at stage 0.
    struct WholeParameter {
        std::string name;
        TorchTensor tensor;
    };

    [[nodiscard]] std::string file_in(int64_t rank, std::string_view prefix,
                                      std::string_view kind) const;
    void open();
    void open_models();
    void read_stage();
    void read_rank_stage(const TorchFile& file, const PickleValue& state);
    void read_training();
    void read_groups();
    [[nodiscard]] RankGroups read_rank(const TorchFile& file) const;
    void read_states(const TorchFile& file, const PickleValue& optimizer, RankGroups& rank) const;
    void place_shared_groups();  // stages 1 and 2
    void place_sharded();        // stage 3

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

    // Check that all files come from the same save; defined in deepspeed_mix.cpp.
    void check_one_save() const;
    void check_models() const;
    void check_optimizers() const;
    void check_weights() const;

    DeepSpeedOptions options_;
    // One file for each rank; none at stage 0.
    std::vector<std::unique_ptr<TorchFile>> optimizers_;
    std::vector<RankGroups> ranks_;
};

}  // namespace dslaunch::storage
