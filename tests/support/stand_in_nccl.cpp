#include "support/stand_in_nccl.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

namespace {

using Steady = std::chrono::steady_clock;
using dslaunch::test::StandInNcclRules;

enum class Kind { kReduce, kAllReduce, kBroadcast, kAllGather, kReduceScatter, kSend, kReceive };

struct Work {
    Kind kind{};
    const void* send = nullptr;
    void* receive = nullptr;
    size_t count = 0;
    ncclDataType_t type = ncclFloat32;
    ncclRedOp_t operation = ncclSum;
    int peer = 0;  // the root, the destination or the source
};
// The parts of a group are done together. A collective is a batch with one part.
using Batch = std::vector<Work>;

size_t bytes_of(const Work& work) {
    const size_t element = work.type == ncclFloat32                                ? 4
                           : work.type == ncclFloat16 || work.type == ncclBfloat16 ? 2
                                                                                   : 1;
    return work.count * element;
}

// Returns the facts of a collective that must be equal on all ranks.
std::tuple<Kind, size_t, ncclDataType_t, ncclRedOp_t, int> shape_of(const Work& work) {
    return {work.kind, work.count, work.type, work.operation, work.peer};
}

// The ranks that have joined with one unique id.
struct World {
    int size = 0;
    std::mutex mutex;
    std::condition_variable changed;
    int joined = 0;
    // A collective in progress: the bytes that each rank has brought, and the number of ranks that
    // have taken the result.
    struct Meeting {
        std::map<int, Work> brought;
        std::map<int, std::vector<char>> values;  // bytes
        int left = 0;
    };
    std::map<int64_t, Meeting> meetings;
    std::map<std::pair<int, int>, std::deque<std::vector<char>>> mail;  // by sender and receiver
};

struct Rules {
    std::mutex mutex;
    StandInNcclRules now;
    std::mt19937_64 random;
    std::vector<std::string> faults;
    std::map<std::string, std::shared_ptr<World>> worlds;
    std::set<ncclComm_t> live;
    uint64_t ids = 0;
};

Rules& rules() {
    static Rules all;
    return all;
}

void note(std::string fault) {
    const std::lock_guard lock(rules().mutex);
    rules().faults.push_back(std::move(fault));
}

Steady::time_point some_time_from_now() {
    const std::lock_guard lock(rules().mutex);
    const auto longest = static_cast<uint64_t>(std::max(1, rules().now.progress_us_max));
    return Steady::now() + std::chrono::microseconds(rules().random() % longest);
}

StandInNcclRules present_rules() {
    const std::lock_guard lock(rules().mutex);
    return rules().now;
}

}  // namespace

struct ncclComm {
    int rank = 0;
    std::shared_ptr<World> world;
    std::atomic<int> users{0};
    std::mutex mutex;  // guards the members below
    std::condition_variable changed;
    Steady::time_point in_progress_until{};
    bool finalized = false;
    bool aborted = false;
    ncclResult_t error = ncclSuccess;
    std::deque<Batch> queue;
    bool working = false;
    int64_t collectives = 0;
    int64_t meetings = 0;  // the collectives that all ranks take part in
    std::thread worker;
};

namespace {

thread_local int t_group_depth = 0;
thread_local std::vector<std::pair<ncclComm_t, Work>> t_group;
thread_local std::set<ncclComm_t> t_streams;  // communicators on which this thread has put work

// Makes a communicator that is never freed, so that a call after its end can be recognized by its
// address.
ncclComm_t kept_communicator() {
    static std::mutex mutex;
    static auto* const all = new std::vector<std::unique_ptr<ncclComm>>;
    const std::lock_guard lock(mutex);
    return all->emplace_back(std::make_unique<ncclComm>()).get();
}

// One call into a communicator. Notes two calls at the same time, and calls after the
// communicator's end. All calls except ncclCommGetAsyncError and ncclCommAbort must wait until the
// last one has started.
class Visit {
  public:
    Visit(ncclComm_t comm, const char* call, bool may_interrupt = false) : comm_(comm) {
        {
            const std::lock_guard lock(rules().mutex);
            if (!rules().live.contains(comm)) {
                rules().faults.push_back(fmt::format("{} after the communicator's end", call));
                comm_ = nullptr;
                return;
            }
            if (comm->users.fetch_add(1) != 0)
                rules().faults.push_back(fmt::format("{} while another thread is inside", call));
        }
        if (may_interrupt) return;
        const std::lock_guard lock(comm->mutex);
        if (Steady::now() < comm->in_progress_until)
            note(fmt::format("{} while a call is in progress", call));
        if (comm->finalized && std::string_view(call) != "ncclCommDestroy")
            note(fmt::format("{} after ncclCommFinalize", call));
    }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    ~Visit() {
        if (comm_ != nullptr) comm_->users.fetch_sub(1);
    }
    [[nodiscard]] bool valid() const { return comm_ != nullptr; }

  private:
    ncclComm_t comm_;
};

void fail_with(ncclComm_t comm, ncclResult_t error) {
    const std::lock_guard lock(comm->mutex);
    if (comm->error == ncclSuccess) comm->error = error;
    comm->changed.notify_all();
}

// Waits in WORLD for CONDITION. Returns false if COMM is aborted before.
bool wait_in(ncclComm_t comm, std::unique_lock<std::mutex>& lock,
             const std::function<bool()>& condition) {
    for (;;) {
        if (condition()) return true;
        {
            const std::lock_guard own(comm->mutex);
            if (comm->aborted) return false;
        }
        comm->world->changed.wait_for(lock, std::chrono::milliseconds(1));
    }
}

float reduced(const World::Meeting& meeting, size_t i, ncclRedOp_t operation, int size) {
    float sum = 0;
    for (const auto& [rank, values] : meeting.values) {
        float value = 0;
        std::memcpy(&value, values.data() + i * sizeof value, sizeof value);
        sum += value;
    }
    return operation == ncclAvg ? sum / static_cast<float>(size) : sum;
}

// Writes RANK's result. REQUIRES: all ranks have brought their values.
void take_result(const World::Meeting& meeting, int rank, int size, const Work& work) {
    auto* const out = static_cast<float*>(work.receive);
    switch (work.kind) {
        case Kind::kReduce:  // the result is undefined on the other ranks
            for (size_t i = 0; i < work.count; ++i)
                out[i] = rank == work.peer ? reduced(meeting, i, work.operation, size)
                                           : std::numeric_limits<float>::quiet_NaN();
            break;
        case Kind::kAllReduce:
            for (size_t i = 0; i < work.count; ++i)
                out[i] = reduced(meeting, i, work.operation, size);
            break;
        case Kind::kReduceScatter:
            for (size_t i = 0; i < work.count; ++i)
                out[i] = reduced(meeting, static_cast<size_t>(rank) * work.count + i,
                                 work.operation, size);
            break;
        case Kind::kBroadcast:
            std::memcpy(out, meeting.values.at(work.peer).data(), bytes_of(work));
            break;
        case Kind::kAllGather:
            for (const auto& [from, values] : meeting.values)
                std::memcpy(
                    static_cast<char*>(work.receive) + static_cast<size_t>(from) * bytes_of(work),
                    values.data(), bytes_of(work));
            break;
        case Kind::kSend:
        case Kind::kReceive:
            break;
    }
}

bool meet_others(ncclComm_t comm, int64_t number, const Work& work) {
    World& world = *comm->world;
    std::unique_lock lock(world.mutex);
    World::Meeting& meeting = world.meetings[number];
    const size_t parts = work.kind == Kind::kReduceScatter ? static_cast<size_t>(world.size) : 1;
    const auto* const values = static_cast<const char*>(work.send);
    meeting.values[comm->rank].assign(values, values + bytes_of(work) * parts);
    meeting.brought.emplace(comm->rank, work);
    world.changed.notify_all();
    if (!wait_in(comm, lock,
                 [&] { return static_cast<int>(meeting.brought.size()) == world.size; }))
        return false;
    for (const auto& [rank, other] : meeting.brought) {
        if (shape_of(other) == shape_of(work)) continue;
        note(fmt::format("collective {}: ranks {} and {} call different ones", number, comm->rank,
                         rank));
        return false;
    }
    take_result(meeting, comm->rank, world.size, work);
    if (++meeting.left == world.size) world.meetings.erase(number);
    return true;
}

bool exchange_mail(ncclComm_t comm, const Batch& batch) {
    World& world = *comm->world;
    std::unique_lock lock(world.mutex);
    for (const Work& work : batch) {
        if (work.kind != Kind::kSend) continue;
        const auto* const bytes = static_cast<const char*>(work.send);
        world.mail[{comm->rank, work.peer}].emplace_back(bytes, bytes + bytes_of(work));
    }
    world.changed.notify_all();
    for (const Work& work : batch) {
        if (work.kind != Kind::kReceive) continue;
        auto& box = world.mail[{work.peer, comm->rank}];
        if (!wait_in(comm, lock, [&] { return !box.empty(); })) return false;
        if (box.front().size() != bytes_of(work))
            note(fmt::format("rank {} receives {} bytes of {}", comm->rank, bytes_of(work),
                             box.front().size()));
        std::memcpy(work.receive, box.front().data(), std::min(box.front().size(), bytes_of(work)));
        box.pop_front();
    }
    return true;
}

void carry_out(ncclComm_t comm, const Batch& batch) {
    const StandInNcclRules now = present_rules();
    const int64_t number = comm->collectives++;
    if (number == now.failing_collective) return fail_with(comm, ncclRemoteError);
    if (number == now.hanging_collective) {
        std::unique_lock lock(comm->mutex);
        return comm->changed.wait(lock, [&] { return comm->aborted; });
    }
    std::this_thread::sleep_until(some_time_from_now());
    const bool mail = batch.front().kind == Kind::kSend || batch.front().kind == Kind::kReceive;
    bool done = true;
    if (mail) {
        done = exchange_mail(comm, batch);
    } else {
        constexpr int64_t kInGroupMax = 1000;
        const int64_t meeting = comm->meetings++;
        for (size_t i = 0; i < batch.size() && done; ++i)
            done = meet_others(comm, meeting * kInGroupMax + static_cast<int64_t>(i), batch[i]);
    }
    if (!done) fail_with(comm, ncclInvalidUsage);
}

void work_off(ncclComm_t comm) {
    for (;;) {
        Batch batch;
        {
            std::unique_lock lock(comm->mutex);
            comm->changed.wait(
                lock, [&] { return comm->aborted || !comm->queue.empty() || comm->finalized; });
            if (comm->aborted || (comm->queue.empty() && comm->finalized)) return;
            batch = std::move(comm->queue.front());
            comm->queue.pop_front();
            comm->working = true;
        }
        carry_out(comm, batch);
        const std::lock_guard lock(comm->mutex);
        comm->working = false;
        comm->changed.notify_all();
    }
}

ncclResult_t begin_progress(ncclComm_t comm) {
    const Steady::time_point until = some_time_from_now();
    const std::lock_guard lock(comm->mutex);
    comm->in_progress_until = until;
    return ncclInProgress;
}

ncclResult_t enqueue(ncclComm_t comm, Batch batch) {
    {
        const std::lock_guard lock(comm->mutex);
        comm->queue.push_back(std::move(batch));
        comm->changed.notify_all();
    }
    t_streams.insert(comm);
    return begin_progress(comm);
}

ncclResult_t take(ncclComm_t comm, const char* call, const Work& work) {
    const Visit visit(comm, call);
    if (!visit.valid()) return ncclInvalidArgument;
    if (t_group_depth > 0) {
        t_group.emplace_back(comm, work);
        return ncclSuccess;
    }
    return enqueue(comm, {work});
}

void end_communicator(ncclComm_t comm, bool aborts) {
    {
        const std::lock_guard lock(comm->mutex);
        comm->aborted = aborts || comm->aborted;
        comm->changed.notify_all();
    }
    if (comm->worker.joinable()) comm->worker.join();
    const std::lock_guard lock(rules().mutex);
    rules().live.erase(comm);
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
    return result == ncclRemoteError    ? "remote process exited or there was a network error"
           : result == ncclInvalidUsage ? "invalid usage"
           : result == ncclSuccess      ? "no error"
                                        : "another error";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    const std::lock_guard lock(rules().mutex);
    std::memset(id, 0, sizeof *id);
    const std::string name = fmt::format("world {}", ++rules().ids);
    std::memcpy(id->internal, name.data(), name.size());
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
    if (config->blocking != 0) note("a communicator that blocks");
    ncclComm_t const comm = kept_communicator();
    comm->rank = rank;
    {
        const std::lock_guard lock(rules().mutex);
        std::shared_ptr<World>& world =
            rules().worlds[std::string(id.internal, sizeof id.internal)];
        if (!world) {
            world = std::make_shared<World>();
            world->size = size;
        }
        comm->world = world;
        rules().live.insert(comm);
    }
    {
        const std::lock_guard lock(comm->world->mutex);
        ++comm->world->joined;
    }
    comm->worker = std::thread(work_off, comm);
    *made = comm;
    return begin_progress(comm);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
    const Visit visit(comm, "ncclCommGetAsyncError", true);
    if (!visit.valid()) return ncclInvalidArgument;
    bool all_joined = false;
    {
        const std::lock_guard lock(comm->world->mutex);
        all_joined = comm->world->joined >= comm->world->size;
    }
    const std::lock_guard lock(comm->mutex);
    const bool at_work = comm->finalized && (comm->working || !comm->queue.empty());
    *state = comm->error != ncclSuccess                                          ? comm->error
             : !all_joined || at_work || Steady::now() < comm->in_progress_until ? ncclInProgress
                                                                                 : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t) {
    return take(comm, "ncclAllReduce",
                {Kind::kAllReduce, send, receive, count, type, operation, 0});
}

ncclResult_t ncclReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t operation, int root, ncclComm_t comm, cudaStream_t) {
    return take(comm, "ncclReduce", {Kind::kReduce, send, receive, count, type, operation, root});
}

ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t) {
    return take(comm, "ncclBroadcast",
                {Kind::kBroadcast, send, receive, count, type, ncclSum, root});
}

ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t) {
    return take(comm, "ncclAllGather", {Kind::kAllGather, send, receive, count, type, ncclSum, 0});
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t) {
    return take(comm, "ncclReduceScatter",
                {Kind::kReduceScatter, send, receive, count, type, operation, 0});
}

ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t) {
    if (comm->rank == present_rules().refused_rank) return ncclInvalidArgument;
    return take(comm, "ncclSend", {Kind::kSend, send, nullptr, count, type, ncclSum, peer});
}

ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t) {
    return take(comm, "ncclRecv", {Kind::kReceive, nullptr, receive, count, type, ncclSum, peer});
}

ncclResult_t ncclGroupStart() {
    ++t_group_depth;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (t_group_depth == 0) {
        note("ncclGroupEnd without a group");
        return ncclInvalidUsage;
    }
    {
        const std::lock_guard lock(rules().mutex);
        if (std::exchange(rules().now.loses_group_end, false)) return ncclSuccess;
    }
    if (--t_group_depth > 0) return ncclSuccess;
    std::map<ncclComm_t, Batch> batches;
    for (auto& [comm, work] : std::exchange(t_group, {})) batches[comm].push_back(work);
    ncclResult_t result = ncclSuccess;
    for (auto& [comm, batch] : batches) result = enqueue(comm, std::move(batch));
    return result;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    const Visit visit(comm, "ncclCommFinalize");
    if (!visit.valid()) return ncclInvalidArgument;
    if (t_group_depth > 0) note("ncclCommFinalize in a group that is left open");
    {
        const std::lock_guard lock(comm->mutex);
        comm->finalized = true;
        comm->changed.notify_all();
    }
    return begin_progress(comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    {
        const Visit visit(comm, "ncclCommDestroy");
        if (!visit.valid()) return ncclInvalidArgument;
        const std::lock_guard lock(comm->mutex);
        if (!comm->finalized) note("ncclCommDestroy without ncclCommFinalize");
        if (comm->working || !comm->queue.empty()) note("ncclCommDestroy before the work's end");
        comm->finalized = true;
        comm->changed.notify_all();
    }
    end_communicator(comm, false);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    {
        const Visit visit(comm, "ncclCommAbort", true);
        if (!visit.valid()) return ncclInvalidArgument;
    }
    end_communicator(comm, true);
    return ncclSuccess;
}

}  // extern "C"

namespace dslaunch::test {

void begin_stand_in_nccl(const StandInNcclRules& now) {
    const std::lock_guard lock(rules().mutex);
    rules().now = now;
    rules().random.seed(now.seed);
    rules().faults.clear();
    rules().worlds.clear();
}

std::vector<std::string> stand_in_nccl_faults() {
    if (t_group_depth > 0) note("a group is left open");
    const std::lock_guard lock(rules().mutex);
    return rules().faults;
}

int live_nccl_communicators() {
    const std::lock_guard lock(rules().mutex);
    return static_cast<int>(rules().live.size());
}

bool wait_for_nccl_stream() {
    bool good = true;
    for (ncclComm_t comm : std::exchange(t_streams, {})) {
        std::unique_lock lock(comm->mutex);
        comm->changed.wait(lock, [&] {
            return comm->aborted || comm->error != ncclSuccess ||
                   (comm->queue.empty() && !comm->working);
        });
        good = good && !comm->aborted && comm->error == ncclSuccess;
    }
    return good;
}

}  // namespace dslaunch::test
