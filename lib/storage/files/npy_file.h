// Reads NumPy's .npy files: one array of plain numbers, C order, little-endian, format versions 1
// to 3. Views are valid as long as the NpyFile lives (see mapped_file.h about files that shrink).
// Threads: const, any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/kinds/dtype.h"
#include "storage/files/mapped_file.h"

namespace dslaunch::storage {

// The array of a file, as a view of its bytes.
struct NpyArray {
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;        // [] is a scalar
    std::span<const std::byte> bytes;  // row-major, little-endian; aligned if the writer padded
};

// Reads a .npy file. Throws Error{kInput} that begins with PATH and says what is damaged or not
// accepted (Fortran order, Python objects, big-endian, text, complex, records, …). BYTES must be
// the whole file, without other bytes at its end.
[[nodiscard]] NpyArray parse_npy(const std::string& path, std::span<const std::byte> bytes);

// Returns the commands that make data for a language model from ARRAY, which is in the .npy file at
// PATH. Rows of tokens become a file with the columns `tokens` and `targets`. One long list becomes
// a file of raw tokens; the command then gives their type after DTYPE_OPTION. Returns "" if ARRAY
// cannot be tokens.
[[nodiscard]] std::string token_recipe(const std::string& path, const NpyArray& array,
                                       std::string_view dtype_option);

// A mapped file and its array.
class NpyFile {
  public:
    // Throws what MappedFile and parse_npy() throw.
    explicit NpyFile(const std::string& path)
        : file_(path), array_(parse_npy(path, file_.bytes())) {}

    // Returns the array, which is valid as long as this object lives.
    [[nodiscard]] const NpyArray& array() const { return array_; }

  private:
    MappedFile file_;
    NpyArray array_;
};

}  // namespace dslaunch::storage
