// What the subcommands of `dslaunch ckpt` share, and the table of them. One thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/text/json.h"
#include "launcher/ckpt/ckpt_command.h"
#include "storage/checkpoint/checkpoint_store.h"
#include "storage/export/tensor_source.h"
#include "storage/export/weight_export.h"

namespace dslaunch::launcher {

// Each adds its subcommand to CKPT; EXIT_CODE outlives it.
void add_ckpt_ls(CLI::App& ckpt, int& exit_code);
void add_ckpt_verify(CLI::App& ckpt, int& exit_code);
void add_ckpt_inspect(CLI::App& ckpt);
void add_ckpt_diff(CLI::App& ckpt, int& exit_code);
void add_ckpt_export(CLI::App& ckpt, const BecomeWorker& become_worker);
void add_ckpt_import(CLI::App& ckpt);

// The checkpoints that PATH names, newest first: one, whatever its folder is called, or all below a
// folder. Empty where there are
// none. Throws Error{kCheckpoint} when PATH is no folder.
[[nodiscard]] std::vector<storage::StoredCheckpoint> checkpoints_at(storage::FileTree& tree,
                                                                    const std::string& path);

// "trained", "frozen", …
[[nodiscard]] std::string_view kind_name(storage::TensorKind kind);
// "[768, 3072]".
[[nodiscard]] std::string shape_text(const std::vector<int64_t>& shape);
[[nodiscard]] bool matches_glob(const std::string& glob, const storage::CheckpointTensor& tensor);
// One line on stderr for what was written where.
void tell_exported(const storage::TensorSource& source, const storage::ExportReport& report);

}  // namespace dslaunch::launcher
