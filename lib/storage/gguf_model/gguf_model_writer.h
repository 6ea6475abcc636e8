// Writes a Hugging Face folder as one GGUF file, which llama.cpp reads: weights in the forms of a
// file type, the config's values and the tokenizer. Data path: model_folder.h -> [here] -> a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "storage/gguf_model/gguf_file_types.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::storage {

// The options of write_gguf().
struct GgufWriteOptions {
    GgufFileType type = GgufFileType::kQ8_0;
    // Returns the importance of each input of the weight NAME: the mean of the input's squares on
    // real texts, as [in] fp32 numbers of at least 0. NAME is the name in the modules, and IN is
    // the number of inputs. If the result is empty or there is no function, all inputs have the
    // same importance.
    std::function<std::vector<float>(const std::string& name, int64_t in)> importance;
    size_t threads = 1;
    // Called with the count of numbers written so far, and the count of all numbers.
    std::function<void(int64_t done, int64_t total)> progress;
};

// A tensor that was written in fewer bits. `error` is the Euclidean norm of the differences,
// divided by the Euclidean norm of the original numbers.
struct GgufTensorLoss {
    std::string name;  // of the weight in the modules; the first one of several
    double error = 0;
};

// A file that was written.
struct GgufWritten {
    int64_t weights = 0;              // count of the numbers in matrices
    int64_t weight_bytes_before = 0;  // size of the matrices in the folder
    int64_t weight_bytes_after = 0;
    int64_t bytes_before = 0;  // size of the folder's weight files
    int64_t bytes_after = 0;
    std::vector<GgufTensorLoss> losses;
};

// Writes FOLDER to the file OUT, which appears complete or not at all. Everything that llama.cpp
// cannot express is refused before anything is written. Blocks on the disk; uses OPTIONS.threads
// threads. Throws Error{kInput} that names what is refused, or a weight that is missing or not
// finite; Error{kDisk}.
[[nodiscard]] GgufWritten write_gguf(const ModelFolder& folder, const std::string& out,
                                     const GgufWriteOptions& options);

}  // namespace dslaunch::storage
