#include "runtime/comm_gloo/world_group.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "base/check.h"
#include "base/error.h"
#include "base/text/torch_reason.h"
#include "runtime/comm_gloo/address.h"
#include "runtime/comm_gloo/gloo_setup.h"

namespace dslaunch::runtime {

struct WorldGroup::Store {
    c10::intrusive_ptr<c10d::Store> store;
};

namespace {

using std::chrono::milliseconds;

std::string own_address(const launch::WorkerEnvironment& environment) {
    if (environment.rendezvous_fd >= 0) {
        const std::string bound = bound_address(environment.rendezvous_fd);
        if (!bound.empty()) return bound;
    }
    return address_that_reaches(environment.master_address);
}

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
            // Gloo throws one kind of exception for both cases, so the clock tells them apart.
            const bool late = SystemClock().now() + milliseconds(2) >= deadline;
            fail(late ? ExitCode::kHang : ExitCode::kPeerLost, "{}: {}: {}",
                 health::health_op_name(op),
                 late ? "some rank did not take part in time" : "a rank was lost",
                 torch_reason(error));
        }
    }

    void fetch(std::span<float> receive) override {
        // An operation in place leaves its result where the sent values were.
        const at::Tensor& result = receive_in_place_ ? send_ : receive_;
        DSL_CHECK(result.numel() == std::ssize(receive), "{} elements of {} are fetched",
                  receive.size(), result.numel());
        std::memcpy(receive.data(), result.data_ptr<float>(), receive.size_bytes());
    }

  private:
    using WorkPtr = c10::intrusive_ptr<c10d::Work>;

    std::vector<WorkPtr> start(health::HealthOp op);
    std::vector<WorkPtr> start_ring();

    c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
    milliseconds limit_;
    at::Tensor send_;
    at::Tensor receive_;
    bool receive_in_place_ = false;
};

std::vector<GlooCollectives::WorkPtr> GlooCollectives::start(health::HealthOp op) {
    if (op != health::HealthOp::kBarrier)
        receive_in_place_ =
            op == health::HealthOp::kBroadcast || op == health::HealthOp::kAllReduce;
    std::vector<at::Tensor> in_place = {send_};
    switch (op) {
        case health::HealthOp::kBroadcast: {
            c10d::BroadcastOptions options;
            options.timeout = limit_;
            return {group_->broadcast(in_place, options)};
        }
        case health::HealthOp::kSendReceive:
            return start_ring();
        case health::HealthOp::kBarrier: {
            c10d::BarrierOptions options;
            options.timeout = limit_;
            return {group_->barrier(options)};
        }
        case health::HealthOp::kAllReduce: {
            c10d::AllreduceOptions options;
            options.timeout = limit_;
            return {group_->allreduce(in_place, options)};
        }
        case health::HealthOp::kAllGather: {
            c10d::AllgatherOptions options;
            options.timeout = limit_;
            return {group_->_allgather_base(receive_, send_, options)};
        }
        case health::HealthOp::kReduceScatter: {
            c10d::ReduceScatterOptions options;
            options.timeout = limit_;
            return {group_->_reduce_scatter_base(receive_, send_, options)};
        }
        case health::HealthOp::kAllToAll: {
            c10d::AllToAllOptions options;
            options.timeout = limit_;
            std::vector<int64_t> equal;
            return {group_->alltoall_base(receive_, send_, equal, equal, options)};
        }
    }
    DSL_CHECK(false, "operation {}", static_cast<int>(op));
}

std::vector<GlooCollectives::WorkPtr> GlooCollectives::start_ring() {
    const int rank = group_->getRank();
    const int size = group_->getSize();
    std::vector<at::Tensor> from = {receive_};
    std::vector<at::Tensor> to = {send_};
    std::vector<WorkPtr> works;
    works.push_back(group_->recv(from, (rank + size - 1) % size, 1));
    works.push_back(group_->send(to, (rank + 1) % size, 1));
    return works;
}

}  // namespace

WorldGroup::WorldGroup(const launch::WorkerEnvironment& environment, Duration limit)
    : rank_(environment.rank),
      world_size_(environment.world_size),
      address_(own_address(environment)),
      store_(std::make_unique<Store>()) {
    store_->store = open_store({.rank = environment.rank,
                                .master_address = environment.master_address,
                                .master_port = environment.master_port,
                                .listening_fd = environment.rendezvous_fd},
                               limit);
}

WorldGroup::~WorldGroup() = default;

void WorldGroup::set(const std::string& key, const std::string& value) {
    try {
        store_->store->set("health/" + key, value);
    } catch (const std::exception& error) {
        fail(ExitCode::kPeerLost, "rank 0's rendezvous was lost while '{}' was set: {}", key,
             torch_reason(error));
    }
}

std::optional<std::string> WorldGroup::get(const std::string& key, Duration limit) {
    const TimePoint deadline = SystemClock().now() + limit;
    try {
        store_->store->wait({"health/" + key}, gloo_limit(limit));
        return store_->store->get_to_str("health/" + key);
    } catch (const std::exception& error) {
        if (SystemClock().now() + milliseconds(2) >= deadline) return std::nullopt;
        fail(ExitCode::kPeerLost, "rank 0's rendezvous was lost while waiting for '{}': {}", key,
             torch_reason(error));
    }
}

std::unique_ptr<HealthCollectives> WorldGroup::open_gloo(Duration limit) {
    const TimePoint deadline = SystemClock().now() + limit;
    using c10d::ProcessGroupGloo;
    try {
        auto group = c10::make_intrusive<ProcessGroupGloo>(
            c10::make_intrusive<c10d::PrefixStore>("health/gloo", store_->store), rank_,
            world_size_, gloo_options(address_, /*threads=*/2, limit));
        return std::make_unique<GlooCollectives>(std::move(group), gloo_limit(limit));
    } catch (const std::exception& error) {
        const bool late = SystemClock().now() >= deadline;
        fail(late ? ExitCode::kHang : ExitCode::kPeerLost,
             "rank {} could not connect to all other ranks from address {}: {}", rank_, address_,
             torch_reason(error));
    }
}

}  // namespace dslaunch::runtime
