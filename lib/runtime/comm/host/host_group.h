// The ranks of one host, on top of the control block of their arena: generations that are posted
// and awaited by futexes, a barrier, a mailbox for small messages, poison, and a table of process
// ids so that a dead rank can be named. Ranks may be processes or threads. Data path: arena -> host
// group -> collectives, executor. Threads: any thread may call post, await, await_all and poison;
// one thread at a time may call barrier, all_gather and broadcast.
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

// A rank's place on its host.
struct HostGroupOptions {
    int local_rank = 0;
    // The job's ranks by local rank, for messages. If empty, messages name local ranks.
    std::vector<int> ranks = {};
    std::string host = "localhost";    // the host's name in messages
    Duration time_limit = kHangLimit;  // limit of each wait
};

// The ranks of one host; see the top of this file.
class HostGroup {
  public:
    // Enters this rank in the control block and waits until all local ranks have entered. ARENA
    // must outlive the group. Every local rank makes one HostGroup per arena, once. Throws
    // Error{kHang}, naming the ranks that did not enter.
    HostGroup(const Arena& arena, const HostGroupOptions& options);
    HostGroup(const HostGroup&) = delete;
    HostGroup& operator=(const HostGroup&) = delete;

    // This rank's number on the host, and the number of ranks there.
    [[nodiscard]] int local_rank() const { return options_.local_rank; }
    [[nodiscard]] int local_world_size() const { return layout_.local_world_size(); }

    // Reports that this rank has reached GENERATION of SIGNAL. Ranks that wait for it then see all
    // earlier writes of this rank. Does not block. REQUIRES: generations of a signal increase, by
    // less than 2^31 at a time.
    void post(SignalId signal, uint32_t generation);
    // Waits until LOCAL_RANK has posted GENERATION or a later one. Spins for a few microseconds,
    // then sleeps. Throws Error{kPeerLost} if the rank is dead or the group poisoned, and
    // Error{kHang} after the time limit. Both errors poison the group.
    void await(SignalId signal, int local_rank, uint32_t generation);
    void await_all(SignalId signal, uint32_t generation);
    // Returns true if LOCAL_RANK has posted GENERATION.
    [[nodiscard]] bool is_posted(SignalId signal, int local_rank, uint32_t generation) const;

    // Waits until all local ranks have called it. Throws as await() does.
    void barrier();
    // Returns one string from each local rank, by local rank. Strings of any length are sent in
    // pieces of the mailbox's size.
    [[nodiscard]] std::vector<std::string> all_gather(std::string_view mine);
    // Copies BYTES from local rank ROOT to all. REQUIRES: length and root are the same on all
    // ranks.
    void broadcast(std::span<std::byte> bytes, int root);

    // Poisons the group with TEXT; a later text is ignored. Every present or later wait for a
    // generation that is not posted throws an error with TEXT. Does not block.
    void poison(std::string_view text);
    [[nodiscard]] bool poisoned() const;
    // Sleeps until the group is poisoned, wake_poison_waiters() is called or TIME_LIMIT has passed.
    // Returns poisoned().
    bool wait_for_poison(Duration time_limit) const;
    void wake_poison_waiters() const;
    // Returns the poison text; empty if the group is not poisoned.
    [[nodiscard]] std::string poison_text() const;
    // Throws Error{kPeerLost} if the group is poisoned.
    void check_alive() const;
    // Returns true if the process of a local rank has ended.
    [[nodiscard]] bool has_ended(int local_rank) const;
    // Returns a text with rank, host and process, for messages.
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
    // File descriptors of the other processes, by local rank. There are none for ranks that are
    // threads of this process.
    std::vector<UniqueFd> process_fds_;
    uint32_t barrier_generation_ = 0;
    uint32_t mailbox_generation_ = 0;
};

}  // namespace dslaunch::runtime
