// The weights of a Hugging Face folder by name, each in a mapping of its file, checked against the
// shapes that config.json asks for. Data path: model_folder.h -> [here] -> modules that train
// (graph/archive/mapped_archive.h) and decoders that generate (decoder/weights). One thread at
// a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "storage/files/mapped_file.h"
#include "storage/files/safetensors.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::storage {

struct FolderWeight {
    std::shared_ptr<const MappedFile> file;  // shared by the weights in it; null: in
                                             // `made`
    SafetensorsEntry entry;                  // F32, BF16 or F16; its bytes may lie unaligned
    std::shared_ptr<const std::vector<float>> made = nullptr;  // of numbers that the file has in
                                                               // F64
};

class FolderWeights {
  public:
    // FOLDER must outlive this. Throws Error{kInput} naming the file as parse_safetensors() does,
    // and for a tensor that two files have with different numbers. REQUIRES: FOLDER has weights.
    FolderWeights(const ModelFolder& folder, MapMode mode);

    // Returns the weight NAME, of SIZES. A missing embedding is the output layer if the two are
    // one. Throws Error{kInput} naming file and weight if it is missing, has another shape, or
    // holds quantized numbers.
    [[nodiscard]] FolderWeight take(const std::string& name, std::span<const int64_t> sizes);

    // Throws for a weight that nobody took, unless some release of the families has it too.
    void require_all_taken() const;

    [[nodiscard]] const std::vector<std::shared_ptr<const MappedFile>>& files() const {
        return files_;
    }

  private:
    struct Weight {
        FolderWeight found;
        bool taken = false;
    };
    [[nodiscard]] Weight* find(const std::string& name);
    void add(const std::shared_ptr<const MappedFile>& file, SafetensorsEntry entry);
    [[noreturn]] void fail_missing(const std::string& name) const;
    [[nodiscard]] bool is_known_extra(const std::string& name) const;

    const ModelFolder& folder_;
    std::vector<std::shared_ptr<const MappedFile>> files_;
    std::map<std::string, Weight> weights_;
};

// Returns "[2, 3]" and the like, for messages.
[[nodiscard]] std::string shape_text(std::span<const int64_t> sizes);

}  // namespace dslaunch::storage
