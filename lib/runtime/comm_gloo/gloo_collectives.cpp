// The collectives between CPUs that `dslaunch health` tests: Gloo's own operations over all ranks.

#include <ATen/ops/empty.h>

#include <cstring>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/check.h"
#include "base/error.h"
#include "base/text/torch_reason.h"
#include "runtime/comm_gloo/gloo_setup.h"
#include "runtime/comm_gloo/rendezvous.h"

namespace dslaunch::runtime {

namespace {

using std::chrono::milliseconds;

class GlooCollectives final : public HealthCollectives {
  public:
    GlooCollectives(c10::intrusive_ptr<c10d::ProcessGroupGloo> group, milliseconds limit)
        : group_(std::move(group)), limit_(limit) {}

    void load(std::span<const float> send, int64_t receive_numel) override {
        send_ = at::empty({std::ssize(send)}, at::kFloat);
        std::memcpy(send_.data_ptr<float>(), send.data(), send.size_bytes());
        receive_ = at::empty({receive_numel}, at::kFloat);
    }

    void run(health::HealthOp op) override {
        const TimePoint deadline = SystemClock().now() + limit_;
        try {
            for (const auto& work : start(op)) work->wait(limit_);
        } catch (const std::exception& error) {
            // Gloo throws the same exception for a late peer and a lost one, so the clock tells
            // them apart.
            const bool late = SystemClock().now() + milliseconds(2) >= deadline;
            fail(late ? ExitCode::kHang : ExitCode::kPeerLost, "{}: {}: {}",
                 health::health_op_name(op),
                 late ? "some rank did not take part in time" : "a rank was lost",
                 torch_reason(error));
        }
    }

    void fetch(std::span<float> receive) override {
        // After an operation in place the result is in the buffer of the sent values.
        const at::Tensor& result = receive_in_place_ ? send_ : receive_;
        DSL_CHECK(result.numel() == std::ssize(receive),
                  "{} elements cannot be fetched from a result of {}", receive.size(),
                  result.numel());
        std::memcpy(receive.data(), result.data_ptr<float>(), receive.size_bytes());
    }

  private:
    using WorkPtr = c10::intrusive_ptr<c10d::Work>;

    template <typename Options>
    [[nodiscard]] Options limited() const {
        Options options;
        options.timeout = limit_;
        return options;
    }

    std::vector<WorkPtr> start(health::HealthOp op) {
        if (op != health::HealthOp::kBarrier)
            receive_in_place_ =
                op == health::HealthOp::kBroadcast || op == health::HealthOp::kAllReduce;
        std::vector<at::Tensor> in_place = {send_};
        std::vector<int64_t> equal;
        switch (op) {
            case health::HealthOp::kBroadcast:
                return {group_->broadcast(in_place, limited<c10d::BroadcastOptions>())};
            case health::HealthOp::kSendReceive:
                return start_ring();
            case health::HealthOp::kBarrier:
                return {group_->barrier(limited<c10d::BarrierOptions>())};
            case health::HealthOp::kAllReduce:
                return {group_->allreduce(in_place, limited<c10d::AllreduceOptions>())};
            case health::HealthOp::kAllGather:
                return {
                    group_->_allgather_base(receive_, send_, limited<c10d::AllgatherOptions>())};
            case health::HealthOp::kReduceScatter:
                return {group_->_reduce_scatter_base(receive_, send_,
                                                     limited<c10d::ReduceScatterOptions>())};
            case health::HealthOp::kAllToAll:
                return {group_->alltoall_base(receive_, send_, equal, equal,
                                              limited<c10d::AllToAllOptions>())};
        }
        DSL_CHECK(false, "operation {}", static_cast<int>(op));
    }

    std::vector<WorkPtr> start_ring() {
        const int rank = group_->getRank();
        const int size = group_->getSize();
        std::vector<at::Tensor> from = {receive_};
        std::vector<at::Tensor> to = {send_};
        std::vector<WorkPtr> works;
        works.push_back(group_->recv(from, (rank + size - 1) % size, 1));
        works.push_back(group_->send(to, (rank + 1) % size, 1));
        return works;
    }

    c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
    milliseconds limit_;
    at::Tensor send_;
    at::Tensor receive_;
    bool receive_in_place_ = false;
};

}  // namespace

std::unique_ptr<HealthCollectives> Rendezvous::open_collectives(Duration limit) {
    const TimePoint deadline = SystemClock().now() + limit;
    const std::string address = own_address();
    try {
        auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(
            c10::make_intrusive<c10d::PrefixStore>("health/gloo", store_->store), environment_.rank,
            environment_.world_size, gloo_options(address, /*threads=*/2, limit));
        return std::make_unique<GlooCollectives>(std::move(group), gloo_limit(limit));
    } catch (const std::exception& error) {
        const bool late = SystemClock().now() >= deadline;
        fail(late ? ExitCode::kHang : ExitCode::kPeerLost,
             "rank {} could not connect to all other ranks from address {}: {}", environment_.rank,
             address, torch_reason(error));
    }
}

}  // namespace dslaunch::runtime
