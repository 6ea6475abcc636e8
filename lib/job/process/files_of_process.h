// Files that must not outlive this process however it ends: a rank that fails leaves by _exit, and
// one that TERM ends runs no destructor. KILL leaves them to the next job of the same user on that
// path. The list of files belongs to the whole process, since signal handlers have nothing else.
#pragma once

#include <string>
#include <vector>

namespace dslaunch::job {

// FILES are removed by remove_files_of_process(), and by TERM before it ends the process, each with
// its folder when that is empty then. Called once, before other threads name any.
void remove_at_end(const std::vector<std::string>& files);

// Removes the named files that are still there. Any thread or signal handler may call it.
void remove_files_of_process() noexcept;

}  // namespace dslaunch::job
