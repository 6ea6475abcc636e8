// A tensor group whose ranks are threads of one process: for the check of a rewritten graph in
// `dslaunch plan`, and for tests. Only results are copied; sums are added in rank order.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "graph/sharing/tensor_group.h"

namespace dslaunch::graph {

// A rank, and the number of the collective that it has reached.
struct TensorPlace {
    int rank = 0;
    int64_t site = 0;
};

// The meeting point of the threads of a group. Threads: all of them, each with its own rank.
class TensorMeeting {
  public:
    explicit TensorMeeting(int size) : tensors_(static_cast<size_t>(size)) {}

    // Returns the number of ranks.
    [[nodiscard]] int size() const { return static_cast<int>(tensors_.size()); }

    using Tensors = TensorGroup::Tensors;
    using ByRank = std::vector<Tensors>;
    using Use = std::function<void(const ByRank& all)>;
    // Offers MINE, waits until all ranks have offered their tensors, calls USE with all tensors,
    // and waits until all ranks have used them. Throws Error{kDiverged} if the ranks' sites differ,
    // and Error{kPeerLost} after leave().
    void exchange(const TensorPlace& place, const Tensors& mine, const Use& use);
    // Declares that RANK will not take part again: all other ranks throw an error with TEXT.
    void leave(int rank, const std::string& text);
    // Returns the first rank that left after a failure, or -1 if there is none. REQUIRES: no rank
    // is in exchange().
    [[nodiscard]] int first_failed() const { return first_failed_; }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Tensors> tensors_;
    std::vector<int64_t> sites_;  // sites of the ranks that have arrived
    int leaving_ = 0;             // ranks that have not used the tensors of this meeting yet
    int first_failed_ = -1;
    std::string failure_;  // the text of the rank that left first
};

// One rank of a group of threads.
class ThreadTensorGroup : public TensorGroup {
  public:
    // MEETING must outlive this.
    ThreadTensorGroup(TensorMeeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}

    [[nodiscard]] int rank() const override { return rank_; }
    [[nodiscard]] int size() const override { return meeting_.size(); }
    [[nodiscard]] at::Tensor sum(const at::Tensor& mine, int64_t site) override;
    [[nodiscard]] at::Tensor max(const at::Tensor& mine, int64_t site) override;
    [[nodiscard]] Tensors gather(const at::Tensor& mine, int64_t site) override;
    [[nodiscard]] Tensors exchange(const Tensors& parts, int64_t site) override;
    [[nodiscard]] at::Tensor shift(const at::Tensor& mine, int64_t site) override;

  private:
    void meet(int64_t site, const Tensors& mine, const TensorMeeting::Use& use) {
        meeting_.exchange({rank_, site}, mine, use);
    }

    TensorMeeting& meeting_;
    int rank_;
};

// Calls BODY once for each of SIZE ranks, each on a separate thread, and waits for all of them.
// Throws the error of the rank that failed first.
void run_tensor_ranks(int size, const std::function<void(TensorGroup& group)>& body);

}  // namespace dslaunch::graph
