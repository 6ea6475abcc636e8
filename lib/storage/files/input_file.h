// The fault of a file that is given as a model or as data, told before it is read. People have
// weights (a state_dict, safetensors), whole pickled modules, ONNX where a TorchScript archive or
// an exported program is meant, and text, tables and pickles where tokens or columns are: each
// becomes the right thing in its own way. Data path: TARGET -> [here] -> archive; --data -> [here]
// -> token_file.h, or safetensors.h and npy.h. No state; any thread.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch::storage {

// True: names end so that are given to models and weights (.pth, .bin, .safetensors, …).
[[nodiscard]] bool has_model_name(std::string_view path);

// True: the columns of PATH are read by rows, as its ending says; else it is tokens.
[[nodiscard]] bool is_row_file(std::string_view path);

// Throws Error{kInput} that begins with PATH, says what it is and the one line that makes a model
// of it, where its content is known and neither a TorchScript archive nor an exported program. A
// file that cannot be read passes: whoever opens it says why.
void require_model(const std::string& path);

// Likewise for data. All that is refused can be read as tokens of a large vocabulary. MODEL: the
// Hugging Face folder whose tokenizer makes rows of text, for the message; empty: an archive.
void require_data(const std::string& path, const std::string& model = "");

// Likewise for what is given as the target of a job and cannot be started: a text is data, weights
// are no model.
void require_target(const std::string& path);

// Likewise for a file of rows, which `dslaunch data prepare` writes: tokens are refused too. MODEL
// as for require_data().
void require_rows(const std::string& path, const std::string& model = "");

}  // namespace dslaunch::storage
