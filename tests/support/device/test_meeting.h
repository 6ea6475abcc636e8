// The seam where the ranks of TestBackend meet: the collectives of each group, by their number in
// the group's order. Threads of one process meet in TestBackendWorld, processes in FileMeeting.
// Threads: any.
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
    // Returns false if nobody made that id, or others joined as another number of ranks.
    [[nodiscard]] virtual bool enter(const std::string& id, int ranks) = 0;

    struct Place {
        std::string id;
        uint64_t number = 0;
        auto operator<=>(const Place&) const = default;
    };
    // Returns every rank's bytes, by rank of the group, once all have brought theirs to collective
    // PLACE; empty after abort(). A rank that is gone is waited for without an end, as by NCCL.
    using All = std::vector<std::vector<std::byte>>;
    virtual All exchange(const Place& place, int rank, std::vector<std::byte> mine) = 0;
    // Does the same for two ranks, this one first in RANKS: the lower rank's bytes come first.
    virtual All exchange_pair(const Place& place, std::pair<int, int> ranks,
                              std::vector<std::byte> mine) = 0;
    // Ends every wait here, and all later ones.
    virtual void abort() = 0;
    virtual void await_abort() = 0;
};

}  // namespace dslaunch::test
