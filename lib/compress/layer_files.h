// The layers that a run of `dslaunch compress` has finished, as files in a folder beside the
// output: NAME.partial/layer-N.safetensors. Each names the run's options and the errors of its
// weights, and a run with other options starts again. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compress/packed_tensors.h"
#include "storage/files/safetensors.h"

namespace dslaunch::compress {

// The error of each weight, by the weight's name in the folder.
using WeightErrors = std::vector<std::pair<std::string, double>>;

class LayerFiles {
  public:
    // OPTIONS: a text that is equal only for runs that write the same bytes. Makes the folder;
    // removes the layers of a run with other options. Throws Error{kDisk}.
    LayerFiles(std::string folder, std::string options);

    // Returns the errors of LAYER's weights if the layer is finished.
    [[nodiscard]] std::optional<WeightErrors> finished(int64_t layer) const;
    // Writes a finished layer; complete or not at all.
    void write(int64_t layer, const std::vector<PackedTensor>& tensors,
               const WeightErrors& errors) const;
    // Returns the path of LAYER's file.
    [[nodiscard]] std::string path(int64_t layer) const;
    // Removes the files and the folder.
    void remove() const;

  private:
    std::string folder_;
    std::string options_;
};

}  // namespace dslaunch::compress
