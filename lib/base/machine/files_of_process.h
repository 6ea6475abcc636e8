// Files that must be removed when this process ends: for example, temporary files of a command that
// Ctrl-C interrupts, and files of a rank that fails and calls _exit. Only SIGKILL leaves the files
// on disk. The list of the files is global, because a signal handler can reach only global data.
// Any thread may call the functions.
#pragma once

#include <string>

namespace dslaunch {

struct FileOfProcess;

// Adds a file that remove_files_of_process() will remove. If WITH_FOLDER is true,
// remove_files_of_process() also removes the file's folder if nothing else is in it. Returns the
// entry in the list, for forget_file_of_process().
FileOfProcess* add_file_of_process(const std::string& path, bool with_folder = false);

// Takes FILE off the list, because it was already removed or must be kept. FILE may be null.
void forget_file_of_process(FileOfProcess* file) noexcept;

// Removes the files on the list that still exist. A signal handler may call it.
void remove_files_of_process() noexcept;

// Sets handlers for INT, TERM and HUP that call remove_files_of_process() and then end the process.
// A signal that has another handler is left alone.
void remove_files_at_signals();

}  // namespace dslaunch
