// Loads a TorchScript archive without copying it: the storages of its tensors lie in a
// copy-on-write mapping of the file, so pages that nobody writes are one copy for all ranks of a
// host, and memory is taken when a tensor is read. A storage gives its pages back when its last
// tensor is destroyed. The archive must not be written in place while its tensors are alive
// (mapped_file.h). Data path: file -> [here] -> model.h. One thread at a time.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "storage/files/mapped_file.h"

namespace dslaunch::graph {

struct LoadedArchive {
    torch::jit::Module module;
    // Shared by the storages that lie in them. Empty if torch::jit::load had to read the archive.
    std::vector<std::shared_ptr<const storage::MappedFile>> files;
    bool has_weights = true;  // false: zeros stand for all of them
    // The sizes of forward's arguments in an exported program, -1 where they may differ.
    std::map<std::string, std::vector<int64_t>> argument_sizes = {};
};

// Loads the archive at PATH. A record that is compressed, not aligned to 64 bytes, or used twice is
// copied (logged at level debug). Archives of before LibTorch 1.4, with quantized convolutions, or
// with a zip directory that only LibTorch accepts go through torch::jit::load (logged at level
// info). Throws what torch::jit::load throws (c10::Error), Error{kInput} when PATH cannot be
// mapped, a tensor is larger than its record, or the records are said to expand to much more than
// the file.
[[nodiscard]] LoadedArchive load_archive(const std::string& path);

}  // namespace dslaunch::graph
