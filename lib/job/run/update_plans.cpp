#include "job/run/update_plans.h"

#include <algorithm>

#include "job/setup/job_layout.h"

namespace dslaunch::job {

UpdatePlans::UpdatePlans(const JobSetup& setup, runtime::Collectives& own)
    : setup_(setup), own_(own), kinds_(setup), now_(kind_of(setup.plan)) {}

const plan::StepPlan* UpdatePlans::of(int64_t update) {
    const plan::StepKind kind = kinds_.of(update);
    if (kind == now_) return nullptr;
    now_ = kind;
    if (kind == kind_of(setup_.plan)) return &setup_.plan;
    const auto found = std::ranges::find(plans_, kind, kind_of);
    if (found != plans_.end()) return &*found;
    plans_.push_back(make_plan(setup_, setup_.place.of_stage, kind));
    compare_plans(own_, plans_.back());
    return &plans_.back();
}

}  // namespace dslaunch::job
