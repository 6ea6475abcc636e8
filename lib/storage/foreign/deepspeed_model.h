// The part that all kinds of DeepSpeed checkpoints have in common. Reads counts, buffers, frozen
// parameters and shared names from the files with the model, and offers all tensors found as a
// TensorSource. Data path: files -> deepspeed_source.h, deepspeed_split.h, universal_source.h ->
// [here] -> import.h, export. Files stay mapped; nothing is executed. Threads: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "storage/export/tensor_source.h"
#include "storage/foreign/deepspeed_parts.h"
#include "storage/foreign/torch_file.h"

namespace dslaunch::storage {

// The most optimizer states that a parameter has: Adam with amsgrad has three.
inline constexpr size_t kForeignStatesMax = 3;
// The chunks of a tensor's weights, then of each of its states.
using TensorChunks = std::array<Chunks, kForeignStatesMax + 1>;

// An open checkpoint of DeepSpeed.
class DeepSpeedModel : public TensorSource {
  public:
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

  protected:
    // Reads the steps and samples of the first model file.
    void read_counts();
    // Read the loss scale from the state of ZeRO's optimizer, or from the values of a scaler.
    void read_scaler(const PickleValue& optimizer);
    void read_loss_scale(const PickleValue& kept);
    void add_trained(const std::string& name, const PickleValue& shape, int64_t updates);
    // Adds the buffers and frozen parameters of the first model file, and records which of its
    // names mean the same tensor.
    void add_others();
    void add_frozen(const std::string& name, const PickleValue& value);
    void add_buffer(const std::string& name, const TorchTensor& found);
    void add_aliases();
    // Compares TENSOR, a weight from the module's file, with the master weights of the trained
    // tensor at index AT. Returns false if the rounded master weights differ from TENSOR. If
    // IS_PADDED, ignores the rows of TENSOR that the master weights do not have.
    [[nodiscard]] bool has_weights(size_t at, TorchTensor tensor, bool is_padded = false) const;
    // Returns the place of the tensor NAME if it is trained; nothing for other names.
    [[nodiscard]] std::optional<size_t> place_of_trained(const std::string& name) const;
    void add(CheckpointTensor tensor, TensorChunks chunks);
    // Returns the file or folder for messages about the list of tensors.
    [[nodiscard]] const std::string& listed_in() const {
        return models_.empty() ? folder_ : models_.front()->path();
    }

    std::string folder_, writer_;
    // Below stage 3 there is only one model file, at stage 3 one for each rank.
    std::vector<std::unique_ptr<TorchFile>> models_;
    std::vector<std::pair<std::string, std::string>> aliases_;  // name, other name of that
                                                                // tensor
    int64_t stage_ = 0;
    Checkpoint about_;
    std::vector<TensorChunks> chunks_;   // by tensor
    std::map<std::string, int> places_;  // index of each tensor, by name
    std::vector<std::string> notes_;
};

// Opens the DeepSpeed checkpoint in PATH: the folder that contains `latest`, or the folder of a
// tag. If TAG is empty, reads the tag from `latest`, or from `latest_universal` if there is no
// `latest`. DeepSpeedOptions explains FROZEN and WEIGHTS_ALONE. Throws Error{kInput} naming the
// file and its fault.
[[nodiscard]] std::unique_ptr<DeepSpeedModel> open_deepspeed(const std::string& path,
                                                             const std::string& tag,
                                                             std::vector<std::string> frozen,
                                                             bool weights_alone = false);

}  // namespace dslaunch::storage
