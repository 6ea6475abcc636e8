// One figure of a disk: the rate at which a block file moves bytes with one setting, and the
// processor time for them. Data path: io-bench -> measurement -> block file. Threads: the caller's,
// and those of the engine. The figure of fio, if it is installed, is there to compare with.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "storage/disk/backing_files.h"
#include "storage/disk/open_block_file.h"

namespace dslaunch::launcher {

struct IoCell {
    storage::IoEngine engine = storage::IoEngine::kUring;  // not kAuto
    Bytes block;
    int depth = 1;
    storage::IoDirection direction = storage::IoDirection::kRead;

    bool operator==(const IoCell&) const = default;
};

struct IoFigure {
    double bytes_per_s = 0;
    double cpu_s_per_gb = 0;  // user and system time of the moving process, per 10^9 bytes
};

// Bytes of memory for a measurement of CELL: whole requests, enough of them to keep the depth in
// use.
[[nodiscard]] Bytes io_measure_bytes(const IoCell& cell);

// Moves FILES from begin to end, again and again, until DURATION is over; MEMORY is at least
// io_measure_bytes(), aligned to kBlockAlignment. CHECK is called every few ms and may throw to end
// the run. Throws Error{kDisk}: a request failed; {kSetup}: the engine is not available.
[[nodiscard]] IoFigure measure_io(const storage::BackingFiles& files, const IoCell& cell,
                                  std::span<std::byte> memory, Duration duration,
                                  const std::function<void()>& check);

// Reads the first half of FILES and writes the second at once, as offload does, each by a thread
// with the engine, block and depth of CELL. The rate is the bytes of both over the time of both.
// MEMORY is at least twice io_measure_bytes(). CHECK is called by the caller's thread alone.
[[nodiscard]] IoFigure measure_io_both(const storage::BackingFiles& files, const IoCell& cell,
                                       std::span<std::byte> memory, Duration duration,
                                       const std::function<void()>& check);

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
