// What the tensor ranks of a decoder do together: sums in the middle of a layer, and the logits of
// the whole vocabulary. An interface: one rank alone has none; ranks/group_sum.h is that of ranks
// of a job. One thread.
#pragma once

#include <span>

namespace dslaunch::decoder {

class RankSum {
  public:
    virtual ~RankSum() = default;
    // VALUES become the sum over ranks, added in rank order: the same bits on every rank. Every
    // rank calls with as many values. Blocks until all have come. Throws Error{kPeerLost}.
    virtual void sum(std::span<float> values) = 0;
};

}  // namespace dslaunch::decoder
