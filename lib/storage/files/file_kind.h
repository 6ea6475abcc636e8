// Recognizes the kind of a file by its content, because users pass wrong files: weights instead of
// a model, or text instead of tokens. They also pass pointers of Git LFS, error pages and
// compressed files. input_file.h has the advice for each kind. No state; any thread.
#pragma once

#include <cstddef>
#include <span>

namespace dslaunch::storage {

// The kinds that users mistake for each other.
enum class FileKind {
    kTorchScript,      // torch.jit.save
    kExportedProgram,  // torch.export.save, .pt2
    kPickle,           // torch.save of weights, a module or a checkpoint, old or new format
    kSafetensors,
    kOnnx,
    kGguf,        // weights for llama.cpp
    kNoDownload,  // a pointer of Git LFS, or an error page instead of a download: download_fault()
    kNpy,
    kNpz,
    kZip,         // a zip of other files
    kUnreadZip,   // a zip without the root folder of PyTorch's archives, or damaged
    kCompressed,  // with gzip, zstd, xz or bzip2; a tar or 7z archive
    kTable,       // Parquet, Arrow, HDF5
    kText,        // its beginning is UTF-8 without control characters
    kOther        // no known kind; damaged archives too
};

// Returns the kind of the file that contains BYTES.
[[nodiscard]] FileKind file_kind(std::span<const std::byte> bytes);

// Returns the words for a file of KIND: "text", "a pickle of torch.save".
[[nodiscard]] const char* file_kind_name(FileKind kind);

}  // namespace dslaunch::storage
