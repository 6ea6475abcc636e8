// libFuzzer entry: reads any block as the header of an entry in an archive. The block is refused,
// or names a plain file inside the archive, and its header is the same after it is written and read
// again. It never crashes or hangs. If the first byte is odd, the block gets the magic and the
// checksum of a valid header.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/error.h"
#include "fuzz/error_checks.h"
#include "launch/files/ustar.h"

namespace {

using namespace dslaunch;
using namespace dslaunch::launch;

constexpr size_t kSumOffset = 148;
constexpr size_t kMagicOffset = 257;
constexpr int64_t kWrittenBytesMax = int64_t{1} << 33;  // tar writes eleven octal digits

void seal(std::string& block) {
    block.replace(kMagicOffset, 6, std::string_view("ustar\0", 6));
    block.replace(kSumOffset, 8, "        ");
    unsigned sum = 0;
    for (const char c : block) sum += static_cast<unsigned char>(c);
    block.replace(kSumOffset, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
}

void check_entry(const UstarEntry& entry) {
    DSL_CHECK(is_inside(entry.name) && entry.name.size() <= 256, "a name inside the archive");
    DSL_CHECK(entry.name.front() != '/' && entry.name.find('\0') == std::string::npos, "relative");
    DSL_CHECK(entry.bytes >= 0 && entry.mode >= 0 && entry.modified_s >= 0, "nothing is negative");
    const auto content = static_cast<uint64_t>(entry.bytes);
    DSL_CHECK((content + ustar_padding(entry.bytes)) % kUstarBlockBytes == 0, "whole blocks");
    std::string block;
    try {
        block = ustar_header(entry);
    } catch (const Error&) {
        DSL_CHECK(entry.bytes >= kWrittenBytesMax, "what is read can be written");
        return;
    }
    DSL_CHECK(block.size() == kUstarBlockBytes, "a header is one block");
    const auto again = parse_ustar_header(block);
    DSL_CHECK(again && again->name == entry.name && again->bytes == entry.bytes, "read back");
    DSL_CHECK(again->mode == entry.mode && again->modified_s == entry.modified_s, "read back");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
    if (size_bytes == 0) return 0;
    std::string block(reinterpret_cast<const char*>(data) + 1, size_bytes - 1);
    if (data[0] % 2 == 1) {
        block.resize(kUstarBlockBytes);
        seal(block);
    }
    try {
        const auto entry = parse_ustar_header(block);
        const bool all_zero = std::all_of(block.begin(), block.end(), [](char c) { return !c; });
        DSL_CHECK(entry.has_value() != all_zero, "zeros, and nothing else, end an archive");
        if (entry) check_entry(*entry);
    } catch (const Error& error) {
        DSL_CHECK(error.code() == ExitCode::kInput, "a bad archive is bad input");
        fuzz::check_shown(error.what());
    }
    return 0;
}
