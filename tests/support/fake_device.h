// A DeviceBackend for tests without a GPU. Its communication stream is a thread that works later,
// after random times, so that a read that is too early finds the old values. Its compute stream is
// given (a test device's, test_device.h), or works at once on host memory. The ranks of a world are
// threads; the order of all calls is recorded.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/flat_optimizer.h"
#include "runtime/comm/device_backend.h"
#include "support/thread_stream.h"

namespace dslaunch::test {

using namespace kernels;
using namespace runtime;

// The place where the ranks' collectives meet, by their number in the order.
class FakeDeviceWorld {
  public:
    explicit FakeDeviceWorld(int world_size) : world_size_(world_size) {}
    [[nodiscard]] int world_size() const { return world_size_; }

    // Every rank's values, by rank, once all have brought theirs to collective PLACE.
    // They are empty after abort().
    std::vector<std::vector<float>> exchange(uint64_t place, int rank, std::vector<float> mine) {
        std::unique_lock lock(mutex_);
        std::map<int, std::vector<float>>& all = brought_[place];
        all[rank] = std::move(mine);
        changed_.notify_all();
        changed_.wait(lock,
                      [&] { return aborted_ || static_cast<int>(all.size()) == world_size_; });
        if (aborted_) return {};
        std::vector<std::vector<float>> values;
        for (const auto& [other, theirs] : all) values.push_back(theirs);
        return values;
    }
    void abort() {
        const std::lock_guard lock(mutex_);
        aborted_ = true;
        changed_.notify_all();
    }
    void await_abort() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return aborted_; });
    }

  private:
    int world_size_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::map<uint64_t, std::map<int, std::vector<float>>> brought_;
    bool aborted_ = false;
};

// A stream whose work is done when it has been given. What a GPU would wait for, its thread waits
// for, and looks with CHECK meanwhile.
class PromptStream final : public device::Stream {
  public:
    explicit PromptStream(std::function<void()> check) : check_(std::move(check)) {}
    [[nodiscard]] std::unique_ptr<device::Event> make_event() override {
        return std::make_unique<ThreadEvent>();
    }
    void record(device::Event& event) override {
        const auto& state = ThreadEvent::state_of(event);
        state->reach(state->record());
    }
    void wait(device::Event& event) override {
        static_cast<void>(device::await_event(event, {check_, Duration::max()}));
    }

  private:
    std::function<void()> check_;
};

// The compute stream that a FakeDevice is given, and where a kernel finds the device's memory.
struct FakeCompute {
    ThreadStream* stream = nullptr;
    std::function<void*(void*)> address;
};

class FakeDevice final : public DeviceBackend {
  public:
    explicit FakeDevice(FakeDeviceWorld& world, uint64_t seed = 1, FakeCompute compute = {})
        : world_(world),
          given_(std::move(compute)),
          prompt_([this] { check(); }),
          communication_(seed) {}
    ~FakeDevice() override {
        if (std::uncaught_exceptions() > 0) world_.abort();
    }

    std::string device_name() override { return "fake"; }
    std::string describe() override { return "fake, host memory"; }
    std::string make_unique_id() override { return "id of the world"; }
    void join(const DeviceGroup& group) override {
        if (group.unique_id != "id of the world" || group.world_size != world_.world_size())
            fail(ExitCode::kPeerLost, "rank {} joined another world", group.rank);
        rank_ = group.rank;
        record("join");
    }

    device::Stream& compute_stream() override {
        if (given_.stream != nullptr) return *given_.stream;
        return prompt_;
    }
    device::Stream& communication_stream() override { return communication_; }

    void all_reduce(const DeviceBuffer& buffer, DeviceReduction reduction) override {
        const float scale = reduction == DeviceReduction::kMean
                                ? 1.0F / static_cast<float>(world_.world_size())
                                : 1;
        enqueue("all_reduce", buffer, [scale](const auto& ranks, float* into) {
            std::vector<const float*> sources;
            for (const std::vector<float>& values : ranks) sources.push_back(values.data());
            ordered_sum(sources, scale, into, static_cast<int64_t>(ranks[0].size()));
        });
    }
    void broadcast(const DeviceBuffer& buffer, int root) override {
        enqueue("broadcast", buffer, [root](const auto& ranks, float* into) {
            const std::vector<float>& values = ranks[root];
            std::copy(values.begin(), values.end(), into);
        });
    }
    void exchange(DeviceExchange kind, const DeviceBuffer& send,
                  const DeviceBuffer& receive) override {
        enqueue("exchange", send, [this, kind, receive](const auto& ranks, float*) {
            exchange_into(kind, ranks, receive);
        });
    }
    void check() override {
        if (is_lost_) throw *check_error;
    }
    void leave() override { record("leave"); }
    void abort() override {
        record("abort");
        world_.abort();
    }

    void adam(const DeviceAdam& adam) override {
        record("adam");
        if (given_.stream == nullptr) return update(adam);
        given_.stream->put([this, adam] { update(adam); });
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

    // Forgets the wait with that number, from 0, of the communication stream.
    void forget_wait(int number) { communication_.leave_out = number; }

    // Thrown by check() from the first reduction on, which does not end, as if a peer was lost.
    std::optional<Error> check_error;

  private:
    using Combine = std::function<void(const std::vector<std::vector<float>>& ranks, float* into)>;

    template <typename Value>
    Value* bytes_of(Value* data) const {
        if (data == nullptr || !given_.address) return data;
        return static_cast<Value*>(given_.address(data));
    }

    void update(const DeviceAdam& adam) const {
        const float* const skip = bytes_of(adam.skip);
        if (skip != nullptr && *skip == 1) return;
        FlatRange range;
        const float* const gradients = bytes_of(adam.gradients);
        const float* const divisor = bytes_of(adam.gradient_divisor);
        range.numel = adam.numel;
        range.gradients = {&gradients, 1};
        range.gradient_scale = divisor == nullptr ? 1 : 1 / *divisor;
        const auto numel = static_cast<size_t>(adam.numel);
        range.parameters = {bytes_of(adam.parameters), numel};
        range.first = {bytes_of(adam.momentum), numel};
        range.second = {bytes_of(adam.variance), numel};
        AdamStep step{adam.lr, adam.beta1, adam.beta2, adam.eps, adam.weight_decay};
        step.decoupled_decay = adam.decoupled_decay;
        step.bias_correction = adam.bias_correction;
        step.step = adam.step;
        adam_step(range, step);
    }

    void record(const std::string& name) {
        const std::lock_guard lock(mutex_);
        calls_.push_back(name);
    }

    void enqueue(const std::string& name, const DeviceBuffer& buffer, const Combine& combine) {
        record(name);
        const bool is_lost = check_error && name == "all_reduce";
        if (is_lost) is_lost_ = true;
        communication_.put([this, buffer, combine, is_lost, place = collectives_++] {
            if (is_lost) return world_.await_abort();
            auto* const data = static_cast<float*>(bytes_of(buffer.data));
            const auto ranks = world_.exchange(place, rank_, {data, data + buffer.numel});
            if (!ranks.empty()) combine(ranks, data);
        });
    }

    void exchange_into(DeviceExchange kind, const std::vector<std::vector<float>>& ranks,
                       const DeviceBuffer& receive) const {
        const auto world = static_cast<size_t>(world_.world_size());
        const auto own = static_cast<size_t>(rank_);
        const auto numel = static_cast<size_t>(receive.numel);
        const size_t part = numel / world;
        auto* const into = static_cast<float*>(bytes_of(receive.data));
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

    FakeDeviceWorld& world_;
    int rank_ = 0;
    std::mutex mutex_;
    std::vector<std::string> calls_;
    std::atomic<bool> is_lost_ = false;
    uint64_t collectives_ = 0;
    FakeCompute given_;
    PromptStream prompt_;
    ThreadStream communication_;  // ended first
};

}  // namespace dslaunch::test
