// Limits on memory and disk room, read from made-up /proc and /sys/fs/cgroup.
#include "base/machine/memory_limits.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/machine/disk_room.h"
#include "support/catch.h"
#include "support/fake_root.h"

using namespace dslaunch;

namespace {

// A machine with 8 GiB available, and with no limits until a test writes some.
class PretendedMachine {
  public:
    PretendedMachine() {
        write("/proc/meminfo",
              "MemTotal:       16777216 kB\nMemFree:         1048576 kB\n"
              "MemAvailable:    8388608 kB\n");
        write("/proc/self/status",
              "Name:\tdsworker\nVmSize:\t  524288 kB\nVmData:\t  262144 kB\n"
              "RssAnon:\t   65536 kB\nRssFile:\t   81920 kB\n"
              "RssShmem:\t    1024 kB\nThreads:\t1\n");
        limits("unlimited", "unlimited");
    }

    void write(const std::string& path, const std::string& text) const { root_.write(path, text); }
    void limits(const std::string& data, const std::string& space) const {
        write("/proc/self/limits",
              fmt::format("Limit                     Soft Limit           Hard Limit           "
                          "Units     \nMax data size             {:<20} unlimited            "
                          "bytes     \nMax locked memory         8388608              8388608  "
                          "            bytes     \nMax address space         {:<20} unlimited   "
                          "         bytes     \n",
                          data, space));
    }
    // Writes control groups of version 2, at /sys/fs/cgroup.
    void version_2(const std::string& group, const std::string& mounted = "/") const {
        write("/proc/self/cgroup", fmt::format("0::{}\n", group));
        write("/proc/self/mountinfo",
              fmt::format("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
                          "31 22 0:28 {} /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 "
                          "rw,nsdelegate\n",
                          mounted));
    }
    void group(const std::string& path, const std::string& most, int64_t used_mib,
               int64_t files_mib) const {
        const std::string folder = "/sys/fs/cgroup" + path;
        write(folder + "/memory.max", most + "\n");
        write(folder + "/memory.current", fmt::format("{}\n", mib(used_mib).value));
        write(folder + "/memory.stat",
              fmt::format("anon 999\nfile {}\nshmem 4096\ninactive_file {}\nactive_file {}\n"
                          "slab_reclaimable {}\nslab_unreclaimable 77\n",
                          mib(files_mib).value, mib(files_mib).value / 2, mib(files_mib).value / 4,
                          mib(files_mib).value / 4));
    }

    [[nodiscard]] MemoryState read() const { return read_memory_state(root_.path()); }
    [[nodiscard]] const std::string& root() const { return root_.path(); }

  private:
    test::FakeRoot root_;
};

// Returns "NAME: LEFT in MiB" for each limit.
std::vector<std::string> lines(const MemoryState& state) {
    std::vector<std::string> text;
    for (const MemoryLimit& limit : state.limits)
        text.push_back(fmt::format("{}: {}", limit.name, limit.left.value >> 20));
    return text;
}

using Lines = std::vector<std::string>;
const std::string kMachine = "MemAvailable of /proc/meminfo: 8192";

}  // namespace

TEST_CASE("without groups and ulimits the machine's free memory is the limit") {
    const PretendedMachine machine;
    const MemoryState state = machine.read();
    CHECK(lines(state) == Lines{kMachine});
    CHECK(state.limits[0].of == LimitOf::kHost);
    CHECK(state.held == mib(65));
}

TEST_CASE("ulimits of address space and data leave what is not mapped yet") {
    const PretendedMachine machine;
    machine.limits("1073741824", "2147483648");
    const MemoryState state = machine.read();
    CHECK(lines(state) == Lines{kMachine, "RLIMIT_AS: 1536", "RLIMIT_DATA: 768"});
    CHECK(state.limits[1].of == LimitOf::kAddressSpace);
    CHECK(state.limits[2].of == LimitOf::kPrivate);
    machine.limits("1024", "unlimited");
    CHECK(lines(machine.read()) == Lines{kMachine, "RLIMIT_DATA: 0"});
}

TEST_CASE("a group of version 2 and every group above it limit, less what cannot be given back") {
    const PretendedMachine machine;
    machine.version_2("/jobs/one/step");
    machine.group("/jobs/one/step", "max", 700, 100);
    machine.group("/jobs/one", "1073741824", 700, 200);
    machine.group("/jobs", "4294967296", 3000, 1000);
    const MemoryState state = machine.read();
    // 1024 - (700 - 200), 4096 - (3000 - 1000).
    CHECK(lines(state) == Lines{"memory.max of control group /jobs/one: 524",
                                "memory.max of control group /jobs: 2096", kMachine});
    CHECK(state.limits[0].of == LimitOf::kHost);
}

TEST_CASE("a full group leaves nothing, not less") {
    const PretendedMachine machine;
    machine.version_2("/full");
    machine.group("/full", "1048576", 2, 0);
    CHECK(lines(machine.read()) == Lines{"memory.max of control group /full: 0", kMachine});
}

TEST_CASE("in a container the group that is mounted is the top") {
    const PretendedMachine machine;
    // The rows: a namespace of groups, no namespace, and groups that this process cannot see.
    for (const auto& [own, mounted] : {std::pair{"/", "/"},
                                       {"/docker/4f", "/docker/4f"},
                                       {"/docker/4fa", "/docker/4f"},
                                       {"/../elsewhere", "/"}}) {
        CAPTURE(own, mounted);
        machine.version_2(own, mounted);
        machine.group("", "536870912", 100, 0);
        machine.group("a", "1", 0, 0);
        CHECK(lines(machine.read()) == Lines{"memory.max of control group /: 412", kMachine});
    }
}

TEST_CASE("groups of version 1 are read from the memory controller's own hierarchy") {
    const PretendedMachine machine;
    machine.write("/proc/self/cgroup", "5:cpuset:/other\n4:cpu,memory:/job/x\n0::/\n");
    machine.write("/proc/self/mountinfo",
                  "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
                  "35 31 0:32 / /sys/fs/cgroup/memory rw shared:3 - cgroup cgroup rw,cpu,memory\n"
                  "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    const std::string folder = "/sys/fs/cgroup/memory/job/x/";
    machine.write(folder + "memory.limit_in_bytes", "1073741824\n");
    machine.write(folder + "memory.usage_in_bytes", "629145600\n");
    machine.write(folder + "memory.stat",
                  "cache 1\ninactive_file 7\nhierarchical_memory_limit 1073741824\n"
                  "total_inactive_file 104857600\ntotal_active_file 209715200\n");
    machine.write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
    machine.write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1\n");
    // 1024 - (600 - 300)
    CHECK(lines(machine.read()) ==
          Lines{"memory.limit_in_bytes of control group /job/x: 724", kMachine});
}

TEST_CASE("files that are not there or make no sense set no limit") {
    const PretendedMachine machine;
    for (const char* text : {"", "nonsense", "0::", ":::", "0::/a\n", "-:memory:/a"}) {
        machine.write("/proc/self/cgroup", text);
        for (const char* mounts :
             {"", " - ", "1 2 3 - cgroup2 x", "1 2 3 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"}) {
            machine.write("/proc/self/mountinfo", mounts);
            CHECK(lines(machine.read()) == Lines{kMachine});
        }
    }
    CHECK(read_memory_state(machine.root() + "/nowhere").limits.empty());
}

TEST_CASE("this machine's memory can be read") {
    const MemoryState state = read_memory_state();
    REQUIRE_FALSE(state.limits.empty());
    CHECK(state.held > kib(100));
    for (const MemoryLimit& limit : state.limits) CHECK(limit.left.value >= 0);
    CHECK(free_memory(1).value > 0);
    CHECK(free_memory(1 << 20) < free_memory(1));
}

TEST_CASE("folders on one disk have one number, and a reserve is kept") {
    const PretendedMachine machine;
    machine.write("/a/file", "");
    machine.write("/b/file", "");
    const std::vector<std::string> folders = {machine.root() + "/a", machine.root() + "/b"};
    const std::vector<DiskRoom> rooms = read_disk_room(folders);
    REQUIRE(rooms.size() == 2);
    CHECK(rooms[0].folder == folders[0]);
    CHECK(rooms[0].device == rooms[1].device);
    struct statvfs room {};
    REQUIRE(::statvfs(folders[0].c_str(), &room) == 0);
    CHECK(rooms[0].free <= Bytes{static_cast<int64_t>(room.f_blocks * room.f_frsize)});
    CHECK(rooms[0].reserve.value ==
          std::min<int64_t>(static_cast<int64_t>(room.f_blocks * room.f_frsize) / 100, 1 << 30));
    CHECK(DiskRoom{"", 0, mib(5), mib(2)}.left() == mib(3));
    CHECK(DiskRoom{"", 0, mib(1), mib(2)}.left() == Bytes{});
}

TEST_CASE("the space of a disk is the same for a path and an open file") {
    const PretendedMachine machine;
    machine.write("/a/file", "");
    const std::string file = machine.root() + "/a/file";
    const std::optional<DiskSpace> space = disk_space(file);
    REQUIRE(space);
    struct statvfs room {};
    REQUIRE(::statvfs(file.c_str(), &room) == 0);
    CHECK(space->whole.value == static_cast<int64_t>(room.f_blocks * room.f_frsize));
    CHECK(space->free.value >= 0);
    CHECK(space->free <= space->whole);
    const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    REQUIRE(fd.valid());
    CHECK(disk_space(fd.get()).value().whole == space->whole);
    const auto cause_of = [](const auto& place) {
        errno = 0;
        return disk_space(place) ? 0 : errno;
    };
    CHECK(cause_of(machine.root() + "/missing") == ENOENT);
    CHECK(cause_of(-1) == EBADF);
}

TEST_CASE("ranks of a host share what is the host's, and keep what is each one's own") {
    const MemoryLimit host{"host", mib(1000), LimitOf::kHost};
    const MemoryLimit own{"ulimit", mib(300), LimitOf::kPrivate};
    CHECK_FALSE(tightest_share({}, 2));
    const auto share = [&](int ranks, Bytes reserve) {
        return *tightest_share({host, own}, ranks, reserve);
    };
    CHECK(share(1, {}).name == "ulimit");
    CHECK(share(1, {}).left == mib(300));
    CHECK(share(4, {}).name == "host");
    CHECK(share(4, {}).left == mib(250));
    CHECK(share(3, mib(100)).left == mib(200));  // the ulimit, less the reserve
    CHECK(share(9, mib(100)).left == mib(100));  // a ninth of the host's memory, less the reserve
    CHECK(share(2, mib(2000)).left == Bytes{});
}

TEST_CASE("a folder that is not there is named, with the code for disks") {
    const PretendedMachine machine;
    const std::string file = machine.root() + "/proc/meminfo";
    for (const auto& [folder, words] : {std::pair{std::string("/proc/no/such/folder"),
                                                  "nvme_path /proc/no/such/folder: No such file"},
                                        {file, "is not a folder"}}) {
        try {
            (void)read_disk_room(std::vector<std::string>{folder});
            FAIL("accepted " << folder);
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kDisk);
            CHECK_THAT(error.what(), Catch::Contains(words));
        }
    }
}
