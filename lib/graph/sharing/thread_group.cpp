#include "graph/sharing/thread_group.h"

#include <ATen/ops/maximum.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "base/error.h"

namespace dslaunch::graph {

void TensorMeeting::exchange(const TensorPlace& place, const Tensors& mine, const Use& use) {
    std::unique_lock lock(mutex_);
    const auto until = [&](auto condition) {
        changed_.wait(lock, [&] { return condition() || !failure_.empty(); });
        if (!failure_.empty()) throw Error(ExitCode::kPeerLost, failure_);
    };
    tensors_[place.rank] = mine;
    sites_.push_back(place.site);
    if (sites_.size() == tensors_.size()) {
        leaving_ = size();
        changed_.notify_all();
    }
    until([&] { return leaving_ > 0; });
    if (std::any_of(sites_.begin(), sites_.end(),
                    [&](int64_t other) { return other != place.site; }))
        fail(ExitCode::kDiverged,
             "tensor rank {} is at collective {} of the graph, but another rank is at a different "
             "collective, so their graphs differ",
             place.rank, place.site);
    lock.unlock();
    use(tensors_);
    lock.lock();
    if (--leaving_ == 0) {
        tensors_.assign(tensors_.size(), {});
        sites_.clear();
        changed_.notify_all();
    }
    // Waits until all ranks have left, because a rank may read MINE until it leaves. The next
    // meeting cannot begin before this rank joins it.
    until([&] { return leaving_ == 0; });
}

void TensorMeeting::leave(int rank, const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (first_failed_ >= 0) return;
    first_failed_ = rank;
    failure_ = fmt::format("tensor rank {} failed: {}", rank, text);
    changed_.notify_all();
}

at::Tensor ThreadTensorGroup::sum(const at::Tensor& mine, int64_t site) {
    const bool narrow = at::isReducedFloatingType(mine.scalar_type());
    at::Tensor total;
    meet(site, {mine}, [&](const TensorMeeting::ByRank& all) {
        total = narrow ? all[0][0].to(at::kFloat) : all[0][0].clone(at::MemoryFormat::Contiguous);
        for (size_t rank = 1; rank < all.size(); ++rank) total.add_(all[rank][0]);
    });
    return narrow ? total.to(mine.scalar_type()) : total;
}

at::Tensor ThreadTensorGroup::max(const at::Tensor& mine, int64_t site) {
    at::Tensor most;
    meet(site, {mine}, [&](const TensorMeeting::ByRank& all) {
        most = all[0][0].clone();
        for (size_t rank = 1; rank < all.size(); ++rank) most = at::maximum(most, all[rank][0]);
    });
    return most;
}

TensorGroup::Tensors ThreadTensorGroup::gather(const at::Tensor& mine, int64_t site) {
    Tensors parts;
    meet(site, {mine}, [&](const TensorMeeting::ByRank& all) {
        for (const auto& part : all) parts.push_back(part[0].clone());
    });
    return parts;
}

TensorGroup::Tensors ThreadTensorGroup::exchange(const Tensors& parts, int64_t site) {
    Tensors mine;
    meet(site, parts, [&](const TensorMeeting::ByRank& all) {
        for (const auto& given : all)
            mine.push_back(
                given.at(static_cast<size_t>(rank_)).clone(at::MemoryFormat::Contiguous));
    });
    return mine;
}

at::Tensor ThreadTensorGroup::shift(const at::Tensor& mine, int64_t site) {
    at::Tensor theirs;
    meet(site, {mine}, [&](const TensorMeeting::ByRank& all) {
        theirs = all[static_cast<size_t>(rank_before())][0].clone();
    });
    return theirs;
}

void run_tensor_ranks(int size, const std::function<void(TensorGroup& group)>& body) {
    TensorMeeting meeting(size);
    std::vector<std::exception_ptr> thrown(static_cast<size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
            try {
                ThreadTensorGroup group(meeting, rank);
                body(group);
            } catch (const std::exception& error) {
                thrown[rank] = std::current_exception();
                meeting.leave(rank, error.what());
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    if (const int first = meeting.first_failed(); first >= 0) std::rethrow_exception(thrown[first]);
}

}  // namespace dslaunch::graph
