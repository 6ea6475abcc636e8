// `dslaunch io-bench`: finds the engine, block size and depth that read and write a disk best,
// beside fio.
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

// Returns the bytes of memory for a measurement of CELL: whole requests, enough for its depth.
[[nodiscard]] Bytes io_measure_bytes(const IoCell& cell);

// Moves FILES from begin to end, again and again, until DURATION is over. MEMORY is at least
// io_measure_bytes(), aligned to kBlockAlignment. Calls CHECK every few ms, which may throw to end
// the run. Throws Error{kDisk}: a request failed; {kSetup}: the engine is not available.
[[nodiscard]] IoFigure measure_io(const storage::BackingFiles& files, const IoCell& cell,
                                  std::span<std::byte> memory, Duration duration,
                                  const std::function<void()>& check);

// Reads the first half of FILES and writes the second at once, as offload does, each on a thread
// with the engine, block and depth of CELL. The rate is the bytes of both over the time of both.
// MEMORY is at least twice io_measure_bytes(). Only the caller's thread calls CHECK.
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

// Returns the path of fio by the variable PATH; nullopt if fio is not installed.
[[nodiscard]] std::optional<std::string> find_fio();

// Runs fio and waits for it; with io_uring its files and memory are registered and in huge pages,
// as in measure_io(). If CHECK throws, ends fio and throws the same. Throws Error{kSetup} with
// fio's output if fio fails.
[[nodiscard]] IoFigure run_fio(const FioRequest& request, const std::function<void()>& check);

// Returns the figure in fio's JSON for its only job or group of jobs, in DIRECTIONS together.
// Throws Error{kSetup}.
[[nodiscard]] IoFigure parse_fio(const std::string& json,
                                 std::initializer_list<storage::IoDirection> directions);

struct IoBenchOptions {
    std::string folder;
    Bytes length = gib(1);  // length of the file; best more than the disk's own cache
    std::vector<storage::IoEngine> engines = {storage::IoEngine::kUring,
                                              storage::IoEngine::kThreads};
    std::vector<Bytes> blocks = {kib(128), kib(512), mib(1), mib(4)};
    std::vector<int> depths = {1, 4, 16, 32};
    int turns = 3;  // each figure is the median of this many runs, which alternate with runs of
                    // other settings
    Duration cell_time = std::chrono::milliseconds(200);
    Duration fio_time = std::chrono::seconds(1);  // time of each run beside fio
    bool with_fio = true;                         // if it is installed
};

// Reading and writing with one setting.
struct IoRow {
    storage::IoEngine engine = storage::IoEngine::kUring;
    Bytes block;
    int depth = 1;
    IoFigure read;
    IoFigure write;
};

struct IoBenchReport {
    std::string folder;
    storage::DiskFacts disk;
    Bytes length;
    bool direct = false;
    int turns = 0;
    std::vector<IoRow> rows;
    size_t best = 0;                  // index in rows
    std::string engine_missing;       // the reason why io_uring is not available; empty: it is
    std::string fio_engine;           // empty: fio is not installed or was not asked for
    std::optional<IoRow> fio;         // with the best row's block and depth
    std::optional<IoRow> beside_fio;  // measure_io() in the same turns
    // The best row's setting reading and writing at once, in turns with fio if there is fio.
    IoFigure both;
    std::optional<IoFigure> fio_both;
};

// Fills the file, measures all settings, then runs the best one both ways at once, and beside fio.
// SAY gets a line at each stage. CHECK is called every few ms and may throw to end the run. The
// file is always removed. Throws Error{kDisk}, {kSetup}.
[[nodiscard]] IoBenchReport run_io_bench(const IoBenchOptions& options,
                                         const std::function<void()>& check,
                                         const std::function<void(const std::string&)>& say);

// Returns the index of the row to use: the least processor time among rows whose rate is within 3 %
// of the best. Offload reads as much as it writes, so a row's rate is the harmonic mean of both.
// REQUIRES: ROWS is not empty.
[[nodiscard]] size_t best_io_row(const std::vector<IoRow>& rows);

[[nodiscard]] storage::IoSettings io_settings_of(const IoRow& row);

[[nodiscard]] std::string io_bench_text(const IoBenchReport& report);
[[nodiscard]] std::string io_bench_json(const IoBenchReport& report);

}  // namespace dslaunch::launcher
