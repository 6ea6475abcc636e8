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

    // The numbers of finished layers in a folder.
    struct Found {
        int64_t own = 0;     // of a run with the same options
        int64_t others = 0;  // of runs with other options
        int64_t damaged = 0;
    };
    // Counts the layers in FOLDER; OPTIONS are the options of a run.
    [[nodiscard]] static Found find(const std::string& folder, const std::string& options);
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
