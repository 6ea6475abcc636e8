// A mapped file of little-endian tokens, for training on text. Threads: const, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/kinds/dtype.h"
#include "storage/files/mapped_file.h"

namespace dslaunch::storage {

// An open file.
class TokenFile {
  public:
    // A token, and its index in the file.
    struct Place {
        int64_t index = 0;
        int64_t token = 0;
    };

    // DTYPE must be kU16, kU32, kI32 or kI64; anything else is a bug. Throws Error{kInput} if the
    // file is missing or empty, if its length is not a multiple of the token's size, or if its
    // bytes look like tokens of another width. For example, zeros in every second 16-bit number
    // look like tokens of 32 bits.
    TokenFile(const std::string& path, DType dtype);

    // Return the number of tokens in the file, and its path.
    [[nodiscard]] int64_t token_count() const { return token_count_; }
    [[nodiscard]] const std::string& path() const { return file_.path(); }

    // Reads tokens [first, first + into.size()) as int64. REQUIRES: the range is inside the file.
    void read(int64_t first, std::span<int64_t> into) const;

    // Returns the first token that is negative or >= VOCABULARY, or nothing. Reads the whole file.
    [[nodiscard]] std::optional<Place> first_outside(int64_t vocabulary) const;

  private:
    void check_width() const;

    MappedFile file_;
    DType dtype_;
    int64_t token_count_ = 0;
};

}  // namespace dslaunch::storage
