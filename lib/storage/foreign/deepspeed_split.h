// Reads a DeepSpeed checkpoint whose model was split among tensor ranks (mp_rank_00, mp_rank_01, …)
// or pipeline stages (layer_NN-model_states.pt). Each rank's part is read by deepspeed_source.h;
// the parts of a tensor are joined as the checkpoint's own rules say (split_rules.h). Files stay
// mapped; nothing is executed. Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "storage/foreign/deepspeed_source.h"
#include "storage/foreign/split_rules.h"

namespace dslaunch::storage {

// The files of a split model in a folder.
struct SplitFiles {
    // A file with the parameters and buffers of one layer of a pipeline.
    struct Layer {
        int64_t layer = 0;
        int64_t tensor_rank = 0;
        std::string path;
    };
    int64_t model_ranks = 0;   // how many mp_rank_NN there are
    int64_t tensor_ranks = 0;  // how many model ranks share each layer
    std::vector<Layer> layers;

    [[nodiscard]] bool is_split() const { return model_ranks > 1 || !layers.empty(); }
};

// Returns the files in FOLDER. Throws Error{kInput} for files of a mixture of experts, and if the
// numbers of ranks do not fit each other or have gaps.
[[nodiscard]] SplitFiles find_split(const std::string& folder);

// An open checkpoint of a split model.
class DeepSpeedSplit : public DeepSpeedModel {
  public:
    // Throws what DeepSpeedSource throws, and Error{kInput} naming a tensor whose parts do not fit.
    DeepSpeedSplit(const std::string& folder, const SplitFiles& files,
                   const DeepSpeedOptions& options);

  private:
    // One tensor rank's part of a tensor: the rank's source, and the tensor's index in the source.
    struct Part {
        const DeepSpeedSource* source = nullptr;
        int tensor = 0;
        [[nodiscard]] const CheckpointTensor& about() const {
            return source->tensors()[static_cast<size_t>(tensor)];
        }
        [[nodiscard]] const TensorChunks& chunks() const { return source->chunks(tensor); }
    };
    void take_counts();
    void check_ranks() const;
    void add_stage(size_t first);
    void add_parts(const std::vector<Part>& parts);
    [[nodiscard]] TensorChunks join(const std::vector<Part>& parts, const Joining& joining);
    [[nodiscard]] static TensorChunks join_runs(const std::vector<Part>& parts,
                                                const Joining& joining);
    [[nodiscard]] TensorChunks mean_of(const std::vector<Part>& parts);
    void add_layer(const SplitFiles::Layer& layer);
    void add_other(const SplitFiles::Layer& layer, const std::string& local,
                   const TorchTensor& tensor);
    [[nodiscard]] bool is_tied(const SplitFiles::Layer& layer, const std::string& local,
                               const TorchTensor& tensor) const;
    [[nodiscard]] bool is_listed(const char* list, const std::string& name) const;
    void check_layers(const std::vector<SplitFiles::Layer>& layers) const;

    std::vector<std::unique_ptr<DeepSpeedSource>> parts_;  // by model rank
    std::vector<std::unique_ptr<TorchFile>> layers_;
    int64_t tensor_ranks_ = 1;
    std::unique_ptr<SplitRules> rules_;
    std::deque<std::vector<float>> made_;  // values that are in no file
};

}  // namespace dslaunch::storage
