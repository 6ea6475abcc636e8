// dsworker health: one rank of `dslaunch health`. Connects to the other ranks, searches for slow
// and broken links between the hosts, and then tries every operation. Each measurement is sent to
// the launcher at once, so that a check that ends early can be judged by the records up to that
// point.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "config/run/run_config.h"
#include "launch/machine/gpu_use.h"
#include "launch/machine/machine_name.h"
#include "launch/plan/worker_environment.h"
#include "launch/process/timing.h"
#include "launch/protocol/control.h"
#include "runtime/comm/pair_search.h"
#include "runtime/comm_gloo/rendezvous.h"
#include "runtime/compute/rank_device.h"
#include "runtime/health/health_sweep.h"
#include "runtime/health/health_watch.h"
#include "runtime/train/reporter.h"
#include "worker/rank_process.h"
#include "worker/roles.h"

namespace dslaunch::worker {

namespace {

constexpr Duration kJoinMax = std::chrono::seconds(20);
constexpr Duration kOperationMax = std::chrono::seconds(15);
constexpr Duration kAliveMax = std::chrono::seconds(4);

struct HealthArguments {
    std::string backend;
    double timeout_s = 120;
    std::vector<int64_t> sizes;
};

HealthArguments parse(int argc, char** argv, bool& help) {
    HealthArguments arguments;
    CommandLine app({.does = "Runs one rank of a health check; `dslaunch health` starts it."},
                    "dsworker health");
    app.add("--backend NAME", arguments.backend, "gloo or nccl; default: nccl on GPUs, else gloo")
        .one_of({"gloo", "nccl"});
    app.add("--timeout SECONDS", arguments.timeout_s, "seconds for everything")
        .range(1.0, 86'400.0);
    app.add("--sizes LIST", arguments.sizes, "bytes of each operation")
        .range(int64_t{4}, int64_t{1} << 34);
    help = !app.parse({argv + 1, argv + argc});
    return arguments;
}

Duration in_seconds(double seconds) {
    return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

class HealthRole {
  public:
    HealthRole(HealthArguments arguments, launch::WorkerEnvironment environment,
               runtime::Reporter& reporter, runtime::HealthWatch& watch)
        : arguments_(std::move(arguments)),
          environment_(std::move(environment)),
          reporter_(reporter),
          watch_(watch),
          place_(runtime::Topology::of_rank(environment_.node_sizes, environment_.rank)) {}

    void run() {
        open_device();
        enter("meeting the other ranks", 2 * kJoinMax);
        group_ = std::make_unique<runtime::Rendezvous>(environment_, std::min(kJoinMax, left()));
        report(health::HealthMember{device_name_, group_->own_address(),
                                    uses_gpu_ ? "nccl" : "gloo", device_facts()});
        come_together("the beginning", kJoinMax);
        const runtime::PairSearchResult result = search();
        if (result == runtime::PairSearchResult::kBroken) {
            if (first())
                report(
                    health::HealthNote{"the collective operations were not tested, because they "
                                       "would hang on the broken link"});
        } else {
            try_operations(result);
        }
        say_goodbye();
    }

  private:
    [[nodiscard]] bool first() const { return environment_.rank == 0; }
    [[nodiscard]] Duration left() const {
        return std::max<Duration>(watch_.deadline() - SystemClock().now(),
                                  std::chrono::milliseconds(1));
    }
    void report(const health::HealthRecord& record) {
        reporter_.health(encode(health::HealthMessage{record}));
    }
    void enter(const std::string& where, Duration limit) { watch_.enter(where, limit); }

    void open_device();
    [[nodiscard]] std::string device_facts() const;
    void come_together(const std::string& name, Duration limit);
    runtime::PairSearchResult search();
    void try_operations(runtime::PairSearchResult search);
    std::unique_ptr<runtime::PairedCollectives> join_gpus(Duration limit);
    [[noreturn]] void explain(const Error& error);
    void say_goodbye();

    HealthArguments arguments_;
    launch::WorkerEnvironment environment_;
    runtime::Reporter& reporter_;
    runtime::HealthWatch& watch_;
    runtime::Topology place_;
    bool uses_gpu_ = false;
    std::string device_name_ = "cpu";
    runtime::DeviceBackendPtr device_;
    std::unique_ptr<runtime::Rendezvous> group_;
};

// Loads LibTorch's CUDA library, as training does, before the first tensor is made.
void HealthRole::open_device() {
    const int64_t gpus = launch::count_gpus();
    uses_gpu_ = arguments_.backend == "nccl" ||
                (arguments_.backend.empty() &&
                 runtime::wants_gpu(config::DeviceChoice::kAuto, environment_, gpus));
    if (!uses_gpu_) return;
    if (gpus == 0)
        fail(ExitCode::kSetup,
             "--backend nccl: found no GPU on host {} (looked for {}); use --backend gloo",
             launch::machine_name(), launch::kGpuDevicePattern);
    runtime::require_own_gpu(environment_);
    device_ = runtime::open_device_backend(runtime::own_device_plugin(), 0);
    device_name_ = device_->device_name();
}

// Returns the facts that nvidia-smi reports about this rank's GPU. nvidia-smi numbers GPUs as
// CUDA_VISIBLE_DEVICES does.
std::string HealthRole::device_facts() const {
    if (!uses_gpu_) return "";
    const launch::GpuUse use = launch::look_at_gpus();
    return launch::facts_of_gpu(use, runtime::own_gpu(environment_), ::getpid());
}

void HealthRole::come_together(const std::string& name, Duration limit) {
    enter(name, limit + std::chrono::seconds(4));
    std::vector<int> all(static_cast<size_t>(environment_.world_size));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    const std::vector<int> missing = runtime::meet(*group_, {name, all, environment_.rank, limit});
    if (missing.empty()) return;
    const std::string text =
        fmt::format("rank {} does not answer: it did not reach {}", missing.front(), name);
    report(health::HealthFault{missing.front(), text});
    fail(ExitCode::kHang, "{} within {:.0f} s", text, to_milliseconds(limit) / 1000);
}

runtime::PairSearchResult HealthRole::search() {
    if (place_.local_rank != 0) {
        enter("waiting for the search", left());
        const auto result = group_->get("search/result", left());
        return static_cast<runtime::PairSearchResult>(parse_int(result.value_or("0")).value_or(0));
    }
    runtime::PairSearchOptions options;
    options.topology = place_;
    options.address = group_->own_address();
    return runtime::search_pairs(
        options, {*group_, [this](const health::HealthRecord& record) { report(record); },
                  [this](const std::string& where, Duration limit) { enter(where, limit); }});
}

std::unique_ptr<runtime::PairedCollectives> HealthRole::join_gpus(Duration limit) {
    if (first()) group_->set("nccl", device_->make_unique_id());
    const auto id = group_->get("nccl", limit);
    if (!id) fail(ExitCode::kHang, "rank 0 did not send NCCL's id");
    runtime::DeviceCommunicator& all =
        device_->join({*id, environment_.rank, environment_.world_size, limit});
    return runtime::make_device_health_collectives(*device_, all, limit);
}

// Tries the operations. If an operation hangs, explain() names the ranks that do not answer. But if
// bad links were found before, they are the likely cause, and the hang is only noted.
void HealthRole::try_operations(runtime::PairSearchResult search) {
    try {
        const Duration limit = std::min(kOperationMax, left());
        enter("connecting all ranks", limit + std::chrono::seconds(4));
        std::unique_ptr<runtime::PairedCollectives> gpus;
        std::unique_ptr<runtime::HealthCollectives> cpus;
        if (uses_gpu_) {
            gpus = join_gpus(limit);
        } else {
            cpus = group_->open_collectives(limit);
        }
        runtime::HealthCollectives& collectives = gpus ? *gpus : *cpus;
        runtime::SweepOptions options;
        options.rank = environment_.rank;
        options.world_size = environment_.world_size;
        options.host = launch::machine_name();
        options.limit = kOperationMax;
        options.deadline = watch_.deadline();
        if (!arguments_.sizes.empty()) options.sizes_bytes = arguments_.sizes;
        const runtime::SweepSeams seams = {
            collectives, *group_, [this](const health::HealthRecord& record) { report(record); },
            [this](const std::string& where, Duration allowed) { enter(where, allowed); }};
        if (gpus) runtime::sweep_gpu_pairs(options, *gpus, seams);
        runtime::sweep_operations(options, seams);
    } catch (const Error& error) {
        if (error.code() == ExitCode::kHang && search == runtime::PairSearchResult::kFound) {
            if (first())
                report(health::HealthNote{
                    fmt::format("the collective operations were stopped: {}", error.what())});
            return;
        }
        explain(error);
    }
}

// Announces that this rank still answers, and reports the ranks that do not answer.
void HealthRole::explain(const Error& error) {
    if (error.code() != ExitCode::kHang) throw error;
    const std::string place = watch_.where();
    enter("checking which ranks still answer", 2 * kAliveMax + std::chrono::seconds(4));
    group_->set(fmt::format("alive/{}", environment_.rank), "1");
    Duration limit = kAliveMax;
    std::string silent;
    for (int rank = 0; rank < environment_.world_size; ++rank) {
        if (group_->get(fmt::format("alive/{}", rank), limit)) continue;
        limit = std::chrono::milliseconds(100);  // the other ranks have had as much time
        const std::string text =
            fmt::format("rank {} does not answer: it was lost during {}", rank, place);
        report(health::HealthFault{rank, text});
        silent += fmt::format("{}{}", silent.empty() ? "" : ", ", rank);
    }
    throw Error(
        error.code(),
        fmt::format("{}; {}", error.what(),
                    silent.empty() ? "every rank still answers, so a link between two of them hangs"
                                   : fmt::format("no sign of rank {}", silent)));
}

// Rank 0 serves the key-value store that all ranks use, so it leaves last.
void HealthRole::say_goodbye() {
    enter("the end", kOperationMax + std::chrono::seconds(4));
    if (!first()) return group_->set(fmt::format("bye/{}", environment_.rank), "1");
    for (int rank = 1; rank < environment_.world_size; ++rank) {
        if (group_->get(fmt::format("bye/{}", rank), kOperationMax)) continue;
        const std::string text =
            fmt::format("rank {} does not answer: it did not reach the end", rank);
        report(health::HealthFault{rank, text});
        fail(ExitCode::kHang, "{}", text);
    }
}

}  // namespace

int health_main(int argc, char** argv) {
    bool help = false;
    HealthArguments arguments = parse(argc, argv, help);
    if (help) return 0;
    const launch::WorkerEnvironment environment = begin_rank();
    if (environment.control_fd < 0)
        fail(ExitCode::kUsage, "dsworker health cannot be started by hand: use `dslaunch health`");
    runtime::hide_other_gpus(environment);
    const std::unique_ptr<runtime::Reporter> reporter =
        runtime::make_control_reporter(environment.control_fd);
    runtime::HealthWatch watch(in_seconds(arguments.timeout_s), [&](const std::string& why) {
        end_rank(*reporter, {ExitCode::kHang, why}, "health");
    });
    const std::jthread heartbeats =
        runtime::send_heartbeats(*reporter, launch::kHeartbeatInterval, [&watch] {
            return launch::Heartbeat{watch.steps_done(), 1, watch.where()};
        });
    HealthRole role(std::move(arguments), environment, *reporter, watch);
    try {
        role.run();
    } catch (...) {
        end_rank(*reporter, job::failure_of(std::current_exception()), "health");
    }
    // Peers may have ended already, and the destructors of Gloo and NCCL would contact them.
    std::fflush(nullptr);
    ::_exit(0);
}

}  // namespace dslaunch::worker
