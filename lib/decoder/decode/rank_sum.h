// The sums that the tensor ranks of a decoder compute together in the middle of a layer. With one
// rank there are no such sums. ranks/group_sum.h implements them for the ranks of a job.
#pragma once

#include <span>

namespace dslaunch::decoder {

// The interface that sums numbers over the tensor ranks. Only one thread may use an object.
class RankSum {
  public:
    virtual ~RankSum() = default;
    // Sums VALUES over the ranks, in rank order, so that every rank gets the same bits. Every rank
    // must call it with the same number of values. Blocks until all ranks have called. Throws
    // Error{kPeerLost}.
    virtual void sum(std::span<float> values) = 0;
};

}  // namespace dslaunch::decoder
