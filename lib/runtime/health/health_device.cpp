#include "runtime/health/health_device.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <c10/core/TensorOptions.h>

#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "device/stream.h"

namespace dslaunch::runtime {
namespace {

// A small message would show a pause between two looks.
constexpr Duration kWatchClosely = std::chrono::milliseconds(2);

class DeviceCollectives final : public HealthCollectives {
  public:
    DeviceCollectives(DeviceBackend& backend, c10::Device device, Duration time_limit)
        : backend_(backend),
          limits_{[this] { backend_.check(); }, time_limit, kWatchClosely},
          loaded_(backend.compute_stream().make_event()),
          done_(backend.communication_stream().make_event()),
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
        backend_.compute_stream().record(*loaded_);
        backend_.communication_stream().wait(*loaded_);
        start(op);
        backend_.communication_stream().record(*done_);
        if (device::await_event(*done_, limits_)) return;
        backend_.abort();
        fail(ExitCode::kHang, "{} did not end within {:.3f} s", health::health_op_name(op),
             to_milliseconds(limits_.limit) / 1000);
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
    void start(health::HealthOp op);

    DeviceBackend& backend_;
    device::AwaitOptions limits_;
    std::unique_ptr<device::Event> loaded_;  // what an operation sends is there
    std::unique_ptr<device::Event> done_;
    at::TensorOptions options_;
    at::Tensor flag_;
    at::Tensor send_;
    at::Tensor receive_;
    bool in_place_ = false;
};

void DeviceCollectives::start(health::HealthOp op) {
    if (op != health::HealthOp::kBarrier)
        in_place_ = op == health::HealthOp::kBroadcast || op == health::HealthOp::kAllReduce;
    const auto exchange = [&](DeviceExchange kind) {
        return backend_.exchange(kind, buffer_of(send_), buffer_of(receive_));
    };
    switch (op) {
        case health::HealthOp::kBroadcast:
            return backend_.broadcast(buffer_of(send_), 0);
        case health::HealthOp::kBarrier:
            return backend_.all_reduce(buffer_of(flag_), DeviceReduction::kSum);
        case health::HealthOp::kAllReduce:
            return backend_.all_reduce(buffer_of(send_), DeviceReduction::kSum);
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
                                                           c10::Device device,
                                                           Duration time_limit) {
    return std::make_unique<DeviceCollectives>(backend, device, time_limit);
}

}  // namespace dslaunch::runtime
