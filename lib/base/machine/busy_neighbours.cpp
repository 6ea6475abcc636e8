#include "base/machine/busy_neighbours.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/log.h"
#include "base/text.h"

namespace dslaunch {
namespace {

constexpr std::chrono::seconds kWindow{5};
// Other programs are reported if together they use at least this many processors. The system's own
// work uses less.
constexpr double kLeastProcessors = 0.25;
// A warning is logged only if the threads of this process together waited for a processor during at
// least this part of the measured time. While processors are free, threads wait only microseconds.
constexpr double kLeastDelay = 0.1;
// Each other rank on the host is assumed to use as many processors as this rank, plus or minus this
// part; 0.1 means 10 %.
constexpr double kUnlikeProcesses = 0.1;

bool is_allowed(std::string_view name, const cpu_set_t& allowed) {
    const auto number = parse_int(name.substr(3));
    return number && *number < CPU_SETSIZE && CPU_ISSET(static_cast<size_t>(*number), &allowed);
}

// Returns the seconds for which the processors that this process may use were busy. The lines are
// "cpu<N> user nice system idle iowait irq softirq steal ..."; idle and iowait are not counted.
double busy_seconds(const std::string& path) {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 0;
    std::ifstream file(path);
    double ticks = 0;
    for (std::string line; std::getline(file, line) && line.starts_with("cpu");) {
        std::istringstream words(line);
        std::string name;
        double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0,
               steal = 0;
        words >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
        if (name.size() > 3 && is_allowed(name, allowed))
            ticks += user + nice + system + irq + softirq + steal;
    }
    return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

// Returns how many seconds this process's threads have waited to run: the sum of the second number
// in each thread's schedstat, which is in nanoseconds.
double delayed_seconds(const std::string& path) {
    std::error_code unreadable;
    double sum = 0;
    for (const auto& thread : std::filesystem::directory_iterator(path, unreadable)) {
        std::ifstream file(thread.path() / "schedstat");
        double ran = 0;
        double waited = 0;
        if (file >> ran >> waited) sum += waited / 1e9;
    }
    return sum;
}

double own_seconds() {
    struct rusage self {};
    ::getrusage(RUSAGE_SELF, &self);
    const auto seconds = [](const struct timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    return seconds(self.ru_utime) + seconds(self.ru_stime);
}

}  // namespace

ProcessorUse read_processor_use(const std::string& root) {
    ProcessorUse use;
    use.wall =
        std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    use.busy = busy_seconds(root + "/proc/stat");
    use.own = own_seconds();
    use.delayed = delayed_seconds(root + "/proc/self/task");
    return use;
}

std::string neighbours_text(const ProcessorUse& before, const ProcessorUse& after,
                            const ProcessorShare& share) {
    const double wall = after.wall - before.wall;
    if (wall <= 0 || after.delayed - before.delayed < kLeastDelay * wall) return "";
    const double own = (after.own - before.own) / wall * share.processes;
    const double others = (after.busy - before.busy) / wall - own;
    const double unsure = share.processes > 1 ? own * kUnlikeProcesses : 0;
    if (others - unsure < kLeastProcessors) return "";
    const int left = share.processors - static_cast<int>(std::ceil(others - kLeastProcessors));
    const int fewer = std::max(1, left / share.processes);
    std::string text = fmt::format(
        "other programs use {:.1f} of the {} that this job may use on this host, which slows it "
        "down: each step waits for its slowest thread",
        others, counted(share.processors, "processor"));
    if (fewer < share.threads)
        text += fmt::format("; while these programs run, the job may be faster with {}{}",
                            share.setting, fewer);
    return text;
}

BusyNeighbours::BusyNeighbours(std::string component, const ProcessorShare& share, bool at_end)
    : component_(std::move(component)),
      share_(share),
      warns_at_end_(at_end),
      thread_([this] { watch(); }) {}

BusyNeighbours::~BusyNeighbours() {
    {
        const std::lock_guard lock(mutex_);
        is_ending_ = true;
    }
    changed_.notify_all();
}

void BusyNeighbours::watch() {
    const auto ends = [this] { return is_ending_; };
    std::unique_lock lock(mutex_);
    std::string text;
    for (ProcessorUse before = read_processor_use(); text.empty();) {
        if (changed_.wait_for(lock, kWindow, ends)) return;
        const ProcessorUse after = read_processor_use();
        text = neighbours_text(before, after, share_);
        before = after;
    }
    if (warns_at_end_) changed_.wait(lock, ends);
    log_warn(component_, "{}", text);
}

}  // namespace dslaunch
