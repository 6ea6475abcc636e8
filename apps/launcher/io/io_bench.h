// `dslaunch io-bench`: finds the engine, block size and depth that read and write a disk best,
// beside fio.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/io/io_measure.h"
#include "storage/disk/disk_facts.h"
#include "storage/swap/io_settings.h"

namespace dslaunch::launcher {

struct IoBenchOptions {
    std::string folder;
    Bytes length = gib(1);  // length of the file; best more than the disk's own cache
    std::vector<storage::IoEngine> engines = {storage::IoEngine::kUring,
                                              storage::IoEngine::kThreads};
    std::vector<Bytes> blocks = {kib(128), kib(512), mib(1), mib(4)};
    std::vector<int> depths = {1, 4, 16, 32};
    int turns = 3;  // each figure is the median of this many runs, which alternate with those of
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
// file is removed in either case. Throws Error{kDisk}, {kSetup}.
[[nodiscard]] IoBenchReport run_io_bench(const IoBenchOptions& options,
                                         const std::function<void()>& check,
                                         const std::function<void(const std::string&)>& say);

// The index of the row to use: of those whose rate is within 3 % of the best, the one that takes
// the least processor time. Offload reads as much as it writes, so a row's rate is the harmonic
// mean of both. REQUIRES: ROWS is not empty.
[[nodiscard]] size_t best_io_row(const std::vector<IoRow>& rows);

[[nodiscard]] storage::IoSettings io_settings_of(const IoRow& row);

[[nodiscard]] std::string io_bench_text(const IoBenchReport& report);
[[nodiscard]] std::string io_bench_json(const IoBenchReport& report);

}  // namespace dslaunch::launcher
