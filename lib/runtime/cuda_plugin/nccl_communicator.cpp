#include "runtime/cuda_plugin/nccl_communicator.h"

#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch {

namespace {

constexpr auto kPollInterval = std::chrono::microseconds(50);

ncclDataType_t nccl_type(DeviceDtype dtype) {
    switch (dtype) {
        case DeviceDtype::kFloat32:
            return ncclFloat32;
        case DeviceDtype::kFloat16:
            return ncclFloat16;
        case DeviceDtype::kBfloat16:
            return ncclBfloat16;
        case DeviceDtype::kByte:
            return ncclUint8;
    }
    DSL_CHECK(false, "device dtype {}", static_cast<int>(dtype));
}

void expect_started(ncclResult_t result, const char* what) {
    // A communicator that does not block answers ncclInProgress to anything.
    if (result != ncclSuccess && result != ncclInProgress)
        fail(ExitCode::kPeerLost, "NCCL {}: {}", what, ncclGetErrorString(result));
}

}  // namespace

std::string NcclCommunicator::make_unique_id() {
    ncclUniqueId id;
    if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess)
        fail(ExitCode::kSetup,
             "NCCL cannot make a unique id: {}; NCCL_SOCKET_IFNAME must name a network that is up",
             ncclGetErrorString(result));
    return {id.internal, sizeof id.internal};
}

void NcclCommunicator::join(const DeviceGroup& group) {
    DSL_CHECK(communicator_ == nullptr, "joined twice");
    ncclUniqueId id;
    DSL_CHECK(group.unique_id.size() == sizeof id.internal, "a unique id of {} bytes",
              group.unique_id.size());
    std::memcpy(id.internal, group.unique_id.data(), sizeof id.internal);
    group_ = group;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t made = nullptr;
    const ncclResult_t result =
        ncclCommInitRankConfig(&made, group.world_size, id, group.rank, &config);
    {
        const std::lock_guard lock(mutex_);
        communicator_ = made;
    }
    expect_started(result, "join");
    wait_until_started("join");
}

ncclComm_t NcclCommunicator::communicator() {
    const std::lock_guard lock(mutex_);
    if (communicator_ == nullptr)
        fail(ExitCode::kPeerLost, "the NCCL communicator of rank {} has ended", group_.rank);
    return communicator_;
}

void NcclCommunicator::wait_until_started(const char* what) {
    SystemClock clock;
    const TimePoint deadline = clock.now() + group_.time_limit;
    for (;;) {
        ncclResult_t state = ncclSuccess;
        expect_started(ncclCommGetAsyncError(communicator(), &state), what);
        expect_started(state, what);
        if (state == ncclSuccess) return;
        if (clock.now() > deadline)
            fail(ExitCode::kHang, "NCCL {} of rank {} of {} did not start within {:.3f} s", what,
                 group_.rank, group_.world_size, to_milliseconds(group_.time_limit) / 1000);
        clock.sleep_for(kPollInterval);
    }
}

void NcclCommunicator::all_reduce(const DeviceBuffer& buffer, DeviceReduction reduction,
                                  cudaStream_t stream) {
    // ncclAvg divides once, after the sum.
    expect_started(ncclAllReduce(buffer.data, buffer.data, static_cast<size_t>(buffer.numel),
                                 nccl_type(buffer.dtype),
                                 reduction == DeviceReduction::kMean ? ncclAvg : ncclSum,
                                 communicator(), stream),
                   "all-reduce");
    wait_until_started("all-reduce");
}

void NcclCommunicator::broadcast(const DeviceBuffer& buffer, int root, cudaStream_t stream) {
    expect_started(ncclBroadcast(buffer.data, buffer.data, static_cast<size_t>(buffer.numel),
                                 nccl_type(buffer.dtype), root, communicator(), stream),
                   "broadcast");
    wait_until_started("broadcast");
}

void NcclCommunicator::check() {
    ncclResult_t state = ncclSuccess;
    expect_started(ncclCommGetAsyncError(communicator(), &state), "check");
    expect_started(state, "communicator");
}

void NcclCommunicator::abort() {
    ncclComm_t ended = nullptr;
    {
        const std::lock_guard lock(mutex_);
        ended = std::exchange(communicator_, nullptr);
    }
    if (ended == nullptr) return;
    // ncclCommAbort waits for its kernels to notice; nobody here waits for it, and _exit may
    // overtake it.
    std::thread([ended] { (void)ncclCommAbort(ended); }).detach();
}

}  // namespace dslaunch
