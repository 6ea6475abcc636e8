// The compressed exchange of a bucket between hosts. The bucket consists of blocks (blocks_of),
// each with one scale. The blocks are divided among the bridges, the ranks of a host that
// communicate with other hosts. The blocks of each bridge are divided among the hosts; one bridge's
// blocks for one host are a run. Every host sends its values of a run to the run's host, which
// averages them and sends the averages back. The result is the same, bit for bit, whichever run a
// block belongs to. Source: Tang et al. 2021 (1-bit Adam), section 4. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "plan/layout/flat_layout.h"

namespace dslaunch::plan {

// The division of one bucket's blocks among bridges and hosts.
class SignRuns {
  public:
    // REQUIRES: at least one host and one bridge.
    SignRuns(const FlatLayout& layout, int bucket, int nodes, int bridges);

    // Returns the blocks of one run: bridge BRIDGE of every host exchanges these blocks, and host
    // NODE averages them. of_bridge returns all blocks of bridge BRIDGE.
    [[nodiscard]] std::span<const LayoutBlock> run(int bridge, int node) const;
    [[nodiscard]] std::span<const LayoutBlock> of_bridge(int bridge) const;

    // Returns the bytes that host NODE sends to the other hosts: its values for the runs that other
    // hosts average, and the averages of its own runs. sent_by_all returns the sum over all hosts.
    [[nodiscard]] Bytes sent_by(int node) const;
    [[nodiscard]] Bytes sent_by_all() const;

  private:
    [[nodiscard]] size_t place(int bridge, int node) const {
        return static_cast<size_t>(bridge) * static_cast<size_t>(nodes_) +
               static_cast<size_t>(node);
    }

    std::vector<LayoutBlock> blocks_;
    std::vector<size_t> ends_;  // ends of the runs in blocks_, bridge by bridge
    int nodes_;
    int bridges_;
};

// Returns the bytes of a message: the scales of all blocks in fp32, then the signs of each block,
// which begin at a new byte.
[[nodiscard]] int64_t sign_message_bytes(std::span<const LayoutBlock> blocks);

// Returns the number of elements of BLOCKS.
[[nodiscard]] int64_t numel_of(std::span<const LayoutBlock> blocks);

}  // namespace dslaunch::plan
