#include "plan/choose/memory_choice.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace dslaunch::plan {

namespace {

bool device_is_short(std::span<const TierVerdict> verdicts) {
    return std::any_of(verdicts.begin(), verdicts.end(), [](const TierVerdict& one) {
        return !one.fits() && one.tier == TierVerdict::Tier::kDevice;
    });
}

// Returns the largest count for which FITS returns true, at most BEGIN * kMostTimes. Searches by
// doubling and bisection from BEGIN. REQUIRES: FITS(BEGIN).
template <typename Fits>
int64_t largest_that(int64_t begin, const Fits& fits) {
    int64_t low = begin, high = begin * 2;
    while (high <= begin * kMostTimes && fits(high)) {
        low = high;
        high *= 2;
    }
    high = std::min(high, begin * kMostTimes + 1);
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        (fits(middle) ? low : high) = middle;
    }
    return low;
}

// Returns the changes as keys of a config.
std::string choice_text(const MemoryChoice& from, const MemoryChoice& to) {
    std::vector<std::string> changes;
    if (to.stage != from.stage)
        changes.push_back(fmt::format("zero_optimization.stage: {}", to.stage));
    if (to.recompute_groups != from.recompute_groups)
        changes.push_back(
            fmt::format("activation_checkpointing.number_checkpoints: {}", to.recompute_groups));
    if (to.optimizer_on_disk != from.optimizer_on_disk)
        changes.push_back("zero_optimization.offload_optimizer: {device: nvme, nvme_path: FOLDER}");
    if (to.parameters_on_disk != from.parameters_on_disk)
        changes.push_back("zero_optimization.offload_param: {device: nvme, nvme_path: FOLDER}");
    if (to.micro_rows != from.micro_rows)
        changes.push_back(fmt::format(
            "train_micro_batch_size_per_gpu: {} (and multiply gradient_accumulation_steps by {})",
            to.micro_rows, from.micro_rows / to.micro_rows));
    if (to.hosts != from.hosts)
        changes.push_back(
            fmt::format("{} like these instead of {}", counted(to.hosts, "host"), from.hosts));
    return join(changes, ", ");
}

class Ladder {
  public:
    explicit Ladder(const ChoiceSearch& search) : search_(search), best_(search.from) {
        if (const std::optional<HostNeed> need = search.need_of(search.from))
            for_device_ = device_is_short(admit(*need, search.limits));
    }

    std::optional<FittingChoice> climb() {
        const bool found = higher_stage() || recompute() || optimizer_to_disk() ||
                           parameters_to_disk() || fewer_rows() || more_hosts();
        if (!found) return {};
        take_back(&MemoryChoice::parameters_on_disk);
        take_back(&MemoryChoice::optimizer_on_disk);
        take_back(&MemoryChoice::recompute_groups);
        lower_stage();
        return FittingChoice{best_, *search_.need_of(best_), choice_text(search_.from, best_)};
    }

  private:
    // Returns the memory that CHOICE needs. This is the GPU's memory if the search is for a job
    // that does not fit on its GPUs, and the host's memory otherwise. Returns nullopt if CHOICE
    // cannot be run.
    [[nodiscard]] std::optional<Bytes> memory_of(const MemoryChoice& choice) const {
        const std::optional<HostNeed> need = search_.need_of(choice);
        if (!need) return {};
        return for_device_ ? need->device : need->of_host();
    }

    [[nodiscard]] bool fits(const MemoryChoice& choice) const {
        const std::optional<HostNeed> need = search_.need_of(choice);
        return need && all_fit(admit(*need, search_.limits));
    }

    // Makes CHOICE the best choice so far if it needs less memory. Returns true if it needs less
    // and fits.
    bool step_to(const MemoryChoice& choice) {
        const std::optional<Bytes> before = memory_of(best_), after = memory_of(choice);
        if (!after || (before && *after >= *before)) return false;
        best_ = choice;
        return fits(best_);
    }

    bool higher_stage() {
        for (int64_t stage = best_.stage + 1; stage <= 3; ++stage) {
            MemoryChoice choice = best_;
            choice.stage = stage;
            if (step_to(choice)) return true;
        }
        return false;
    }

    // Tries recomputation with more and more groups. Recomputation costs one extra forward pass for
    // any number of groups.
    bool recompute() {
        for (int64_t groups = 2; groups < 2 * search_.segments; groups *= 2) {
            MemoryChoice choice = best_;
            choice.recompute_groups = std::min(groups, search_.segments);
            if (groups > search_.from.recompute_groups && step_to(choice)) return true;
        }
        return false;
    }

    bool optimizer_to_disk() {
        MemoryChoice choice = best_;
        choice.optimizer_on_disk = true;
        choice.stage = std::max<int64_t>(choice.stage, 1);
        return step_to(choice);
    }

    bool parameters_to_disk() {
        MemoryChoice choice = best_;
        choice.parameters_on_disk = true;
        choice.stage = 3;
        return step_to(choice);
    }

    // Tries micro batches with fewer rows. The number of rows divides the given number, so that the
    // global batch can stay the same.
    bool fewer_rows() {
        for (int64_t rows = search_.from.micro_rows / 2; rows >= 1; --rows) {
            if (search_.from.micro_rows % rows != 0) continue;
            MemoryChoice choice = best_;
            choice.micro_rows = rows;
            if (step_to(choice)) return true;
        }
        return false;
    }

    // Tries more hosts: the more hosts there are, the smaller is the shard of each rank.
    bool more_hosts() {
        const auto short_with = [&](int64_t hosts) {
            MemoryChoice choice = best_;
            choice.hosts = hosts;
            return !fits(choice);
        };
        best_.hosts = largest_that(best_.hosts, short_with) + 1;
        return fits(best_);
    }

    template <typename Field>
    void take_back(Field MemoryChoice::*field) {
        MemoryChoice choice = best_;
        choice.*field = search_.from.*field;
        if (choice != best_ && fits(choice)) best_ = choice;
    }

    void lower_stage() {
        for (int64_t stage = search_.from.stage; stage < best_.stage; ++stage) {
            MemoryChoice choice = best_;
            choice.stage = stage;
            if (fits(choice)) {
                best_ = choice;
                return;
            }
        }
    }

    const ChoiceSearch& search_;
    MemoryChoice best_;
    bool for_device_ = false;
};

}  // namespace

std::optional<FittingChoice> nearest_fitting(const ChoiceSearch& search) {
    return Ladder(search).climb();
}

int64_t most_rows(const ChoiceSearch& search) {
    return largest_that(search.from.micro_rows, [&](int64_t rows) {
        MemoryChoice choice = search.from;
        choice.micro_rows = rows;
        const std::optional<HostNeed> need = search.need_of(choice);
        return need && all_fit(admit(*need, search.limits));
    });
}

std::string admission_advice(const ChoiceSearch& search, std::span<const TierVerdict> verdicts) {
    const bool memory = std::any_of(verdicts.begin(), verdicts.end(), [](const TierVerdict& one) {
        return !one.fits() && one.tier != TierVerdict::Tier::kDisk;
    });
    const bool device = device_is_short(verdicts);
    if (!memory) return "free some space there, or set nvme_path to other folders";
    if (const std::optional<FittingChoice> nearest = nearest_fitting(search))
        return fmt::format("with these changes, the job needs only {} of {}: {}",
                           to_text(device ? nearest->cost.device : nearest->cost.of_host()),
                           device ? "a GPU's memory" : "memory", nearest->why);
    if (device)
        return "the job does not fit even with a higher ZeRO stage, recompute, a smaller micro "
               "batch or more hosts: use GPUs with more memory";
    return "the job does not fit even with a higher ZeRO stage, recompute, the available offload, "
           "a smaller micro batch or more hosts: use fewer ranks per host, or raise the memory "
           "limit";
}

}  // namespace dslaunch::plan
