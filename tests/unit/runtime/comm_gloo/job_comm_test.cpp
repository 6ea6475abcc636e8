// Whole jobs as processes on loopback: several simulated hosts, each with its memfd, joined by
// Gloo.
#include "runtime/comm_gloo/job_comm.h"

#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/fd.h"
#include "runtime/comm_gloo/address.h"
#include "runtime/comm_gloo/stage_links.h"
#include "runtime/comm_gloo/stream_choice.h"
#include "support/catch.h"
#include "support/hang.h"
#include "support/listener.h"
#include "support/ordered_sums.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::runtime;
using namespace dslaunch::test;
using namespace dslaunch::testing;
using namespace std::chrono_literals;

namespace {

constexpr int64_t kNumel = 5003;
constexpr int kStages = 2;                  // stages of the jobs that are pipelines
constexpr Duration kTimeLimit = kHangTime;  // the longest wait of a rank
// A rank that waits for the time limit ends later than this; a rank that hears of the failure ends
// earlier.
constexpr Duration kFarBelowLimit = kTimeLimit / 2;

struct Job {
    std::vector<int> node_sizes;
    Duration time_limit = kTimeLimit;
    int streams = 1;
};

using Body = std::function<int(JobComm& comm, const BucketId bucket, int rank)>;

// A job whose ranks are children of this process. Nothing of LibTorch runs in the parent, so
// forking is safe.
class RunningJob {
  public:
    RunningJob(const Job& job, const Body& body) {
        const Listener listener = listen_on_loopback();
        const int world_size = Topology::of_rank(job.node_sizes, 0).world_size();
        std::vector<UniqueFd> arenas;
        for (size_t node = 0; node < job.node_sizes.size(); ++node)
            arenas.emplace_back(::memfd_create("dslaunch-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        for (int rank = 0; rank < world_size; ++rank) {
            const Topology topology = Topology::of_rank(job.node_sizes, rank);
            WorkerEnvironment environment;
            environment.rank = rank;
            environment.world_size = world_size;
            environment.local_rank = topology.local_rank;
            environment.local_world_size = topology.local_world_size();
            environment.node_rank = topology.node_rank;
            environment.node_sizes = job.node_sizes;
            environment.master_port = listener.port;
            environment.arena_fd = arenas[topology.node_rank].get();
            environment.rendezvous_fd = rank == 0 ? listener.fd.get() : -1;
            const pid_t child = ::fork();
            if (child == 0) ::_exit(run(environment, job, body));
            children_.push_back(child);
        }
    }

    void kill(int rank) { ::kill(children_[rank], SIGKILL); }
    int exit_of(int rank) {
        int status = 0;
        REQUIRE(::waitpid(children_[rank], &status, 0) > 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    int world_size() const { return static_cast<int>(children_.size()); }

  private:
    static int run(const WorkerEnvironment& environment, const Job& job, const Body& body) {
        try {
            ArenaLayout layout(environment.local_world_size);
            const BucketId bucket = layout.add_bucket("bucket", kNumel);
            (void)add_host_link(layout, kStages);
            JobComm comm = open_job_comm(environment, layout, job.time_limit, job.streams);
            // A rank that ends well closes everything; nothing may wait without a limit there.
            return body(comm, bucket, environment.rank);
        } catch (const Error& error) {
            std::fprintf(stderr, "rank %d: %s\n", environment.rank, error.what());
            return static_cast<int>(error.code());
        }
    }

    std::vector<pid_t> children_;
};

int sockets_of_this_process() {
    int sockets = 0;
    DIR* const folder = ::opendir("/proc/self/fd");
    while (const dirent* entry = ::readdir(folder)) {
        struct stat state {};
        if (::fstat(std::atoi(entry->d_name), &state) == 0 && S_ISSOCK(state.st_mode)) ++sockets;
    }
    ::closedir(folder);
    return sockets;
}

}  // namespace

TEST_CASE("Processes on several hosts reduce to the bits of the stated order over Gloo") {
    for (const std::vector<int>& node_sizes :
         std::vector<std::vector<int>>{{2}, {1, 1}, {2, 1}, {1, 2}, {2, 2}, {3, 1, 1}}) {
        const float scale = 1.0F / 3.0F;
        const int sockets_before = sockets_of_this_process() + 1;  // the inherited rendezvous
        RunningJob job({node_sizes}, [&](JobComm& comm, BucketId bucket, int rank) {
            Collectives& all = *comm.collectives;
            if (node_sizes.size() == 1 && sockets_of_this_process() != sockets_before) return 9;
            for (Generation g = 1; g <= 5; ++g) {
                all.await_free(bucket, g);
                fill(all.bucket(bucket), rank, g);
                all.post(bucket, g);
                all.reduce(bucket, g, scale);
                std::vector<float> whole(kNumel);
                all.await_reduced(bucket, g).copy_to(whole);
                all.release(bucket, g);
                for (int64_t i = 0; i < kNumel; ++i) {
                    if (!same_bits(whole[i], expected(node_sizes, i, g, scale))) return 1;
                }
            }
            std::string text(100'000, static_cast<char>('a' + rank));
            const std::vector<std::string> texts = all.all_gather(text);
            for (size_t r = 0; r < texts.size(); ++r) {
                if (texts[r] != std::string(100'000, static_cast<char>('a' + r))) return 2;
            }
            all.broadcast(std::as_writable_bytes(std::span(text)));
            if (text != std::string(100'000, 'a')) return 3;
            all.barrier();
            return 0;
        });
        for (int rank = 0; rank < job.world_size(); ++rank) CHECK(job.exit_of(rank) == 0);
    }
}

TEST_CASE("Processes on several hosts reduce to owners and gather over Gloo") {
    for (const std::vector<int>& node_sizes :
         std::vector<std::vector<int>>{{1}, {1, 1}, {3, 1}, {2, 1, 2}, {2, 2}, {1, 1, 1, 1}}) {
        RunningJob job({node_sizes}, [&](JobComm& comm, BucketId bucket, int) {
            const auto hosts = static_cast<int>(node_sizes.size());
            for (Generation g = 1; g <= 8; ++g) {
                const int64_t wrong =
                    wrong_in_sharded_round({*comm.collectives, *comm.group, *comm.arena}, bucket, g,
                                           random_owners(kNumel, hosts, g));
                if (wrong != 0) return 1;
            }
            return 0;
        });
        for (int rank = 0; rank < job.world_size(); ++rank) CHECK(job.exit_of(rank) == 0);
    }
}

TEST_CASE("Messages of any length arrive whole over several streams") {
    for (const auto& [node_sizes, streams] :
         std::vector<std::pair<std::vector<int>, int>>{{{1, 1}, 3}, {{2, 2}, 3}, {{1, 1, 1}, 2}}) {
        RunningJob job({node_sizes, kTimeLimit, streams}, [&](JobComm& comm, BucketId, int rank) {
            Collectives& all = *comm.collectives;
            for (const size_t bytes : {1UL, 262'143UL, 262'144UL, 600'001UL, (3UL << 20) + 5}) {
                const auto text_of = [&](int of) {
                    std::string text(bytes, '\0');
                    for (size_t i = 0; i < bytes; ++i)
                        text[i] = static_cast<char>(i * 31 + (i >> 11) + static_cast<size_t>(of));
                    return text;
                };
                const std::vector<std::string> texts = all.all_gather(text_of(rank));
                for (size_t r = 0; r < texts.size(); ++r)
                    if (texts[r] != text_of(static_cast<int>(r))) return 1;
                std::string from_first = text_of(rank);
                all.broadcast(std::as_writable_bytes(std::span(from_first)));
                if (from_first != text_of(0)) return 2;
            }
            all.barrier();
            return 0;
        });
        for (int rank = 0; rank < job.world_size(); ++rank) CHECK(job.exit_of(rank) == 0);
    }
}

TEST_CASE("Bridges of a host share its streams, and loopback has one without being told") {
    // Returns the number of sockets of the last rank, which serves no store, in a job whose hosts
    // have STREAMS.
    const auto sockets = [](const std::vector<int>& node_sizes, int streams) {
        RunningJob job({node_sizes, kTimeLimit, streams}, [&](JobComm& comm, BucketId, int rank) {
            comm.collectives->barrier();
            const int open = sockets_of_this_process();
            comm.collectives->barrier();
            return rank + 1 == std::accumulate(node_sizes.begin(), node_sizes.end(), 0) ? open : 0;
        });
        for (int rank = 0; rank + 1 < job.world_size(); ++rank) REQUIRE(job.exit_of(rank) == 0);
        return job.exit_of(job.world_size() - 1);
    };
    const int one = sockets({1, 1}, 1);
    CHECK(sockets({1, 1}, 0) == one);
    // A stream needs a listener and a connection to each other host.
    CHECK(sockets({1, 1}, 3) == one + 4);
    CHECK(sockets({1, 1, 1}, 2) == sockets({1, 1, 1}, 1) + 3);
    CHECK(sockets({2, 2}, 3) == sockets({2, 2}, 2) + 2);
    CHECK(sockets({2, 2}, 4) == sockets({2, 2}, 3));
}

TEST_CASE("As many streams as fill the way: doubled while that brings a fifth more") {
    std::vector<int> measured;
    // Returns the choice for a network that limits each connection to ONE, and all connections
    // together to ALL.
    const auto chosen = [&](double one, double all) {
        measured.clear();
        return choose_streams(kStreamsMax, [&, one, all](int streams) {
            measured.push_back(streams);
            return std::min(streams * one, all);
        });
    };
    const StreamChoice filled = chosen(1e9, 1e9);
    CHECK(filled.streams == 1);
    CHECK(measured == std::vector<int>{1, 2});
    const StreamChoice capped = chosen(0.6e9, 3e9);
    CHECK(capped.streams == 8);  // 4 carry 2.4, 8 carry 3, a quarter more
    CHECK(capped.one_bytes_per_s == 0.6e9);
    CHECK(capped.chosen_bytes_per_s == 3e9);
    CHECK(measured == std::vector<int>{1, 2, 4, 8, 16});
    CHECK(chosen(0.6e9, 2.6e9).streams == 4);
    CHECK(chosen(0.1e9, 100e9).streams == kStreamsMax);
    CHECK(measured.back() == kStreamsMax);
    // A host of a hundred has few connections to each of the others.
    CHECK(streams_max(1) == kStreamsMax);
    CHECK(streams_max(99) == 5);
    CHECK(streams_max(1000) == 1);
    int most_tried = 0;
    const StreamChoice few = choose_streams(streams_max(99), [&](int streams) {
        most_tried = std::max(most_tried, streams);
        return 1e9 * streams;
    });
    CHECK(few.streams == 4);
    CHECK(most_tried == 4);
    CHECK(choose_streams(1, [](int) { return 1e9; }).streams == 1);
}

TEST_CASE("A host killed in a gather or a reduction to owners ends the others, as peer lost") {
    for (const bool gather : {false, true}) {
        const Pipe ready = make_pipe();
        RunningJob job({{1, 1, 1}}, [&](JobComm& comm, BucketId bucket, int rank) {
            Collectives& all = *comm.collectives;
            all.barrier();
            if (rank == 1) {
                if (write_full(ready.write_end.get(), std::string_view("r")) != 0) return 3;
                ::pause();
            }
            const std::vector<NodeRange> owners = {{{0, 1000}, 1}, {{1000, kNumel - 1000}, 2}};
            all.post(bucket, 1);
            if (gather) {
                all.gather_ranges(std::as_writable_bytes(all.bucket(bucket)), 4, owners);
            } else {
                all.reduce(bucket, 1, 1.0F, owners);
            }
            return 1;
        });
        std::byte byte{};
        REQUIRE(read_full(ready.read_end.get(), std::span(&byte, 1)) == 1);
        std::this_thread::sleep_for(20ms);
        const TimePoint killed = SystemClock().now();
        job.kill(1);
        for (const int rank : {0, 2})
            CHECK(job.exit_of(rank) == static_cast<int>(ExitCode::kPeerLost));
        CHECK(SystemClock().now() - killed < kFarBelowLimit);
        CHECK(job.exit_of(1) == 128 + SIGKILL);
    }
}

TEST_CASE("A killed process ends the ranks of the other hosts too, with the peer-lost code") {
    for (const int victim : {0, 2}) {
        const Pipe ready = make_pipe();
        RunningJob job({{2, 1}}, [&](JobComm& comm, BucketId bucket, int rank) {
            comm.collectives->barrier();
            if (rank == victim) {
                if (write_full(ready.write_end.get(), std::string_view("r")) != 0) return 3;
                ::pause();
            }
            comm.collectives->post(bucket, 1);
            comm.collectives->reduce(bucket, 1, 1.0F);
            (void)comm.collectives->await_reduced(bucket, 1);
            return 1;
        });
        std::byte byte{};
        REQUIRE(read_full(ready.read_end.get(), std::span(&byte, 1)) == 1);
        std::this_thread::sleep_for(20ms);
        const TimePoint killed = SystemClock().now();
        job.kill(victim);
        for (int rank = 0; rank < 3; ++rank)
            CHECK(job.exit_of(rank) ==
                  (rank == victim ? 128 + SIGKILL : static_cast<int>(ExitCode::kPeerLost)));
        CHECK(SystemClock().now() - killed < kFarBelowLimit);
    }
}

TEST_CASE("A failure on one host cuts short a wait for another host") {
    const TimePoint start = SystemClock().now();
    RunningJob job({{2, 1}}, [&](JobComm& comm, BucketId bucket, int rank) {
        if (rank == 2) ::pause();  // alive, but never posts
        comm.collectives->post(bucket, 1);
        comm.collectives->reduce(bucket, 1, 1.0F);
        if (rank == 0) return 1;
        std::this_thread::sleep_for(50ms);
        comm.group->poison("rank 1: out of memory");
        return 0;
    });
    CHECK(job.exit_of(0) == static_cast<int>(ExitCode::kPeerLost));
    CHECK(SystemClock().now() - start < kFarBelowLimit);
    CHECK(job.exit_of(1) == 0);
    job.kill(2);
    CHECK(job.exit_of(2) == 128 + SIGKILL);
}

TEST_CASE("A host that never comes is a hang or an unreachable rendezvous, within the time limit") {
    const Listener listener = listen_on_loopback();
    WorkerEnvironment environment;
    environment.world_size = 2;
    environment.node_sizes = {1, 1};
    environment.master_port = listener.port;
    const pid_t child = ::fork();
    if (child == 0) {
        environment.rendezvous_fd = listener.fd.get();
        try {
            (void)open_job_comm(environment, ArenaLayout(1), 300ms);
        } catch (const Error& error) {
            ::_exit(static_cast<int>(error.code()));
        }
        ::_exit(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WEXITSTATUS(status) == static_cast<int>(ExitCode::kHang));
}

TEST_CASE("Workers that share a host need the arena's descriptor") {
    WorkerEnvironment environment;
    environment.world_size = environment.local_world_size = 2;
    environment.node_sizes = {2};
    try {
        (void)open_job_comm(environment, ArenaLayout(2), 1s);
        FAIL("opened");
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kSetup);
        CHECK(std::string(error.what()).find("DSL_ARENA_FD") == 0);
    }
}

namespace {

void limit(decltype(RLIMIT_NOFILE) what, rlim_t most) {
    const rlimit limit{most, most};
    REQUIRE(::setrlimit(what, &limit) == 0);
}

// Opens the stages of rank RANK of four, with two ranks per stage, as a role of dsworker does. An
// error of one rank frees the others.
int open_stages(JobComm& comm, int rank) {
    ArenaLayout of_all(4);
    (void)of_all.add_bucket("bucket", kNumel);
    const SliceId messages = add_host_link(of_all, kStages);
    ArenaLayout of_stage(2);
    (void)of_stage.add_bucket("bucket", kNumel);
    try {
        const PipelinePlace place = make_pipeline_place({4}, {{0, 1}, {2, 3}}, rank);
        const JobComm stage = open_group_comm(
            {}, comm, {{place.of_stage, place.members}, "stage", of_stage, kTimeLimit});
        (void)open_stage_links({}, comm, place, messages, kTimeLimit);
    } catch (const Error& error) {
        comm.collectives->poison(error.what());
        throw;
    }
    return 0;
}

}  // namespace

TEST_CASE("A rank that cannot open its stage's memory ends all others at once") {
    for (const int victim : {-1, 2, 3}) {
        INFO("victim " << victim);
        const TimePoint start = SystemClock().now();
        RunningJob job({{4}}, [&](JobComm& comm, BucketId, int rank) {
            if (rank == victim && rank == 2) {  // the maker of the memory has no room for it
                ::signal(SIGXFSZ, SIG_IGN);
                limit(RLIMIT_FSIZE, 4096);
            } else if (rank == victim) {  // a rank that opens the memory has one file too many
                limit(RLIMIT_NOFILE, 0);
            }
            return open_stages(comm, rank);
        });
        for (int rank = 0; rank < 4; ++rank) {
            const ExitCode lost = rank == victim ? ExitCode::kSetup : ExitCode::kPeerLost;
            CHECK(job.exit_of(rank) == (victim < 0 ? 0 : static_cast<int>(lost)));
        }
        CHECK(SystemClock().now() - start < kFarBelowLimit);
    }
}

TEST_CASE("The address that reaches loopback is loopback, and a wrong name is an error") {
    CHECK(address_that_reaches("127.0.0.1") == "127.0.0.1");
    CHECK(is_loopback("127.1.2.3"));
    CHECK(is_loopback("::1"));
    CHECK_FALSE(is_loopback("10.0.0.1"));
    const Listener listener = listen_on_loopback();
    CHECK(bound_address(listener.fd.get()) == "127.0.0.1");
    CHECK_THROWS_AS(address_that_reaches("256.1.1.1.invalid"), Error);
}
