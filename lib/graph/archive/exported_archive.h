// Loads an exported program (torch.export.save, .pt2) as a TorchScript module: parameters and
// buffers under the names of the exported module, lying in a mapping of the file as those of
// mapped_archive.h, and a forward of the same operators. Data path: file -> [here] -> model.h. One
// thread at a time.
#pragma once

#include <string>

#include "graph/archive/mapped_archive.h"

namespace dslaunch::graph {

// Loads the program at PATH. `train` flags and dropout probabilities of a program that was exported
// in train mode follow the module's mode; those of a program that was exported in eval mode stay
// off, which is logged. The sample inputs of the archive, a pickle, are not read. Throws
// Error{kInput}, without PATH, when the archive is damaged, was written by an older PyTorch, holds
// a tensor larger than its record, or its graph does what forward_of_program.h refuses.
[[nodiscard]] LoadedArchive load_exported(const std::string& path);

}  // namespace dslaunch::graph
