// A board on which ranks leave short texts for each other: the seam between `dslaunch health` and
// the rendezvous store. Implementations: TCPStore (comm_gloo/world_group) and a map for tests.
// Threads: any.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace dslaunch::runtime {

class Board {
  public:
    virtual ~Board() = default;
    // Throws Error{kPeerLost} if the board is lost, as get does.
    virtual void set(const std::string& key, const std::string& value) = 0;
    // Waits until somebody has set KEY. Returns nullopt after LIMIT.
    [[nodiscard]] virtual std::optional<std::string> get(const std::string& key,
                                                         Duration limit) = 0;
};

struct Meeting {
    std::string name;          // used once
    std::vector<int> members;  // equal everywhere; the first one counts the others
    int self = 0;
    Duration limit{};
};

// Waits for all members. Returns those that did not come within the limit, as the first one saw it,
// or nothing if all came. Blocks up to the limit and two seconds.
[[nodiscard]] std::vector<int> meet(Board& board, const Meeting& meeting);

}  // namespace dslaunch::runtime
