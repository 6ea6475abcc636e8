#include "runtime/nccl/nccl_communicator.h"

#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "device/stream.h"

namespace dslaunch::runtime {

namespace {

ncclDataType_t nccl_type(DType dtype) {
    DSL_CHECK(dtype == DType::kF32 || dtype == DType::kU8, "a buffer of dtype {} is not supported",
              dtype_name(dtype));
    return dtype == DType::kF32 ? ncclFloat32 : ncclUint8;
}

// Returns true for ncclSuccess and also for ncclInProgress, which a non-blocking communicator may
// return.
bool has_started(ncclResult_t result) {
    return result == ncclSuccess || result == ncclInProgress;
}

void expect_started(ncclResult_t result, const char* what) {
    if (!has_started(result))
        fail(ExitCode::kPeerLost, "NCCL {}: {}", what, ncclGetErrorString(result));
}

// Makes CALLS as one NCCL group, which is closed even if a call fails: an open group would include
// all later calls.
template <typename Calls>
ncclResult_t in_group(const Calls& calls) {
    if (const ncclResult_t opened = ncclGroupStart(); !has_started(opened)) return opened;
    const ncclResult_t result = calls();
    const ncclResult_t closed = ncclGroupEnd();
    return has_started(result) ? closed : result;
}

}  // namespace

std::string NcclCommunicator::make_unique_id() {
    ncclUniqueId id;
    if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess)
        fail(ExitCode::kSetup,
             "NCCL cannot make a unique id: {}; if NCCL_SOCKET_IFNAME is set, it must name a "
             "network interface that is up",
             ncclGetErrorString(result));
    return {id.internal, sizeof id.internal};
}

void NcclCommunicator::join(const DeviceGroup& group) {
    ncclUniqueId id;
    DSL_CHECK(group.unique_id.size() == sizeof id.internal,
              "the unique id has {} bytes, which is the wrong length", group.unique_id.size());
    std::memcpy(id.internal, group.unique_id.data(), sizeof id.internal);
    group_ = group;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    {
        const std::lock_guard lock(mutex_);
        DSL_CHECK(communicator_ == nullptr, "joined twice");
        aborted_ = false;
        expect_started(
            ncclCommInitRankConfig(&communicator_, group.world_size, id, group.rank, &config),
            "join");
    }
    wait_until_started("join");
}

void NcclCommunicator::call(const char* what, const Call& call) {
    const std::lock_guard lock(mutex_);
    if (communicator_ == nullptr)
        fail(ExitCode::kPeerLost, "the NCCL communicator of rank {} has ended", group_.rank);
    expect_started(call(communicator_), what);
}

void NcclCommunicator::start(const char* what, const Call& call) {
    this->call(what, call);
    wait_until_started(what);
}

void NcclCommunicator::wait_until_started(const char* what) {
    const SystemClock clock;
    const TimePoint deadline = clock.now() + group_.time_limit;
    for (device::Pauses pauses;; pauses.pause()) {
        ncclResult_t state = ncclSuccess;
        call(what,
             [&](ncclComm_t communicator) { return ncclCommGetAsyncError(communicator, &state); });
        expect_started(state, what);
        if (state == ncclSuccess) return;
        if (clock.now() > deadline)
            fail(ExitCode::kHang, "NCCL {} of rank {} of {} did not start within {:.3f} s", what,
                 group_.rank, group_.world_size, to_milliseconds(group_.time_limit) / 1000);
    }
}

void NcclCommunicator::all_reduce(const DeviceBuffer& buffer, DeviceReduction reduction) {
    // ncclAvg divides once, after the sum.
    const ncclRedOp_t operation = reduction == DeviceReduction::kMean ? ncclAvg : ncclSum;
    start("all-reduce", [&](ncclComm_t communicator) {
        return ncclAllReduce(buffer.data, buffer.data, static_cast<size_t>(buffer.numel),
                             nccl_type(buffer.dtype), operation, communicator, stream_);
    });
}

void NcclCommunicator::broadcast(const DeviceBuffer& buffer, int root) {
    start("broadcast", [&](ncclComm_t communicator) {
        return ncclBroadcast(buffer.data, buffer.data, static_cast<size_t>(buffer.numel),
                             nccl_type(buffer.dtype), root, communicator, stream_);
    });
}

// Calls CALL for each range that is not empty, as one group.
void NcclCommunicator::start_group(const char* what, std::span<const NodeRange> ranges,
                                   const InGroup& call) {
    start(what, [&](ncclComm_t communicator) {
        return in_group([&] {
            ncclResult_t result = ncclSuccess;
            for (const NodeRange& range : ranges)
                if (range.range.numel > 0 && has_started(result))
                    result = call(communicator, range);
            return result;
        });
    });
}

// Returns true if there is one range for each rank, in the order of ranks and of equal length. NCCL
// has faster operations for such ranges than a group of calls.
bool NcclCommunicator::are_even_parts(std::span<const NodeRange> ranges) const {
    if (std::ssize(ranges) != group_.world_size || ranges.front().range.numel == 0) return false;
    for (int rank = 0; rank < group_.world_size; ++rank)
        if (ranges[rank].node != rank || ranges[rank].range.numel != ranges.front().range.numel)
            return false;
    return true;
}

void NcclCommunicator::reduce_ranges(const DeviceBuffer& buffer, DeviceReduction reduction,
                                     std::span<const NodeRange> ranges) {
    const ncclRedOp_t operation = reduction == DeviceReduction::kMean ? ncclAvg : ncclSum;
    auto* const data = static_cast<std::byte*>(buffer.data);
    const ncclDataType_t type = nccl_type(buffer.dtype);
    const int64_t element = dtype_bytes(buffer.dtype);
    if (are_even_parts(ranges)) {
        const auto numel = static_cast<size_t>(ranges.front().range.numel);
        std::byte* const own = data + ranges[group_.rank].range.begin * element;
        return start("reduce-scatter", [&](ncclComm_t communicator) {
            return ncclReduceScatter(data + ranges.front().range.begin * element, own, numel, type,
                                     operation, communicator, stream_);
        });
    }
    start_group("reduction", ranges, [&](ncclComm_t communicator, const NodeRange& range) {
        std::byte* const at = data + range.range.begin * element;
        const auto numel = static_cast<size_t>(range.range.numel);
        if (range.node == kEveryNode)
            return ncclAllReduce(at, at, numel, type, operation, communicator, stream_);
        return ncclReduce(at, at, numel, type, operation, range.node, communicator, stream_);
    });
}

void NcclCommunicator::gather_ranges(const DeviceBuffer& buffer,
                                     std::span<const NodeRange> ranges) {
    auto* const data = static_cast<std::byte*>(buffer.data);
    const ncclDataType_t type = nccl_type(buffer.dtype);
    const int64_t element = dtype_bytes(buffer.dtype);
    if (are_even_parts(ranges)) {
        const auto numel = static_cast<size_t>(ranges.front().range.numel);
        const std::byte* const own = data + ranges[group_.rank].range.begin * element;
        return start("all-gather", [&](ncclComm_t communicator) {
            return ncclAllGather(own, data + ranges.front().range.begin * element, numel, type,
                                 communicator, stream_);
        });
    }
    start_group("gather", ranges, [&](ncclComm_t communicator, const NodeRange& range) {
        if (range.node == kEveryNode) return ncclSuccess;
        std::byte* const at = data + range.range.begin * element;
        return ncclBroadcast(at, at, static_cast<size_t>(range.range.numel), type, range.node,
                             communicator, stream_);
    });
}

// Sends to the next rank of the ring, or sends part r to rank r. All calls form one group, so that
// their order cannot block them.
ncclResult_t NcclCommunicator::exchange_parts(DeviceExchange kind, const DeviceBuffer& send,
                                              const DeviceBuffer& receive,
                                              ncclComm_t communicator) const {
    const int world_size = group_.world_size;
    const bool ring = kind == DeviceExchange::kSendReceive;
    const auto part = static_cast<size_t>(ring ? send.numel : send.numel / world_size);
    const ncclDataType_t type = nccl_type(send.dtype);
    return in_group([&] {
        ncclResult_t result = ncclSuccess;
        for (int i = 0; i < (ring ? 1 : world_size) && has_started(result); ++i) {
            const int to = ring ? (group_.rank + 1) % world_size : i;
            const int from = ring ? (group_.rank + world_size - 1) % world_size : i;
            const size_t offset = ring ? 0 : static_cast<size_t>(i) * part;
            result = ncclSend(static_cast<const float*>(send.data) + offset, part, type, to,
                              communicator, stream_);
            if (has_started(result))
                result = ncclRecv(static_cast<float*>(receive.data) + offset, part, type, from,
                                  communicator, stream_);
        }
        return result;
    });
}

void NcclCommunicator::exchange(DeviceExchange kind, const DeviceBuffer& send,
                                const DeviceBuffer& receive) {
    DSL_CHECK(send.dtype == DType::kF32 && receive.dtype == DType::kF32,
              "an exchange of dtype {} is not supported", static_cast<int>(send.dtype));
    start("exchange", [&](ncclComm_t communicator) {
        switch (kind) {
            case DeviceExchange::kSendReceive:
            case DeviceExchange::kAllToAll:
                return exchange_parts(kind, send, receive, communicator);
            case DeviceExchange::kAllGather:
                return ncclAllGather(send.data, receive.data, static_cast<size_t>(send.numel),
                                     ncclFloat32, communicator, stream_);
            case DeviceExchange::kReduceScatter:
                return ncclReduceScatter(send.data, receive.data,
                                         static_cast<size_t>(receive.numel), ncclFloat32, ncclSum,
                                         communicator, stream_);
        }
        DSL_CHECK(false, "exchange {}", static_cast<int>(kind));
    });
}

void NcclCommunicator::exchange_with(int peer, const DeviceBuffer& send,
                                     const DeviceBuffer& receive) {
    DSL_CHECK(send.numel == receive.numel && send.dtype == receive.dtype,
              "{} elements are sent, but {} are received, or their types differ", send.numel,
              receive.numel);
    const auto numel = static_cast<size_t>(send.numel);
    start("exchange", [&](ncclComm_t communicator) {
        return in_group([&] {
            const ncclResult_t result =
                ncclSend(send.data, numel, nccl_type(send.dtype), peer, communicator, stream_);
            if (!has_started(result)) return result;
            return ncclRecv(receive.data, numel, nccl_type(send.dtype), peer, communicator,
                            stream_);
        });
    });
}

void NcclCommunicator::leave() {
    {
        const std::lock_guard lock(mutex_);
        if (communicator_ == nullptr) return;
    }
    try {
        start("end", ncclCommFinalize);
        ncclComm_t ended = nullptr;
        {
            const std::lock_guard lock(mutex_);
            ended = std::exchange(communicator_, nullptr);
        }
        if (ended != nullptr) expect_started(ncclCommDestroy(ended), "end");
    } catch (...) {
        abort();
        throw;
    }
}

void NcclCommunicator::check() {
    {
        const std::lock_guard lock(mutex_);
        if (communicator_ == nullptr && !aborted_) return;
    }
    ncclResult_t state = ncclSuccess;
    call("check",
         [&](ncclComm_t communicator) { return ncclCommGetAsyncError(communicator, &state); });
    expect_started(state, "communicator");
}

void NcclCommunicator::abort() {
    ncclComm_t ended = nullptr;
    {
        const std::lock_guard lock(mutex_);
        ended = std::exchange(communicator_, nullptr);
        aborted_ = aborted_ || ended != nullptr;
    }
    if (ended == nullptr) return;
    // ncclCommAbort waits until its kernels have noticed. No thread waits for this call, and _exit
    // may come before it ends.
    std::thread([ended] { static_cast<void>(ncclCommAbort(ended)); }).detach();
}

}  // namespace dslaunch::runtime
