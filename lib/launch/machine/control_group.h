// The control group of this process, in version 1 or 2 of the kernel's interface: what it may use
// and what happened to it. No threads.
#pragma once

#include <cstdint>
#include <string>

namespace dslaunch::launch {

// The processors' worth of time that the group or one above it grants, rounded up; 0: no limit.
// ROOT: "" for this machine, else the folder of a test that holds proc/ and sys/.
[[nodiscard]] int processors_granted(const std::string& root);

// The number of processes of the group that were ended because its memory was used up; -1 where it
// does not say.
[[nodiscard]] int64_t group_oom_kills(const std::string& root);

// The number behind NAME in a file of "name number" lines; -1 when there is none.
[[nodiscard]] int64_t read_counter(const std::string& path, const std::string& name);

}  // namespace dslaunch::launch
