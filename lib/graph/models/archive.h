// TorchScript archives as files: saving a module. Extra files of an archive are storage's
// (storage/files/zip_archive.h). No threads.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// Writes MODULE to PATH, durably and whole or not at all, so that torch.jit.load reads it. Throws
// Error{kDisk} naming PATH, need, cause, and on a full disk the free space. WRITTEN is called with
// memory, such as tensors' storages, that is in the file and will not be read again.
using WrittenMemory = std::function<void(std::span<const std::byte> memory)>;
using ExtraFiles = std::unordered_map<std::string, std::string>;  // contents by name
void save_archive(const Module& module, const std::string& path, const WrittenMemory& written = {},
                  const ExtraFiles& extra = {});

}  // namespace dslaunch::graph
