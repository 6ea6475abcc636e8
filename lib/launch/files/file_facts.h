// The facts that two hosts compare to know that they hold the same file.
#pragma once

#include <functional>
#include <string>

#include "launch/files/hash_cache.h"
#include "launch/protocol/messages.h"

namespace dslaunch::launch {

// Size and SHA-256 of PATH; over 1 GiB, unless ALL_BYTES, of 64 evenly spread blocks of 1 MiB.
// ALIVE is called every few megabytes. Blocks while it reads; a failure is told in
// FileFacts::error. With a CACHE (not owned, may be null) a file that it knows is not read, unless
// ALL_BYTES, and what was read is added.
[[nodiscard]] FileFacts look_at_file(const std::string& path, bool all_bytes,
                                     const std::function<void()>& alive,
                                     HashCache* cache = nullptr);

// SHA-256 in hex of all bytes of PATH, from CACHE when it knows the file as it is now; empty when
// it cannot be read. ALIVE as above.
[[nodiscard]] std::string hash_whole_file(const std::string& path, HashCache& cache,
                                          const std::function<void()>& alive);

// SHA-256 in hex of this process's executable. Throws Error{kSetup} when it cannot be read.
[[nodiscard]] std::string own_binary_hash();

}  // namespace dslaunch::launch
