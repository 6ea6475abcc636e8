// Strict reader and atomic writer of GGUF files, versions 2 and 3, little-endian: a header, values
// by key, the tensors' names, shapes and places, then their bytes, each aligned. Data path: a file
// -> [here] -> block_numbers.h; block_numbers.h -> [here] -> a file. Readers: const, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/files/atomic_file.h"
#include "storage/files/mapped_file.h"
#include "storage/gguf/gguf_form.h"
#include "storage/gguf/gguf_values.h"

namespace dslaunch::storage {

// A tensor of a file, as a view of its bytes.
struct GgufTensor {
    std::string name;
    GgufForm form = GgufForm::kF32;
    std::vector<int64_t> shape;        // row-major, as in PyTorch: the file has it reversed
    std::span<const std::byte> bytes;  // aligned to the file's alignment
};

// All values and tensors of a file.
struct GgufContent {
    GgufMetadata metadata;
    std::vector<GgufTensor> tensors;

    // Returns null if there is no tensor with that name.
    [[nodiscard]] const GgufTensor* find(std::string_view name) const;
};

// Reads a GGUF file. BYTES is the whole file, and must outlive the result. Every length, number and
// place is checked before it is used. Throws Error{kInput} naming PATH and the value or tensor if
// the file is truncated, has a key or tensor twice, nested lists, a form that this version does not
// read, or tensors that overlap.
[[nodiscard]] GgufContent parse_gguf(const std::string& path, std::span<const std::byte> bytes);

// Returns true if the file at PATH begins as a GGUF file; false also if it cannot be read.
[[nodiscard]] bool is_gguf_file(const std::string& path);

// A mapped file and its content.
class GgufFile {
  public:
    // Throws what MappedFile and parse_gguf() throw.
    explicit GgufFile(const std::string& path);

    [[nodiscard]] const GgufContent& content() const { return content_; }
    [[nodiscard]] const GgufMetadata& metadata() const { return content_.metadata; }
    [[nodiscard]] const MappedFile& file() const { return file_; }

  private:
    MappedFile file_;
    GgufContent content_;
};

// Writes a file of version 3, tensor after tensor. At any moment PATH is the old file or the
// complete new one, durably (see atomic_file.h). Blocks on the disk. Throws Error{kDisk}. One
// thread.
class GgufWriter {
  public:
    // TENSORS must be in the order that their bytes will have in the file; `bytes` in them is
    // ignored. REQUIRES: unique names; rows of whole blocks; at most 4 dimensions.
    GgufWriter(const std::string& path, const GgufValues& values,
               std::span<const GgufTensor> tensors);

    // Writes the next bytes of the tensor that is not complete yet. REQUIRES: they do not go past
    // its end.
    void append(std::span<const std::byte> bytes);
    // Completes the file. REQUIRES: every tensor is written.
    void commit();
    // Returns the size of the complete file.
    [[nodiscard]] int64_t file_bytes() const { return layout_.file_bytes; }

  private:
    struct Layout {
        std::string header;
        std::vector<int64_t> bytes;  // size of each tensor
        int64_t file_bytes = 0;
    };
    [[nodiscard]] static Layout layout_of(const GgufValues& values,
                                          std::span<const GgufTensor> tensors);

    Layout layout_;
    AtomicFile file_;
    size_t index_ = 0;
    int64_t written_ = 0;  // bytes of tensor index_
};

}  // namespace dslaunch::storage
