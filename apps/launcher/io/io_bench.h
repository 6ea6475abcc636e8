// `dslaunch io-bench`: finds the engine, block size and depth with which a disk reads and writes
// best, and compares them with fio.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "storage/disk/backing_files.h"
#include "storage/disk/disk_facts.h"
#include "storage/disk/open_block_file.h"
#include "storage/swap/io_settings.h"

namespace dslaunch::launcher {

// One setting to measure: how a file is moved, and in which direction.
struct IoCell {
    storage::IoEngine engine = storage::IoEngine::kUring;  // not kAuto
    Bytes block;
    int depth = 1;
    storage::IoDirection direction = storage::IoDirection::kRead;

    bool operator==(const IoCell&) const = default;
};

// The result of a measurement.
struct IoFigure {
    double bytes_per_s = 0;
    double cpu_s_per_gb = 0;  // user and system time of the moving process, per 10^9 bytes
};

// Returns the size of the memory that a measurement of CELL needs. The memory has room for all
// requests that run at the same time.
[[nodiscard]] Bytes io_measure_bytes(const IoCell& cell);

// Reads or writes FILES from the beginning to the end, again and again, until DURATION is over.
// MEMORY has at least io_measure_bytes() and is aligned to kBlockAlignment. Calls CHECK every few
// ms; CHECK may throw to end the run. Throws Error{kDisk} if a request fails, Error{kSetup} if the
// engine is not available.
[[nodiscard]] IoFigure measure_io(const storage::BackingFiles& files, const IoCell& cell,
                                  std::span<std::byte> memory, Duration duration,
                                  const std::function<void()>& check);

// Reads the first half of FILES and writes the second half at the same time, as offload does. Each
// direction has its own thread, with the engine, block and depth of CELL. The rate is the bytes of
// both directions divided by the time. MEMORY has at least twice io_measure_bytes(). Only the
// caller's thread calls CHECK.
[[nodiscard]] IoFigure measure_io_both(const storage::BackingFiles& files, const IoCell& cell,
                                       std::span<std::byte> memory, Duration duration,
                                       const std::function<void()>& check);

// A run of fio that is comparable to measure_io().
struct FioRequest {
    std::string program;  // fio's path
    std::string engine;   // fio's name of the engine: "io_uring", "libaio"
    std::string file;     // an existing file of at least LENGTH
    Bytes length;
    IoCell cell;        // the cell's engine is ignored
    bool both = false;  // true: reads the first half, writes the second; ignores CELL's direction
    Duration duration{};
};

// Returns the path of fio, found through the variable PATH; nullopt if fio is not installed.
[[nodiscard]] std::optional<std::string> find_fio();

// Runs fio and waits for it. With io_uring, fio's files and memory are registered and the memory is
// in huge pages, as in measure_io(). If CHECK throws, ends fio and throws the same error. Throws
// Error{kSetup} with fio's output if fio fails.
[[nodiscard]] IoFigure run_fio(const FioRequest& request, const std::function<void()>& check);

// Returns the figures in fio's JSON, added up over DIRECTIONS. The JSON must contain a single job
// or a single group of jobs. Throws Error{kSetup} if the JSON is not as expected.
[[nodiscard]] IoFigure parse_fio(const std::string& json,
                                 std::initializer_list<storage::IoDirection> directions);

// The settings to measure, and the lengths of the runs.
struct IoBenchOptions {
    std::string folder;
    Bytes length = gib(1);  // length of the file; it should exceed the disk's cache
    std::vector<storage::IoEngine> engines = {storage::IoEngine::kUring,
                                              storage::IoEngine::kThreads};
    std::vector<Bytes> blocks = {kib(128), kib(512), mib(1), mib(4)};
    std::vector<int> depths = {1, 4, 16, 32};
    int turns = 3;  // each figure is the median of this many runs, which alternate with runs of
                    // other settings
    Duration cell_time = std::chrono::milliseconds(200);
    Duration fio_time = std::chrono::seconds(1);  // time of each run in the comparison with fio
    bool with_fio = true;                         // compare with fio, if it is installed
};

// The figures for reading and for writing with one setting.
struct IoRow {
    storage::IoEngine engine = storage::IoEngine::kUring;
    Bytes block;
    int depth = 1;
    IoFigure read;
    IoFigure write;
};

// The results of a run of io-bench on the disk that contains a folder.
struct IoBenchReport {
    std::string folder;
    storage::DiskFacts disk;
    Bytes length;
    bool direct = false;
    int turns = 0;
    std::vector<IoRow> rows;
    size_t best = 0;                  // index in rows
    std::string engine_missing;       // the reason why io_uring is missing; empty if it works
    std::string fio_engine;           // empty: fio is not installed or was not asked for
    std::optional<IoRow> fio;         // fio with the best row's block and depth
    std::optional<IoRow> beside_fio;  // measure_io(), alternating with fio
    // The figure for reading and writing at the same time with the best row's setting. If there is
    // fio, its runs alternate with the runs of measure_io_both().
    IoFigure both;
    std::optional<IoFigure> fio_both;
};

// Fills the file and measures all settings. Then compares the best setting with fio, and measures
// it again for reading and writing at the same time. Calls SAY with a line at each stage, and CHECK
// every few ms; CHECK may throw to end the run. Always removes the file. Throws Error{kDisk} and
// Error{kSetup}.
[[nodiscard]] IoBenchReport run_io_bench(const IoBenchOptions& options,
                                         const std::function<void()>& check,
                                         const std::function<void(const std::string&)>& say);

// Returns the index of the row to use: the row with the least processor time among the rows with a
// rate within 3 % of the best rate. Offload reads as much as it writes, so a row's rate is the
// harmonic mean of its two rates. REQUIRES: ROWS is not empty.
[[nodiscard]] size_t best_io_row(const std::vector<IoRow>& rows);

// Returns the settings for offload that ROW measured.
[[nodiscard]] storage::IoSettings io_settings_of(const IoRow& row);

// Return the report as a table, and as one JSON object.
[[nodiscard]] std::string io_bench_text(const IoBenchReport& report);
[[nodiscard]] std::string io_bench_json(const IoBenchReport& report);

}  // namespace dslaunch::launcher
