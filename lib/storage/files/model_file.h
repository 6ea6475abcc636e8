// What a file that is given as a model really is, by its content. People have weights (a
// state_dict, safetensors), whole pickled modules, exported programs, ONNX, pointers of Git LFS:
// none of them is a TorchScript archive, and each becomes one in its own way. Data path: TARGET ->
// [here] -> archive. No state; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace dslaunch::storage {

enum class ModelFileKind {
    kTorchScript,      // torch.jit.save
    kExportedProgram,  // torch.export.save, .pt2
    kPickle,           // torch.save of weights, a module or a checkpoint, old or new format
    kSafetensors,
    kOnnx,
    kLfsPointer,  // the file itself was never downloaded
    kWebPage,     // an error page in the place of a download
    kOther        // nothing that is known, damaged archives included
};

[[nodiscard]] ModelFileKind model_file_kind(std::span<const std::byte> bytes);

// True: names end so that are given to files of the kinds above (.pth, .bin, .safetensors, …).
[[nodiscard]] bool has_model_name(std::string_view path);

// Throws Error{kInput} that begins with PATH, says what it is and the one line that makes a model
// of it, unless it is a TorchScript archive or kOther. A file that cannot be read passes: whoever
// opens it says why.
void require_torchscript(const std::string& path);

}  // namespace dslaunch::storage
