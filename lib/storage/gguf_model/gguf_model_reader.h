// Reads a GGUF file as a model: makes a Hugging Face folder from it, or a small folder that stands
// for it. Data path: a file -> [here] -> model_folder.h. Nothing in the file is executed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/kinds/dtype.h"
#include "base/machine/files_of_process.h"

namespace dslaunch::storage {

// The options of import_gguf().
struct GgufImportOptions {
    DType dtype = DType::kF32;  // type of all weights: kF32, kBF16 or kF16
    // Called with the number of weights written so far, and the number of all weights.
    std::function<void(int64_t done, int64_t total)> progress;
};

// Writes the model in the GGUF file PATH as a Hugging Face folder: model.safetensors, config.json,
// and if the file has a tokenizer, tokenizer.json, tokenizer_config.json and
// generation_config.json. Files with these and other usual names of a model in FOLDER are removed
// first. The weights appear last. Returns the number of parameters. Blocks on the disk. Throws
// Error{kInput} naming the file and the unsupported part, or a weight that is not finite in
// OPTIONS.dtype; throws Error{kDisk}.
int64_t import_gguf(const std::string& path, const std::string& folder,
                    const GgufImportOptions& options);

// A folder in the system's place for temporary files, with the texts of a GGUF file and a link to
// the file in place of weights. It is removed with this object, and if a signal ends the process.
class GgufFolder {
  public:
    // Throws Error{kInput} naming the file and the part that is not supported. Throws Error{kDisk}
    // if the folder cannot be written.
    explicit GgufFolder(const std::string& path);
    GgufFolder(const GgufFolder&) = delete;
    GgufFolder& operator=(const GgufFolder&) = delete;
    ~GgufFolder();

    // Returns the folder, a Hugging Face folder for open_model_folder().
    [[nodiscard]] const std::string& path() const { return folder_; }

  private:
    void remove() noexcept;

    std::string folder_;
    std::vector<FileOfProcess*> listed_;  // removed if a signal ends the process
};

}  // namespace dslaunch::storage
