#include "launch/plan/launch_plan.h"

#include "base/error.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

PlanRequest request_of(const std::string& hostfile) {
    PlanRequest request;
    request.hosts = apply_filter(parse_hostfile(hostfile, "h"), {});
    request.command_head = {"prog"};
    request.command_tail = {"a b"};
    return request;
}

}  // namespace

TEST_CASE("ranks are exact for uneven slots, each host's local ranks starting at 0") {
    for (const auto& sizes : {std::vector<int>{2, 1, 3}, {1}, {1, 1, 1, 1}, {5, 7}, {1, 16, 2}}) {
        std::string hostfile;
        for (size_t i = 0; i < sizes.size(); ++i)
            hostfile += fmt::format("n{} slots={}\n", i, sizes[i]);
        const auto nodes = make_launch_plan(request_of(hostfile));
        REQUIRE(nodes.size() == sizes.size());
        int rank = 0;
        for (size_t node = 0; node < nodes.size(); ++node) {
            REQUIRE(nodes[node].workers.size() == static_cast<size_t>(sizes[node]));
            for (int local = 0; local < sizes[node]; ++local) {
                const auto& place = nodes[node].workers[local].environment;
                CHECK(place.rank == rank++);
                CHECK(place.local_rank == local);
                CHECK(place.local_world_size == sizes[node]);
                CHECK(place.node_rank == static_cast<int>(node));
                CHECK(place.node_sizes == sizes);
            }
        }
        CHECK(nodes[0].workers[0].environment.world_size == rank);
    }
}

TEST_CASE("the local rank stands between a script and its arguments") {
    PlanRequest request = request_of("n1 slots=2");
    request.append_local_rank = true;
    const auto nodes = make_launch_plan(request);
    CHECK(nodes[0].workers[1].command == std::vector<std::string>{"prog", "--local_rank=1", "a b"});
    request.append_local_rank = false;
    CHECK(make_launch_plan(request)[0].workers[1].command ==
          std::vector<std::string>{"prog", "a b"});
}

TEST_CASE("devices follow the hostfile, the machine and CUDA_VISIBLE_DEVICES") {
    struct Row {
        const char* hostfile;
        bool local;
        DeviceRequest device;
        std::optional<std::string> visible;
        int gpu_count;
        const char* expected;  // null: an error
    };
    const Row rows[] = {
        {"n1 slots=3", false, DeviceRequest::kAuto, {}, 0, "0,1,2"},
        {"n1 gpus=3,2", false, DeviceRequest::kAuto, "9", 0, "2,3"},
        {"n1 slots=3", false, DeviceRequest::kCpu, {}, 0, ""},
        {"n1 slots=2", true, DeviceRequest::kAuto, {}, 0, ""},
        {"n1 gpus=2,3", true, DeviceRequest::kAuto, {}, 0, "2,3"},
        {"n1 slots=2", true, DeviceRequest::kCuda, {}, 4, "0,1"},
        {"n1 slots=2", true, DeviceRequest::kCuda, "6,GPU-ab", 8, "6,GPU-ab"},
        {"n1 gpus=6", true, DeviceRequest::kCuda, "5,6", 8, "6"},
        {"n1 gpus=0", true, DeviceRequest::kCuda, "5,6", 8, nullptr},
        {"n1 slots=3", true, DeviceRequest::kCuda, "5,6", 8, nullptr},
        {"n1 slots=2", true, DeviceRequest::kCuda, {}, 1, nullptr},
        {"n1 slots=1", true, DeviceRequest::kCuda, "-1,0", 1, nullptr},
    };
    for (const Row& row : rows) {
        INFO(row.hostfile << " visible " << row.visible.value_or("unset"));
        PlanRequest request = request_of(row.hostfile);
        request.local = row.local;
        request.device = row.device;
        request.visible_devices = row.visible;
        request.gpu_count = row.gpu_count;
        if (row.expected == nullptr) {
            CHECK_THROWS_AS(make_launch_plan(request), Error);
        } else {
            CHECK(make_launch_plan(request)[0].workers.back().environment.devices == row.expected);
        }
    }
}

TEST_CASE("ranks meet at the address of the first host") {
    CHECK(make_launch_plan(request_of("n1 slots=1\nn2 slots=1"))[1]
              .workers[0]
              .environment.master_address == "n1");
    CHECK(make_launch_plan(request_of("n1 slots=1 addr=10.0.0.7"))[0]
              .workers[0]
              .environment.master_address == "10.0.0.7");
    CHECK(make_launch_plan(request_of("[fd00::1] slots=1"))[0]
              .workers[0]
              .environment.master_address == "fd00::1");
    PlanRequest request = request_of("n1 slots=1");
    request.local = true;
    CHECK(make_launch_plan(request)[0].workers[0].environment.master_address == "127.0.0.1");
}

TEST_CASE("an agent that was given some GPUs of its machine counts among those") {
    const std::vector<std::string> visible = {"4", "GPU-7f", "6"};
    CHECK(devices_seen_through("0,2", visible) == "4,6");
    CHECK(devices_seen_through("1", visible) == "GPU-7f");
    CHECK(devices_seen_through("5", visible) == "5");
    CHECK(devices_seen_through("GPU-1", visible) == "GPU-1");
    CHECK(devices_seen_through("", visible).empty());
}
