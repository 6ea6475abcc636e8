#include "job/predict/job_room.h"

#include <algorithm>

#include "base/log.h"
#include "base/text/wire.h"

namespace dslaunch::job {

void JobRoom::check_host(const JobSetup& setup, const runtime::Topology& place, bool saves) {
    if (setup.on_gpu) return;
    admission_ = admit_host(setup, place, {place.local_world_size(), saves});
    estimate_ = admission_->need.of_rank();
    if (place.rank() == 0)
        log_debug("memory", "\n{}", plan::admission_table(admission_->need, admission_->verdicts));
    plan::require_admission(admission_->need, admission_->verdicts, admission_->advice);
}

std::string JobRoom::text() const {
    return admission_ ? plan::admission_text(admission_->need, admission_->verdicts) : "";
}

void JobRoom::agree(runtime::Collectives& job) {
    for (const std::string& words : job.all_gather(WireWriter().i64(estimate_.value).bytes()))
        estimate_ = std::max(estimate_, Bytes{WireReader(words, "estimate of a rank").i64()});
}

void JobRoom::compare(JobSetup& setup, const runtime::Topology& place,
                      const std::optional<plan::StepPlanOptions>& options, Bytes peak_rss) {
    if (options && admission_) {
        setup.plan_options = *options;
        estimate_ = need_of_host(setup, place, admission_->program).of_rank();
    }
    if (estimate_.value > 0) log_info("train", "{}", plan::estimate_text(estimate_, peak_rss));
}

}  // namespace dslaunch::job
