// The interface through which the ranks of TestBackend meet. Each group counts its collectives, and
// the ranks meet in each of them. Threads of one process meet in TestBackendWorld, processes in
// FileMeeting. Threads: any.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace dslaunch::test {

class TestMeeting {
  public:
    virtual ~TestMeeting() = default;

    // Returns the id of a new group.
    [[nodiscard]] virtual std::string make_id() = 0;
    // Joins the group ID. Returns false if nobody made this id, or if other ranks joined with
    // another number of ranks.
    [[nodiscard]] virtual bool enter(const std::string& id, int ranks) = 0;

    struct Place {
        std::string id;
        uint64_t number = 0;
        auto operator<=>(const Place&) const = default;
    };
    // Brings this rank's bytes to the collective PLACE. Returns the bytes of all ranks, by rank of
    // the group, when all have brought theirs; empty after abort(). Waits without limit for a rank
    // that has ended, as NCCL does.
    using All = std::vector<std::vector<std::byte>>;
    virtual All exchange(const Place& place, int rank, std::vector<std::byte> mine) = 0;
    // Does the same for two ranks. This rank is the first in RANKS. In the result, the lower rank's
    // bytes come first.
    virtual All exchange_pair(const Place& place, std::pair<int, int> ranks,
                              std::vector<std::byte> mine) = 0;
    // Ends all waits here, now and later.
    virtual void abort() = 0;
    virtual void await_abort() = 0;
};

}  // namespace dslaunch::test
