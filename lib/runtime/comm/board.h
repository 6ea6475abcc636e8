// The interfaces that `dslaunch health` uses between ranks: a board on which ranks leave short
// texts for each other, which is TCPStore (comm_gloo/rendezvous) or in tests a map, and the
// operations that it tries, over Gloo between CPUs, NCCL between GPUs, or in tests memory. Threads:
// any for the board, one for the operations.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "health/health_record.h"

namespace dslaunch::runtime {

// A board on which ranks leave short texts for each other. Any thread.
class Board {
  public:
    virtual ~Board() = default;
    // Throws Error{kPeerLost} if the board is lost, as get does.
    virtual void set(const std::string& key, const std::string& value) = 0;
    // Waits until a rank has set KEY, and returns its text; returns nullopt after LIMIT.
    [[nodiscard]] virtual std::optional<std::string> get(const std::string& key,
                                                         Duration limit) = 0;
};

// A meeting of some ranks at a board.
struct Meeting {
    std::string name;          // used once
    std::vector<int> members;  // equal on all members; the first one counts the others
    int self = 0;
    Duration limit{};
};

// Waits for all members. Returns the members that did not come within the limit, as counted by the
// first one; empty if all came. Blocks for at most the limit and two seconds.
[[nodiscard]] std::vector<int> meet(Board& board, const Meeting& meeting);

// The operations that are tried. All ranks make the same calls in the same order. With n ranks, of
// which each sends c elements, a rank receives c in broadcast (from rank 0), send_receive (sent to
// the next rank of the ring) and all_reduce (sum), n*c in all_gather, c/n in reduce_scatter, and c
// in all_to_all.
class HealthCollectives {
  public:
    virtual ~HealthCollectives() = default;

    // Copies the values that the next run sends, and makes room for the values that it receives.
    virtual void load(std::span<const float> send, int64_t receive_numel) = 0;
    // Runs OP. Blocks until this rank's part is done; this part is what is timed. Throws
    // Error{kHang} after the limit given at the start, and {kPeerLost}.
    virtual void run(health::HealthOp op) = 0;
    // Copies the values that the last run received. REQUIRES: RECEIVE has as many elements as
    // load() was given.
    virtual void fetch(std::span<float> receive) = 0;
};

// The same operations, and exchanges between two ranks; several pairs exchange at the same time.
class PairedCollectives : public HealthCollectives {
  public:
    // Sends the loaded values to PEER and receives as many from it, for fetch(). Blocks and throws
    // as run() does.
    virtual void exchange_with(int peer) = 0;
};

}  // namespace dslaunch::runtime
