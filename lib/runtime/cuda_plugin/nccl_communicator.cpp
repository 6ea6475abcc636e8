#include "runtime/cuda_plugin/nccl_communicator.h"

#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace dslaunch::runtime {

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
    // A communicator that does not block may answer any call with ncclInProgress.
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

// Sends to the next rank of the ring, or part r to rank r, in one group so that no order can block.
void NcclCommunicator::send_parts(DeviceExchange kind, const DeviceBuffer& send,
                                  const DeviceBuffer& receive, cudaStream_t stream) {
    const int world_size = group_.world_size;
    const bool ring = kind == DeviceExchange::kSendReceive;
    const auto part = static_cast<size_t>(ring ? send.numel : send.numel / world_size);
    const ncclDataType_t type = nccl_type(send.dtype);
    ncclComm_t made = communicator();
    expect_started(ncclGroupStart(), "group");
    for (int i = 0; i < (ring ? 1 : world_size); ++i) {
        const int to = ring ? (group_.rank + 1) % world_size : i;
        const int from = ring ? (group_.rank + world_size - 1) % world_size : i;
        const size_t offset = ring ? 0 : static_cast<size_t>(i) * part;
        expect_started(
            ncclSend(static_cast<const float*>(send.data) + offset, part, type, to, made, stream),
            "send");
        expect_started(
            ncclRecv(static_cast<float*>(receive.data) + offset, part, type, from, made, stream),
            "receive");
    }
    expect_started(ncclGroupEnd(), "group");
}

void NcclCommunicator::exchange(DeviceExchange kind, const DeviceBuffer& send,
                                const DeviceBuffer& receive, cudaStream_t stream) {
    DSL_CHECK(send.dtype == DeviceDtype::kFloat32 && receive.dtype == DeviceDtype::kFloat32,
              "an exchange of dtype {}", static_cast<int>(send.dtype));
    switch (kind) {
        case DeviceExchange::kSendReceive:
        case DeviceExchange::kAllToAll:
            send_parts(kind, send, receive, stream);
            break;
        case DeviceExchange::kAllGather:
            expect_started(ncclAllGather(send.data, receive.data, static_cast<size_t>(send.numel),
                                         ncclFloat32, communicator(), stream),
                           "all-gather");
            break;
        case DeviceExchange::kReduceScatter:
            expect_started(
                ncclReduceScatter(send.data, receive.data, static_cast<size_t>(receive.numel),
                                  ncclFloat32, ncclSum, communicator(), stream),
                "reduce-scatter");
            break;
    }
    wait_until_started("exchange");
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
    // ncclCommAbort waits for its kernels to notice. Nobody here waits for it, and _exit may
    // overtake it.
    std::thread([ended] { (void)ncclCommAbort(ended); }).detach();
}

}  // namespace dslaunch::runtime
