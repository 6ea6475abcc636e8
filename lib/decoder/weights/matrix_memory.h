// Bytes of a matrix of weights in memory, or in a file's mapping. Data path: weight_source.h ->
// [here] -> products. Threads: reading by any number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/matrix/packed_matrix.h"
#include "storage/files/mapped_file.h"

namespace dslaunch::decoder {

// Fresh pages of the system: zeros, aligned to a page, large pages where there are some.
class PageMemory {
  public:
    PageMemory() = default;
    // Pages take memory when they are first written. Throws Error{kSetup} naming BYTES and USE when
    // there is no room for them.
    PageMemory(int64_t bytes, const char* use);
    PageMemory(PageMemory&& other) noexcept;
    PageMemory& operator=(PageMemory&& other) noexcept;
    ~PageMemory();

    [[nodiscard]] std::span<std::byte> bytes() { return bytes_; }
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  private:
    std::span<std::byte> bytes_;
};

// A matrix and what its bytes lie in.
struct OwnedMatrix {
    kernels::PackedMatrix matrix;
    std::shared_ptr<const storage::MappedFile> file;  // shared by all that lie in it; or none
    PageMemory memory;
};

}  // namespace dslaunch::decoder
