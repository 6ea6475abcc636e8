// Processes that stand for the other ranks of a host while one is measured: they run this command
// too and do the same at the same time, for ranks share memory, caches and clock. Used by `dslaunch
// plan --forecast`; ranks of a job measure together anyway. Not for several threads.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace dslaunch::job {

enum class MeasuredWork : char { kUpdates = 'u', kSegments = 's', kBoth = 'b' };

class MeasuringNeighbours {
  public:
    // Starts COUNT processes with this one's program and arguments and OPTION added, which call
    // measure_beside(). Returns when all of them do. Throws Error{kSetup} when one cannot.
    MeasuringNeighbours(int count, const std::string& option);
    MeasuringNeighbours(const MeasuringNeighbours&) = delete;
    MeasuringNeighbours& operator=(const MeasuringNeighbours&) = delete;
    // Kills the neighbours.
    ~MeasuringNeighbours();

    // Lets the neighbours repeat WORK until the next call. Returns when all have begun.
    void begin(MeasuredWork work) const;

  private:
    struct Neighbour {
        pid_t pid = -1;
        UniqueFd orders;
        UniqueFd answers;
    };
    void start(const std::vector<std::string>& command);
    static void await_answer(const Neighbour& neighbour);

    std::vector<Neighbour> neighbours_;
};

// Called in such a process: does WORK as ordered, until the end of its standard input.
void measure_beside(const std::function<void(MeasuredWork)>& work);

}  // namespace dslaunch::job
