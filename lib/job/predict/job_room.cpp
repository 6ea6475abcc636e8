#include "job/predict/job_room.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/log.h"
#include "base/text/wire.h"

namespace dslaunch::job {

void JobRoom::check_host(const JobSetup& setup, const runtime::Topology& place, bool saves,
                         runtime::DeviceBackend* device) {
    AdmissionOptions options{place.local_world_size(), saves};
    if (device != nullptr) {
        const runtime::DeviceMemoryState memory = device->memory_state();
        options.device = {memory.left,
                          fmt::format("{}, {}, others hold {}", device->device_name(),
                                      to_text(memory.total), to_text(memory.total - memory.left))};
    }
    admission_ = admit_host(setup, place, options);
    estimate_ = device != nullptr ? admission_->need.device : admission_->need.of_rank();
    if (place.rank() == 0)
        log_debug("memory", "\n{}", plan::admission_table(admission_->need, admission_->verdicts));
    plan::require_admission(admission_->need, admission_->verdicts, admission_->advice);
    if (device != nullptr) device->restart_peak();
}

std::string JobRoom::text() const {
    return admission_ ? plan::admission_text(admission_->need, admission_->verdicts) : "";
}

std::string JobRoom::brief() const {
    if (!admission_ || admission_->verdicts.empty()) return "";
    const plan::TierVerdict& memory = admission_->verdicts.front();
    return to_text(memory.need) + (memory.limit ? " of " + to_text(*memory.limit) : "");
}

void JobRoom::agree(runtime::Collectives& job) {
    for (const std::string& words : job.all_gather(WireWriter().i64(estimate_.value).bytes()))
        estimate_ = std::max(estimate_, Bytes{WireReader(words, "estimate of a rank").i64()});
}

void JobRoom::compare(JobSetup& setup, const runtime::Topology& place,
                      const std::optional<plan::StepPlanOptions>& options,
                      const runtime::TrainResult& result) {
    if (options && admission_) {
        setup.plan_options = *options;
        estimate_ = need_of_host(setup, place, admission_->program).of_rank();
    }
    if (estimate_.value == 0) return;
    if (!setup.on_gpu)
        return log_info("train", "{}", plan::estimate_text("a rank", estimate_, result.peak_rss));
    const Bytes groups = plan::group_memory(setup.plan_options);
    log_info("train", "{}; LibTorch's allocator held {}; NCCL's buffers, estimated: {}",
             plan::estimate_text("a GPU", estimate_ - groups, result.peak_device),
             to_text(result.peak_device_held), to_text(groups));
}

}  // namespace dslaunch::job
