#include "launch/hosts/slurm_allocation.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/text.h"
#include "launch/process/spawn.h"

namespace dslaunch::launch {
namespace {

constexpr size_t kNodelistBytesMax = 1U << 20;
constexpr size_t kNameBytesMax = 253;  // bytes of a host's name; keeps a list of many hosts small

// Parses a node list; every error names its column.
class NodelistReader {
  public:
    explicit NodelistReader(std::string_view text) : text_(text) {}

    std::vector<std::string> read() {
        if (text_.empty() || text_.size() > kNodelistBytesMax) bad("an empty or too long list");
        do {
            name();
        } while (take(','));
        if (at_ != text_.size()) bad("an unexpected character");
        return std::move(hosts_);
    }

  private:
    // Reads one name. If the name has brackets, as prefix[…]middle[…]suffix, adds every
    // combination.
    void name() {
        std::vector<std::string> names = {""};
        const size_t start = at_;
        while (at_ < text_.size() && text_[at_] != ',') {
            if (take('[')) {
                names = combine(names, group());
            } else if (text_[at_] == ']') {
                bad("a `]` without `[`");
            } else {
                if (names.front().size() > kNameBytesMax) bad("a name that is too long");
                for (std::string& prefix : names) prefix += text_[at_];
                ++at_;
            }
        }
        for (std::string& host : names) {
            if (!is_host_name(host)) {
                at_ = start;
                bad("a missing host name");
            }
            hosts_.push_back(std::move(host));
        }
        if (hosts_.size() > static_cast<size_t>(kHostsMax)) bad("too many hosts");
    }

    std::vector<std::string> combine(const std::vector<std::string>& heads,
                                     const std::vector<std::string>& tails) {
        if (heads.size() * tails.size() > static_cast<size_t>(kHostsMax)) bad("too many hosts");
        std::vector<std::string> all;
        for (const std::string& head : heads) {
            for (const std::string& tail : tails) all.push_back(head + tail);
        }
        return all;
    }

    std::vector<std::string> group() {
        std::vector<std::string> numbers;
        do {
            const ReadRange read = read_range(text_, at_);
            at_ = read.end;
            if (read.fault == RangeFault::kNoNumber) bad("a missing number of 1 to 9 digits");
            if (read.fault == RangeFault::kBackwards) bad("a range that runs backwards");
            if (read.fault == RangeFault::kTooLong) bad("a range of more than 4096 hosts");
            for (std::string& number : read.range.names("", "")) {
                numbers.push_back(std::move(number));
            }
        } while (take(','));
        if (!take(']')) bad("a `[` without `]`");
        return numbers;
    }

    bool take(char c) {
        if (at_ == text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }

    [[noreturn]] void bad(const char* what) const {
        fail(ExitCode::kUsage, "Slurm's node list, column {}: {} in `{}`; give --hostfile instead",
             at_ + 1, what, printable(text_.substr(0, 200)));
    }

    std::string_view text_;
    size_t at_ = 0;
    std::vector<std::string> hosts_;
};

std::string value_of(const EnvironmentList& environment, const std::string& name) {
    const std::string* value = find_variable(environment, name);
    return value == nullptr ? std::string() : *value;
}

// Returns the number of GPUs in the variable NAME; nothing if it is not set.
std::optional<int> gpus_in(const EnvironmentList& environment, const char* name) {
    const std::string text = value_of(environment, name);
    if (text.empty()) return std::nullopt;
    const auto count = count_slurm_gpus(text);
    if (!count) {
        fail(ExitCode::kUsage, "{}: `{}` is not a number of GPUs; give --hostfile instead", name,
             printable(text));
    }
    return count;
}

// Returns the number of GPUs of each host, 0 if Slurm does not give it. SLURM_GPUS_ON_NODE and
// SLURM_JOB_GPUS describe this host only. HOSTS: the number of hosts in the allocation. TASKS: the
// number of tasks per host if all hosts have the same, else 0.
int gpus_per_host(const EnvironmentList& environment, int hosts, int tasks) {
    for (const char* name : {"SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"})
        if (const auto count = gpus_in(environment, name)) return *count;
    // "3" means GPU number 3 here, not three GPUs.
    const std::string list = value_of(environment, "SLURM_JOB_GPUS");
    if (!list.empty()) return count_slurm_gpus(list + ",").value_or(0);
    if (const auto of_task = gpus_in(environment, "SLURM_GPUS_PER_TASK"); of_task && tasks > 0)
        return std::min(*of_task * tasks, kSlotsMax);
    const int all = count_slurm_gpus(value_of(environment, "SLURM_GPUS")).value_or(0);
    return all % hosts == 0 ? all / hosts : 0;
}

void set_slots(SlurmAllocation& allocation, const EnvironmentList& environment, bool with_gpus,
               const std::string& tasks) {
    const std::vector<int> counts = tasks.empty() ? std::vector<int>() : expand_task_counts(tasks);
    const auto other = std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>());
    const int tasks_each = counts.empty() || other != counts.end() ? 0 : counts.front();
    const auto hosts = static_cast<int>(allocation.hosts.size());
    const int gpus = with_gpus ? gpus_per_host(environment, hosts, tasks_each) : 0;
    for (Host& host : allocation.hosts) host.slots = std::max(1, gpus);
    if (gpus > 0) {
        allocation.slots = SlurmAllocation::Slots::kGpus;
        return;
    }
    if (tasks.empty()) return;
    if (counts.size() != allocation.hosts.size()) {
        fail(ExitCode::kUsage,
             "Slurm lists {} hosts, but tasks for {} (`{}`); give --hostfile instead",
             allocation.hosts.size(), counts.size(), printable(tasks));
    }
    for (size_t i = 0; i < counts.size(); ++i) allocation.hosts[i].slots = counts[i];
    allocation.slots = SlurmAllocation::Slots::kTasks;
}

// Returns the step that srun created, or nothing. For Slurm, salloc's shell and a batch script are
// also steps, with numbers near the end of the 32-bit range. They are left out, because they run
// only once, on one host.
std::optional<SlurmStep> find_step(const EnvironmentList& environment) {
    constexpr int64_t kNumbersOfShells = 0xffff'fff0;
    const auto number = [&](const char* name, int64_t otherwise) {
        return parse_int(value_of(environment, name)).value_or(otherwise);
    };
    SlurmStep step;
    step.id = value_of(environment, "SLURM_STEP_ID");
    step.tasks = number("SLURM_STEP_NUM_TASKS", 0);
    if (step.tasks < 1 || number("SLURM_STEP_ID", 0) >= kNumbersOfShells) return std::nullopt;
    step.task = number("SLURM_PROCID", 0);
    step.local_task = number("SLURM_LOCALID", 0);
    step.nodes = number("SLURM_STEP_NUM_NODES", 1);
    return step;
}

}  // namespace

std::vector<std::string> expand_nodelist(std::string_view text) {
    return NodelistReader(text).read();
}

std::vector<int> expand_task_counts(std::string_view text) {
    std::vector<int> counts;
    for (const std::string& entry : split(text, ',')) {
        const size_t open = entry.find("(x");
        const auto count = parse_int(std::string_view(entry).substr(0, open));
        std::optional<int64_t> times = 1;
        if (open != std::string::npos && entry.ends_with(')')) {
            times = parse_int(std::string_view(entry).substr(open + 2, entry.size() - open - 3));
        } else if (open != std::string::npos) {
            times = std::nullopt;
        }
        const bool good = count && times && *count >= 1 && *count <= kSlotsMax && *times >= 1 &&
                          *times <= kHostsMax - static_cast<int64_t>(counts.size());
        if (!good) {
            fail(ExitCode::kUsage,
                 "Slurm's tasks per node: `{}` in `{}` is not N or N(xM); give "
                 "--hostfile instead",
                 printable(entry), printable(text.substr(0, 200)));
        }
        counts.insert(counts.end(), static_cast<size_t>(*times), static_cast<int>(*count));
    }
    return counts;
}

std::optional<int> count_slurm_gpus(std::string_view text) {
    const std::vector<std::string> entries = split(text, ',');
    // Numbers with commas are a list of devices; "type:N" and a single number are counts.
    const bool is_list = entries.size() > 1 && text.find(':') == std::string_view::npos;
    int64_t total = 0;
    for (const std::string& entry : entries) {
        if (is_list && entry.empty() && &entry == &entries.back()) continue;
        if (is_list) {
            const size_t dash = entry.find('-');
            const auto first = parse_int(std::string_view(entry).substr(0, dash));
            const auto last = dash == std::string::npos
                                  ? first
                                  : parse_int(std::string_view(entry).substr(dash + 1));
            if (!first || !last || *first < 0 || *last < *first) return std::nullopt;
            if (*last - *first >= kSlotsMax) return std::nullopt;
            total += *last - *first + 1;
        } else {
            const size_t colon = entry.rfind(':');
            const auto count = parse_int(
                std::string_view(entry).substr(colon == std::string::npos ? 0 : colon + 1));
            if (!count || *count < 0 || *count > kSlotsMax) return std::nullopt;
            total += *count;
        }
        if (total > kSlotsMax) return std::nullopt;
    }
    return static_cast<int>(total);
}

std::optional<SlurmAllocation> find_slurm_allocation(const EnvironmentList& environment,
                                                     bool with_gpus) {
    SlurmAllocation allocation;
    allocation.job_id = value_of(environment, "SLURM_JOB_ID");
    std::string list = value_of(environment, "SLURM_JOB_NODELIST");
    if (allocation.job_id.empty() || list.empty()) return std::nullopt;
    if (!parse_int(allocation.job_id)) {
        fail(ExitCode::kUsage, "SLURM_JOB_ID: `{}` is not a job number",
             printable(allocation.job_id));
    }
    // The number of tasks counts only if the user asked for it: without --ntasks Slurm sets one
    // task per node.
    const bool asked = !value_of(environment, "SLURM_NTASKS").empty() ||
                       !value_of(environment, "SLURM_NTASKS_PER_NODE").empty();
    std::string tasks = asked ? value_of(environment, "SLURM_TASKS_PER_NODE") : std::string();
    allocation.step = find_step(environment);
    // Inside a step, Slurm's variables count the step's tasks. A step with one task launches
    // workers on all hosts, so this count says nothing about slots.
    if (allocation.step && allocation.step->tasks == 1) tasks.clear();
    if (allocation.step && allocation.step->tasks > 1) {
        const std::string step_list = value_of(environment, "SLURM_STEP_NODELIST");
        if (!step_list.empty()) {
            list = step_list;
            tasks = value_of(environment, "SLURM_STEP_TASKS_PER_NODE");
        }
    }
    for (std::string& name : expand_nodelist(list)) {
        allocation.hosts.emplace_back();
        allocation.hosts.back().name = std::move(name);
    }
    set_slots(allocation, environment, with_gpus, tasks);
    return allocation;
}

}  // namespace dslaunch::launch
