#include "job/setup/describe_run.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/text/json.h"
#include "job/setup/job_layout.h"
#include "job/setup/job_stages.h"
#include "job/setup/job_tensor.h"
#include "kernels/flat_optimizer.h"

namespace dslaunch::job {

void describe_run(const JobSetup& setup, const launch::WorkerEnvironment& environment,
                  runtime::Reporter& reporter) {
    log_info("config", "from {}\n{}", setup.config_origin, config::resolved_table(setup.resolved));
    log_info("train",
             "{} parameters ({} trainable) in {} segments, {} buckets; {} instructions a step",
             setup.info.parameter_numel(), setup.info.trainable_numel(),
             setup.model_info.segments.size(), setup.layout.buckets.size(),
             setup.plan.instructions.size());
    if (const std::string why = shard_text(setup); !why.empty())
        log_info("train", "dslaunch.shard auto: {}", why);
    if (setup.place.is_pipeline()) log_info("train", "{}", stages_text(setup));
    if (setup.sharing.plan) log_info("train", "{}", sharing_text(setup));
    for (const int unused : setup.segmented->unused_parameters())
        log_warn("train", "parameter {} is never read by forward: it is not trained",
                 setup.model->parameters()[unused].name);
    if (!setup.segmented->lowered().opaque_node.empty())
        log_warn("train", "{} needs the module itself: what it calls stays in one segment",
                 setup.segmented->lowered().opaque_node);
    JsonWriter json;
    json.begin_object().field("version", DSL_VERSION).field("config_origin", setup.config_origin);
    json.key("config").raw(config::resolved_json(setup.resolved));
    json.field("world_size", environment.world_size)
        .field("parameters", setup.info.parameter_numel())
        .field("optimizer_kernels", kernels::isa_name(kernels::isa_in_use()));
    json.field("segments", setup.model_info.segments.size())
        .field("plan_hash", fmt::format("{:016x}", setup.plan.hash()));
    json.end_object();
    reporter.run_info(json.text());
}

}  // namespace dslaunch::job
