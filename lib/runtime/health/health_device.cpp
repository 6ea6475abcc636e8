#include <functional>

#include "base/check.h"
#include "base/error.h"
#include "device/stream.h"
#include "runtime/health/health_sweep.h"

namespace dslaunch::runtime {
namespace {

// The pause between two checks that an operation is done. It is short, because the measured time of
// a small message includes it.
constexpr Duration kWatchClosely = std::chrono::milliseconds(2);

class DeviceHealthCollectives final : public PairedCollectives {
  public:
    DeviceHealthCollectives(DeviceBackend& backend, DeviceCommunicator& communicator,
                            Duration time_limit)
        : backend_(backend),
          communicator_(communicator),
          limits_{[this] { backend_.check(); }, time_limit, kWatchClosely},
          loaded_(backend.compute().stream()->make_event()),
          done_(backend.communication().stream()->make_event()),
          flag_(take(1)) {}

    void load(std::span<const float> send, int64_t receive_numel) override {
        send_ = take(std::ssize(send));
        receive_ = take(receive_numel);
        backend_.compute().copy_in(send_.bytes().data(), send.data(),
                                   static_cast<int64_t>(send.size_bytes()));
    }

    void run(health::HealthOp op) override {
        run_on_stream(health::health_op_name(op), [&] { start(op); });
    }
    void exchange_with(int peer) override {
        in_place_ = false;
        run_on_stream("an exchange of two GPUs", [&] {
            communicator_.exchange_with(peer, buffer_of(send_), buffer_of(receive_));
        });
    }

    void fetch(std::span<float> receive) override {
        const device::Memory& memory = in_place_ ? send_ : receive_;
        DSL_CHECK(memory.bytes().size() == receive.size_bytes(),
                  "{} elements cannot be fetched from {} bytes", receive.size(),
                  memory.bytes().size());
        backend_.communication().copy_out(receive.data(), memory.bytes().data(),
                                          static_cast<int64_t>(receive.size_bytes()));
    }

  private:
    [[nodiscard]] device::Memory take(int64_t numel) const {
        return backend_.allocate(Bytes{numel * int64_t{sizeof(float)}}, "a health check");
    }
    static DeviceBuffer buffer_of(const device::Memory& memory) {
        return {memory.bytes().data(), std::ssize(memory.floats()), DType::kF32};
    }
    void start(health::HealthOp op) {
        if (op != health::HealthOp::kBarrier)
            in_place_ = op == health::HealthOp::kBroadcast || op == health::HealthOp::kAllReduce;
        const auto exchange = [&](DeviceExchange kind) {
            return communicator_.exchange(kind, buffer_of(send_), buffer_of(receive_));
        };
        switch (op) {
            case health::HealthOp::kBroadcast:
                return communicator_.broadcast(buffer_of(send_), 0);
            case health::HealthOp::kBarrier:
                return communicator_.all_reduce(buffer_of(flag_), DeviceReduction::kSum);
            case health::HealthOp::kAllReduce:
                return communicator_.all_reduce(buffer_of(send_), DeviceReduction::kSum);
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

    void run_on_stream(const char* what, const std::function<void()>& start) {
        backend_.compute().stream()->record(*loaded_);
        backend_.communication().stream()->wait(*loaded_);
        start();
        backend_.communication().stream()->record(*done_);
        if (device::await_event(*done_, limits_)) return;
        backend_.abort();
        fail(ExitCode::kHang, "{} did not finish within {:.3f} s", what,
             to_milliseconds(limits_.limit) / 1000);
    }

    DeviceBackend& backend_;
    DeviceCommunicator& communicator_;
    device::AwaitOptions limits_;
    std::unique_ptr<device::Event> loaded_;  // recorded once the values to send are on the device
    std::unique_ptr<device::Event> done_;
    device::Memory flag_;
    device::Memory send_;
    device::Memory receive_;
    bool in_place_ = false;
};

}  // namespace

std::unique_ptr<PairedCollectives> make_device_health_collectives(DeviceBackend& backend,
                                                                  DeviceCommunicator& communicator,
                                                                  Duration time_limit) {
    return std::make_unique<DeviceHealthCollectives>(backend, communicator, time_limit);
}

}  // namespace dslaunch::runtime
