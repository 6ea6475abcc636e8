// The seams of `dslaunch health`: a board on which ranks leave short texts for each other, TCPStore
// (comm_gloo/rendezvous) or a map in tests, and the operations that it tries, over Gloo between
// CPUs, NCCL between GPUs, or memory in tests. Threads: any for the board, one for the operations.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "health/health_record.h"

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

// The operations that are tried. All ranks make the same calls in the same order.
// With n ranks and c elements sent, broadcast (of rank 0's), send_receive (to the next rank of the
// ring) and all_reduce (sum) receive c, all_gather n*c, reduce_scatter c/n, all_to_all c.
class HealthCollectives {
  public:
    virtual ~HealthCollectives() = default;

    // Takes the values that the next run sends, and makes room for those it receives.
    virtual void load(std::span<const float> send, int64_t receive_numel) = 0;
    // Blocks until this rank's part is done, which is the part that is timed. Throws Error{kHang}
    // after the limit given at the start, and {kPeerLost}.
    virtual void run(health::HealthOp op) = 0;
    // Copies the values that the last run received. REQUIRES: as many elements as load was told.
    virtual void fetch(std::span<float> receive) = 0;
};

// The same operations, and exchanges in pairs: several pairs exchange at the same time.
class PairedCollectives : public HealthCollectives {
  public:
    // Sends the loaded values to PEER and receives as many from it, for fetch(). Blocks and throws
    // as run does.
    virtual void exchange_with(int peer) = 0;
};

}  // namespace dslaunch::runtime
