#include "job/setup/step_kinds.h"

#include <algorithm>

namespace dslaunch::job {

StepKinds::StepKinds(const JobSetup& setup)
    : exchanges_(setup.config().optimizer, setup.place.of_stage.node_count()),
      lagging_(setup.config().lagging) {}

bool StepKinds::differ(const config::RunConfig& config) {
    return config.optimizer.compresses() || config.lagging.on;
}

plan::StepKind StepKinds::of(int64_t update) {
    return {exchanges_.of(update), runtime::lag_of(lagging_, update)};
}

std::vector<plan::StepKind> all_step_kinds(const JobSetup& setup) {
    std::vector<plan::StepKind> kinds;
    const config::LaggingConfig& lagging = setup.config().lagging;
    const int exchanges = setup.plan_options.compression.errors ? plan::kExchanges : 1;
    for (int e = 0; e < exchanges; ++e) kinds.push_back({static_cast<plan::Exchange>(e), {}});
    if (!lagging.on) return kinds;
    kinds.clear();
    // The kind of an update depends on its place in an interval: first, last or between. The
    // updates in this list include each of these places.
    const int64_t first = std::max<int64_t>(1, lagging.warm_up_steps);
    for (const int64_t update :
         {int64_t{1}, first, first + 1, first + 2, first + lagging.update_interval,
          first + lagging.update_interval + 1, first + lagging.select_interval,
          first + lagging.select_interval + 1}) {
        const plan::StepKind kind{plan::Exchange::kExact, runtime::lag_of(lagging, update)};
        if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
    }
    return kinds;
}

}  // namespace dslaunch::job
