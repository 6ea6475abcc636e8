// The ranks of one host, over the control block of their arena: generations posted and awaited on
// futexes, a barrier, a mailbox for small messages, poison, and a table of process ids so that a
// dead rank is named. Where it stands: arena -> host group -> collectives, executor. Works alike
// for processes and for threads. Threads: post, await, await_all and poison from any thread;
// barrier, all_gather and broadcast from one at a time.
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

namespace dslaunch::runtime {

struct HostGroupOptions {
    int local_rank = 0;
    std::vector<int> ranks = {};     // of the job, by local rank, for messages; empty: the same
    std::string host = "localhost";  // for messages
    Duration time_limit = std::chrono::minutes(5);  // of each wait
};

class HostGroup {
  public:
    // Enters this rank into the table and waits until all local ranks have. ARENA must outlive the
    // group. Every local rank makes one HostGroup per arena, once. Throws Error{kHang} naming the
    // ranks that did not come.
    HostGroup(const Arena& arena, const HostGroupOptions& options);
    HostGroup(const HostGroup&) = delete;
    HostGroup& operator=(const HostGroup&) = delete;

    [[nodiscard]] int local_rank() const { return options_.local_rank; }
    [[nodiscard]] int local_world_size() const { return layout_.local_world_size(); }

    // This rank has reached GENERATION of SIGNAL; what it wrote before is seen by those who await
    // it. Does not block. REQUIRES: generations of a signal grow, by less than 2^31 at once.
    void post(SignalId signal, uint32_t generation);
    // Returns once RANK has posted GENERATION or a later one. Spins a few microseconds, then
    // sleeps. Throws Error{kPeerLost} when the rank is dead or the group poisoned, Error{kHang}
    // after the time limit; both poison.
    void await(SignalId signal, int local_rank, uint32_t generation);
    void await_all(SignalId signal, uint32_t generation);
    // Whether RANK has posted GENERATION.
    [[nodiscard]] bool is_posted(SignalId signal, int local_rank, uint32_t generation) const;

    void barrier();
    // One string from each local rank, by local rank; any lengths, moved in pieces of the mailbox's
    // size.
    [[nodiscard]] std::vector<std::string> all_gather(std::string_view mine);
    // BYTES of local rank ROOT to all. REQUIRES: the same length and root on all ranks.
    void broadcast(std::span<std::byte> bytes, int root);

    // The first text stays. Everybody who waits, or will wait for what has not been posted, throws
    // it. Does not block.
    void poison(std::string_view text);
    [[nodiscard]] bool poisoned() const;
    // Sleeps until the group is poisoned, wake_poison_waiters is called or TIME_LIMIT is over;
    // returns poisoned().
    bool wait_for_poison(Duration time_limit) const;
    void wake_poison_waiters() const;
    // Empty when not poisoned.
    [[nodiscard]] std::string poison_text() const;
    // Throws Error{kPeerLost} when poisoned.
    void check_alive() const;
    // Whether the process of a local rank has.
    [[nodiscard]] bool has_ended(int local_rank) const;
    // Rank, host and process, for messages.
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
    std::vector<UniqueFd> process_fds_;  // of the other processes, by local rank; none for threads
                                         // of this one
    uint32_t barrier_generation_ = 0;
    uint32_t mailbox_generation_ = 0;
};

}  // namespace dslaunch::runtime
