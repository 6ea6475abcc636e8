// Archives in the ustar format of POSIX, which every tar reads. Equal files make equal archives:
// they contain no times and no owners, and do not depend on the order of files on the disk. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch::launch {

inline constexpr size_t kUstarBlockBytes = 512;

// One plain file of an archive.
struct UstarEntry {
    std::string name;  // relative; at most 255 bytes, in ustar's fields prefix and name
    int64_t bytes = 0;
    int64_t mode = 0644;
    int64_t modified_s = 0;
};

// Returns the header of one plain file. In an archive, the file's content follows the header, and
// ustar_padding() zeros follow the content. Throws Error{kInput} if the name is too long or the
// size is over 8 GiB.
[[nodiscard]] std::string ustar_header(const UstarEntry& entry);
// Returns the number of zero bytes that follow a content of BYTES bytes.
[[nodiscard]] size_t ustar_padding(int64_t bytes);
// Returns the bytes that end an archive.
[[nodiscard]] std::string ustar_end();

// Reads one header block; returns nothing at the end of the archive. Throws Error{kInput} for a
// wrong checksum, an entry that is not a plain file, or a name that is absolute or contains `.` or
// `..`.
[[nodiscard]] std::optional<UstarEntry> parse_ustar_header(std::string_view block);

// Returns true if NAME is relative, not empty, and has no part that is empty, `.` or `..`.
[[nodiscard]] bool is_inside(std::string_view name);

}  // namespace dslaunch::launch
