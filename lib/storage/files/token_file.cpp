#include "storage/files/token_file.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::storage {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

template <typename Token>
const Token* tokens_of(const MappedFile& file) {
    return reinterpret_cast<const Token*>(file.bytes().data());
}

// The maximum of a chunk vectorises; only the chunk that holds a bad token is searched one by one.
template <typename Token>
std::optional<TokenFile::Place> find_outside(const Token* tokens, int64_t count, int64_t limit) {
    constexpr int64_t kChunk = int64_t{16} * 1024;
    for (int64_t first = 0; first < count; first += kChunk) {
        const int64_t last = std::min(first + kChunk, count);
        Token highest = 0;
        for (int64_t i = first; i < last; ++i) highest = std::max(highest, tokens[i]);
        if (int64_t{highest} < limit) continue;
        for (int64_t i = first; i < last; ++i)
            if (int64_t{tokens[i]} >= limit) return TokenFile::Place{i, int64_t{tokens[i]}};
    }
    return std::nullopt;
}

}  // namespace

TokenFile::TokenFile(const std::string& path, DType dtype) : file_(path), dtype_(dtype) {
    DSL_CHECK(dtype == DType::kU16 || dtype == DType::kU32, "token dtype {}", dtype_name(dtype));
    const auto length = static_cast<int64_t>(file_.bytes().size());
    if (length == 0) fail(ExitCode::kInput, "{}: the token file is empty", path);
    if (length % dtype_bytes(dtype) != 0)
        fail(ExitCode::kInput,
             "{}: {} bytes are not a whole number of {}-byte tokens; is "
             "dslaunch.data.dtype right, or was the file cut off?",
             path, length, dtype_bytes(dtype));
    token_count_ = length / dtype_bytes(dtype);
}

void TokenFile::read(int64_t first, std::span<int64_t> into) const {
    const auto count = static_cast<int64_t>(into.size());
    DSL_CHECK(first >= 0 && count <= token_count_ && first <= token_count_ - count,
              "{}: tokens [{}, {}) of {}", path(), first, first + count, token_count_);
    if (dtype_ == DType::kU16)
        std::copy_n(tokens_of<uint16_t>(file_) + first, count, into.data());
    else
        std::copy_n(tokens_of<uint32_t>(file_) + first, count, into.data());
}

std::optional<TokenFile::Place> TokenFile::first_outside(int64_t vocabulary) const {
    if (dtype_ == DType::kU16)
        return find_outside(tokens_of<uint16_t>(file_), token_count_, vocabulary);
    return find_outside(tokens_of<uint32_t>(file_), token_count_, vocabulary);
}

}  // namespace dslaunch::storage
