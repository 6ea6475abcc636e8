// Loads a model file as a TorchScript module without copying it. The storages of its tensors are in
// copy-on-write mappings: all ranks of a host share pages that are not written, and memory is used
// only when a tensor is read. When the last tensor of a storage is destroyed, its pages are freed.
// A file must not be written in place while its tensors are alive (mapped_file.h). Data path: file
// -> [here] -> model.h. One thread at a time.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/nodes/names.h"
#include "graph/trust/trust.h"
#include "storage/files/mapped_file.h"

namespace dslaunch::storage {
struct FolderWeight;
}

namespace dslaunch::graph {

// A loaded module and what its file says about it.
struct LoadedArchive {
    Module module;
    // The files that contain the tensors' storages. The storages keep them mapped. Empty if
    // torch::jit::load had to read the archive.
    std::vector<std::shared_ptr<const storage::MappedFile>> files;
    bool has_weights = true;  // false: all of them are zeros
    // The sizes of forward's arguments in an exported program; -1 is a size that may vary.
    std::map<std::string, std::vector<int64_t>> argument_sizes = {};
    // The buffers that a state_dict does not contain; nothing if the archive does not list them.
    std::optional<std::set<std::string>> unsaved = std::nullopt;
};

// Loads the archive at PATH. A record that is compressed, not aligned to 64 bytes, or used twice is
// copied (logged at level debug). An archive with quantized convolutions is checked and then loaded
// by torch::jit::load (logged at level info). Without TRUST no operator in the archive's code runs
// unless model_operators.h allows it. Throws what torch::jit::load throws (c10::Error), and
// Error{kInput} if PATH cannot be mapped, if its records claim to expand to much more than the
// file, or if script_archive.h, model_operators.h or slot_types.h refuses it.
[[nodiscard]] LoadedArchive load_archive(const std::string& path, Trust trust = Trust::kNone);

// Loads the archive at PATH with torch::jit::load, which runs its code and finds records regardless
// of the case of their names. Throws Error{kInput} if two names differ only in case. REQUIRES:
// load_archive() has accepted the archive.
[[nodiscard]] Module load_by_libtorch(const std::string& path);

// Loads the exported program (torch.export.save, .pt2) at PATH (exported_archive.cpp): parameters
// and buffers under the names of the exported module, and a forward with the same operators. If the
// program was exported in train mode, its `train` flags and dropout probabilities follow the
// module's mode. If it was exported in eval mode, they stay off; this is logged. The archive's
// sample inputs, a pickle, are not read. Throws Error{kInput}, without PATH, if the archive is
// damaged, was written by an older PyTorch, or contains a tensor larger than its record, or if
// forward_of_program.h refuses its graph.
[[nodiscard]] LoadedArchive load_exported(const std::string& path);

// Loads the Hugging Face folder at PATH: the decoder that its config.json describes. If SHAPES_DO
// is true, the caller needs only shapes, and PATH may be a folder without weights or only a
// config.json. Missing weights are then zeros, which take no memory until they are written. LAYERS:
// the layers of the folder that the model gets (KeptLayers); empty: all layers. Throws
// Error{kInput}, naming the file, for an architecture, switch or size that storage/huggingface
// refuses, and for a weight that is missing, has another shape, or belongs to no module. Throws the
// errors of KeptLayers. Defined in huggingface_folder.cpp.
[[nodiscard]] LoadedArchive load_huggingface(const std::string& path, bool shapes_do,
                                             const std::vector<int64_t>& layers = {});

// Returns a tensor of SIZES with the elements of WEIGHT. The tensor uses the memory of the mapped
// file; if the elements are not aligned there, it is a copy.
[[nodiscard]] at::Tensor tensor_in(const storage::FolderWeight& weight, at::IntArrayRef sizes);

}  // namespace dslaunch::graph
