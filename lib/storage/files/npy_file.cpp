#include "storage/files/npy_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/text/json.h"
#include "base/text/words.h"
#include "base/text_bytes.h"

namespace dslaunch::storage {
namespace {

constexpr size_t kNpyHeaderBytesMax = size_t{64} * 1024;  // NumPy itself refuses more than 10,000
constexpr size_t kRankMax = 64;                           // NumPy 2's own limit
constexpr std::string_view kMagic = "\x93NUMPY";

std::optional<DType> dtype_of(std::string_view code) {
    constexpr std::array<std::pair<std::string_view, DType>, 14> kCodes{{{"|b1", DType::kBool},
                                                                         {"|u1", DType::kU8},
                                                                         {"|i1", DType::kI8},
                                                                         {"<i2", DType::kI16},
                                                                         {"<u2", DType::kU16},
                                                                         {"<f2", DType::kF16},
                                                                         {"<i4", DType::kI32},
                                                                         {"<u4", DType::kU32},
                                                                         {"<f4", DType::kF32},
                                                                         {"<f8", DType::kF64},
                                                                         {"<i8", DType::kI64},
                                                                         {"<u8", DType::kU64},
                                                                         {"<u1", DType::kU8},
                                                                         {"<i1", DType::kI8}}};
    for (const auto& [name, dtype] : kCodes)
        if (name == code) return dtype;
    return std::nullopt;
}

// Returns a text that says why the dtype CODE is refused, and in most cases what to do. REQUIRES:
// dtype_of() does not know CODE.
std::string_view refusal(std::string_view code) {
    if (code.size() < 2) return "it is not a NumPy dtype";
    if (code[1] == 'O') return "Python objects are not supported; save numbers";
    if (code[0] == '>')
        return "big-endian numbers are not supported; save array.astype('<f4') or similar";
    if (code[1] == 'c')
        return "complex numbers are not supported; save their real and imaginary parts";
    if (code[1] == 'U' || code[1] == 'S') return "text is not supported; save token numbers";
    if (code[1] == 'M' || code[1] == 'm') return "dates are not supported; save numbers";
    if (code[1] == 'V') return "raw bytes are not supported; save float16, float32 or safetensors";
    return "this dtype is not supported";
}

// Parses the header, one Python dict literal with three keys; accepts only NumPy's own form.
class HeaderParser {
  public:
    HeaderParser(const std::string& path, std::string_view text) : path_(path), rest_(text) {}

    NpyArray parse() {
        expect('{');
        while (!accept('}')) {
            const std::string_view key = quoted();
            expect(':');
            read_field(key);
            if (!accept(',') && !peek('}')) bad("',' or '}' is missing in its header");
        }
        skip_space();
        if (!rest_.empty()) bad("its header has more text after '}'");
        if (!dtype_ || !has_order_ || !shape_)
            bad("its header needs descr, fortran_order and shape");
        return {*dtype_, std::move(*shape_), {}};
    }

  private:
    [[noreturn]] void bad(std::string_view what) const {
        fail(ExitCode::kInput, "{}: not a usable .npy file: {}", path_, printable(what));
    }

    void read_field(std::string_view key) {
        const bool again = (key == "descr" && dtype_) || (key == "fortran_order" && has_order_) ||
                           (key == "shape" && shape_);
        if (again) bad(fmt::format("its header has '{}' twice", key));
        if (key == "descr") {
            read_dtype();
        } else if (key == "fortran_order") {
            read_order();
        } else if (key == "shape") {
            read_shape();
        } else {
            bad(fmt::format("its header has the unknown key '{}'", key));
        }
    }

    void read_dtype() {
        if (peek('['))
            bad("records (structured dtypes) are not supported; save one array per field");
        const std::string_view code = quoted();
        dtype_ = dtype_of(code);
        if (!dtype_) bad(fmt::format("dtype '{}': {}", code, refusal(code)));
    }

    void read_order() {
        skip_space();
        if (accept_word("True"))
            bad("Fortran order is not supported; save numpy.ascontiguousarray(array)");
        if (!accept_word("False")) bad("fortran_order is neither True nor False");
        has_order_ = true;
    }

    // Reads (), (3,), (3, 4).
    void read_shape() {
        shape_.emplace();
        expect('(');
        while (!accept(')')) {
            shape_->push_back(extent());
            if (shape_->size() > kRankMax) bad("its shape has too many dimensions");
            if (!accept(',') && (!peek(')') || shape_->size() == 1))
                bad("its shape is not a tuple");
        }
    }

    int64_t extent() {
        skip_space();
        size_t length = 0;
        while (length < rest_.size() && rest_[length] >= '0' && rest_[length] <= '9') ++length;
        const auto value = parse_int(rest_.substr(0, length));
        if (!value) bad("its shape contains something that is not a size");
        rest_.remove_prefix(length);
        return *value;
    }

    std::string_view quoted() {
        skip_space();
        if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"'))
            bad("a quoted word is missing in its header");
        const size_t end = rest_.find(rest_[0], 1);
        if (end == std::string_view::npos) bad("a quote is not closed in its header");
        const std::string_view word = rest_.substr(1, end - 1);
        rest_.remove_prefix(end + 1);
        return word;
    }

    void skip_space() {
        while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n')) rest_.remove_prefix(1);
    }

    bool peek(char wanted) {
        skip_space();
        return !rest_.empty() && rest_[0] == wanted;
    }

    bool accept(char wanted) {
        const bool found = peek(wanted);
        if (found) rest_.remove_prefix(1);
        return found;
    }

    bool accept_word(std::string_view word) {
        const bool found = rest_.starts_with(word);
        if (found) rest_.remove_prefix(word.size());
        return found;
    }

    void expect(char wanted) {
        if (!accept(wanted)) bad(fmt::format("'{}' is missing in its header", wanted));
    }

    const std::string& path_;
    std::string_view rest_;
    std::optional<DType> dtype_;
    std::optional<std::vector<int64_t>> shape_;
    bool has_order_ = false;
};

int64_t checked_bytes(const std::string& path, const NpyArray& array) {
    int64_t bytes = dtype_bytes(array.dtype);
    bool too_many = false;
    for (const int64_t extent : array.shape)
        too_many = __builtin_mul_overflow(bytes, extent, &bytes) || too_many;
    if (too_many)
        fail(ExitCode::kInput, "{}: its shape is too large: the number of bytes overflows", path);
    return bytes;
}

}  // namespace

NpyArray parse_npy(const std::string& path, std::span<const std::byte> bytes) {
    const std::string_view file = text_in(bytes);
    if (!file.starts_with(kMagic) || file.size() < kMagic.size() + 4)
        fail(ExitCode::kInput, "{}: not a .npy file: it does not begin with \\x93NUMPY", path);
    const auto byte_at = [&](size_t at) { return std::to_integer<size_t>(bytes[at]); };
    const size_t major = byte_at(6), minor = byte_at(7);
    if (major < 1 || major > 3 || minor != 0)
        fail(ExitCode::kInput, "{}: .npy version {}.{} is not supported", path, major, minor);
    const size_t begin = major == 1 ? 10 : 12;
    if (file.size() < begin) fail(ExitCode::kInput, "{}: the .npy header is cut short", path);
    size_t length = byte_at(8) | byte_at(9) << 8;
    if (major > 1) length |= byte_at(10) << 16 | byte_at(11) << 24;
    if (length > kNpyHeaderBytesMax || length > file.size() - begin)
        fail(ExitCode::kInput, "{}: a .npy header of {} bytes is too long or cut short", path,
             length);
    NpyArray array = HeaderParser(path, file.substr(begin, length)).parse();
    const int64_t need = checked_bytes(path, array);
    array.bytes = bytes.subspan(begin + length);
    if (array.bytes.size() != static_cast<size_t>(need))
        fail(ExitCode::kInput, "{}: its shape needs {} bytes of data, but the file has {}", path,
             need, array.bytes.size());
    return array;
}

namespace {

// Returns the largest integer in BYTES, read as unsigned integers of type T. A negative integer
// thus counts as a large one.
template <typename T>
uint64_t largest_of(std::span<const std::byte> bytes) {
    uint64_t largest = 0;
    for (size_t at = 0; at + sizeof(T) <= bytes.size(); at += sizeof(T)) {
        T number = 0;
        std::memcpy(&number, bytes.data() + at, sizeof number);
        largest = std::max(largest, static_cast<uint64_t>(number));
    }
    return largest;
}

bool is_of_integers(const NpyArray& array) {
    return array.dtype == DType::kU8 || array.dtype == DType::kI8 || array.dtype == DType::kU16 ||
           array.dtype == DType::kI16 || array.dtype == DType::kU32 || array.dtype == DType::kI32 ||
           array.dtype == DType::kU64 || array.dtype == DType::kI64;
}

// Returns the largest number of an array of integers. Reads signed integers as unsigned ones.
uint64_t largest_in(const NpyArray& array) {
    switch (dtype_bytes(array.dtype)) {
        case 1:
            return largest_of<uint8_t>(array.bytes);
        case 2:
            return largest_of<uint16_t>(array.bytes);
        case 4:
            return largest_of<uint32_t>(array.bytes);
        default:
            return largest_of<uint64_t>(array.bytes);
    }
}

}  // namespace

std::string token_recipe(const std::string& path, const NpyArray& array,
                         std::string_view dtype_option) {
    const size_t dimensions = array.shape.size();
    if (!is_of_integers(array) || (dimensions != 1 && dimensions != 2)) return "";
    const std::string stem = std::filesystem::path(path).replace_extension().string();
    // A JSON string is also a valid Python string with the same meaning.
    const auto text = [](const std::string& name) { return JsonWriter().value(name).text(); };
    const auto python = [](const std::string& program) {
        return "python3 -c " + shell_word(program);
    };
    if (dimensions == 2)
        return fmt::format(
            "if each row is a text of token ids, make the columns `tokens` and `targets` with "
            "NumPy and safetensors: {}, then give --data {}",
            python(fmt::format("import numpy, safetensors.numpy as s; r = "
                               "numpy.load({}).astype(\"int64\"); s.save_file({{\"tokens\": r[:, "
                               ":-1].copy(), \"targets\": r[:, 1:].copy()}}, {})",
                               text(path), text(stem + ".safetensors"))),
            shell_word(stem + ".safetensors"));
    const bool is_wide = largest_in(array) > UINT16_MAX;
    return fmt::format(
        "if it is one long list of tokens, write them without a header: {}, then give --data {} "
        "--context N{}",
        python(fmt::format("import numpy; numpy.load({}).astype(\"{}\").tofile({})", text(path),
                           is_wide ? "uint32" : "uint16", text(stem + ".tokens"))),
        shell_word(stem + ".tokens"), is_wide ? fmt::format(" {}uint32", dtype_option) : "");
}

}  // namespace dslaunch::storage
