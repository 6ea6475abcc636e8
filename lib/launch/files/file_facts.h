// The facts that show whether two hosts have the same file.
#pragma once

#include <functional>
#include <string>

#include "launch/files/hash_cache.h"
#include "launch/files/sha256.h"
#include "launch/protocol/messages.h"

namespace dslaunch::launch {

// Returns the size and SHA-256 of PATH. If ALL_BYTES is false, the hash of a file over 1 GiB covers
// only 64 evenly spread blocks of 1 MiB, and a file that is in CACHE is not read. CACHE may be
// null; the hash of a file that was read is added to it. Calls ALIVE every few megabytes. Blocks
// while it reads. If the file cannot be read, FileFacts::error gives the reason.
[[nodiscard]] FileFacts look_at_file(const std::string& path, bool all_bytes,
                                     const std::function<void()>& alive,
                                     HashCache* cache = nullptr);

// Returns true if there is certainly nothing at PATH. Returns false if there is something, or if it
// cannot be found out.
[[nodiscard]] bool is_missing(const std::string& path);

// Returns the SHA-256 in hex of all bytes of PATH, from CACHE if the file has not changed since it
// was added; empty if the file cannot be read. Calls ALIVE as look_at_file() does.
[[nodiscard]] std::string hash_whole_file(const std::string& path, HashCache& cache,
                                          const std::function<void()>& alive);

// Returns the SHA-256 in hex of this process's executable. Throws Error{kSetup} if unreadable.
[[nodiscard]] std::string own_binary_hash();

}  // namespace dslaunch::launch
