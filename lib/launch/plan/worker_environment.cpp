#include "launch/plan/worker_environment.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <optional>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "launch/machine/gpu_use.h"
#include "launch/machine/machine_topology.h"

namespace dslaunch::launch {
namespace {

// OpenMP's own variable: whether waiting threads spin or sleep.
constexpr const char* kWaitVariable = "OMP_WAIT_POLICY";
// A variable of libgomp: how many checks a waiting thread makes before it sleeps.
constexpr const char* kSpinVariable = "GOMP_SPINCOUNT";

std::optional<std::string> read(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

int read_int(const char* name, int least, std::optional<int> fallback = {}) {
    const auto text = read(name);
    if (!text && fallback) return *fallback;
    if (!text) {
        fail(
            ExitCode::kSetup,
            "environment variable {} is missing although RANK is set; start ranks with dslaunch or "
            "torchrun; if RANK is left over in this shell: unset RANK WORLD_SIZE",
            name);
    }
    const auto number = parse_int(*text);
    if (!number || *number < least || *number > std::numeric_limits<int>::max()) {
        fail(ExitCode::kSetup, "environment variable {}=`{}` must be a number of at least {}", name,
             printable(*text), least);
    }
    return static_cast<int>(*number);
}

// Returns the GPUs that CUDA shows by default.
std::string all_gpus() {
    std::vector<int64_t> numbers(static_cast<size_t>(count_gpus()));
    std::iota(numbers.begin(), numbers.end(), 0);
    return fmt::format("{}", fmt::join(numbers, ","));
}

// Returns the number of threads of each of RANKS ranks that share PROCESSORS.
int64_t share_of(int64_t processors, int64_t ranks) {
    return std::max<int64_t>(1, processors / ranks);
}

// Makes the same pause that a waiting thread of libgomp makes between two checks.
void look_away() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    asm volatile("" ::: "memory");
#endif
}

// Returns the number of checks of a waiting thread that take 75 us on this processor.
int64_t spin_count() {
    using Clock = std::chrono::steady_clock;
    constexpr int kLooks = 1000;
    constexpr std::chrono::nanoseconds kSpin{75'000};
    const std::atomic<int> awaited{0};
    auto shortest = Clock::duration::max();  // another program may have used the processor
    for (int round = 0; round < 5; ++round) {
        const Clock::time_point begin = Clock::now();
        for (int i = 0; i < kLooks && awaited.load(std::memory_order_relaxed) == 0; ++i)
            look_away();
        shortest = std::min(shortest, Clock::now() - begin);
    }
    const auto looks =
        kSpin * kLooks / std::max<Clock::duration>(shortest, std::chrono::nanoseconds{1});
    return std::clamp<int64_t>(looks, kLooks / 2, int64_t{1'000} * kLooks);
}

std::vector<int> read_node_sizes(const WorkerEnvironment& environment) {
    const auto text = read("DSL_NODE_SIZES");
    std::vector<int> sizes;
    if (!text) {  // another launcher started this rank, and puts equally many ranks on each node
        if (environment.world_size % environment.local_world_size != 0) {
            fail(ExitCode::kSetup,
                 "WORLD_SIZE={} is not a multiple of LOCAL_WORLD_SIZE={}, and DSL_NODE_SIZES is "
                 "not set",
                 environment.world_size, environment.local_world_size);
        }
        sizes.assign(static_cast<size_t>(environment.world_size / environment.local_world_size),
                     environment.local_world_size);
        return sizes;
    }
    for (const std::string& piece : split(*text, ',')) {
        const auto number = parse_int(piece);
        if (!number || *number < 1 || *number > environment.world_size) {
            fail(ExitCode::kSetup,
                 "environment variable DSL_NODE_SIZES=`{}` is not a list of numbers such as `2,1`",
                 printable(*text));
        }
        sizes.push_back(static_cast<int>(*number));
    }
    return sizes;
}

void check_agreement(const WorkerEnvironment& e) {
    const auto sum = [&](size_t nodes) {
        return std::accumulate(e.node_sizes.begin(),
                               e.node_sizes.begin() + static_cast<std::ptrdiff_t>(nodes),
                               int64_t{0});
    };
    const auto node = static_cast<size_t>(e.node_rank);
    if (e.rank >= e.world_size) {
        fail(ExitCode::kSetup, "RANK={} contradicts WORLD_SIZE={}", e.rank, e.world_size);
    }
    if (sum(e.node_sizes.size()) != e.world_size) {
        fail(ExitCode::kSetup, "DSL_NODE_SIZES={} contradicts WORLD_SIZE={}",
             fmt::join(e.node_sizes, ","), e.world_size);
    }
    if (node >= e.node_sizes.size()) {
        fail(ExitCode::kSetup, "GROUP_RANK={} contradicts the number of nodes, {}", e.node_rank,
             e.node_sizes.size());
    }
    if (e.node_sizes[node] != e.local_world_size || e.local_rank >= e.local_world_size) {
        fail(ExitCode::kSetup, "LOCAL_RANK={} and LOCAL_WORLD_SIZE={} contradict DSL_NODE_SIZES={}",
             e.local_rank, e.local_world_size, fmt::join(e.node_sizes, ","));
    }
    if (sum(node) + e.local_rank != e.rank) {
        fail(ExitCode::kSetup, "RANK={} contradicts LOCAL_RANK={} of node {}", e.rank, e.local_rank,
             e.node_rank);
    }
}

}  // namespace

void limit_spinning(EnvironmentList& environment) {
    if (find_variable(environment, kWaitVariable) == nullptr &&
        find_variable(environment, kSpinVariable) == nullptr)
        set_variable(environment, kSpinVariable, std::to_string(spin_count()));
}

std::optional<int64_t> first_threads(std::string_view value) {
    const auto threads = parse_int(trim(value.substr(0, value.find(','))));
    if (!threads || *threads < 1) return std::nullopt;
    return threads;
}

int64_t rank_threads(int64_t ranks) {
    const auto given = first_threads(read(kThreadsVariable).value_or(""));
    return given ? *given : share_of(processors_granted(), ranks);
}

void set_processors(const RankProcessors& share, EnvironmentList& environment) {
    const std::string* const given = find_variable(environment, kThreadsVariable);
    if (given != nullptr) {
        // Waiting threads spin, and would take processor time from computing threads.
        if (share.is_worker && share.bound_threads == 0 &&
            first_threads(*given).value_or(1) * share.ranks > share.cores &&
            find_variable(environment, kWaitVariable) == nullptr)
            set_variable(environment, kWaitVariable, "passive");
    } else if (share.bound_threads > 0) {
        set_variable(environment, kThreadsVariable, std::to_string(share.bound_threads));
    } else if (share.is_worker) {
        set_variable(environment, kThreadsVariable,
                     std::to_string(share_of(share.cores, share.ranks)));
    }
    if (share.is_worker) limit_spinning(environment);
    if (!share.binding.empty()) {
        set_variable(environment, kBindingVariable, share.binding);
    } else {
        // An inherited value was set for a rank of an outer job, and is wrong for this rank.
        std::erase_if(environment,
                      [](const auto& variable) { return variable.first == kBindingVariable; });
    }
}

ProcessorVariables processor_variables(const EnvironmentList& environment) {
    const auto value = [&](const char* name) {
        const std::string* const found = find_variable(environment, name);
        return found == nullptr ? std::string() : *found;
    };
    return {value(kThreadsVariable), value(kWaitVariable), value(kBindingVariable)};
}

std::optional<LaunchMark> launch_mark_of(const EnvironmentList& environment) {
    const std::string* const launch_id = find_variable(environment, kLaunchIdVariable);
    if (launch_id == nullptr) return std::nullopt;
    LaunchMark mark{*launch_id, std::nullopt, -1};
    if (const std::string* const attempt = find_variable(environment, kAttemptVariable))
        mark.attempt = parse_int(*attempt);
    if (const std::string* const rank = find_variable(environment, "RANK"))
        mark.rank = parse_int(*rank).value_or(-1);
    return mark;
}

EnvironmentList WorkerEnvironment::variables() const {
    DSL_CHECK(!node_sizes.empty(), "the list of nodes is empty");
    const auto text = [](int number) { return std::to_string(number); };
    EnvironmentList list = {
        {"RANK", text(rank)},
        {"LOCAL_RANK", text(local_rank)},
        {"WORLD_SIZE", text(world_size)},
        {"LOCAL_WORLD_SIZE", text(local_world_size)},
        {"GROUP_RANK", text(node_rank)},
        {"NODE_RANK", text(node_rank)},
        {"GROUP_WORLD_SIZE", text(static_cast<int>(node_sizes.size()))},
        {"ROLE_NAME", "default"},
        {"ROLE_RANK", text(rank)},
        {"ROLE_WORLD_SIZE", text(world_size)},
        {"MASTER_ADDR", master_address},
        {"MASTER_PORT", text(master_port)},
        {"CROSS_RANK", text(node_rank)},
        {"CROSS_SIZE", text(static_cast<int>(node_sizes.size()))},
        {"LOCAL_SIZE", text(local_world_size)},
        {kDevicesVariable, devices},
        {"TORCHELASTIC_RESTART_COUNT", text(restart_count)},
        {"TORCHELASTIC_MAX_RESTARTS", text(max_restarts)},
        {"TORCHELASTIC_RUN_ID", job_id},
        {"TORCHELASTIC_USE_AGENT_STORE", "False"},
        {kJobIdVariable, job_id},
        {kLaunchIdVariable, launch_id},
        {kAttemptVariable, text(attempt)},
        {"DSL_NODE_SIZES", fmt::format("{}", fmt::join(node_sizes, ","))},
    };
    if (arena_fd >= 0) list.emplace_back("DSL_ARENA_FD", text(arena_fd));
    if (rendezvous_fd >= 0) list.emplace_back("DSL_RENDEZVOUS_FD", text(rendezvous_fd));
    if (control_fd >= 0) list.emplace_back("DSL_CONTROL_FD", text(control_fd));
    return list;
}

bool WorkerEnvironment::has_rank() {
    return read("RANK").has_value();
}

WorkerEnvironment WorkerEnvironment::from_process() {
    WorkerEnvironment e;
    e.devices = read(kDevicesVariable).value_or(all_gpus());
    e.arena_fd = read_int("DSL_ARENA_FD", 0, -1);
    e.rendezvous_fd = read_int("DSL_RENDEZVOUS_FD", 0, -1);
    e.control_fd = read_int("DSL_CONTROL_FD", 0, -1);
    e.job_id = read(kJobIdVariable).value_or(read("TORCHELASTIC_RUN_ID").value_or(""));
    e.launch_id = read(kLaunchIdVariable).value_or("");
    e.attempt = read_int(kAttemptVariable, 0, 0);
    e.restart_count = read_int("TORCHELASTIC_RESTART_COUNT", 0, 0);
    e.max_restarts = read_int("TORCHELASTIC_MAX_RESTARTS", 0, 0);
    if (!has_rank()) return e;
    e.rank = read_int("RANK", 0);
    e.world_size = read_int("WORLD_SIZE", 1);
    e.local_rank = read_int("LOCAL_RANK", 0);
    e.local_world_size = read_int("LOCAL_WORLD_SIZE", 1);
    e.node_rank = read("GROUP_RANK") ? read_int("GROUP_RANK", 0) : read_int("NODE_RANK", 0);
    if (e.node_rank != read_int("NODE_RANK", 0, e.node_rank)) {
        fail(ExitCode::kSetup, "GROUP_RANK={} contradicts NODE_RANK={}", e.node_rank,
             *read("NODE_RANK"));
    }
    const auto address = read("MASTER_ADDR");
    if (e.world_size > 1 && (!address || address->empty())) {
        fail(ExitCode::kSetup,
             "environment variable MASTER_ADDR is missing or empty, but RANK={} and WORLD_SIZE={} "
             "say that this is one of {} ranks; if they are left over in this shell: unset RANK "
             "WORLD_SIZE",
             e.rank, e.world_size, e.world_size);
    }
    e.master_address = address.value_or("127.0.0.1");
    e.master_port = e.world_size > 1 ? read_int("MASTER_PORT", 1) : read_int("MASTER_PORT", 0, 0);
    e.node_sizes = read_node_sizes(e);
    check_agreement(e);
    return e;
}

}  // namespace dslaunch::launch
