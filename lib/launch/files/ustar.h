// Archives in the ustar form of POSIX, which every tar reads. Equal files make equal archives: no
// times, owners or order of the disk in them. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch::launch {

inline constexpr size_t kUstarBlockBytes = 512;

struct UstarEntry {
    std::string name;  // relative; at most 255 bytes, as ustar divides them
    int64_t bytes = 0;
    int64_t mode = 0644;
    int64_t modified_s = 0;
};

// Returns the header of one plain file; its content follows, then ustar_padding() zeros. Throws
// Error{kInput} when the name is too long or the size over 8 GiB.
[[nodiscard]] std::string ustar_header(const UstarEntry& entry);
[[nodiscard]] size_t ustar_padding(int64_t bytes);
// Returns the bytes that end an archive.
[[nodiscard]] std::string ustar_end();

// Reads one header block; returns nothing for the end of the archive. Throws Error{kInput}: a wrong
// checksum, an entry that is not a plain file, a name that is absolute or has `.` or `..` in it.
[[nodiscard]] std::optional<UstarEntry> parse_ustar_header(std::string_view block);

// Returns true if NAME is relative and not empty, without empty parts, `.` and `..`.
[[nodiscard]] bool is_inside(std::string_view name);

}  // namespace dslaunch::launch
