// Resolves offload: the states that are kept outside memory, where they are kept, and in which
// portions.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/text.h"
#include "base/text/file_faults.h"
#include "config/resolve/resolve_parts.h"

namespace dslaunch::config {

// A config section that moves some of the states out of memory.
struct OffloadSection {
    const char* path;
    const char* old_switch;  // the key that DeepSpeed's first versions had instead
    OffloadDevice OffloadConfig::*device;
    int64_t stage_min;
    const char* below_stage_min;  // the message if the ZeRO stage is too low
    bool ignored_below = false;   // at too low a stage it is ignored, as in DeepSpeed

    [[nodiscard]] std::string key(const char* name) const {
        return fmt::format("{}.{}", path, name);
    }
};

namespace {

using Kind = Value::Kind;

constexpr OffloadSection kOptimizer{
    "zero_optimization.offload_optimizer", "zero_optimization.cpu_offload",
    &OffloadConfig::optimizer, 1,
    "use zero_optimization.stage 1, whose results are bitwise the same as at stage 0"};
constexpr OffloadSection kParameters{
    "zero_optimization.offload_param",
    "zero_optimization.cpu_offload_param",
    &OffloadConfig::parameters,
    3,
    "below stage 3 every rank keeps all parameters, as in DeepSpeed",
    true};

constexpr std::array kSections = {&kOptimizer, &kParameters};

constexpr const char* kSubGroup = "zero_optimization.sub_group_size";
constexpr const char* kOldPinMemory = "zero_optimization.cpu_offload_use_pin_memory";
constexpr const char* kChunk = "dslaunch.offload.chunk_numel";
constexpr const char* kPlacement = "dslaunch.offload.placement";
constexpr const char* kCache = "dslaunch.offload.cache";
constexpr const char* kEngine = "dslaunch.offload.engine";
constexpr const char* kMoments = "dslaunch.offload.compress.moments";
constexpr const char* kLossless = "dslaunch.offload.compress.lossless";
constexpr const char* kOnlyNvme = "used only with device nvme";
constexpr const char* kOnlyOptimizer = "used only with offload_optimizer to nvme";
constexpr const char* kOnlyOnDisk = "used only with offload to nvme";
constexpr int64_t kPageBytes = 4096;

struct AioNumber {
    const char* path;
    int64_t AioConfig::*field;
    int64_t most;
};

// The largest queue depth is 2^15, which is io_uring's limit.
constexpr std::array<AioNumber, 3> kAioNumbers{{
    {"aio.block_size", &AioConfig::block_bytes, int64_t{1} << 30},
    {"aio.queue_depth", &AioConfig::queue_depth, int64_t{1} << 15},
    {"aio.intra_op_parallelism", &AioConfig::threads, 1024},
}};

// Returns what is wrong with the folders in VALUE; empty if nothing is.
std::string wrong_folders(const Value& value) {
    if (value.is(Kind::kString) && value.text.find(',') != std::string::npos)
        return "contains a comma: for several disks, give a list of folders";
    const std::vector<std::string> folders = texts_of(value);
    if (folders.empty()) return "is an empty list: give a folder on the disk";
    std::set<std::string> seen;
    for (const std::string& folder : folders) {
        if (folder.empty()) return "is empty: give a folder on the disk";
        if (std::string text = unexpanded_text(folder); !text.empty()) return text;
        if (!seen.insert(folder).second)
            return fmt::format("names {} twice: give one folder on each disk", folder);
    }
    return "";
}

OffloadDevice offload_device(KeyReader& keys, RunConfig& run, const OffloadSection& section) {
    const std::string path = section.key("device");
    const Value* old = keys.given(section.old_switch);
    std::string written = path, device;
    if (old != nullptr && !keys.has(path)) {
        written = section.old_switch;
        device = old->boolean ? "cpu" : "none";
        keys.record(path, make_value(device), old->origin);
        keys.note(written, fmt::format("is deprecated, and read as {}: {}", path, device));
    } else {
        if (old != nullptr)
            keys.problem(
                section.old_switch,
                fmt::format("is the old form of {}, which is also given: remove the old one",
                            path));
        device = keys.take_text(path);
    }
    if (device != "cpu" && device != "nvme") return OffloadDevice::kNone;
    const int64_t stage = run.zero.stage;
    if (stage < section.stage_min && section.ignored_below) {
        keys.note(written, fmt::format("has no effect at ZeRO stage {}: {}", stage,
                                       section.below_stage_min));
        return OffloadDevice::kNone;
    }
    if (stage < section.stage_min)
        keys.problem(written, fmt::format("is not supported at ZeRO stage {}: {}", stage,
                                          section.below_stage_min));
    if (device == "nvme") return OffloadDevice::kNvme;
    keys.note(written, "moves nothing in a run on CPUs: everything is in CPU memory already");
    return OffloadDevice::kCpu;
}

// Reads the offload folders. The states of parameters and optimizer share one set of folders on the
// disks, so both config sections must name the same folders.
void offload_folders(KeyReader& keys, RunConfig& run) {
    OffloadConfig& offload = run.offload;
    std::string first;
    for (const OffloadSection* const section : kSections) {
        const std::string path = section->key("nvme_path");
        if (offload.*section->device != OffloadDevice::kNvme) {
            keys.unread(path, kOnlyNvme);
            continue;
        }
        const Value* value = keys.given(path);
        if (value == nullptr) {
            const Value* said = find_path(keys.root(), path);
            if (said == nullptr || said->is(Kind::kNull))
                keys.problem(path,
                             "is not given: device nvme needs a folder on the disk, or a list with "
                             "one folder on each disk");
            continue;
        }
        if (const std::string wrong = wrong_folders(*value); !wrong.empty()) {
            keys.problem(path, wrong);
            continue;
        }
        keys.record(path, *value, value->origin);
        const std::vector<std::string> folders = texts_of(*value);
        if (first.empty()) {
            first = path;
            offload.nvme_paths = folders;
        } else if (std::set(folders.begin(), folders.end()) !=
                   std::set(offload.nvme_paths.begin(), offload.nvme_paths.end())) {
            keys.problem(path, fmt::format("differs from {}: all folders form one striped tier, so "
                                           "give the same list in both",
                                           first));
        }
    }
}

void optimizer_portions(KeyReader& keys, RunConfig& run) {
    OffloadConfig& offload = run.offload;
    const std::string ratio = kOptimizer.key("ratio"), buffers = kOptimizer.key("buffer_count");
    if (offload.optimizer != OffloadDevice::kNvme) {
        keys.unread(ratio, kOnlyNvme);
        keys.unread(buffers, kOnlyNvme);
        keys.unread(kChunk, kOnlyOptimizer);
        return keys.unread(kSubGroup, "the update goes bucket by bucket (reduce_bucket_size)");
    }
    offload.optimizer_ratio = keys.take_number(ratio);
    offload.optimizer_buffer_count = keys.take_integer(buffers);
    if (offload.optimizer_buffer_count < 2)
        keys.problem(
            buffers,
            "must be at least 2: one chunk is updated while another one is read or written");
    offload.sub_group_numel = keys.take_integer(kSubGroup);
    if (offload.sub_group_numel == 0) offload.sub_group_numel = OffloadConfig{}.sub_group_numel;
    const Value* chunk = keys.given(kChunk);
    if (chunk == nullptr) return keys.derive(kChunk, Value{}, "the plan chooses", /*unsaid=*/true);
    offload.chunk_numel = keys.take_integer(kChunk);
    if (offload.chunk_numel > offload.sub_group_numel)
        keys.problem(kChunk, fmt::format("{} is above {} = {}, the most that is updated at once",
                                         offload.chunk_numel, kSubGroup, offload.sub_group_numel));
}

void parameter_portions(KeyReader& keys, RunConfig& run) {
    OffloadConfig& offload = run.offload;
    const std::string resident = kParameters.key("max_in_cpu");
    if (offload.parameters != OffloadDevice::kNvme) return keys.unread(resident, kOnlyNvme);
    if (keys.has(resident)) {
        offload.parameters_in_memory_numel = keys.take_integer(resident);
    } else {
        keys.derive(resident, make_value(int64_t{0}),
                    "0: a rank's shard is in memory only while the plan uses it");
    }
}

void placement(KeyReader& keys, RunConfig& run) {
    OffloadConfig& offload = run.offload;
    if (!offload.on_disk()) return keys.unread(kPlacement, kOnlyOnDisk);
    offload.adaptive = keys.take_text(kPlacement) == "auto";
    if (!offload.adaptive) return;
    if (offload.parameters_in_memory_numel > 0)
        keys.problem(
            kParameters.key("max_in_cpu"),
            fmt::format("sets what stays in memory, but so does {} auto: remove one of them",
                        kPlacement));
    const Value* moments = keys.given(kMoments);
    if (offload.optimizer == OffloadDevice::kNvme && moments != nullptr && moments->text != "none")
        keys.problem(kPlacement,
                     fmt::format("auto cannot be used with {} {}: only values on disk are rounded, "
                                 "and auto chooses these values by the measured speed of the disk, "
                                 "so the results depend on this speed; remove one of the two keys",
                                 kMoments, moments->text));
}

void cache(KeyReader& keys, RunConfig& run) {
    OffloadConfig& offload = run.offload;
    if (!offload.on_disk()) return keys.unread(kCache, kOnlyOnDisk);
    const std::string rule = keys.take_text(kCache);
    offload.eviction = rule == "lru"   ? EvictionRule::kLru
                       : rule == "lfu" ? EvictionRule::kLfu
                                       : EvictionRule::kFifo;
    if (offload.eviction == EvictionRule::kLfu &&
        offload.optimizer_buffer_count <= kLfuPassingBuffers)
        keys.note(kCache,
                  fmt::format("lfu keeps chunks in memory only in buffers beyond the first {}, "
                              "through which chunks pass; {} is {}, so none are kept",
                              kLfuPassingBuffers, kOptimizer.key("buffer_count"),
                              offload.optimizer_buffer_count));
}

// Reads pin_memory. The optimizer's and the parameters' section must agree on it, because both use
// the same buffers for transfers to and from the disks.
void pin_memory(KeyReader& keys, RunConfig& run) {
    OffloadConfig& offload = run.offload;
    std::vector<std::string> read, said;
    for (const OffloadSection* const section : kSections) {
        const std::string path = section->key("pin_memory");
        if (offload.*section->device != OffloadDevice::kNvme) {
            keys.unread(path, kOnlyNvme);
            continue;
        }
        read.push_back(path);
        if (keys.has(path)) said.push_back(path);
    }
    if (!offload.on_disk()) return keys.unread(kOldPinMemory, kOnlyOnDisk);
    if (keys.has(kOldPinMemory)) {
        if (said.empty()) {
            keys.note(kOldPinMemory,
                      fmt::format("is deprecated, and read as {}", join(read, ", ")));
        } else {
            keys.problem(
                kOldPinMemory,
                fmt::format("is the old form of {}, which is also given: remove the old one",
                            said.front()));
        }
        said.push_back(kOldPinMemory);
    }
    if (said.empty()) {
        for (const std::string& path : read) offload.pin_memory = keys.take_bool(path);
        return;
    }
    const Value& first = *keys.given(said.front());
    offload.pin_memory = first.boolean;
    if (said.size() == 2 && keys.given(said[1])->boolean != first.boolean)
        keys.problem(
            said[1],
            fmt::format("differs from {}: the two share their buffers, so give both the same value",
                        said.front()));
    for (const std::string& path : read) keys.record(path, make_value(first.boolean), first.origin);
}

void disk_requests(KeyReader& keys, RunConfig& run) {
    OffloadConfig& offload = run.offload;
    for (const AioNumber& number : kAioNumbers) {
        const std::string path = number.path;
        if (!offload.on_disk()) {
            keys.unread(path, kOnlyOnDisk);
            continue;
        }
        if (!keys.has(path)) {
            keys.derive(path, Value{},
                        "what `dslaunch io-bench` stored for the disk, else the engine's default",
                        /*unsaid=*/true);
            continue;
        }
        const int64_t value = keys.take_integer(path);
        offload.aio.*number.field = value;
        if (value > number.most)
            keys.problem(path, fmt::format("{} is more than the maximum, {}", value, number.most));
    }
    if (offload.aio.block_bytes % kPageBytes != 0)
        keys.problem(kAioNumbers[0].path, fmt::format("must be a multiple of {}: requests bypass "
                                                      "the page cache, so they must be whole pages",
                                                      kPageBytes));
    if (!offload.on_disk()) return keys.unread(kEngine, kOnlyOnDisk);
    const std::string engine = keys.take_text(kEngine);
    if (engine == "io_uring")
        keys.unread(kAioNumbers[2].path,
                    "used only by the thread engine (dslaunch.offload.engine)");
    offload.engine = engine == "io_uring"  ? OffloadEngine::kIoUring
                     : engine == "threads" ? OffloadEngine::kThreads
                                           : OffloadEngine::kAuto;
}

void transfer_formats(KeyReader& keys, RunConfig& run) {
    OffloadConfig& offload = run.offload;
    if (offload.optimizer == OffloadDevice::kNvme) {
        const std::string moments = keys.take_text(kMoments);
        if (run.optimizer.amsgrad && moments != "none")
            keys.problem(
                kMoments,
                fmt::format("{} is not supported with amsgrad, because stochastic rounding makes "
                            "the largest second moment grow with every step: use none",
                            moments));
        offload.moments = moments == "bf16"   ? MomentFormat::kBf16
                          : moments == "int8" ? MomentFormat::kInt8
                                              : MomentFormat::kFp32;
    } else {
        keys.unread(kMoments, kOnlyOptimizer);
    }
    if (!offload.on_disk()) return keys.unread(kLossless, kOnlyOnDisk);
    offload.lossless = keys.take_text(kLossless) == "zstd";
}

}  // namespace

void resolve_offload(KeyReader& keys, RunConfig& run) {
    OffloadConfig& offload = run.offload;
    for (const OffloadSection* const section : kSections) {
        offload.*section->device = offload_device(keys, run, *section);
        if (offload.*section->device == OffloadDevice::kNvme && run.optimizer.needs_whole_tensors())
            keys.problem(section->key("device"),
                         fmt::format("nvme moves states in chunks that cut tensors, but {} updates "
                                     "whole tensors: use cpu or none",
                                     keys.optimizer_name()));
    }
    if (offload.on_disk() && !run.precision.master_copies)
        keys.problem("bf16.bf16_master_weights_and_grads",
                     "cannot be used with offload to NVMe, which moves master weights: remove one "
                     "of the two");
    if (offload.optimizer == OffloadDevice::kNvme && run.states != MomentFormat::kFp32)
        keys.problem("dslaunch.optimizer.states",
                     fmt::format("is for moments in memory, but {} puts them on disk: use {}",
                                 kOptimizer.key("device"), kMoments));
    offload_folders(keys, run);
    optimizer_portions(keys, run);
    parameter_portions(keys, run);
    placement(keys, run);
    cache(keys, run);
    pin_memory(keys, run);
    disk_requests(keys, run);
    transfer_formats(keys, run);
}

}  // namespace dslaunch::config
