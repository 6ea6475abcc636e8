// The facts in man pages besides the options: files and environment variables that the programs
// use, and the meanings of the exit codes. Plain data.
#pragma once

#include <span>
#include <string_view>

#include "base/error.h"

namespace dslaunch::launcher {

// A file or variable, and the commands that use it.
struct ManFact {
    std::string_view name;
    std::string_view text;
    std::string_view commands;  // "run|verify"; empty: all
};

// Returns the environment variables that dslaunch and dsworker read. It leaves out the variables
// that these programs set for each other, and the variables that every Unix program knows.
[[nodiscard]] std::span<const ManFact> variables();

// Returns the files that the commands read and write although the user does not name them.
[[nodiscard]] std::span<const ManFact> usual_files();

// The meaning of an exit code.
struct ManCode {
    ExitCode code;
    std::string_view text;
};

// Returns the exit codes in ascending order.
[[nodiscard]] std::span<const ManCode> exit_codes();

// Returns true if FACT belongs to the page of COMMAND, the first word of a command's path.
[[nodiscard]] bool concerns(const ManFact& fact, std::string_view command);

}  // namespace dslaunch::launcher
