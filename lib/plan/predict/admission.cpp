#include "plan/predict/admission.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "plan/step/plan_check.h"

namespace dslaunch::plan {

namespace {

struct RankNeed {
    Bytes memory;
    Bytes disk;
    Bytes device;
};

// Returns the memory and disk that PLAN needs. Shared buffers are not included: they are in the
// arena, which is counted as a whole.
RankNeed need_of(const StepPlan& plan) {
    const auto peaks = peak_by_tier(plan);
    const auto peak = [&](Tier tier) { return peaks[static_cast<size_t>(tier)].peak; };
    return {peak(Tier::kMemory), peak(Tier::kDisk), peak(Tier::kDevice)};
}

struct RankLimit {
    LimitOf of;
    const char* name;
    Bytes need;
};

// Returns a verdict with the lowest limit of the kind OF in LIMITS. A limit is the memory that is
// still left plus HELD, the memory that the job's processes hold already. The job may use both.
TierVerdict least_of(std::span<const MemoryLimit> limits, LimitOf of, Bytes held) {
    TierVerdict verdict;
    for (const MemoryLimit& limit : limits) {
        if (limit.of != of) continue;
        const Bytes most = limit.left + held;
        if (verdict.limit && *verdict.limit <= most) continue;
        verdict.limit = most;
        verdict.limited_by = limit.name;
    }
    return verdict;
}

// Returns the verdict on the disk that contains the folder DISKS[at]. The verdict covers all
// folders on this disk. Returns nullopt if an earlier folder is on the same disk.
std::optional<TierVerdict> disk_verdict(std::span<const DiskRoom> disks, size_t at, Bytes need) {
    TierVerdict verdict;
    verdict.tier = TierVerdict::Tier::kDisk;
    int64_t folders = 0;
    for (size_t d = 0; d < disks.size(); ++d) {
        if (disks[d].device != disks[at].device) continue;
        if (d < at) return {};
        ++folders;
        verdict.name += fmt::format("{}{}", folders == 1 ? "disk " : ", ", disks[d].folder);
    }
    const auto count = static_cast<int64_t>(disks.size());
    verdict.need = Bytes{(need.value + count - 1) / count * folders};
    verdict.limit = disks[at].left();
    verdict.limited_by = fmt::format("{} free, minus {} reserve", to_text(disks[at].free),
                                     to_text(disks[at].reserve));
    return verdict;
}

std::string line_of(const TierVerdict& verdict) {
    const std::string limit = verdict.limit ? to_text(*verdict.limit) : "not known";
    return fmt::format("{:<24} {:>11} {:>11}  {}{}\n", verdict.name, to_text(verdict.need), limit,
                       verdict.fits() ? "" : "TOO LITTLE: ", verdict.limited_by);
}

}  // namespace

Bytes HostNeed::of_host() const {
    return private_total + arena + (program + kProgramRoom) * ranks;
}

Bytes HostNeed::of_rank() const {
    return resident_max + program + code;
}

Bytes group_memory(const StepPlanOptions& options) {
    if (options.world_size == 1) return {};
    // With hybrid shards, a rank is in three groups: all ranks, the ranks that share its copy of
    // the states, and the ranks with the same shard (comm/device_collectives.h).
    return kDeviceGroup * (options.copies() > 1 ? 3 : 1);
}

Bytes device_extra(const StepPlanOptions& options) {
    DSL_CHECK(options.on_device, "device_extra() is only for plans on a device");
    return kDeviceWorkspaces + kDeviceBlocks + group_memory(options);
}

HostNeed host_need(std::span<const StepPlan> plans, Bytes arena, const ProgramMemory& program,
                   Bytes extra) {
    DSL_CHECK(!plans.empty(), "a host must have at least one rank");
    HostNeed need;
    need.ranks = static_cast<int>(plans.size());
    need.arena = arena;
    need.program = program.own + kProgramLater;
    need.code = program.code + kCodeLater;
    for (const StepPlan& plan : plans) {
        const RankNeed rank = need_of(plan);
        need.private_total += rank.memory;
        need.private_max = std::max(need.private_max, rank.memory);
        need.disk += rank.disk;
        need.device = std::max(need.device, rank.device);
    }
    need.device += extra;
    need.resident_max = need.private_max + arena;
    return need;
}

std::vector<TierVerdict> admit(const HostNeed& need, const HostLimits& limits) {
    const MemoryState& memory = limits.memory;
    TierVerdict host = least_of(memory.limits, LimitOf::kHost, memory.held * limits.processes);
    host.name = "memory";
    host.need = need.of_host();
    std::vector<TierVerdict> verdicts = {host};
    // The memory of the program's code is not added, because the limits do not contain it: it is
    // already in use, so it is not left, and it is not counted in memory.held.
    const Bytes own = need.private_max + need.program + kProgramRoom + kProgramStacks;
    for (const auto& [of, name, bytes] :
         {RankLimit{LimitOf::kPrivate, "own memory of a rank", own},
          {LimitOf::kAddressSpace, "address space of a rank", own + need.arena}}) {
        TierVerdict rank = least_of(memory.limits, of, memory.held);
        if (!rank.limit) continue;
        rank.tier = TierVerdict::Tier::kRankMemory;
        rank.name = name;
        rank.need = bytes;
        verdicts.push_back(rank);
    }
    for (size_t d = 0; d < limits.disks.size() && need.disk.value > 0; ++d)
        if (const auto verdict = disk_verdict(limits.disks, d, need.disk))
            verdicts.push_back(*verdict);
    if (need.device.value == 0) return verdicts;
    TierVerdict device;
    device.tier = TierVerdict::Tier::kDevice;
    device.name = "memory of a GPU";
    device.need = need.device;
    if (limits.device) {
        device.limit = limits.device->left;
        device.limited_by = limits.device->limited_by;
    }
    verdicts.push_back(device);
    return verdicts;
}

bool all_fit(std::span<const TierVerdict> verdicts) {
    return std::all_of(verdicts.begin(), verdicts.end(),
                       [](const TierVerdict& verdict) { return verdict.fits(); });
}

std::string admission_table(const HostNeed& need, std::span<const TierVerdict> verdicts) {
    std::string text = fmt::format("{:<24} {:>11} {:>11}\n",
                                   counted(need.ranks, "rank") + " of a host", "need", "limit");
    for (const TierVerdict& verdict : verdicts) text += line_of(verdict);
    text += fmt::format(
        "the memory consists of {} private to the ranks, {} shared, and {} for the program\n",
        to_text(need.private_total), to_text(need.arena),
        to_text((need.program + kProgramRoom) * need.ranks));
    return text;
}

std::string admission_text(const HostNeed& need, std::span<const TierVerdict> verdicts) {
    std::string text;
    for (const TierVerdict& verdict : verdicts) {
        const bool first = text.empty();
        text += fmt::format("{}{}{}", first ? "" : "; ", first ? "" : verdict.name + " ",
                            to_text(verdict.need));
        if (verdict.limit)
            text += fmt::format(" of {} ({})", to_text(*verdict.limit), verdict.limited_by);
        if (first)
            text += need.ranks == 1 ? " for the rank of a host"
                                    : fmt::format(" for the {} ranks of a host", need.ranks);
    }
    return text;
}

void begin_admission_json(const HostNeed& need, std::span<const TierVerdict> verdicts,
                          JsonWriter& json) {
    json.begin_object().field("ranks", need.ranks).field("fits", all_fit(verdicts));
    json.field("private_bytes", need.private_total.value).field("arena_bytes", need.arena.value);
    json.field("program_bytes", ((need.program + kProgramRoom) * need.ranks).value);
    json.field("disk_bytes", need.disk.value).field("device_bytes", need.device.value);
    json.key("tiers").begin_array();
    for (const TierVerdict& verdict : verdicts) {
        json.begin_object().field("tier", verdict.name).field("need_bytes", verdict.need.value);
        json.key("limit_bytes");
        if (verdict.limit) {
            json.value(verdict.limit->value);
        } else {
            json.null();
        }
        json.field("limited_by", verdict.limited_by).field("fits", verdict.fits()).end_object();
    }
    json.end_array();
}

void require_admission(const HostNeed& need, std::span<const TierVerdict> verdicts,
                       const std::string& advice) {
    if (all_fit(verdicts)) return;
    std::string text;
    bool disk_only = true;
    for (const TierVerdict& verdict : verdicts) {
        if (verdict.fits()) continue;
        disk_only = disk_only && verdict.tier == TierVerdict::Tier::kDisk;
        text +=
            fmt::format("{}{}: {} needed by {}, but only {} available ({})",
                        text.empty() ? "" : "; ", verdict.name, to_text(verdict.need),
                        counted(need.ranks, "rank"), to_text(*verdict.limit), verdict.limited_by);
    }
    fail(disk_only ? ExitCode::kDisk : ExitCode::kSetup,
         "the job does not fit on this host: {}; {}", text, advice);
}

std::string estimate_text(std::string_view what, Bytes estimated, Bytes measured) {
    return fmt::format("memory of {}: {} estimated, {} measured at most, {:.2f} of it", what,
                       to_text(estimated), to_text(measured),
                       static_cast<double>(measured.value) / static_cast<double>(estimated.value));
}

}  // namespace dslaunch::plan
