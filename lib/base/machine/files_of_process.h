// Files that must not outlive this process however it ends: temporaries of a command that Ctrl-C
// ends, files of a rank that fails and leaves by _exit. Only KILL leaves them. The list belongs to
// the whole process, since signal handlers have nothing else. Any thread.
#pragma once

#include <string>

namespace dslaunch {

struct FileOfProcess;

// Adds a file for remove_files_of_process() to remove, and WITH_FOLDER its folder too if it is
// empty then. Returns the entry for forget_file_of_process().
FileOfProcess* add_file_of_process(const std::string& path, bool with_folder = false);

// Forgets FILE, which stays from now on or is gone already. FILE may be null.
void forget_file_of_process(FileOfProcess* file) noexcept;

// Removes the named files that are still there. A signal handler may call it.
void remove_files_of_process() noexcept;

// Makes INT, TERM and HUP remove them before they end the process, where no other handler takes
// these signals.
void remove_files_at_signals();

}  // namespace dslaunch
