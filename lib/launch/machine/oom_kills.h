// Processes that the kernel's out-of-memory killer has ended. Read-only; any thread.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch::launch {

// The number of processes that the kernel's out-of-memory killer has ended, on this machine and in
// our control group; -1 where it does not say.
struct OomCount {
    int64_t machine = -1;
    int64_t group = -1;
};
// ROOT: "" for this machine, else the folder of a test that holds proc/ and sys/.
[[nodiscard]] OomCount count_oom_kills(const std::string& root = "");
// The kills that were added between the two, in words; empty when there is none.
[[nodiscard]] std::string describe_oom(const OomCount& before, const OomCount& now);

}  // namespace dslaunch::launch
