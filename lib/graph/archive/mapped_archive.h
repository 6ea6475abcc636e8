// Loads a TorchScript archive without copying it: the storages of its tensors lie in a
// copy-on-write mapping of the file, so pages that nobody writes are one copy for all ranks of a
// host, and memory is taken when a tensor is read. A storage gives its pages back when its last
// tensor is destroyed. The archive must not be written in place while its tensors are alive
// (mapped_file.h). Data path: file -> [here] -> model.h. One thread at a time.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/trust/trust.h"
#include "storage/files/mapped_file.h"

namespace dslaunch::graph {

struct LoadedArchive {
    torch::jit::Module module;
    // Shared by the storages that lie in them. Empty if torch::jit::load had to read the archive.
    std::vector<std::shared_ptr<const storage::MappedFile>> files;
    bool has_weights = true;  // false: zeros stand for all of them
    // The sizes of forward's arguments in an exported program, -1 where they may differ.
    std::map<std::string, std::vector<int64_t>> argument_sizes = {};
    // The buffers that a state_dict leaves out; nothing: the archive does not say which.
    std::optional<std::set<std::string>> unsaved = std::nullopt;
};

// Loads the archive at PATH. A record that is compressed, not aligned to 64 bytes, or used twice is
// copied (logged at level debug). Archives with quantized convolutions go through torch::jit::load
// once they are checked (logged at level info). Without TRUST no operator of the archive's code
// runs before model_operators.h has let it in. Throws what torch::jit::load throws (c10::Error),
// Error{kInput} when PATH cannot be mapped, its records are said to expand to much more than the
// file, or script_archive.h, model_operators.h or slot_types.h refuses it.
[[nodiscard]] LoadedArchive load_archive(const std::string& path, Trust trust = Trust::kNone);

// Loads the archive at PATH by torch::jit::load, which runs its code and finds records whatever the
// case of their names. Throws Error{kInput} if two names differ in case alone.
// REQUIRES: load_archive took it.
[[nodiscard]] torch::jit::Module load_by_libtorch(const std::string& path);

}  // namespace dslaunch::graph
