// Ranks as processes over one memfd, which the agent starts so too: equal bits, and a killed one
// ends the others.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/fd.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/host/host_group.h"
#include "runtime/comm/link.h"
#include "support/catch.h"
#include "support/hang.h"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::test;
using namespace std::chrono_literals;

namespace {

constexpr int64_t kNumel = 10'007;

struct Process {
    Arena arena;
    HostGroup group;
    std::unique_ptr<Collectives> collectives;

    Process(const ArenaLayout& layout, int fd, int rank)
        : arena(Arena::from_descriptor(layout, {fd, rank, kHangTime})),
          group(arena, {.local_rank = rank, .time_limit = kHangTime}),
          collectives(
              make_collectives({.topology = Topology::of_rank({layout.local_world_size()}, rank),
                                .arena = &arena,
                                .group = &group,
                                .link = nullptr})) {
        arena.populate(rank);
    }
};

// Starts BODY in one child per rank; its result is the exit code, an Error's code when it throws.
std::vector<pid_t> start(const ArenaLayout& layout, int fd,
                         const std::function<int(Process& self, int rank)>& body) {
    std::vector<pid_t> children;
    for (int rank = 0; rank < layout.local_world_size(); ++rank) {
        const pid_t child = ::fork();
        if (child == 0) {
            try {
                Process self(layout, fd, rank);
                ::_exit(body(self, rank));
            } catch (const Error& error) {
                ::_exit(static_cast<int>(error.code()));
            }
        }
        children.push_back(child);
    }
    return children;
}

int exit_of(pid_t child) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

TEST_CASE("Processes over one memfd reduce to the exact sum in every generation") {
    for (const int ranks : {1, 2, 3, 5}) {
        const UniqueFd memfd(::memfd_create("dslaunch-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        ArenaLayout layout(ranks);
        const BucketId bucket = layout.add_bucket("bucket", kNumel);
        const auto children = start(layout, memfd.get(), [&](Process& self, int rank) {
            Collectives& all = *self.collectives;
            for (Generation g = 1; g <= 50; ++g) {
                all.await_free(bucket, g);
                // Integers up to 2^24 have exact sums: rank r adds (r + 1) * (i % 1000 + g).
                for (int64_t i = 0; i < kNumel; ++i)
                    all.bucket(bucket)[i] = static_cast<float>((rank + 1) * (i % 1000 + g));
                all.post(bucket, g);
                all.reduce(bucket, g, 1.0F);
                std::vector<float> whole(kNumel);
                all.await_reduced(bucket, g).copy_to(whole);
                all.release(bucket, g);
                for (int64_t i = 0; i < kNumel; ++i) {
                    const int64_t sum = ranks * (ranks + 1) / 2 * (i % 1000 + g);
                    if (whole[i] != static_cast<float>(sum)) return 1;
                }
            }
            all.barrier();
            return 0;
        });
        for (const pid_t child : children) CHECK(exit_of(child) == 0);
    }
}

TEST_CASE(
    "When a process is killed the others leave with the peer-lost code, before the time limit") {
    for (const int ranks : {2, 3, 5}) {
        for (const int victim : {0, ranks - 1}) {
            const UniqueFd memfd(::memfd_create("dslaunch-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
            ArenaLayout layout(ranks);
            const BucketId bucket = layout.add_bucket("bucket", kNumel);
            const Pipe ready = make_pipe();
            const auto children = start(layout, memfd.get(), [&](Process& self, int rank) {
                self.collectives->barrier();
                if (rank == victim) {
                    if (write_full(ready.write_end.get(), std::string_view("r")) != 0) return 3;
                    ::pause();
                }
                self.collectives->post(bucket, 1);
                self.collectives->reduce(bucket, 1, 1.0F);
                (void)self.collectives->await_reduced(bucket, 1);
                return 1;
            });
            std::byte byte{};
            REQUIRE(read_full(ready.read_end.get(), std::span(&byte, 1)) == 1);
            std::this_thread::sleep_for(20ms);
            const TimePoint killed = SystemClock().now();
            ::kill(children[victim], SIGKILL);
            for (int rank = 0; rank < ranks; ++rank) {
                if (rank == victim) continue;
                // At the time limit one of them at least would leave with the code of a hang.
                CHECK(exit_of(children[rank]) == static_cast<int>(ExitCode::kPeerLost));
            }
            const double ms = to_milliseconds(SystemClock().now() - killed);
            std::printf("one of %d processes killed: the others left after %.0f ms\n", ranks, ms);
            CHECK(exit_of(children[victim]) == 128 + SIGKILL);
        }
    }
}

TEST_CASE("Ranks with different plans leave with the diverged code before any of them trains") {
    const UniqueFd memfd(::memfd_create("dslaunch-test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ArenaLayout layout(2);
    layout.add_bucket("bucket", 100);
    ArenaLayout other(2);
    other.add_bucket("bucket", 101);
    const Arena first = Arena::from_descriptor(layout, {memfd.get(), 0, 1s});
    const pid_t child = ::fork();
    if (child == 0) {
        try {
            Process self(other, memfd.get(), 1);
            ::_exit(0);
        } catch (const Error& error) {
            ::_exit(static_cast<int>(error.code()));
        }
    }
    CHECK(exit_of(child) == static_cast<int>(ExitCode::kDiverged));
}
