// The same measurement by fio, where it is installed: the yardstick of io-bench.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>

#include "launcher/io/io_measure.h"

namespace dslaunch::launcher {

struct FioRequest {
    std::string program;  // fio's path
    std::string engine;   // its name there: "io_uring", "libaio"
    std::string file;     // an existing file of at least LENGTH
    Bytes length;
    IoCell cell;        // its engine is not read
    bool both = false;  // read the first half and write the second at once, whatever CELL says
    Duration duration{};
};

// fio as the PATH finds it; nothing when it is not installed.
[[nodiscard]] std::optional<std::string> find_fio();

// Runs fio and waits for it; with io_uring its files and memory are registered and in huge pages,
// as ours are. Ends it and throws what CHECK throws. Throws Error{kSetup} with what fio said when
// it fails.
[[nodiscard]] IoFigure run_fio(const FioRequest& request, const std::function<void()>& check);

// What fio's JSON says of its only job, or group of jobs, in DIRECTIONS together. Throws
// Error{kSetup}.
[[nodiscard]] IoFigure parse_fio(const std::string& json,
                                 std::initializer_list<storage::IoDirection> directions);

}  // namespace dslaunch::launcher
