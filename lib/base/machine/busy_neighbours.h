// Detects other programs that use this process's processors while it computes: a step waits for its
// slowest thread, so that such a program costs more time than it uses itself. Data path: /proc ->
// [here] -> one line of the log. BusyNeighbours has a thread of its own, which sleeps between
// measurements.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>

#include "base/machine/small_thread.h"

namespace dslaunch {

// Counters that only increase, in seconds from an arbitrary start.
struct ProcessorUse {
    double wall = 0;
    double busy = 0;     // time used by all programs and virtual machines on our processors
    double own = 0;      // time used by this process
    double delayed = 0;  // time that this process's threads waited for a processor, summed
};

// Reads the counters; a counter that cannot be read is 0. Tests set ROOT, the folder that holds
// proc/.
[[nodiscard]] ProcessorUse read_processor_use(const std::string& root = "");

// The processors of a host that a job may use, the number of the job's processes there, and the
// number of threads in each process.
struct ProcessorShare {
    int processors = 1;
    int processes = 1;
    int threads = 1;
    std::string_view setting = "OMP_NUM_THREADS=";  // the setting that gives `threads`, without its
                                                    // value
};

// Returns the line that reports other programs that were busy between BEFORE and AFTER; empty if no
// other program was busy or took time from this process.
[[nodiscard]] std::string neighbours_text(const ProcessorUse& before, const ProcessorUse& after,
                                          const ProcessorShare& share);

// A thread that logs a warning if other programs use the processors of this process. The thread
// runs until this object is destroyed.
class BusyNeighbours {
  public:
    // Logs at most one warning, with COMPONENT as its component, after other programs used
    // processors for some seconds. If AT_END is true, logs the warning only when this object is
    // destroyed, so that it does not interrupt text on the terminal.
    BusyNeighbours(std::string component, const ProcessorShare& share, bool at_end = false);
    BusyNeighbours(const BusyNeighbours&) = delete;
    BusyNeighbours& operator=(const BusyNeighbours&) = delete;
    ~BusyNeighbours();

  private:
    void watch();

    std::string component_;
    ProcessorShare share_;
    bool warns_at_end_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_ending_ = false;
    SmallThread thread_;
};

}  // namespace dslaunch
