// Measures the collectives of a job's ranks, for tests/bench/collectives.py. The ranks are
// processes of one host or of several simulated hosts, which Gloo connects over loopback as it
// connects a job's hosts over their network.
//
//  bench_collectives HOSTS CALLS OPERATION:BYTES...     HOSTS: "2", or "1,1": ranks of each host
//
// Prints a line `OPERATION BYTES SECONDS` for each operation: the seconds of one call among CALLS
// calls in a row, on the slowest rank. BYTES is the size of one rank's fp32 tensor.
#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "job/process/process_resources.h"
#include "runtime/comm_gloo/gloo_setup.h"
#include "runtime/comm_gloo/job_comm.h"
#include "runtime/compute/tensor_collectives.h"

namespace {

using namespace dslaunch;
using namespace dslaunch::runtime;

constexpr int kWarmUpCalls = 5;
constexpr auto kTimeLimit = std::chrono::seconds(60);

struct Job {
    std::string operation;
    int64_t bytes = 0;
};

struct Arguments {
    std::vector<int> node_sizes;
    int calls = 0;
    std::vector<Job> jobs;
};

Arguments parse(int count, char** words) {
    Arguments arguments;
    if (count < 4) fail(ExitCode::kUsage, "usage: {} HOSTS CALLS OPERATION:BYTES...", words[0]);
    for (const std::string& word : split(words[1], ',')) {
        const std::optional<int64_t> ranks = parse_int(word);
        if (!ranks) fail(ExitCode::kUsage, "HOSTS: {} is no list of numbers", words[1]);
        arguments.node_sizes.push_back(static_cast<int>(*ranks));
    }
    arguments.calls = std::atoi(words[2]);
    for (int i = 3; i < count; ++i) {
        const std::string word = words[i];
        const size_t colon = word.find(':');
        arguments.jobs.push_back({word.substr(0, colon), std::stoll(word.substr(colon + 1))});
    }
    return arguments;
}

struct Listener {
    int fd = -1;
    int port = 0;
};

// Returns a socket that listens on a free port of loopback.
Listener listen_somewhere() {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (::bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(fd, 64) != 0)
        fail(ExitCode::kSetup, "no port of loopback is free: {}", std::strerror(errno));
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
    return {fd, ntohs(address.sin_port)};
}

// A rank of the job, and the operations that it calls.
class Rank {
  public:
    // GLOO is the socket on which rank 0 serves the store of `Gloo alone`.
    Rank(const launch::WorkerEnvironment& environment, const Listener& gloo,
         const Arguments& arguments)
        : arguments_(arguments), gloo_listener_(gloo) {
        ArenaLayout layout(environment.local_world_size);
        slices_ = add_tensor_group(layout);
        for (const Job& job : arguments.jobs)
            if (!buckets_.contains(job.bytes))
                buckets_[job.bytes] = {
                    .id = layout.add_bucket(fmt::format("{} bytes", job.bytes), job.bytes / 4)};
        comm_ = open_job_comm(environment, std::move(layout), kTimeLimit);
        group_ = make_tensor_group(*comm_.collectives, slices_);
    }

    void run_all() {
        for (const Job& job : arguments_.jobs) {
            const std::function<void()> call = call_of(job);
            for (int i = 0; i < kWarmUpCalls; ++i) call();
            comm_.collectives->barrier();
            const TimePoint begin = SystemClock().now();
            for (int i = 0; i < arguments_.calls; ++i) call();
            const double took_s = to_milliseconds(SystemClock().now() - begin) / 1000;
            double slowest_s = 0;
            for (const std::string& text : comm_.collectives->all_gather(fmt::format("{}", took_s)))
                slowest_s = std::max(slowest_s, std::stod(text));
            if (group_->rank() == 0)
                std::printf("%s %lld %.9f\n", job.operation.c_str(),
                            static_cast<long long>(job.bytes), slowest_s / arguments_.calls);
        }
        std::fflush(stdout);
    }

  private:
    struct Bucket {
        BucketId id{};
        Generation generation = 0;
    };

    std::function<void()> call_of(const Job& job) {
        const int64_t numel = job.bytes / 4;
        const at::Tensor mine = at::full({numel}, 1.0F + static_cast<float>(group_->rank()));
        // Like a sum, a copy uses new memory in each call, which the result of the previous call
        // has freed.
        if (job.operation == "copy") return [this, mine] { sums_ = mine.clone(); };
        if (job.operation == "sum") return [this, mine] { sums_ = group_->sum(mine, 0); };
        if (job.operation == "gather") return [this, mine] { all_ = group_->gather(mine, 0); };
        if (job.operation == "exchange")
            return
                [this, parts = mine.chunk(group_->size())] { all_ = group_->exchange(parts, 0); };
        if (job.operation.starts_with("gloo-")) return call_of_gloo(job, mine);
        if (job.operation == "bucket")
            return [this, mine, &bucket = buckets_.at(job.bytes)] { sum_bucket(bucket, mine); };
        if (job.operation == "in-place")
            return [this, &bucket = buckets_.at(job.bytes)] { sum_bucket(bucket, {}); };
        fail(ExitCode::kUsage, "no operation {}", job.operation);
    }

    // Returns a call of ProcessGroupGloo itself, for `Gloo alone`.
    std::function<void()> call_of_gloo(const Job& job, const at::Tensor& mine) {
        if (!gloo_) gloo_ = open_gloo();
        std::vector<at::Tensor> own = {mine};
        if (job.operation == "gloo-sum")
            return [this, own]() mutable { gloo_->allreduce(own)->wait(); };
        if (job.operation != "gloo-gather")
            fail(ExitCode::kUsage, "no operation {}", job.operation);
        std::vector<std::vector<at::Tensor>> all(1);
        for (int rank = 0; rank < group_->size(); ++rank)
            all[0].push_back(at::full(mine.sizes(), 0.0F));
        return [this, own, all]() mutable { gloo_->allgather(all, own)->wait(); };
    }
    c10::intrusive_ptr<c10d::ProcessGroupGloo> open_gloo() {
        launch::WorkerEnvironment place;
        place.rank = group_->rank();
        place.master_port = gloo_listener_.port;
        place.rendezvous_fd = gloo_listener_.fd;
        return c10::make_intrusive<c10d::ProcessGroupGloo>(
            open_store(place, kTimeLimit), group_->rank(), group_->size(),
            gloo_options("127.0.0.1", /*threads=*/1, kTimeLimit));
    }

    // If MINE is defined, its elements go into the bucket and the sums are copied out. Otherwise
    // the values stay in the bucket.
    void sum_bucket(Bucket& bucket, const at::Tensor& mine) {
        Collectives& collectives = *comm_.collectives;
        const Generation generation = ++bucket.generation;
        collectives.await_free(bucket.id, generation);
        const std::span<float> own = collectives.bucket(bucket.id);
        if (mine.defined()) std::memcpy(own.data(), mine.const_data_ptr(), own.size_bytes());
        collectives.post(bucket.id, generation);
        collectives.reduce(bucket.id, generation, 1.0F);
        const ReducedParts sums = collectives.await_reduced(bucket.id, generation);
        if (mine.defined()) {
            if (sums_.numel() != mine.numel()) sums_ = at::full(mine.sizes(), 0.0F);
            sums.copy_to({sums_.data_ptr<float>(), own.size()});
        }
        collectives.release(bucket.id, generation);
    }

    const Arguments& arguments_;
    Listener gloo_listener_;
    c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
    TensorGroupSlices slices_{};
    std::map<int64_t, Bucket> buckets_;  // by size in bytes
    JobComm comm_;
    std::unique_ptr<graph::TensorGroup> group_;
    at::Tensor sums_;
    std::vector<at::Tensor> all_;
};

int run_rank(const launch::WorkerEnvironment& environment, const Listener& gloo,
             const Arguments& arguments) {
    try {
        at::set_num_threads(1);
        job::keep_freed_memory();
        Rank(environment, gloo, arguments).run_all();
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", environment.rank, error.what());
        return 1;
    }
}

int run(const Arguments& arguments) {
    const Listener rendezvous = listen_somewhere();
    const Listener gloo = listen_somewhere();
    launch::WorkerEnvironment environment;
    environment.node_sizes = arguments.node_sizes;
    environment.world_size =
        std::accumulate(arguments.node_sizes.begin(), arguments.node_sizes.end(), 0);
    environment.master_port = rendezvous.port;
    std::vector<pid_t> children;
    for (size_t node = 0; node < arguments.node_sizes.size(); ++node) {
        environment.node_rank = static_cast<int>(node);
        environment.local_world_size = arguments.node_sizes[node];
        environment.arena_fd = ::memfd_create("bench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        for (int local = 0; local < environment.local_world_size; ++local) {
            environment.local_rank = local;
            environment.rendezvous_fd = environment.rank == 0 ? rendezvous.fd : -1;
            const pid_t child = ::fork();
            if (child == 0) std::_Exit(run_rank(environment, gloo, arguments));
            children.push_back(child);
            ++environment.rank;
        }
    }
    int failed = 0;
    for (const pid_t child : children) {
        int status = 0;
        ::waitpid(child, &status, 0);
        failed |= static_cast<int>(status != 0);
    }
    return failed;
}

}  // namespace

int main(int count, char** words) {
    try {
        return run(parse(count, words));
    } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
}
