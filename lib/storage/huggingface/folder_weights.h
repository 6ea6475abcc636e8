// The weights of a Hugging Face folder by name, as views of the mapped files, checked against the
// shapes that config.json requires. A weight that is stored rounded is given in the type that
// config.json names for the model. Data path: model_folder.h -> [here] -> modules that train
// (graph/archive/mapped_archive.h) and decoders that generate (decoder/weights). One thread at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "storage/files/mapped_file.h"
#include "storage/files/safetensors.h"
#include "storage/huggingface/model_folder.h"
#include "storage/quantized/quantized_weight.h"

namespace dslaunch::storage {

// A weight, and the owner of its bytes.
struct FolderWeight {
    std::shared_ptr<const MappedFile> file;  // shared by the weights in it; null if the
                                             // numbers are in `made`
    SafetensorsEntry entry;                  // F32, BF16 or F16; its bytes may lie unaligned
    // The weight's numbers, if they had to be converted from F64, a quantized form or a form of
    // GGUF. Null for other weights, whose numbers are read in the file. Several tensors may share
    // the converted numbers.
    std::shared_ptr<const std::vector<std::byte>> made = nullptr;
};

// All weights of a folder, some of which were taken.
class FolderWeights {
  public:
    // FOLDER must outlive this object. Throws what parse_safetensors() throws, and Error{kInput}
    // naming the file if two files have different numbers for the same tensor. REQUIRES: FOLDER has
    // weights.
    FolderWeights(const ModelFolder& folder, MapMode mode);

    // Returns the weight NAME, which must have the shape SIZES. If the embedding is missing and is
    // tied to the output layer, returns the output layer's weight. Throws Error{kInput} naming file
    // and weight if the weight is missing, has another shape, or has a type that is neither a
    // floating-point type nor explained by the folder's quantization_config.
    [[nodiscard]] FolderWeight take(const std::string& name, std::span<const int64_t> sizes);

    // Returns the file's tensor that take(NAME) reads; null if there is none, or if the weight is
    // quantized.
    [[nodiscard]] const SafetensorsEntry* stored(const std::string& name);
    // Returns true if the weight NAME is quantized.
    [[nodiscard]] bool is_rounded(const std::string& name);

    // Declares that weights for which IS_LEFT(name) returns true need not be taken.
    void leave(const std::function<bool(const std::string& name)>& is_left);

    // Throws Error{kInput} if a weight was never taken, unless it is a buffer that transformers
    // computes itself or the output layer of a tied model.
    void require_all_taken() const;

    // Returns all mapped files of the folder.
    [[nodiscard]] const std::vector<std::shared_ptr<const MappedFile>>& files() const {
        return files_;
    }

  private:
    struct Weight {
        FolderWeight found;
        bool is_taken = false;
        std::shared_ptr<const QuantizedWeight> rounded = nullptr;  // shared by copies in the map
        std::function<std::vector<float>()> read = nullptr;        // reads a GGUF file's weight
    };
    [[nodiscard]] Weight* find(const std::string& name);
    void add(const std::shared_ptr<const MappedFile>& file, SafetensorsEntry entry);
    void add_gguf(const std::string& path);
    void gather_rounded(const Quantization& how);
    [[noreturn]] void fail_missing(const std::string& name) const;

    const ModelFolder& folder_;
    std::vector<std::shared_ptr<const MappedFile>> files_;
    std::map<std::string, Weight> weights_;
};

}  // namespace dslaunch::storage
