#include "launch/agent/agent_worker.h"

#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cstdlib>

#include "launch/process/spawn.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

// Returns the interface variable's value that a worker gets; empty: it gets no such variable.
std::string interface_of_worker(const StartRequest& request) {
    const WorkerLaunch launch =
        launch_worker(request, request.workers.front(), {-1, -1, {}, 1, nullptr});
    REQUIRE(launch.error.empty());
    ::waitpid(launch.worker.pid, nullptr, 0);
    const std::string* value = find_variable(launch.started.environment, "NCCL_SOCKET_IFNAME");
    return value == nullptr ? "" : *value;
}

}  // namespace

TEST_CASE("an interface that was found by probing gives way to the pod's own and to the user's") {
    StartRequest request;
    request.working_directory = "/";
    request.defaults = {{"NCCL_SOCKET_IFNAME", "=probed"}};
    request.workers.emplace_back();
    request.workers.front().command = {"/bin/true"};
    ::unsetenv("NCCL_SOCKET_IFNAME");
    CHECK(interface_of_worker(request) == "=probed");
    ::setenv("NCCL_SOCKET_IFNAME", "pod0", 1);
    CHECK(interface_of_worker(request) == "pod0");
    // An agent on another machine passes on only a few of its own variables.
    request.inherit_all = false;
    CHECK(interface_of_worker(request) == "=probed");
    request.workers.front().environment = {{"NCCL_SOCKET_IFNAME", "user0"}};
    CHECK(interface_of_worker(request) == "user0");
    ::unsetenv("NCCL_SOCKET_IFNAME");
}

TEST_CASE("a rank that floods its control socket is read from in turns") {
    std::array<int, 2> ends{};
    // Such a socket keeps packets apart: each packet is one read, like a full block.
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) ==
            0);
    AgentWorker worker;
    worker.rank = 3;
    worker.control = UniqueFd(ends[0]);
    const UniqueFd rank(ends[1]);
    constexpr int kFrames = 40;
    const std::string frame = encode(ControlFrame{ControlKind::kProgress, "x"});
    for (int i = 0; i < kFrames; ++i) REQUIRE(write_full(rank.get(), frame) == 0);
    int taken = 0;
    const auto take = [&](const WorkerControl& control) {
        CHECK(control.rank == 3);
        ++taken;
    };
    CHECK_FALSE(read_control_frames(worker, take));
    CHECK(taken > 0);
    CHECK(taken < kFrames);
    for (int turn = 0; turn < kFrames && !read_control_frames(worker, take); ++turn) {
    }
    CHECK(taken == kFrames);
    CHECK(worker.control.valid());
}
