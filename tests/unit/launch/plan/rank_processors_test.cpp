#include "launch/plan/launch_plan.h"

#include <fmt/format.h>

#include "base/error.h"
#include "support/catch.h"
#include "support/fake_root.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

// Numbers of PACKAGES, of NODES in each, of CACHES in each of these, and of CORES in each of these.
// With SMT, the second processors of all cores are numbered after the first ones, as Linux does.
struct Shape {
    int packages = 1, nodes = 1, caches = 1, cores = 1, smt = 1;
};

MachineTopology machine(const Shape& shape) {
    MachineTopology topology;
    const int cores = shape.packages * shape.nodes * shape.caches * shape.cores;
    for (int number = 0; number < cores * shape.smt; ++number) {
        const int core = number % cores;
        const int cache = core / shape.cores;
        const int node = cache / shape.caches;
        topology.processors.push_back(
            {number, core, node / shape.nodes, node, cache * shape.cores});
    }
    return topology;
}

std::string placed(const MachineTopology& topology, const PlacementRequest& request) {
    std::string text;
    for (const RankPlace& place : place_ranks(topology, request)) {
        text += fmt::format("{}/{}", processor_list_text(place.processors), place.threads);
        if (place.memory_node >= 0) text += fmt::format("@{}", place.memory_node);
        text += " ";
    }
    if (!text.empty()) text.pop_back();
    return text;
}

std::string placed(const MachineTopology& topology, BindMode mode, size_t ranks,
                   const std::string& core_list = "") {
    return placed(topology, {{mode, core_list}, std::vector<int>(ranks, -1)});
}

}  // namespace

TEST_CASE("each of 1, 2, 3, 5 and 8 ranks has its own share of the cores") {
    struct Row {
        Shape shape;
        size_t ranks;
        const char* places;  // processors/threads@memory node, by rank
    };
    const Row rows[] = {
        {{.cores = 4}, 1, "0-3/4"},
        {{.cores = 4}, 2, "0-1/2 2-3/2"},
        {{.cores = 4}, 3, "0-1/1 2/1 3/1"},  // the remaining core is a place, not a thread
        {{.cores = 4}, 5, "0/1 0/1 1/1 2/1 3/1"},
        {{.cores = 4}, 8, "0/1 0/1 1/1 1/1 2/1 2/1 3/1 3/1"},
        {{.cores = 4, .smt = 2}, 2, "0-1,4-5/2 2-3,6-7/2"},
        {{.cores = 4, .smt = 2}, 5, "0,4/1 1,5/1 2,6/1 3/1 7/1"},  // processors, because cores lack
        {{.cores = 4, .smt = 2}, 8, "0/1 4/1 1/1 5/1 2/1 6/1 3/1 7/1"},
        {{.packages = 2, .cores = 4}, 1, "0-7/8"},
        {{.packages = 2, .cores = 4}, 2, "0-3/4@0 4-7/4@1"},
        {{.packages = 2, .cores = 4}, 3, "0-2/2@0 3-5/2 6-7/2@1"},
        {{.packages = 2, .cores = 4}, 5, "0-1/1@0 2-3/1@0 4-5/1@1 6/1@1 7/1@1"},
        {{.packages = 2, .cores = 4}, 8, "0/1@0 1/1@0 2/1@0 3/1@0 4/1@1 5/1@1 6/1@1 7/1@1"},
        {{.cores = 1}, 3, "0/1 0/1 0/1"},
    };
    for (const Row& row : rows) {
        INFO(row.ranks << " ranks: " << row.places);
        CHECK(placed(machine(row.shape), BindMode::kCore, row.ranks) == row.places);
    }
}

TEST_CASE("nodes, sockets and complexes are shared, or divided where that is asked for") {
    // Two packages of two nodes of two caches of two cores: 16 cores.
    const MachineTopology big = machine({.packages = 2, .nodes = 2, .caches = 2, .cores = 2});
    struct Row {
        BindMode mode;
        size_t ranks;
        const char* places;
    };
    const Row rows[] = {
        {BindMode::kNuma, 1, "0-3/4@0"},
        {BindMode::kNuma, 2, "0-3/4@0 8-11/4@2"},
        {BindMode::kNuma, 5, "0-3/2@0 0-3/2@0 4-7/4@1 8-11/4@2 12-15/4@3"},
        {BindMode::kSocket, 2, "0-7/8 8-15/8"},
        {BindMode::kSocket, 3, "0-7/4 0-7/4 8-15/8"},
        {BindMode::kExclusive, 3, "0-3/4@0 4-7/4@1 8-11/4@2"},
        {BindMode::kExclusive, 8,
         "0-1/2@0 2-3/2@0 4-5/2@1 6-7/2@1 8-9/2@2 10-11/2@2 12-13/2@3 14-15/2@3"},
        {BindMode::kCoreComplex, 2, "0-1/2@0 8-9/2@2"},
        {BindMode::kCoreComplex, 5, "0-1/2@0 2-3/2@0 4-5/2@1 8-9/2@2 12-13/2@3"},
    };
    for (const Row& row : rows) {
        INFO(bind_mode_name(row.mode) << " " << row.ranks);
        CHECK(placed(big, row.mode, row.ranks) == row.places);
    }
    const MachineTopology one_node = machine({.caches = 2, .cores = 2});
    CHECK(placed(one_node, BindMode::kCoreComplex, 3) == "0-1/1 2-3/2 0-1/1");
}

TEST_CASE("a rank runs beside its GPU, wherever that hangs") {
    MachineTopology two = machine({.packages = 2, .cores = 4});
    two.gpu_nodes = {1, 1, 0, -1};
    const auto bound = [&](BindMode mode, const std::string& devices, size_t ranks) {
        return placed(two, {{mode, ""}, rank_gpus(devices, ranks)});
    };
    CHECK(bound(BindMode::kNuma, "0,2", 2) == "4-7/4@1 0-3/4@0");
    CHECK(bound(BindMode::kExclusive, "0,1,2", 3) == "4-5/2@1 6-7/2@1 0-3/4@0");
    // A GPU that is unknown, or written as a UUID, binds as if there were no GPU.
    CHECK(bound(BindMode::kNuma, "3,GPU-8932f937", 2) == "0-3/4@0 4-7/4@1");
    CHECK(rank_gpus("5,1", 3) == std::vector<int>{5, 1, -1});
}

TEST_CASE("no rank gets more threads than its control group grants") {
    MachineTopology granted = machine({.cores = 8});
    granted.cores_max = 3;
    CHECK(placed(granted, BindMode::kCore, 1) == "0-7/3");
    CHECK(placed(granted, BindMode::kCore, 2) == "0-3/1 4-7/1");
}

TEST_CASE("a core list chooses processors, and one that is not ours is named") {
    const MachineTopology eight = machine({.cores = 8});
    CHECK(placed(eight, BindMode::kCore, 2, "1,4-6") == "1,4/2 5-6/2");
    MachineTopology few = eight;  // the processors under taskset -c 0-3
    few.processors.resize(4);
    CHECK_THROWS_WITH(placed(few, BindMode::kCore, 2, "2-5"),
                      Catch::Contains("--bind_core_list 2-5 contains processors 4-5") &&
                          Catch::Contains("(usable: 0-3)"));
}

TEST_CASE("nobody is bound unless that is asked for") {
    CHECK(placed(machine({.cores = 8}), BindMode::kAuto, 2).empty());
    CHECK(placed(machine({.cores = 8}), BindMode::kNone, 2).empty());
}

TEST_CASE("lists of processors are read and written as the kernel writes them") {
    CHECK(parse_processor_list("0-3,8") == std::vector<int>{0, 1, 2, 3, 8});
    CHECK(parse_processor_list("8,0-2,1") == std::vector<int>{0, 1, 2, 8});
    CHECK(processor_list_text({0, 1, 2, 3, 8}) == "0-3,8");
    // The same range 10,000 times must not store each number 10,000 times.
    std::string repeated = "0-65535";
    for (int i = 1; i < 10'000; ++i) repeated += ",0-65535";
    CHECK(parse_processor_list(repeated) == parse_processor_list("0-65535"));
    CHECK(processor_list_text({}).empty());
    for (const char* bad :
         {"", "a", "1-", "-1", "3-1", "1,,2", "1-2-3", "70000", "0-99999999999"}) {
        INFO(bad);
        CHECK_FALSE(parse_processor_list(bad));
    }
}

TEST_CASE("the topology is what /sys and /proc say") {
    const FakeRoot root;
    for (const int number : {0, 1, 2, 3}) {
        const std::string cpu = "/sys/devices/system/cpu/cpu" + std::to_string(number);
        const bool odd = number % 2 == 1;  // processors 0, 2 are one core; 1, 3 the other
        root.write(cpu + "/topology/thread_siblings_list", odd ? "1,3\n" : "0,2\n");
        root.write(cpu + "/topology/physical_package_id", odd ? "1\n" : "0\n");
        root.write(cpu + "/cache/index0/level", "1\n");
        root.write(cpu + "/cache/index0/shared_cpu_list", std::to_string(number) + "\n");
        root.write(cpu + "/cache/index1/level", "3\n");
        root.write(cpu + "/cache/index1/shared_cpu_list", odd ? "1,3\n" : "0,2\n");
    }
    root.write("/sys/devices/system/node/node0/cpulist", "0,2\n");
    root.write("/sys/devices/system/node/node1/cpulist", "1,3\n");
    const std::string gpus = "/proc/driver/nvidia/gpus/";
    root.write(gpus + "0000:81:00.0/information", "Model: \t\t X\nDevice Minor: \t 0\n");
    root.write(gpus + "0000:01:00.0/information", "Model: \t\t X\nDevice Minor: \t 1\n");
    root.write(gpus + "0000:c1:00.0/information", "Model: \t\t X\nDevice Minor: \t 2\n");
    root.write("/dev/nvidia0", "");
    root.write("/dev/nvidia1", "");  // the third GPU is not ours
    root.write("/sys/bus/pci/devices/0000:81:00.0/numa_node", "1\n");
    root.write("/sys/bus/pci/devices/0000:01:00.0/numa_node", "-1\n");
    const MachineTopology topology = read_machine_topology(root.path(), {0, 1, 3});
    CHECK(topology.processors ==
          std::vector<Processor>{{0, 0, 0, 0, 0}, {1, 1, 1, 1, 1}, {3, 1, 1, 1, 1}});
    CHECK(topology.gpu_nodes == std::vector<int>{-1, 1});
    CHECK(topology.cores_max == 0);
}

TEST_CASE("a machine whose kernel tells nothing has one core a processor") {
    const FakeRoot root;
    const MachineTopology topology = read_machine_topology(root.path(), {2, 5});
    CHECK(topology.processors == std::vector<Processor>{{2, 2, 0, 0, 0}, {5, 5, 0, 0, 0}});
}
