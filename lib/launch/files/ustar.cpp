#include "launch/files/ustar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace dslaunch::launch {
namespace {

struct Field {
    size_t offset, length;
};
constexpr Field kName{0, 100}, kMode{100, 8}, kUid{108, 8}, kGid{116, 8}, kSize{124, 12},
    kTime{136, 12}, kSum{148, 8}, kMagic{257, 8}, kPrefix{345, 155};
constexpr size_t kTypeOffset = 156;
constexpr std::string_view kMagicBytes{"ustar\00000", 8};
constexpr int64_t kBytesMax = int64_t{1} << 33;  // eleven octal digits

void put(std::string& block, Field field, std::string_view text) {
    std::copy(text.begin(), text.end(), block.begin() + static_cast<std::ptrdiff_t>(field.offset));
}

void put_octal(std::string& block, Field field, int64_t number) {
    put(block, field, fmt::format("{:0{}o}", number, field.length - 1));
}

std::string_view get(std::string_view block, Field field) {
    const std::string_view text = block.substr(field.offset, field.length);
    return text.substr(0, text.find('\0'));
}

int64_t get_octal(std::string_view block, Field field) {
    int64_t number = 0;
    for (const char c : trim(get(block, field))) {
        if (c < '0' || c > '7')
            fail(ExitCode::kInput, "a header of the archive contains a bad number");
        number = number * 8 + (c - '0');
    }
    return number;
}

int64_t checksum(std::string_view block) {
    int64_t sum = 0;
    for (size_t i = 0; i < block.size(); ++i) {
        const bool in_sum = i >= kSum.offset && i < kSum.offset + kSum.length;
        sum += in_sum ? ' ' : static_cast<unsigned char>(block[i]);
    }
    return sum;
}

}  // namespace

bool is_inside(std::string_view name) {
    if (name.empty() || name.find('\0') != std::string_view::npos) return false;
    const std::vector<std::string> parts = split(name, '/');
    return std::none_of(parts.begin(), parts.end(), [](const std::string& part) {
        return part.empty() || part == "." || part == "..";
    });
}

std::string ustar_header(const UstarEntry& entry) {
    std::string name = entry.name, prefix;
    if (name.size() > kName.length) {
        const size_t slash = name.find('/', name.size() - kName.length - 1);
        if (slash > kPrefix.length) {  // also true for npos
            fail(ExitCode::kInput, "{}: the name is too long for an archive", name);
        }
        prefix = name.substr(0, slash);
        name.erase(0, slash + 1);
    }
    if (entry.bytes >= kBytesMax) {
        fail(ExitCode::kInput,
             "{}: the file is larger than 8 GiB, which is too large for an archive", entry.name);
    }
    std::string block(kUstarBlockBytes, '\0');
    put(block, kName, name);
    put(block, kPrefix, prefix);
    put_octal(block, kMode, entry.mode);
    put_octal(block, kUid, 0);
    put_octal(block, kGid, 0);
    put_octal(block, kSize, entry.bytes);
    put_octal(block, kTime, entry.modified_s);
    block[kTypeOffset] = '0';
    put(block, kMagic, kMagicBytes);
    put(block, kSum, fmt::format("{:06o}", checksum(block)) + std::string("\0 ", 2));
    return block;
}

size_t ustar_padding(int64_t bytes) {
    const auto rest = static_cast<size_t>(bytes) % kUstarBlockBytes;
    return rest == 0 ? 0 : kUstarBlockBytes - rest;
}

std::string ustar_end() {
    return std::string(2 * kUstarBlockBytes, '\0');
}

std::optional<UstarEntry> parse_ustar_header(std::string_view block) {
    if (block.size() != kUstarBlockBytes) fail(ExitCode::kInput, "the archive is truncated");
    if (block.find_first_not_of('\0') == std::string_view::npos) return std::nullopt;
    if (get_octal(block, kSum) != checksum(block) || get(block, kMagic) != "ustar") {
        fail(ExitCode::kInput, "a header of the archive is damaged");
    }
    UstarEntry entry;
    const std::string prefix(get(block, kPrefix));
    entry.name = (prefix.empty() ? "" : prefix + "/") + std::string(get(block, kName));
    if (!is_inside(entry.name)) {
        fail(ExitCode::kInput, "the archive contains `{}`, a path that leads outside it",
             printable(entry.name));
    }
    if (block[kTypeOffset] != '0' && block[kTypeOffset] != '\0') {
        fail(ExitCode::kInput, "`{}` in the archive is not a plain file", printable(entry.name));
    }
    entry.bytes = get_octal(block, kSize);
    entry.mode = get_octal(block, kMode);
    entry.modified_s = get_octal(block, kTime);
    return entry;
}

}  // namespace dslaunch::launch
