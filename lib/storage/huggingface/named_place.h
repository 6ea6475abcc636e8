// The models and adapters that users name on a command line: a file, a folder of Hugging Face, or
// the --output folder of a job, which stands for the job's result. A name of Hugging Face's hub is
// not a place: the message says how to fetch it. Data path: MODEL, ADAPTER -> [here] ->
// model_folder.h and the archive. No state; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dslaunch::storage {

// Returns true for ORG/NAME as on the hub, if FOLDER has no such file or folder.
[[nodiscard]] bool is_hub_name(const std::string& path, const std::string& folder = "");

// Returns the archive that a job wrote into the folder at PATH; nothing if PATH is no such folder,
// or is a model's folder itself.
[[nodiscard]] std::optional<std::string> archive_of_job(const std::string& path);

// Returns the model that PATH means: PATH, or archive_of_job(). Throws Error{kInput} that says what
// is there instead (nothing, a name of the hub, an adapter, checkpoints) and the next command.
[[nodiscard]] std::string model_at(const std::string& path);

// Returns model_at(PATH). Throws Error{kInput} also for an archive, which COMMAND ("serve") cannot
// read.
[[nodiscard]] std::string folder_model_at(const std::string& path, std::string_view command);

// Returns the folder of the adapter that PATH means: PATH, or adapter/ in it; empty for an empty
// PATH. Throws Error{kInput}.
[[nodiscard]] std::string adapter_at(const std::string& path);

// Returns the folder with a model's tokenizer that PATH means. Throws Error{kInput}: nothing is
// there, or a file.
[[nodiscard]] std::string tokenizer_folder_at(const std::string& path);

// Returns the name that runs of the model PATH, below FOLDER, have in the folder runs: the name of
// its file without a model's ending, or of its folder. It keeps only letters, digits, `.`, `_` and
// `-`.
[[nodiscard]] std::string run_name(const std::string& path, const std::string& folder = "");

// Throws Error{kInput}: nothing is at PATH, the name of a model.
[[noreturn]] void fail_missing_model(const std::string& path);

// Throws Error{kUsage} if WORD, in the place of a subcommand, asks for a download ("pull"). The
// message says how to fetch NAME, which may be empty.
void refuse_download(std::string_view word, const std::string& name);

}  // namespace dslaunch::storage
