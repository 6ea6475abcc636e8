#include "storage/tokens/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::storage {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

struct TokenDType {
    DType dtype;
    const char* name;  // as in dslaunch.data.dtype
};
constexpr std::array<TokenDType, 4> kTokenDTypes{{{DType::kU16, "uint16"},
                                                  {DType::kU32, "uint32"},
                                                  {DType::kI32, "int32"},
                                                  {DType::kI64, "int64"}}};

const char* name_of(DType dtype) {
    const auto row = std::ranges::find(kTokenDTypes, dtype, &TokenDType::dtype);
    DSL_CHECK(row != kTokenDTypes.end(), "the token dtype {} is not valid", dtype_name(dtype));
    return row->name;
}

template <typename Token>
std::span<const Token> tokens_of(const MappedFile& file) {
    return {reinterpret_cast<const Token*>(file.bytes().data()),
            file.bytes().size() / sizeof(Token)};
}

// Calls USE with the file's tokens in the file's own type.
template <typename Use>
auto with_tokens(const MappedFile& file, DType dtype, Use use) {
    switch (dtype) {
        case DType::kU16:
            return use(tokens_of<uint16_t>(file));
        case DType::kU32:
            return use(tokens_of<uint32_t>(file));
        case DType::kI32:
            return use(tokens_of<int32_t>(file));
        default:
            return use(tokens_of<int64_t>(file));
    }
}

// Finds the smallest and the largest token of each chunk in a vectorized loop. Examines single
// tokens only in a chunk that contains a bad token.
template <typename Token>
std::optional<TokenFile::Place> find_outside(std::span<const Token> tokens, int64_t limit) {
    constexpr int64_t kChunk = int64_t{16} * 1024;
    const auto count = std::ssize(tokens);
    for (int64_t first = 0; first < count; first += kChunk) {
        const int64_t last = std::min(first + kChunk, count);
        Token highest = 0;
        Token lowest = 0;
        for (int64_t i = first; i < last; ++i) {
            highest = std::max(highest, tokens[i]);
            lowest = std::min(lowest, tokens[i]);
        }
        if (int64_t{highest} < limit && int64_t{lowest} >= 0) continue;
        for (int64_t i = first; i < last; ++i) {
            const auto token = static_cast<int64_t>(tokens[i]);
            if (token < 0 || token >= limit) return TokenFile::Place{i, token};
        }
    }
    return std::nullopt;
}

// The length of a sample, in 16-bit numbers. A few samples are read from the file.
constexpr size_t kLookedAt = 4096;
constexpr size_t kLookedAtMin = 64;
// The largest value of the upper 16 bits of a 32-bit token below 2^20. A 64-bit token has two more
// 16-bit numbers, and both are 0.
constexpr uint16_t kUpperMax = 15;

struct Looked {
    uint16_t largest = 0;
    size_t numbers = 0;
    size_t zeros = 0;
};

// Examines the number at index PLACE in each group of four 16-bit numbers, in a few samples of the
// file.
Looked look_at(std::span<const uint16_t> numbers, size_t place) {
    Looked looked;
    const size_t step = std::max(numbers.size() / 3, kLookedAt) / 4 * 4;
    for (size_t window = 0; window < numbers.size(); window += step) {
        const size_t end = std::min(window + kLookedAt, numbers.size());
        for (size_t i = window + place; i < end; i += 4) {
            looked.largest = std::max(looked.largest, numbers[i]);
            looked.zeros += numbers[i] == 0 ? 1 : 0;
            ++looked.numbers;
        }
    }
    return looked;
}

// Returns the width in bytes of the file's tokens, judged by the positions of zeros. Returns 0 if
// these show no width, for example because most tokens are 0.
int64_t width_of(std::span<const uint16_t> numbers) {
    if (numbers.size() < kLookedAtMin) return 0;
    const Looked first = look_at(numbers, 0), second = look_at(numbers, 1),
                 third = look_at(numbers, 2), fourth = look_at(numbers, 3);
    const uint16_t upper = std::max(second.largest, fourth.largest);
    const bool upper_is_less =
        upper == 0 || (upper <= kUpperMax && std::max(first.largest, third.largest) > 255);
    if (!upper_is_less || first.zeros > first.numbers / 2) return 0;
    return third.largest == 0 && fourth.largest == 0 ? 8 : 4;
}

}  // namespace

TokenFile::TokenFile(const std::string& path, DType dtype) : file_(path), dtype_(dtype) {
    const char* const name = name_of(dtype);
    const auto length = static_cast<int64_t>(file_.bytes().size());
    if (length == 0) fail(ExitCode::kInput, "{}: the token file is empty", path);
    if (length % dtype_bytes(dtype) != 0)
        fail(ExitCode::kInput,
             "{}: {} bytes are not a whole number of {} tokens; is dslaunch.data.dtype right, or "
             "was the file cut off?",
             path, length, name);
    token_count_ = length / dtype_bytes(dtype);
    check_width();
}

void TokenFile::check_width() const {
    const int64_t width = width_of(tokens_of<uint16_t>(file_));
    if (width == 0 || width == dtype_bytes(dtype_)) return;
    const DType right = width == 8 ? DType::kI64 : DType::kI32;
    fail(ExitCode::kInput,
         "{}: the tokens seem to be {} (the {} of every {} 16-bit numbers is nearly always 0), but "
         "are read as {}: set dslaunch.data.dtype to {}",
         path(), name_of(right), width == 8 ? "second to fourth" : "second", width / 2,
         name_of(dtype_), name_of(right));
}

void TokenFile::read(int64_t first, std::span<int64_t> into) const {
    const auto count = static_cast<int64_t>(into.size());
    DSL_CHECK(first >= 0 && count <= token_count_ && first <= token_count_ - count,
              "{}: tokens [{}, {}) are not within the file's {} tokens", path(), first,
              first + count, token_count_);
    with_tokens(file_, dtype_,
                [&](auto tokens) { std::copy_n(tokens.data() + first, count, into.data()); });
}

std::optional<TokenFile::Place> TokenFile::first_outside(int64_t vocabulary) const {
    return with_tokens(file_, dtype_,
                       [&](auto tokens) { return find_outside(tokens, vocabulary); });
}

}  // namespace dslaunch::storage
