// Loads a model file as a TorchScript module without copying it: the storages of its tensors lie in
// copy-on-write mappings, so pages that nobody writes are one copy for all ranks of a host, and
// memory is taken when a tensor is read. A storage gives its pages back when its last tensor is
// destroyed. A file must not be written in place while its tensors are alive (mapped_file.h). Data
// path: file -> [here] -> model.h. One thread at a time.
#pragma once

#include <c10/core/Allocator.h>
#include <torch/csrc/jit/api/module.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/nodes/names.h"
#include "graph/trust/trust.h"
#include "storage/files/mapped_file.h"
#include "storage/files/zip_archive.h"

namespace dslaunch::storage {
struct FolderWeight;
}

namespace dslaunch::graph {

struct LoadedArchive {
    Module module;
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
[[nodiscard]] Module load_by_libtorch(const std::string& path);

// Loads the exported program (torch.export.save, .pt2) at PATH (exported_archive.cpp): parameters
// and buffers under the names of the exported module, and a forward of the same operators. If the
// program was exported in train mode, its `train` flags and dropout probabilities follow the
// module's mode; if in eval mode, they stay off, which is logged. The archive's sample inputs, a
// pickle, are not read. Throws Error{kInput}, without PATH, when the archive is damaged, was
// written by an older PyTorch, holds a tensor larger than its record, or its graph does what
// forward_of_program.h refuses.
[[nodiscard]] LoadedArchive load_exported(const std::string& path);

// Loads the folder of Hugging Face at PATH (huggingface_folder.cpp): the decoder that its
// config.json describes. SHAPES_DO: a folder without weights, and a config.json alone, get zeros
// that take no memory until they are written. Throws Error{kInput} naming the
// file: an architecture, switch or size that storage/huggingface refuses, a weight that is missing,
// has another shape, or belongs to no module.
[[nodiscard]] LoadedArchive load_huggingface(const std::string& path, bool shapes_do);

// Returns WEIGHT as a tensor of SIZES that lies in the mapping of its file.
[[nodiscard]] at::Tensor tensor_in(const storage::FolderWeight& weight, at::IntArrayRef sizes);

// Returns memory of its own with the content of BYTES.
[[nodiscard]] at::DataPtr copied_data(std::span<const std::byte> bytes);

// The records of an archive as storages of tensors.
class MappedRecords {
  public:
    // Throws Error{kInput} as parse_zip() does. FILE is mapped copy-on-write.
    explicit MappedRecords(std::shared_ptr<const storage::MappedFile> file);

    // Returns null if no record has this name.
    [[nodiscard]] const storage::ZipRecord* find(std::string_view name) const;
    [[nodiscard]] const storage::ZipDirectory& directory() const { return directory_; }

    // Returns the record as a storage's memory. Nothing if it must be copied (logged at level
    // debug): it is compressed, not aligned to 64 bytes, or lent already.
    [[nodiscard]] std::optional<at::DataPtr> lend(const storage::ZipRecord& record);

  private:
    std::shared_ptr<const storage::MappedFile> file_;
    storage::ZipDirectory directory_;
    std::unordered_map<std::string_view, const storage::ZipRecord*> records_;
    std::unordered_set<const void*> lent_;  // their begins
};

}  // namespace dslaunch::graph
