// The key that clients of a server must send. Data path: file -> [here] -> server_options.h.
#pragma once

#include <string>

namespace dslaunch::worker {

// Returns the first line of PATH. Throws Error{kInput} when others than its owner may read it, when
// it cannot be read, or has no key that a client could send.
[[nodiscard]] std::string read_key_file(const std::string& path);

}  // namespace dslaunch::worker
