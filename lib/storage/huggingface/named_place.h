// The models and adapters that users name on a command line: a file, a folder of Hugging Face, or
// the --output folder of a job, which stands for the job's result. A name on Hugging Face's hub is
// not a path; the error for it says how to fetch the model. Data path: MODEL, ADAPTER -> [here] ->
// model_folder.h and the archive. No state; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dslaunch::storage {

// Returns true if PATH has the form ORG/NAME of names on the hub and FOLDER has no such file or
// folder.
[[nodiscard]] bool is_hub_name(const std::string& path, const std::string& folder = "");

// Returns the archive that a job wrote into the folder at PATH; nothing if PATH is not such a
// folder, or is itself a model's folder.
[[nodiscard]] std::optional<std::string> archive_of_job(const std::string& path);

// Returns the model that PATH stands for: PATH itself, or archive_of_job(). Throws Error{kInput}
// that says what is there instead (nothing, a name of the hub, an adapter, checkpoints), and the
// next command to use.
[[nodiscard]] std::string model_at(const std::string& path);

// Does the same for a command that needs no weights: PATH may also be a config.json, or a folder
// without weights.
[[nodiscard]] std::string model_form_at(const std::string& path);

// Returns model_at(PATH). Throws Error{kInput} also if the result is an archive, which COMMAND
// ("serve") cannot read.
[[nodiscard]] std::string folder_model_at(const std::string& path, std::string_view command);

// Returns advice on how to get a folder in place of ARCHIVE. The advice is for archives that `model
// import` made, and for results of training such an archive.
[[nodiscard]] std::string folder_of_archive_text(const std::string& archive);

// Returns the adapter's folder that PATH stands for: PATH itself, or adapter/ in it; empty for an
// empty PATH. Throws Error{kInput}.
[[nodiscard]] std::string adapter_at(const std::string& path);

// Returns that the folder MODEL of a Hugging Face model also contains an adapter, which is not
// used, unlike in transformers. Returns "" if it contains none.
[[nodiscard]] std::string unused_adapter_text(const std::string& model);

// Returns the folder with a model's tokenizer that PATH stands for. Throws Error{kInput} if PATH
// does not exist or is a file.
[[nodiscard]] std::string tokenizer_folder_at(const std::string& path);

// Returns the name that runs of the model at PATH (relative to FOLDER) get in the folder `runs`:
// the model's file name without its ending, or the name of its folder. Keeps only letters, digits,
// `.`, `_` and `-`.
[[nodiscard]] std::string run_name(const std::string& path, const std::string& folder = "");

// Returns "; nothing is downloaded; for a data set of the hub: `hf download …" if PATH is not in
// FOLDER, and is a name or an address of a data set on the hub; else "".
[[nodiscard]] std::string hub_data_text(const std::string& path, const std::string& folder = "");

// Throws Error{kInput}, because nothing is at PATH, which should name a model.
[[noreturn]] void fail_missing_model(const std::string& path);

// Throws Error{kUsage} if WORD, used as a subcommand, asks for a download ("pull"). The message
// says how to fetch NAME, which may be empty.
void refuse_download(std::string_view word, const std::string& name);

}  // namespace dslaunch::storage
