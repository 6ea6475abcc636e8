// .safetensors files as a TensorSource: one file, or those that a folder's
// model.safetensors.index.json names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "storage/export/tensor_source.h"
#include "storage/files/safetensors.h"

namespace dslaunch::storage {

class SafetensorsSource : public TensorSource {
  public:
    // PATH names the source in messages. Throws Error{kInput} naming file and cause; also when two
    // files have a tensor of one name.
    SafetensorsSource(std::string path, const std::vector<std::string>& files);

    [[nodiscard]] const std::string& path() const override { return path_; }
    [[nodiscard]] const std::vector<CheckpointTensor>& tensors() const override { return tensors_; }
    [[nodiscard]] const Checkpoint* checkpoint() const override { return nullptr; }
    void for_each(int tensor, int state, const Range& elements, const Use& use) const override;
    [[nodiscard]] std::vector<HashedRange> hashes(int, int) const override { return {}; }

  private:
    struct Place {
        const SafetensorsFile* file = nullptr;
        const SafetensorsEntry* entry = nullptr;
    };
    std::string path_;
    std::vector<std::unique_ptr<SafetensorsFile>> files_;
    std::vector<CheckpointTensor> tensors_;
    std::vector<Place> places_;  // one for each tensor
};

}  // namespace dslaunch::storage
