#include "launch/machine/machine_topology.h"

#include <algorithm>

#include "support/catch.h"
#include "support/fake_root.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

TEST_CASE("limits and ended processes are found in both versions of control groups") {
    SECTION("version 2, with a limit above our own group") {
        const FakeRoot root;
        root.write("/proc/self/cgroup", "0::/user/job\n");
        root.write("/sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
        root.write("/sys/fs/cgroup/user/cpu.max", "250000 100000\n");
        root.write("/sys/fs/cgroup/user/job/memory.events", "low 0\noom 4\noom_kill 3\n");
        CHECK(group_processors(root.path()) == 3);  // two and a half, rounded up
        CHECK(group_oom_kills(root.path()) == 3);
    }
    SECTION("version 1, with controllers that share a line") {
        const FakeRoot root;
        root.write("/proc/self/cgroup", "9:memory:/job\n4:cpu,cpuacct:/job\n0::/other\n");
        root.write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "400000\n");
        root.write("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
        root.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
        root.write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
        root.write("/sys/fs/cgroup/memory/job/memory.oom_control", "under_oom 0\noom_kill 2\n");
        CHECK(group_processors(root.path()) == 4);
        CHECK(group_oom_kills(root.path()) == 2);
    }
    SECTION("a container that sees its group as the top") {
        const FakeRoot root;
        root.write("/proc/self/cgroup", "0::/docker/0123\n");
        root.write("/sys/fs/cgroup/cpu.max", "100000 100000\n");
        root.write("/sys/fs/cgroup/memory.events", "oom_kill 7\n");
        CHECK(group_processors(root.path()) == 1);
        CHECK(group_oom_kills(root.path()) == 7);
    }
    SECTION("nothing is told") {
        const FakeRoot root;
        CHECK(group_processors(root.path()) == 0);
        CHECK(group_oom_kills(root.path()) == -1);
    }
}

TEST_CASE("a process gets the processors that it may run on, or fewer") {
    CHECK(processors_allowed() == std::max(static_cast<int>(allowed_processors().size()), 1));
    const int granted = processors_granted();
    CHECK(granted >= 1);
    CHECK(granted <= processors_allowed());
    if (const int most = group_processors(""); most > 0) CHECK(granted <= most);
}

TEST_CASE("memory that ran out is told only when the kernel counted it meanwhile") {
    const FakeRoot root;
    root.write("/proc/self/cgroup", "0::/\n");
    root.write("/proc/vmstat", "pgfault 9\noom_kill 5\n");
    root.write("/sys/fs/cgroup/memory.events", "oom_kill 1\n");
    const OomCount before = count_oom_kills(root.path());
    CHECK(describe_oom(before, count_oom_kills(root.path())).empty());
    root.write("/proc/vmstat", "pgfault 9\noom_kill 6\n");
    CHECK_THAT(describe_oom(before, count_oom_kills(root.path())),
               Catch::Contains("out-of-memory killer ended 1 process(es)"));
    root.write("/sys/fs/cgroup/memory.events", "oom_kill 3\n");
    CHECK_THAT(describe_oom(before, count_oom_kills(root.path())),
               Catch::Contains("memory limit of its control group killed 2 process(es)"));
}
