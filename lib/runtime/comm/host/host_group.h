// The ranks of one host, over the control block of their arena: generations posted and awaited on
// futexes, a barrier, a mailbox for small messages, poison, and a table of process ids so that a
// dead rank is named. Ranks may be processes or threads. Data path: arena -> host group ->
// collectives, executor. Threads: any calls post, await, await_all and poison; one at a time calls
// barrier, all_gather and broadcast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "runtime/comm/host/arena.h"
#include "runtime/comm/host/control_block.h"
#include "runtime/comm/host/hang_limit.h"

namespace dslaunch::runtime {

struct HostGroupOptions {
    int local_rank = 0;
    std::vector<int> ranks = {};       // job's ranks by local rank, for messages; empty: the same
    std::string host = "localhost";    // name in messages
    Duration time_limit = kHangLimit;  // limit of each wait
};

class HostGroup {
  public:
    // Enters this rank into the table and waits until all local ranks have entered. ARENA must
    // outlive the group. Every local rank makes one HostGroup per arena, once. Throws Error{kHang}
    // naming the ranks that did not come.
    HostGroup(const Arena& arena, const HostGroupOptions& options);
    HostGroup(const HostGroup&) = delete;
    HostGroup& operator=(const HostGroup&) = delete;

    [[nodiscard]] int local_rank() const { return options_.local_rank; }
    [[nodiscard]] int local_world_size() const { return layout_.local_world_size(); }

    // Says that this rank has reached GENERATION of SIGNAL. Ranks that await it see all earlier
    // writes. Does not block. REQUIRES: generations of a signal grow, by less than 2^31 at once.
    void post(SignalId signal, uint32_t generation);
    // Returns once LOCAL_RANK has posted GENERATION or a later one. Spins a few microseconds, then
    // sleeps. Throws Error{kPeerLost} if the rank is dead or the group poisoned, Error{kHang} after
    // the time limit. Both errors poison.
    void await(SignalId signal, int local_rank, uint32_t generation);
    void await_all(SignalId signal, uint32_t generation);
    // Returns true if LOCAL_RANK has posted GENERATION.
    [[nodiscard]] bool is_posted(SignalId signal, int local_rank, uint32_t generation) const;

    void barrier();
    // Returns one string from each local rank, by local rank. Strings of any length are moved in
    // pieces of the mailbox's size.
    [[nodiscard]] std::vector<std::string> all_gather(std::string_view mine);
    // Copies BYTES of local rank ROOT to all. REQUIRES: the same length and root on all ranks.
    void broadcast(std::span<std::byte> bytes, int root);

    // Poisons the group. The first text stays. Every wait for a generation that is not posted
    // throws it, now or later. Does not block.
    void poison(std::string_view text);
    [[nodiscard]] bool poisoned() const;
    // Sleeps until the group is poisoned, wake_poison_waiters is called or TIME_LIMIT is over.
    // Returns poisoned().
    bool wait_for_poison(Duration time_limit) const;
    void wake_poison_waiters() const;
    // Returns the poison text, empty if the group is not poisoned.
    [[nodiscard]] std::string poison_text() const;
    // Throws Error{kPeerLost} if the group is poisoned.
    void check_alive() const;
    // Returns true if the process of a local rank has ended.
    [[nodiscard]] bool has_ended(int local_rank) const;
    // Returns rank, host and process, for messages.
    [[nodiscard]] std::string rank_name(int local_rank) const;

  private:
    void sleep_until_posted(SignalId signal, int local_rank, uint32_t generation);
    [[noreturn]] void give_up(SignalId signal, int local_rank, bool dead);
    void post_internal(int signal, uint32_t generation) { post(SignalId{signal}, generation); }
    void await_all_internal(int signal, uint32_t generation) {
        await_all(SignalId{signal}, generation);
    }

    HostGroupOptions options_;
    const ArenaLayout& layout_;
    ControlBlock control_;
    // Descriptors of the other processes, by local rank. Threads of this process have none.
    std::vector<UniqueFd> process_fds_;
    uint32_t barrier_generation_ = 0;
    uint32_t mailbox_generation_ = 0;
};

}  // namespace dslaunch::runtime
