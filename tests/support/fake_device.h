// A DeviceBackend of host memory for tests without a GPU. Nothing of its communication stream has
// happened, as on a real one, until somebody waits for it: a collective is carried out in
// compute_waits_for and finish, and not before. A read that is too early finds the old values. The
// ranks of a world are threads; the order of all calls is recorded.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/flat_optimizer.h"
#include "runtime/comm/device_backend.h"

namespace dslaunch::test {

using namespace kernels;
using namespace runtime;

// The place where the ranks' collectives meet, by their number in the order.
class FakeDeviceWorld {
  public:
    explicit FakeDeviceWorld(int world_size) : world_size_(world_size) {}
    [[nodiscard]] int world_size() const { return world_size_; }

    // Every rank's values, by rank, once all have brought theirs to collective PLACE.
    std::vector<std::vector<float>> exchange(uint64_t place, int rank, std::vector<float> mine) {
        std::unique_lock lock(mutex_);
        std::map<int, std::vector<float>>& all = brought_[place];
        all[rank] = std::move(mine);
        changed_.notify_all();
        const bool complete = changed_.wait_for(lock, std::chrono::seconds(60), [&] {
            return static_cast<int>(all.size()) == world_size_;
        });
        if (!complete) fail(ExitCode::kHang, "collective {}: not all ranks came", place);
        std::vector<std::vector<float>> values;
        for (const auto& [other, theirs] : all) values.push_back(theirs);
        return values;
    }

  private:
    int world_size_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<uint64_t, std::map<int, std::vector<float>>> brought_;
};

class FakeDevice final : public DeviceBackend {
  public:
    explicit FakeDevice(FakeDeviceWorld& world) : world_(world) {}

    std::string device_name() override { return "fake"; }
    std::string describe() override { return "fake, host memory"; }
    std::string make_unique_id() override { return "id of the world"; }
    void join(const DeviceGroup& group) override {
        if (group.unique_id != "id of the world" || group.world_size != world_.world_size())
            fail(ExitCode::kPeerLost, "rank {} joined another world", group.rank);
        rank_ = group.rank;
        record("join");
    }

    DeviceMark mark_compute() override {
        record("mark");
        return ++compute_marks_;
    }
    DeviceMark all_reduce(const DeviceBuffer& buffer, DeviceReduction reduction,
                          DeviceMark after) override {
        const float scale = reduction == DeviceReduction::kMean
                                ? 1.0F / static_cast<float>(world_.world_size())
                                : 1;
        return enqueue("all_reduce", buffer, after, [scale](const auto& ranks, float* into) {
            std::vector<const float*> sources;
            for (const std::vector<float>& values : ranks) sources.push_back(values.data());
            ordered_sum(sources, scale, into, static_cast<int64_t>(ranks[0].size()));
        });
    }
    DeviceMark broadcast(const DeviceBuffer& buffer, int root, DeviceMark after) override {
        return enqueue("broadcast", buffer, after, [root](const auto& ranks, float* into) {
            const std::vector<float>& values = ranks[root];
            std::copy(values.begin(), values.end(), into);
        });
    }
    DeviceMark exchange(DeviceExchange kind, const DeviceBuffer& send, const DeviceBuffer& receive,
                        DeviceMark after) override {
        return enqueue("exchange", send, after, [this, kind, receive](const auto& ranks, float*) {
            exchange_into(kind, ranks, receive);
        });
    }
    void compute_waits_for(DeviceMark mark) override {
        record("compute waits");
        carry_out(mark);
    }
    bool is_done(DeviceMark mark) override {
        const std::lock_guard lock(mutex_);
        return done_ >= mark;
    }
    void finish(DeviceMark mark) override {
        record("finish");
        if (finish_error) throw *finish_error;
        carry_out(mark);
    }
    void check() override {}
    void leave() override { record("leave"); }
    void abort() override { record("abort"); }

    void adam(const DeviceAdam& adam) override {
        record("adam");
        if (adam.skip != nullptr && *adam.skip == 1) return;
        FlatRange range;
        const float* const gradients = adam.gradients;
        range.numel = adam.numel;
        range.gradients = {&gradients, 1};
        range.gradient_scale = adam.gradient_divisor == nullptr ? 1 : 1 / *adam.gradient_divisor;
        const auto numel = static_cast<size_t>(adam.numel);
        range.parameters = {adam.parameters, numel};
        range.first = {adam.momentum, numel};
        range.second = {adam.variance, numel};
        AdamStep step{adam.lr, adam.beta1, adam.beta2, adam.eps, adam.weight_decay};
        step.decoupled_decay = adam.decoupled_decay;
        step.bias_correction = adam.bias_correction;
        step.step = adam.step;
        adam_step(range, step);
    }

    // The names of the calls of all lanes, in order.
    [[nodiscard]] std::vector<std::string> calls() {
        const std::lock_guard lock(mutex_);
        return calls_;
    }
    [[nodiscard]] int64_t count(const std::string& name) {
        const std::vector<std::string> all = calls();
        return std::count(all.begin(), all.end(), name);
    }

    std::optional<Error> finish_error;  // thrown by finish(), as if a peer was lost

  private:
    using Combine = std::function<void(const std::vector<std::vector<float>>& ranks, float* into)>;
    struct Pending {
        DeviceMark mark;
        DeviceBuffer buffer;
        Combine combine;
    };

    void record(const std::string& name) {
        const std::lock_guard lock(mutex_);
        calls_.push_back(name);
    }

    DeviceMark enqueue(const std::string& name, const DeviceBuffer& buffer, DeviceMark after,
                       Combine combine) {
        record(name);
        // The collective without a mark would read values that compute is still writing.
        if (after == 0 || after > compute_marks_)
            fail(ExitCode::kInternal, "{} after mark {} of {}", name, after, compute_marks_);
        const std::lock_guard lock(mutex_);
        pending_.push_back({++communication_marks_, buffer, std::move(combine)});
        return communication_marks_;
    }

    void exchange_into(DeviceExchange kind, const std::vector<std::vector<float>>& ranks,
                       const DeviceBuffer& receive) const {
        const auto world = static_cast<size_t>(world_.world_size());
        const auto own = static_cast<size_t>(rank_);
        const auto numel = static_cast<size_t>(receive.numel);
        const size_t part = numel / world;
        auto* const into = static_cast<float*>(receive.data);
        for (size_t i = 0; i < numel; ++i) {
            switch (kind) {
                case DeviceExchange::kSendReceive:
                    into[i] = ranks[(own + world - 1) % world][i];
                    break;
                case DeviceExchange::kAllGather:
                    into[i] = ranks[i / part][i % part];
                    break;
                case DeviceExchange::kAllToAll:
                    into[i] = ranks[i / part][own * part + i % part];
                    break;
                case DeviceExchange::kReduceScatter:
                    into[i] = 0;
                    for (const std::vector<float>& values : ranks)
                        into[i] += values[own * numel + i];
                    break;
            }
        }
    }

    // Carries out the collectives; one lane at a time calls it.
    void carry_out(DeviceMark mark) {
        for (;;) {
            Pending next;
            {
                const std::lock_guard lock(mutex_);
                if (pending_.empty() || pending_.front().mark > mark) return;
                next = std::move(pending_.front());
                pending_.pop_front();
            }
            auto* const data = static_cast<float*>(next.buffer.data);
            const auto ranks = world_.exchange(next.mark, rank_, {data, data + next.buffer.numel});
            next.combine(ranks, data);
            const std::lock_guard lock(mutex_);
            done_ = next.mark;
        }
    }

    FakeDeviceWorld& world_;
    int rank_ = 0;
    std::mutex mutex_;
    std::vector<std::string> calls_;
    std::deque<Pending> pending_;
    std::atomic<DeviceMark> compute_marks_ = 0;
    DeviceMark communication_marks_ = 0;
    DeviceMark done_ = 0;
};

}  // namespace dslaunch::test
