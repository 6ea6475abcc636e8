// Checks the kind of a file given as a model or as data before it is read. Users pass weights (a
// state_dict, safetensors), whole pickled modules or ONNX instead of a TorchScript archive or an
// exported program, and text, tables and pickles instead of tokens or columns. The message for each
// says how to convert it. Data path: TARGET -> [here] -> archive; --data -> [here] -> token_file.h,
// or safetensors.h and npy_file.h. No state; any thread.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch::storage {

// Returns true if PATH ends like the names of models and weights (.pth, .bin, .safetensors, …).
[[nodiscard]] bool has_model_name(std::string_view path);

// Returns true if PATH ends like a file with named columns (.safetensors, …). Any other data file
// contains raw tokens.
[[nodiscard]] bool is_row_file(std::string_view path);

// Returns true if the file at PATH is a .safetensors file with rows of training data, not weights.
[[nodiscard]] bool is_file_of_rows(const std::string& path);

// Returns the words that say what the file at PATH is: "is text", "contains rows of tokens", "is a
// web page instead of the file: …".
[[nodiscard]] std::string file_text(const std::string& path);

// Throws Error{kInput} that begins with PATH if its content is of a known kind but is neither a
// TorchScript archive nor an exported program. The message says what it is and how to make a model
// of it in one line. Accepts a file that cannot be read: the code that reads it later reports the
// error.
void require_model(const std::string& path);

// Throws as require_model() does, if the content of PATH shows that it cannot be training data.
// Without this check, the bytes of any file could be read as tokens of a large vocabulary. The
// message for a text recommends the tokenizer in the Hugging Face folder MODEL. MODEL is empty if
// the model is an archive.
void require_data(const std::string& path, const std::string& model = "");

// Throws as require_model() does, if the file PATH can be neither a model to train nor a program to
// start. For a text, the message says how to use it as data; for weights, that they are not a
// model.
void require_target(const std::string& path);

// Throws as require_model() does, if PATH is not a file of rows, such as `dslaunch data prepare`
// writes. Refuses tokens too. MODEL is used as in require_data().
void require_rows(const std::string& path, const std::string& model = "");

}  // namespace dslaunch::storage
