// The subcommands of `dslaunch ckpt`, and their common parts. One thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/command_line.h"
#include "base/text/json.h"
#include "storage/checkpoint/checkpoint_store.h"
#include "storage/export/tensor_source.h"
#include "storage/export/weight_export.h"

namespace dslaunch::launcher {

// Parses the command line after all options are declared. Returns false if the help was printed
// instead.
using Parse = std::function<bool()>;

// Each function declares its options in COMMAND, calls PARSE, and does its work. Returns the exit
// code.
[[nodiscard]] int ckpt_ls(CommandLine& command, const Parse& parse);
[[nodiscard]] int ckpt_verify(CommandLine& command, const Parse& parse);
[[nodiscard]] int ckpt_inspect(CommandLine& command, const Parse& parse);
[[nodiscard]] int ckpt_diff(CommandLine& command, const Parse& parse);
[[nodiscard]] int ckpt_export(CommandLine& command, const Parse& parse);
[[nodiscard]] int ckpt_import(CommandLine& command, const Parse& parse);

// Returns the checkpoints at PATH, newest first. PATH is one checkpoint, with any folder name, or a
// folder that contains checkpoints. Returns an empty list if there are none. Throws
// Error{kCheckpoint} if PATH is not a folder.
[[nodiscard]] std::vector<storage::StoredCheckpoint> checkpoints_at(storage::FileTree& tree,
                                                                    const std::string& path);

// Returns the name of KIND: "trained", "frozen", …
[[nodiscard]] std::string_view kind_name(storage::TensorKind kind);
// Returns true if GLOB, with `*` and `?`, matches the tensor's name or one of its aliases.
[[nodiscard]] bool matches_glob(const std::string& glob, const storage::CheckpointTensor& tensor);
// Prints one line on stderr that says which weights were written, and where they are.
void tell_exported(const storage::TensorSource& source, const storage::ExportReport& report);

}  // namespace dslaunch::launcher
