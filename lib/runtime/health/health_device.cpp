#include "runtime/health/health_device.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>

#include <cstring>

#include "base/check.h"

namespace dslaunch::runtime {
namespace {

// finish() looks every 50 us, which a small message would show, so run() polls
// without a pause at first.
constexpr Duration kWatchClosely = std::chrono::milliseconds(2);

class DeviceCollectives final : public HealthCollectives {
  public:
    DeviceCollectives(DeviceBackend& backend, c10::Device device)
        : backend_(backend),
          options_(at::TensorOptions().dtype(at::kFloat).device(device)),
          flag_(at::zeros({1}, options_)) {}

    void load(std::span<const float> send, int64_t receive_numel) override {
        const at::Tensor host =
            at::from_blob(const_cast<float*>(send.data()), {std::ssize(send)}, at::kFloat);
        send_ = at::empty({std::ssize(send)}, options_);
        send_.copy_(host);
        receive_ = at::empty({receive_numel}, options_);
    }

    void run(health::HealthOp op) override {
        const DeviceMark mark = start(op, backend_.mark_compute());
        SystemClock clock;
        const TimePoint closely = clock.now() + kWatchClosely;
        while (!backend_.is_done(mark) && clock.now() < closely) {
        }
        backend_.finish(mark);
    }

    void fetch(std::span<float> receive) override {
        const at::Tensor host = (in_place_ ? send_ : receive_).cpu();
        DSL_CHECK(host.numel() == std::ssize(receive), "{} elements of {} are fetched",
                  receive.size(), host.numel());
        std::memcpy(receive.data(), host.data_ptr<float>(), receive.size_bytes());
    }

  private:
    static DeviceBuffer buffer_of(const at::Tensor& tensor) {
        return {tensor.data_ptr(), tensor.numel(), DeviceDtype::kFloat32};
    }
    DeviceMark start(health::HealthOp op, DeviceMark after);

    DeviceBackend& backend_;
    at::TensorOptions options_;
    at::Tensor flag_;
    at::Tensor send_;
    at::Tensor receive_;
    bool in_place_ = false;
};

DeviceMark DeviceCollectives::start(health::HealthOp op, DeviceMark after) {
    if (op != health::HealthOp::kBarrier)
        in_place_ = op == health::HealthOp::kBroadcast || op == health::HealthOp::kAllReduce;
    const auto exchange = [&](DeviceExchange kind) {
        return backend_.exchange(kind, buffer_of(send_), buffer_of(receive_), after);
    };
    switch (op) {
        case health::HealthOp::kBroadcast:
            return backend_.broadcast(buffer_of(send_), 0, after);
        case health::HealthOp::kBarrier:
            return backend_.all_reduce(buffer_of(flag_), DeviceReduction::kSum, after);
        case health::HealthOp::kAllReduce:
            return backend_.all_reduce(buffer_of(send_), DeviceReduction::kSum, after);
        case health::HealthOp::kSendReceive:
            return exchange(DeviceExchange::kSendReceive);
        case health::HealthOp::kAllGather:
            return exchange(DeviceExchange::kAllGather);
        case health::HealthOp::kReduceScatter:
            return exchange(DeviceExchange::kReduceScatter);
        case health::HealthOp::kAllToAll:
            return exchange(DeviceExchange::kAllToAll);
    }
    DSL_CHECK(false, "operation {}", static_cast<int>(op));
}

}  // namespace

std::unique_ptr<HealthCollectives> make_device_collectives(DeviceBackend& backend,
                                                           c10::Device device) {
    return std::make_unique<DeviceCollectives>(backend, device);
}

}  // namespace dslaunch::runtime
