#include "job/run/job_steps.h"

#include "base/log.h"
#include "job/setup/written_parameters.h"
#include "plan/print/trace.h"
#include "storage/files/atomic_file.h"

namespace dslaunch::job {

JobSteps::JobSteps(const JobSetup& setup, const runtime::Topology& place, const Parts& parts,
                   StepsOptions options)
    : setup_(setup),
      place_(place),
      buffers_(parts.buffers),
      writer_(*setup.segmented, parts.state, written_here(setup)),
      options_(std::move(options)) {
    if (setup.plan_options.offload.adaptive) placement_.emplace(setup, place, parts.own);
    if (StepKinds::differ(setup.config())) plans_.emplace(setup, parts.own);
}

const plan::StepPlan* JobSteps::before_step(int64_t update) {
    if (setup_.config().broadcast_buffers) buffers_.broadcast();
    writer_.run();
    return plans_ ? plans_->of(update) : nullptr;
}

void JobSteps::end_step(int64_t /*step*/, double /*loss*/, bool /*skipped*/) {
    if (setup_.config().average_buffers) buffers_.average();
}

const plan::StepPlan* JobSteps::after_step(const runtime::StepRun& run) {
    return placement_ ? placement_->after_step(run) : nullptr;
}

void JobSteps::trace_step(const runtime::StepRun& run) {
    if (options_.output.empty()) return;
    std::vector<plan::InstructionSpan> predicted;
    if (options_.rates) predicted = forecast_step(*run.plan, setup_, place_, *options_.rates);
    const std::string json = plan::trace_json(*run.plan, setup_.info, run.spans, predicted);
    storage::AtomicFile file(options_.output + "/trace.json",
                             Bytes{static_cast<int64_t>(json.size())});
    file.write(json);
    file.commit();
    log_info("train", "{}/trace.json shows step {}: open it at ui.perfetto.dev", options_.output,
             run.step);
}

}  // namespace dslaunch::job
