// Saves modules as TorchScript archives. storage/files/zip_archive.h reads the extra files of an
// archive. No threads.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>

#include "graph/nodes/names.h"

namespace dslaunch::graph {

// Writes MODULE to PATH, in a form that torch.jit.load reads. The file survives a power cut, and is
// written completely or not at all. Throws Error{kDisk}, which names PATH, the bytes needed, the
// cause and, on a full disk, the free space. Calls WRITTEN with each piece of memory, such as the
// storage of a tensor, after the piece was written to the file and will not be read again.
using WrittenMemory = std::function<void(std::span<const std::byte> memory)>;
using ExtraFiles = std::unordered_map<std::string, std::string>;  // contents by name
void save_archive(const Module& module, const std::string& path, const WrittenMemory& written = {},
                  const ExtraFiles& extra = {});

}  // namespace dslaunch::graph
