// Processes that take the places of the other ranks of a host while one rank is measured. They run
// the same command and do the same work at the same time, because ranks share memory, caches and
// clock. Used by `dslaunch plan --forecast`; the ranks of a real job measure at the same time
// anyway. Not for several threads.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace dslaunch::job {

// The work that neighbours repeat. The values are the bytes that are sent to them as orders.
enum class MeasuredWork : char { kUpdates = 'u', kSegments = 's', kBoth = 'b' };

// The neighbour processes of one measurement. They end when this object is destroyed.
class MeasuringNeighbours {
  public:
    // Starts COUNT processes with this process's program and arguments, and OPTION added. They call
    // measure_beside(). Returns when all of them are ready. Throws Error{kSetup} if a process
    // cannot be started or ends.
    MeasuringNeighbours(int count, const std::string& option);
    MeasuringNeighbours(const MeasuringNeighbours&) = delete;
    MeasuringNeighbours& operator=(const MeasuringNeighbours&) = delete;
    // Kills the neighbours.
    ~MeasuringNeighbours();

    // Makes the neighbours repeat WORK until the next call. Returns when all have begun.
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

// Called in a neighbour process. Repeats the work that was ordered last, until standard input ends.
void measure_beside(const std::function<void(MeasuredWork)>& work);

}  // namespace dslaunch::job
