// Notices other programs that use this process's processors while it computes: a step waits for its
// slowest thread, so a neighbour costs more than its share. /proc -> [here] -> one line of the log.
// BusyNeighbours has a thread of its own, which sleeps.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>

#include "base/small_thread.h"

namespace dslaunch {

// Counters that only grow, in seconds since some moment.
struct ProcessorUse {
    double wall = 0;
    double busy = 0;     // of all programs and virtual machines, on the processors that we may use
    double own = 0;      // of this process
    double delayed = 0;  // that threads of this process waited for a processor, all together
};

// Reads the counters; one that cannot be read is 0. ROOT: the folder that holds proc/, for tests.
[[nodiscard]] ProcessorUse read_processor_use(const std::string& root = "");

// A process whose host runs PROCESSES like it, each with THREADS, on PROCESSORS in all.
struct ProcessorShare {
    int processors = 1;
    int processes = 1;
    int threads = 1;
    std::string_view setting = "OMP_NUM_THREADS=";  // says how many, before the number
};

// Returns the line that names busy neighbours between BEFORE and AFTER; empty: no neighbour is busy
// or takes time from this process.
[[nodiscard]] std::string neighbours_text(const ProcessorUse& before, const ProcessorUse& after,
                                          const ProcessorShare& share);

class BusyNeighbours {
  public:
    // Warns once, as COMPONENT, when neighbours were busy for some seconds: at once, or with AT_END
    // when this object ends, so that no line cuts a text on the terminal.
    BusyNeighbours(std::string component, const ProcessorShare& share, bool at_end = false);
    BusyNeighbours(const BusyNeighbours&) = delete;
    BusyNeighbours& operator=(const BusyNeighbours&) = delete;
    ~BusyNeighbours();

  private:
    void watch();

    std::string component_;
    ProcessorShare share_;
    bool at_end_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool ending_ = false;
    SmallThread thread_;
};

}  // namespace dslaunch
