// TorchScript archives as files: saving a module. Extra files of an archive are storage's
// (storage/files/zip_archive.h). No threads.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

namespace torch::jit {
struct Module;
}  // namespace torch::jit

namespace dslaunch::graph {

// Writes MODULE to PATH, durably and whole or not at all, so that torch.jit.load reads it. Throws
// Error{kDisk} naming PATH, need, cause, and on a full disk what is free. WRITTEN is called with
// memory that will not be read again, tensors' storages among it, as soon as it is in the file.
using WrittenMemory = std::function<void(std::span<const std::byte> memory)>;
void save_archive(const torch::jit::Module& module, const std::string& path,
                  const WrittenMemory& written = {});

}  // namespace dslaunch::graph
