// Finds, before it is read, the fault of a file that is given as a model or as data. Users give
// weights (a state_dict, safetensors), whole pickled modules or ONNX instead of a TorchScript
// archive or an exported program, and text, tables and pickles instead of tokens or columns. Each
// becomes the right thing in its own way. Data path: TARGET -> [here] -> archive; --data -> [here]
// -> token_file.h, or safetensors.h and npy.h. No state; any thread.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch::storage {

// True if a PATH ends like names of models and weights (.pth, .bin, .safetensors, …).
[[nodiscard]] bool has_model_name(std::string_view path);

// True if the columns of PATH are read by rows, by its ending; else it is tokens.
[[nodiscard]] bool is_row_file(std::string_view path);

// Throws Error{kInput} that begins with PATH if its content is known and is neither a TorchScript
// archive nor an exported program. The message says what it is and the one line that makes a model
// of it. A file that cannot be read passes: its reader says why.
void require_model(const std::string& path);

// Does the same for data. Refused files can all be read as tokens of a large vocabulary. MODEL: the
// Hugging Face folder whose tokenizer makes rows of text, for the message; empty: an archive.
void require_data(const std::string& path, const std::string& model = "");

// Does the same for a job's target that cannot be started: a text is data, weights are no model.
void require_target(const std::string& path);

// Does the same for a file of rows, which `dslaunch data prepare` writes; it refuses tokens too.
// MODEL as for require_data().
void require_rows(const std::string& path, const std::string& model = "");

}  // namespace dslaunch::storage
