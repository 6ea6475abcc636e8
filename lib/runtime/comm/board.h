// The interfaces that `dslaunch health` uses between ranks. Threads: any thread may use the board,
// but only one thread uses the operations.
// - Board: ranks leave short texts on it for each other. It is a TCPStore (comm_gloo/rendezvous),
//   or a map in tests.
// - HealthCollectives: the operations that are tried. They run over Gloo between CPUs, over NCCL
//   between GPUs, and in memory in tests.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "health/health_record.h"

namespace dslaunch::runtime {

// A board on which ranks leave short texts for each other. Any thread may use it.
class Board {
  public:
    virtual ~Board() = default;
    // Stores the text VALUE under KEY. Throws Error{kPeerLost} if the board is lost, as get() does.
    virtual void set(const std::string& key, const std::string& value) = 0;
    // Waits until a rank has set KEY, and returns its text; returns nullopt after LIMIT.
    [[nodiscard]] virtual std::optional<std::string> get(const std::string& key,
                                                         Duration limit) = 0;
};

// A meeting of some ranks at a board.
struct Meeting {
    std::string name;          // no other meeting has this name
    std::vector<int> members;  // equal on all members; the first member counts the others
    int self = 0;
    Duration limit{};
};

// Waits for all members. Returns the members that the first member had not met when the time limit
// was over; empty if all came. Blocks for at most the limit and two seconds.
[[nodiscard]] std::vector<int> meet(Board& board, const Meeting& meeting);

// The operations that `dslaunch health` tries. All ranks make the same calls in the same order.
// Each of n ranks sends c elements. A rank receives
// - c elements in broadcast (from rank 0), send_receive (from the previous rank of the ring),
//   all_reduce (the sums) and all_to_all;
// - n*c elements in all_gather;
// - c/n elements in reduce_scatter.
class HealthCollectives {
  public:
    virtual ~HealthCollectives() = default;

    // Copies SEND, the values that the next run sends, and makes room for the values that it
    // receives.
    virtual void load(std::span<const float> send, int64_t receive_numel) = 0;
    // Runs OP. Blocks until this rank's part is done: callers time this call. Throws
    // Error{kPeerLost} if a peer is lost, and Error{kHang} after the time limit that this object
    // was made with.
    virtual void run(health::HealthOp op) = 0;
    // Copies the values that the last run received. REQUIRES: RECEIVE has the receive_numel
    // elements of the last load().
    virtual void fetch(std::span<float> receive) = 0;
};

// The operations of HealthCollectives, and exchanges between two ranks. Several pairs exchange at
// the same time.
class PairedCollectives : public HealthCollectives {
  public:
    // Sends the loaded values to PEER and receives as many values from PEER, for fetch(). Blocks
    // and throws as run() does.
    virtual void exchange_with(int peer) = 0;
};

}  // namespace dslaunch::runtime
