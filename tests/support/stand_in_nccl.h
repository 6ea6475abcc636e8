// A library with the ABI of libnccl that works on host memory. Programs are linked with it in place
// of libnccl. The ranks are threads of one process. Calls may answer ncclInProgress for random
// times (from a seed), like a communicator that does not block. A thread of each communicator does
// its collectives in order. The library notes everything that NCCL forbids: two threads in one
// communicator; calls while another call is in progress, after an end, or in a group that nobody
// closes; and collectives that do not match.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch::test {

struct StandInNcclRules {
    uint64_t seed = 1;
    int progress_us_max = 300;        // the longest time for which a call is in progress
    int64_t failing_collective = -1;  // the collective with this number on each rank (from 0) is a
                                      // remote error; -1: none
    int64_t hanging_collective = -1;  // the collective that never ends; -1: none
    int refused_rank = -1;            // the sends of this rank are refused at once; -1: no rank
    bool loses_group_end = false;     // the first ncclGroupEnd does nothing
};

// Starts from the beginning: there are no communicators, and nothing is noted.
void begin_stand_in_nccl(const StandInNcclRules& rules);
// Returns the violations of NCCL's rules since then, one sentence for each.
[[nodiscard]] std::vector<std::string> stand_in_nccl_faults();
// Returns the number of communicators that nobody has ended.
[[nodiscard]] int live_nccl_communicators();
// Waits until all collectives that this thread has put on any stream are done, as
// cudaStreamSynchronize does. Returns false if one of them failed or was aborted.
[[nodiscard]] bool wait_for_nccl_stream();

}  // namespace dslaunch::test
