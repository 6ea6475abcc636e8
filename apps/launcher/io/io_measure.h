// One figure of a disk: the rate at which a block file moves bytes with one setting, and the
// processor time for them. Data path: io-bench -> measurement -> block file. Threads: the caller's,
// and those of the engine.
#pragma once

#include <functional>
#include <span>

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

}  // namespace dslaunch::launcher
