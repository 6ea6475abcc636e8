// A DeviceBackend for tests without a GPU: memory that the host cannot touch, queues that are
// threads, and collectives between ranks that meet in one process or through files. Sums are
// computed in the order of the ranks, as between hosts with one rank each. Values that NCCL leaves
// undefined are NaN here. The order of all collectives is recorded.
#pragma once

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/comm/device_backend.h"
#include "support/device/test_backend_world.h"
#include "support/device/test_queue.h"

namespace dslaunch::test {

class TestBackend : public runtime::DeviceBackend {
  public:
    // COMPUTE is the stream of LibTorch's operators (TestDevice); null: the backend has its own
    // stream. INDEX is the index of the device.
    TestBackend(TestMeeting& world, uint64_t seed, int index = 0, ThreadStream* compute = nullptr)
        : world_(world),
          index_(static_cast<c10::DeviceIndex>(index)),
          own_compute_(seed + 1),
          communication_stream_(seed + 2),
          copies_stream_(seed + 3),
          compute_(compute != nullptr ? *compute : own_compute_, [this] { check(); }),
          communication_(communication_stream_, [this] { check(); }),
          copies_(copies_stream_, [this] { check(); }) {
        set_memory(gib(1));
    }
    ~TestBackend() override {
        DeviceMemory::instance().set_limit(index_, Bytes{std::numeric_limits<int64_t>::max()});
        if (std::uncaught_exceptions() > 0 && aborts) world_.abort();
    }

    int torch_device_type() const override { return static_cast<int>(c10::DeviceType::HPU); }
    std::string device_name() override { return "test"; }
    std::string describe() override { return "test, memory of threads"; }
    runtime::DeviceMemoryState memory_state() override {
        return {memory_, memory_, DeviceMemory::instance().peak(index_), memory_};
    }
    void restart_peak() override { DeviceMemory::instance().restart_peak(index_); }
    std::string make_unique_id() override { return world_.make_id(); }
    runtime::DeviceCommunicator& join(const runtime::DeviceGroup& group) override {
        if (!world_.enter(group.unique_id, group.world_size))
            fail(ExitCode::kPeerLost, "rank {} joined another world", group.rank);
        record("join");
        communicators_.push_back(std::make_unique<Communicator>(*this, group));
        return *communicators_.back();
    }

    device::Memory allocate(Bytes bytes, std::string_view what) override {
        if (bytes.value == 0) return {};
        const auto size = static_cast<size_t>(bytes.value);
        std::byte* const data = DeviceMemory::instance().allocate(size, index_);
        if (data == nullptr)
            fail(ExitCode::kSetup, "the test device has no {} for {}", to_text(bytes), what);
        stream_of_compute().put(
            [to = DeviceMemory::instance().kernel(data), size] { std::memset(to, 0, size); });
        return {{data, size}, [data] { DeviceMemory::instance().free(data); }};
    }
    device::Queue& compute() override { return compute_; }
    device::Queue& communication() override { return communication_; }
    device::Queue& copies() override { return copies_; }

    void check() override {
        if (is_lost_ && stream_of_compute().is_read_while_waiting()) throw *check_error;
    }
    void leave() override { record("leave"); }
    void abort() override {
        record("abort");
        if (!is_told_.exchange(true)) on_abort();
        if (aborts) world_.abort();
    }

    // Returns the names of the calls that all lanes made, in order.
    [[nodiscard]] std::vector<std::string> calls() {
        const std::lock_guard lock(mutex_);
        return calls_;
    }
    [[nodiscard]] int64_t count(const std::string& name) {
        const std::vector<std::string> all = calls();
        return std::count(all.begin(), all.end(), name);
    }

    // Makes the communication stream skip its wait number NUMBER, counted from 0.
    void forget_wait(int number) { communication_stream_.leave_out = number; }

    // Sets the largest number of bytes that the device lends; it is 1 GiB at first.
    void set_memory(Bytes memory) {
        memory_ = memory;
        DeviceMemory::instance().set_limit(index_, memory);
    }
    [[nodiscard]] int index() const { return index_; }
    // Returns the stream of the communication queue, or of the compute queue.
    [[nodiscard]] ThreadStream& stream_of(bool communicates) {
        return communicates ? communication_stream_ : stream_of_compute();
    }

    bool aborts = true;  // false: abort() leaves everything as it is

    std::function<void()> on_abort = [] {};  // called at the first abort()

    // If set, the first reduction never ends, as if a peer was lost. check() then throws this error
    // when the host reads a value for which the compute stream waits for that reduction.
    std::optional<Error> check_error;

  private:
    // The collectives of one group that this rank has joined.
    class Communicator final : public runtime::DeviceCommunicator {
      public:
        Communicator(TestBackend& of, runtime::DeviceGroup group)
            : of_(of), group_(std::move(group)) {}

        void all_reduce(const runtime::DeviceBuffer& buffer,
                        runtime::DeviceReduction reduction) override {
            reduce("all_reduce", buffer, reduction, {{{0, buffer.numel}, runtime::kEveryNode}});
        }
        void reduce_ranges(const runtime::DeviceBuffer& buffer, runtime::DeviceReduction reduction,
                           std::span<const runtime::NodeRange> ranges) override {
            reduce("reduce_ranges", buffer, reduction, {ranges.begin(), ranges.end()});
        }
        void broadcast(const runtime::DeviceBuffer& buffer, int root) override {
            enqueue("broadcast", buffer, [root](const auto& ranks, std::byte* into) {
                std::ranges::copy(ranks[static_cast<size_t>(root)], into);
            });
        }
        void gather_ranges(const runtime::DeviceBuffer& buffer,
                           std::span<const runtime::NodeRange> ranges) override {
            const int64_t element = dtype_bytes(buffer.dtype);
            enqueue("gather_ranges", buffer,
                    [element, all = std::vector(ranges.begin(), ranges.end())](const auto& ranks,
                                                                               std::byte* into) {
                        for (const runtime::NodeRange& range : all) {
                            if (range.node == runtime::kEveryNode) continue;
                            const std::byte* const from =
                                ranks[static_cast<size_t>(range.node)].data() +
                                range.range.begin * element;
                            std::copy_n(from, range.range.numel * element,
                                        into + range.range.begin * element);
                        }
                    });
        }
        void exchange(runtime::DeviceExchange kind, const runtime::DeviceBuffer& send,
                      const runtime::DeviceBuffer& receive) override {
            enqueue("exchange", send, [this, kind, receive](const auto& ranks, std::byte*) {
                exchange_into(kind, ranks, receive);
            });
        }

        void exchange_with(int peer, const runtime::DeviceBuffer& send,
                           const runtime::DeviceBuffer& receive) override {
            of_.record("exchange_with");
            const int64_t bytes = send.numel * dtype_bytes(send.dtype);
            auto* const from = DeviceMemory::instance().kernel(send.data);
            auto* const into = DeviceMemory::instance().kernel(receive.data);
            of_.communication_stream_.put(
                [this, bytes, from, into, peer, place = next_with_[peer]++] {
                    const TestMeeting::All both =
                        of_.world_.exchange_pair({group_.unique_id, place}, {group_.rank, peer},
                                                 std::vector(from, from + bytes));
                    if (!both.empty()) std::ranges::copy(both[group_.rank < peer ? 1 : 0], into);
                });
        }

      private:
        using Combine = std::function<void(const TestMeeting::All& ranks, std::byte* into)>;

        static float value_of(const std::vector<std::byte>& bytes, int64_t i) {
            float value = 0;
            std::memcpy(&value, bytes.data() + i * 4, sizeof value);
            return value;
        }
        void enqueue(const std::string& name, const runtime::DeviceBuffer& buffer,
                     const Combine& combine) {
            of_.record(name);
            const bool reduces = name == "all_reduce" || name == "reduce_ranges";
            const bool is_lost = of_.check_error && reduces;
            const int64_t bytes = buffer.numel * dtype_bytes(buffer.dtype);
            auto* const data = DeviceMemory::instance().kernel(buffer.data);
            of_.communication_stream_.put([this, data, bytes, combine, is_lost, place = next_++] {
                if (is_lost) {
                    of_.is_lost_ = true;
                    return of_.world_.await_abort();
                }
                const TestMeeting::All ranks = of_.world_.exchange(
                    {group_.unique_id, place}, group_.rank, std::vector(data, data + bytes));
                if (!ranks.empty()) combine(ranks, data);
            });
        }

        void reduce(const std::string& name, const runtime::DeviceBuffer& buffer,
                    runtime::DeviceReduction reduction, std::vector<runtime::NodeRange> ranges) {
            const float scale = reduction == runtime::DeviceReduction::kMean
                                    ? 1.0F / static_cast<float>(group_.world_size)
                                    : 1.0F;
            enqueue(name, buffer,
                    [this, scale, ranges = std::move(ranges)](const auto& ranks, std::byte* into) {
                        auto* const out = reinterpret_cast<float*>(into);
                        for (const runtime::NodeRange& range : ranges) {
                            const bool mine =
                                range.node == group_.rank || range.node == runtime::kEveryNode;
                            for (int64_t i = range.range.begin; i < range.range.end(); ++i) {
                                float sum = value_of(ranks[0], i);
                                for (size_t r = 1; r < ranks.size(); ++r)
                                    sum += value_of(ranks[r], i);
                                out[i] =
                                    mine ? sum * scale : std::numeric_limits<float>::quiet_NaN();
                            }
                        }
                    });
        }

        void exchange_into(runtime::DeviceExchange kind, const TestMeeting::All& ranks,
                           const runtime::DeviceBuffer& receive) const {
            const auto world = static_cast<size_t>(group_.world_size);
            const auto own = static_cast<size_t>(group_.rank);
            const auto numel = static_cast<size_t>(receive.numel);
            const size_t part = numel / world;
            auto* const into =
                reinterpret_cast<float*>(DeviceMemory::instance().kernel(receive.data));
            const auto at = [&](size_t rank, size_t i) {
                return value_of(ranks[rank], static_cast<int64_t>(i));
            };
            for (size_t i = 0; i < numel; ++i) {
                switch (kind) {
                    case runtime::DeviceExchange::kSendReceive:
                        into[i] = at((own + world - 1) % world, i);
                        break;
                    case runtime::DeviceExchange::kAllGather:
                        into[i] = at(i / part, i % part);
                        break;
                    case runtime::DeviceExchange::kAllToAll:
                        into[i] = at(i / part, own * part + i % part);
                        break;
                    case runtime::DeviceExchange::kReduceScatter:
                        into[i] = 0;
                        for (size_t r = 0; r < world; ++r) into[i] += at(r, own * numel + i);
                        break;
                }
            }
        }

        TestBackend& of_;
        runtime::DeviceGroup group_;
        uint64_t next_ = 0;
        std::map<int, uint64_t> next_with_;  // by peer
    };

    ThreadStream& stream_of_compute() { return *static_cast<ThreadStream*>(compute_.stream()); }

    void record(const std::string& name) {
        const std::lock_guard lock(mutex_);
        calls_.push_back(name);
    }

    TestMeeting& world_;
    c10::DeviceIndex index_;
    Bytes memory_;
    std::vector<std::unique_ptr<Communicator>> communicators_;
    std::mutex mutex_;
    std::vector<std::string> calls_;
    std::atomic<bool> is_lost_ = false;  // the communication stream is in the reduction that never
                                         // ends
    std::atomic<bool> is_told_ = false;
    // These are destroyed first, so the streams end before everything that their work uses.
    ThreadStream own_compute_;
    ThreadStream communication_stream_;
    ThreadStream copies_stream_;
    TestQueue compute_;
    TestQueue communication_;
    TestQueue copies_;
};

}  // namespace dslaunch::test
