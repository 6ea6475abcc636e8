#include "worker/describe_run.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/log.h"
#include "kernels/flat_optimizer.h"
#include "worker/job_stages.h"
#include "worker/job_tensor.h"

namespace dslaunch {

void describe_run(const JobSetup& setup, const WorkerEnvironment& environment, Reporter& reporter) {
    log_info("config", "from {}\n{}", setup.config_origin, resolved_table(setup.resolved));
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
                 setup.model->parameters()[static_cast<size_t>(unused)].name);
    if (!setup.segmented->lowered().opaque_node.empty())
        log_warn("train", "{} needs the module itself: what it calls stays in one segment",
                 setup.segmented->lowered().opaque_node);
    JsonWriter json;
    json.begin_object().field("version", DSL_VERSION).field("config_origin", setup.config_origin);
    json.key("config").raw(resolved_json(setup.resolved));
    json.field("world_size", environment.world_size)
        .field("parameters", setup.info.parameter_numel())
        .field("optimizer_kernels", isa_name(isa_in_use()));
    json.field("segments", setup.model_info.segments.size())
        .field("plan_hash", fmt::format("{:016x}", setup.plan.hash()));
    json.end_object();
    reporter.run_info(json.text());
}

}  // namespace dslaunch
