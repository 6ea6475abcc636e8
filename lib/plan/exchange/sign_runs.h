// The compressed exchange of a bucket: its blocks (blocks_of), each with one scale, are dealt to
// the bridges of a host, and each bridge's part to the hosts, which average them. Every host sends
// each other host its run, and gets it back averaged. The bridge and host of a block change no bit.
// Source: Tang et al. 2021 (1-bit Adam), section 4. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "plan/layout/flat_layout.h"

namespace dslaunch::plan {

class SignRuns {
  public:
    // REQUIRES: at least one host and one bridge.
    SignRuns(const FlatLayout& layout, int bucket, int nodes, int bridges);

    // Returns the blocks that bridge BRIDGE of every host exchanges and host NODE averages; and all
    // blocks of that bridge.
    [[nodiscard]] std::span<const LayoutBlock> run(int bridge, int node) const;
    [[nodiscard]] std::span<const LayoutBlock> of_bridge(int bridge) const;

    // Returns the bytes that host NODE sends to the others, to have its values averaged and to give
    // back its averages; and the bytes of all hosts together.
    [[nodiscard]] Bytes sent_by(int node) const;
    [[nodiscard]] Bytes sent_by_all() const;

  private:
    [[nodiscard]] size_t place(int bridge, int node) const {
        return static_cast<size_t>(bridge) * static_cast<size_t>(nodes_) +
               static_cast<size_t>(node);
    }

    std::vector<LayoutBlock> blocks_;
    std::vector<size_t> ends_;  // of the runs, bridge by bridge
    int nodes_;
    int bridges_;
};

// Returns the bytes of a message: the blocks' scales in fp32, then each one's signs in new bytes.
[[nodiscard]] int64_t sign_message_bytes(std::span<const LayoutBlock> blocks);

// Returns the elements of BLOCKS.
[[nodiscard]] int64_t numel_of(std::span<const LayoutBlock> blocks);

}  // namespace dslaunch::plan
