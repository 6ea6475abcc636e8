// A stand-in for libnccl with its ABI, over host memory, for programs that are linked with it in
// libnccl's place. The ranks are threads of one process. Calls may answer ncclInProgress for seeded
// random times, as a communicator that does not block does. A thread of each communicator does its
// collectives, in order. It notes everything that NCCL forbids: two threads in one communicator,
// calls while another is in progress, after an end, or in a group that nobody closes, collectives
// that do not match.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dslaunch::test {

struct StandInNcclRules {
    uint64_t seed = 1;
    int progress_us_max = 300;        // a call is in progress for at most this long
    int64_t failing_collective = -1;  // its number on each rank, from 0, is a remote error; -1:
                                      // none
    int64_t hanging_collective = -1;  // never ends; -1: none
    int refused_rank = -1;            // this rank's sends are refused at once; -1: nobody's
    bool loses_group_end = false;     // the first ncclGroupEnd does nothing
};

// Starts over: no communicator is left, and nothing is noted.
void begin_stand_in_nccl(const StandInNcclRules& rules);
// Returns the breaches of NCCL's rules since then, a sentence each.
[[nodiscard]] std::vector<std::string> stand_in_nccl_faults();
// Returns the number of communicators that nobody has ended.
[[nodiscard]] int live_nccl_communicators();
// Waits until all collectives that this thread has put on any stream are done, as
// cudaStreamSynchronize does. Returns false if one of them has failed or was aborted.
[[nodiscard]] bool wait_for_nccl_stream();

}  // namespace dslaunch::test
