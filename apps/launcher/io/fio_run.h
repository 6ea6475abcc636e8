// The measurement by fio, if it is installed, to compare io-bench with.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "launcher/io/io_measure.h"

namespace dslaunch::launcher {

struct FioRequest {
    std::string program;  // fio's path
    std::string engine;   // fio's name for it: "io_uring", "libaio"
    std::string file;     // an existing file of at least LENGTH
    Bytes length;
    IoCell cell;        // the cell's engine is ignored
    bool both = false;  // read the first half and write the second at once, whatever CELL says
    Duration duration{};
};

// The path of fio by the variable PATH; nullopt if fio is not installed.
[[nodiscard]] std::optional<std::string> find_fio();

// Runs fio and waits for it; with io_uring its files and memory are registered and in huge pages,
// as in measure_io(). If CHECK throws, ends fio and throws the same. Throws Error{kSetup} with
// fio's output if fio fails.
[[nodiscard]] IoFigure run_fio(const FioRequest& request, const std::function<void()>& check);

// The figure in fio's JSON for its only job or group of jobs, in DIRECTIONS together. Throws
// Error{kSetup}.
[[nodiscard]] IoFigure parse_fio(const std::string& json,
                                 std::initializer_list<storage::IoDirection> directions);

}  // namespace dslaunch::launcher
