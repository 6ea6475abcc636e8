// Files that must not outlive this process however it ends: a rank that fails leaves by _exit, and
// one that TERM ends runs no destructor. KILL leaves them to the next job of the same user on that
// path. What is named here is the process's own, since signal handlers have nothing else.
#pragma once

#include <string>
#include <vector>

namespace dslaunch::job {

// FILES are removed by remove_leftovers(), and by TERM before it ends the process, each with its
// folder when that is empty then. Once, before other threads name any.
void name_leftovers(const std::vector<std::string>& files);

// Removes what was named and is still there; any thread, signal handlers too.
void remove_leftovers() noexcept;

}  // namespace dslaunch::job
