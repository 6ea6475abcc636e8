// The layers that a run of `dslaunch compress` has finished, as files in a folder beside the
// output: NAME.partial/layer-N.safetensors. Each file names the run's options and the errors of its
// weights. A run with different options starts again. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compress/packed_tensors.h"
#include "storage/files/safetensors.h"

namespace dslaunch::compress {

// The relative error of a weight, by the weight's name in the folder.
struct WeightError {
    std::string name;
    double error = 0;
    bool is_of_outputs = false;  // true: of the layer's outputs on the texts; false: of the weight
                                 // itself

    bool operator==(const WeightError&) const = default;
};
using WeightErrors = std::vector<WeightError>;

class LayerFiles {
  public:
    // OPTIONS: a text that identifies the result; runs with equal texts write the same bytes. Makes
    // FOLDER. Removes damaged layers, and layers of runs with different options. Throws
    // Error{kDisk}.
    LayerFiles(std::string folder, std::string options);

    // Returns true if FOLDER has a finished layer of a run with OPTIONS.
    [[nodiscard]] static bool has_layers(const std::string& folder, const std::string& options);
    // Returns how many layers in FOLDER were finished by runs with other options.
    [[nodiscard]] static int64_t other_layers(const std::string& folder,
                                              const std::string& options);
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
