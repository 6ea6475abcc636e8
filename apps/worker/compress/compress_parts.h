// The parts of `dslaunch compress`: its arguments, and a function for each kind of output. No
// state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/thread_team.h"
#include "storage/huggingface/transformer_switches.h"

namespace dslaunch::worker {

// The arguments of `dslaunch compress`.
struct CompressArguments {
    std::string model;         // a Hugging Face folder
    std::string to;            // the form's name
    std::string out;           // a folder, or a file NAME.gguf
    std::string calibrate;     // rows with which errors are compensated; empty: none
    std::string eval_data;     // held-out text that is scored before and after; empty: none
    std::string method;        // nearest, gptq or autoround; empty: gptq if there are rows
    int64_t iterations = 200;  // of autoround, for each layer
    int64_t group = -1;        // weights that share a scale; 0: a row; -1: the form's default
    bool has_minimum = false;  // --minimum and --symmetric; neither: the form's default
    bool is_symmetric = false;
    int64_t calibration_rows = 128;  // the first ones are used
    int64_t samples = 0;             // held-out samples to score; 0: all
    int64_t context = 0;             // tokens of a sample, if the held-out text is tokens
    int64_t threads = 0;             // 0: one for each processor
    bool json = false;
    bool force = false;
};

// The relative error of a weight, or of its layer's outputs on the calibration rows: the Euclidean
// norm of the error, divided by the norm of the exact numbers.
struct WeightLoss {
    std::string name;
    double error = 0;
    bool is_of_outputs = false;
};

// A model that was written.
struct CompressedModel {
    int64_t weights = 0;              // numbers that are stored in fewer bits
    int64_t weight_bytes_before = 0;  // bytes of these numbers, with their scales
    int64_t weight_bytes_after = 0;
    int64_t bytes_before = 0;  // bytes of all files with weights
    int64_t bytes_after = 0;
    std::vector<WeightLoss> losses;  // in the order of the model
    bool is_of_outputs = false;      // losses are errors of outputs, or of the weight itself
                                     // where too few calibration tokens reach it
};

// A function that writes the model in one form. Throws Error{kDisk}, and Error{kInput} if the form
// cannot use the model or the calibration rows.
using CompressTo = CompressedModel(const CompressArguments& arguments, kernels::ThreadTeam& team);

// Returns the documents in the first rows of --calibrate. Leaves out the padding that follows the
// last target of a document. CONFIG is the model's config. Throws Error{kInput} naming the file.
[[nodiscard]] std::vector<std::vector<int32_t>> calibration_texts(
    const CompressArguments& arguments, const storage::TransformerConfig& config);

// Check the arguments for compress_to_folder() or compress_to_gguf(), and throw the same errors as
// these functions. Write nothing, so the caller can use them before it scores the model.
void require_folder_form(const CompressArguments& arguments);
void require_gguf_form(const CompressArguments& arguments);

// Writes a folder in the layout of compressed-tensors (folder.cpp).
[[nodiscard]] CompressTo compress_to_folder;
// Writes a GGUF file (gguf.cpp).
[[nodiscard]] CompressTo compress_to_gguf;

}  // namespace dslaunch::worker
