#include "plan/choose/tuning_space.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/text.h"
#include "base/text/json.h"

namespace dslaunch::plan {
namespace {

constexpr int64_t kBucketNumelMin = 64 << 10;
constexpr int64_t kRecomputeSegmentsMin = 4;  // with fewer segments, recompute frees little

template <typename Value>
void add_new(std::vector<Value>& list, const Value& value) {
    if (std::ranges::find(list, value) == list.end()) list.push_back(value);
}

// Returns the sizes of a micro batch, ascending.
std::vector<int64_t> micro_sizes(const TunedSettings& given, const TuningLimits& limits) {
    std::vector<int64_t> all;
    for (int64_t size = 1; size <= limits.rows; ++size) {
        const bool is_inside = size >= limits.micro_rows_min && size <= limits.micro_rows_max;
        if (limits.rows % size == 0 && (is_inside || size == given.micro_rows)) all.push_back(size);
    }
    const auto most = std::max<size_t>(1, static_cast<size_t>(limits.micro_sizes));
    if (all.size() <= most) return all;
    std::vector<int64_t> spread;
    const size_t steps = std::max<size_t>(1, most - 1);
    for (size_t i = 0; i < most; ++i) add_new(spread, all[(all.size() - 1) * i / steps]);
    // The given size takes the place of its nearest neighbour.
    if (std::ranges::find(spread, given.micro_rows) == spread.end())
        *std::ranges::min_element(spread, {}, [&](int64_t size) {
            return std::abs(
                std::log2(static_cast<double>(size) / static_cast<double>(given.micro_rows)));
        }) = given.micro_rows;
    std::ranges::sort(spread);
    return spread;
}

std::vector<int64_t> stages(const TunedSettings& given, const TuningLimits& limits) {
    std::vector<int64_t> list = {given.stage};
    for (const int64_t stage : limits.stages)
        if (limits.ranks > 1 || stage == 0 || limits.tunes_disk) add_new(list, stage);
    return list;
}

std::vector<int64_t> recompute_groups(const TunedSettings& given, const TuningLimits& limits) {
    std::vector<int64_t> list = {given.recompute_groups};
    if (!limits.tunes_recompute) return list;
    add_new(list, int64_t{0});
    if (limits.segments >= kRecomputeSegmentsMin)
        add_new(list,
                static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(limits.segments)))));
    return list;
}

std::vector<int64_t> buckets(const TunedSettings& given, const TuningLimits& limits) {
    std::vector<int64_t> list = {given.bucket_numel};
    if (!limits.tunes_buckets) return list;
    // All bucket sizes of at least trained_numel have the same effect, since there is only one
    // bucket. Therefore at most one of these sizes is listed.
    std::vector<int64_t> meant = {std::min(given.bucket_numel, limits.trained_numel)};
    for (const int64_t parts : {1, 4, 16}) {
        const int64_t numel = std::max(kBucketNumelMin, (limits.trained_numel + parts - 1) / parts);
        const int64_t means = std::min(numel, limits.trained_numel);
        if (std::ranges::find(meant, means) != meant.end()) continue;
        meant.push_back(means);
        list.push_back(numel);
    }
    return list;
}

struct OnDisk {
    bool optimizer = false;
    bool parameters = false;
    bool operator==(const OnDisk&) const = default;
};

std::vector<OnDisk> places(const TunedSettings& given, const TuningLimits& limits) {
    std::vector<OnDisk> list = {{given.optimizer_on_disk, given.parameters_on_disk}};
    if (!limits.tunes_disk) return list;
    for (const OnDisk& place : {OnDisk{}, OnDisk{true, false}, OnDisk{true, true}})
        add_new(list, place);
    return list;
}

bool is_possible(const TunedSettings& settings) {
    return settings.stage >= (settings.parameters_on_disk ? 3 : settings.optimizer_on_disk ? 1 : 0);
}

}  // namespace

int differences(const TunedSettings& a, const TunedSettings& b) {
    return int{a.micro_rows != b.micro_rows} + int{a.stage != b.stage} +
           int{a.recompute_groups != b.recompute_groups} +
           int{a.optimizer_on_disk != b.optimizer_on_disk} +
           int{a.parameters_on_disk != b.parameters_on_disk} +
           int{a.bucket_numel != b.bucket_numel};
}

std::string settings_text(const TunedSettings& settings) {
    std::string text = fmt::format("micro batch {} x {}, ZeRO {}", settings.micro_rows,
                                   settings.accumulation_steps, settings.stage);
    if (settings.recompute_groups > 0)
        text += fmt::format(", recompute {}", settings.recompute_groups);
    if (settings.optimizer_on_disk) text += ", states on disk";
    if (settings.parameters_on_disk) text += ", parameters on disk";
    if (settings.bucket_numel != TunedSettings{}.bucket_numel)
        text += fmt::format(", buckets of {}", settings.bucket_numel);
    return text;
}

std::vector<TunedSettings> tuning_space(const TunedSettings& given, const TuningLimits& limits) {
    DSL_CHECK(given.micro_rows > 0 && limits.rows % given.micro_rows == 0,
              "a micro batch of {} rows does not divide {} rows", given.micro_rows, limits.rows);
    std::vector<TunedSettings> space = {given};
    for (const int64_t stage : stages(given, limits))
        for (const int64_t groups : recompute_groups(given, limits))
            for (const OnDisk& place : places(given, limits))
                for (const int64_t bucket : buckets(given, limits))
                    for (const int64_t rows : micro_sizes(given, limits)) {
                        const TunedSettings one{rows,   limits.rows / rows, stage,
                                                groups, place.optimizer,    place.parameters,
                                                bucket};
                        if (is_possible(one)) add_new(space, one);
                    }
    return space;
}

std::vector<std::string> tuning_overrides(const TunedSettings& chosen, const TunedSettings& given,
                                          int64_t train_rows, const std::string& nvme_path) {
    std::vector<std::string> overrides;
    if (chosen.micro_rows != given.micro_rows) {
        overrides.push_back(fmt::format("train_batch_size={}", train_rows));
        overrides.push_back(fmt::format("train_micro_batch_size_per_gpu={}", chosen.micro_rows));
        overrides.push_back(
            fmt::format("gradient_accumulation_steps={}", chosen.accumulation_steps));
    }
    if (chosen.stage != given.stage)
        overrides.push_back(fmt::format("zero_optimization.stage={}", chosen.stage));
    if (chosen.recompute_groups != given.recompute_groups)
        overrides.push_back(fmt::format(
            "activation_checkpointing.number_checkpoints={}",
            chosen.recompute_groups > 0 ? std::to_string(chosen.recompute_groups) : "null"));
    if (chosen.bucket_numel != given.bucket_numel)
        overrides.push_back(
            fmt::format("zero_optimization.reduce_bucket_size={}", chosen.bucket_numel));
    const auto move = [&](const char* section, bool is, bool was) {
        if (is == was) return;
        overrides.push_back(
            fmt::format("zero_optimization.{}.device={}", section, is ? "nvme" : "none"));
        if (is)
            overrides.push_back(
                fmt::format("zero_optimization.{}.nvme_path={}", section, json_quote(nvme_path)));
    };
    move("offload_optimizer", chosen.optimizer_on_disk, given.optimizer_on_disk);
    move("offload_param", chosen.parameters_on_disk, given.parameters_on_disk);
    return overrides;
}

}  // namespace dslaunch::plan
