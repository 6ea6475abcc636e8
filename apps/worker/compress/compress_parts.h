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
    int64_t group = -1;        // weights that share a scale; 0: a row; -1: the form's default
    bool has_minimum = false;  // --minimum and --symmetric; neither: the form's default
    bool is_symmetric = false;
    int64_t calibration_rows = 128;  // the first ones are used
    int64_t samples = 0;             // of held-out text; 0: all
    int64_t context = 0;             // tokens of a sample, if the held-out text is tokens
    int64_t threads = 0;             // 0: one for each processor
    bool json = false;
    bool force = false;
};

// A weight's error, of the layer's outputs on the calibration rows or of the weight itself: the
// root of the sum of its squares, divided by the same of the exact numbers.
struct WeightLoss {
    std::string name;
    double error = 0;
    bool is_of_outputs = false;
};

// A model that was written.
struct CompressedModel {
    int64_t weights = 0;              // numbers that are stored in fewer bits
    int64_t weight_bytes_before = 0;  // of these numbers, with their scales
    int64_t weight_bytes_after = 0;
    int64_t bytes_before = 0;  // of all files with weights
    int64_t bytes_after = 0;
    std::vector<WeightLoss> losses;  // in the order of the model
    bool is_of_outputs = false;      // the losses are of outputs, except weights with few rows
};

// Each writes the model in a form. Throws Error{kInput} for a model or calibration rows that the
// form cannot use, Error{kDisk}.
using CompressTo = CompressedModel(const CompressArguments& arguments, kernels::ThreadTeam& team);

// Returns the documents of the first rows of --calibrate, without the padding after their last
// target. CONFIG: the model's. Throws Error{kInput} naming the file.
[[nodiscard]] std::vector<std::vector<int32_t>> calibration_texts(
    const CompressArguments& arguments, const storage::TransformerConfig& config);

// Throw what compress_to_folder() and compress_to_gguf() throw for bad arguments, without writing
// anything: called before the model is scored.
void require_folder_form(const CompressArguments& arguments);
void require_gguf_form(const CompressArguments& arguments);

// Writes a folder in the layout of compressed-tensors (folder.cpp).
[[nodiscard]] CompressTo compress_to_folder;
// Writes a GGUF file (gguf.cpp).
[[nodiscard]] CompressTo compress_to_gguf;

}  // namespace dslaunch::worker
