// TorchScript archives as files: saving a module, and adding extra files to an archive without
// reading its tensors as tensors. An archive is a zip with stored records; extra files are its
// records extra/NAME. No threads.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <map>
#include <optional>
#include <string>

namespace dslaunch {

// Writes MODULE to PATH (by a temporary name beside it and rename), so that torch.jit.load reads
// it. Throws Error{kDisk} naming PATH and the cause.
void save_archive(const torch::jit::Module& module, const std::string& path);

// The content of extra file NAME; nothing when the archive has none. Throws Error{kInput} when PATH
// is no archive.
[[nodiscard]] std::optional<std::string> read_extra_file(const std::string& path,
                                                         const std::string& name);

// Copies the archive SOURCE to PATH with EXTRA (name -> content) added, or put in place of those of
// the same name; every other record is byte-equal. SOURCE and PATH may be one file. Peak memory:
// the largest record. Throws Error{kInput} when SOURCE is no archive, Error{kDisk} when PATH cannot
// be written.
void write_with_extra_files(const std::string& source, const std::string& path,
                            const std::map<std::string, std::string>& extra);

}  // namespace dslaunch
