#include "job/setup/lower_options.h"

#include <string>
#include <vector>

#include "graph/archive/scalar_types.h"
#include "runtime/data/data_source.h"

namespace dslaunch::job {

graph::LowerOptions lower_options(const config::RunConfig& config, c10::Device device,
                                  bool training) {
    graph::LowerOptions options;
    options.trains = training;
    // The column with the target of the loss is not an argument of forward. If the config does not
    // name this column, it cannot be removed from the offered names, so no names are offered.
    const bool names_loss = config.loss.kind != config::LossKind::kModel;
    if (!names_loss || !config.loss.target.empty())
        options.offered = runtime::offered_names(config.data);
    if (names_loss) std::erase(options.offered, config.loss.target);
    options.loss = config.loss;
    options.lora = config.lora;
    options.compression = config.compression;
    // share_job() packs the weights if ranks share micro batches.
    if (config.tensor.size * config.sequence.size == 1) options.base = config.lora.base;
    options.adapter_seed = config.seed;
    options.device = device;
    options.compute_dtype = graph::scalar_type_of(config.precision.compute);
    options.keeps_fp32_parameters = config.precision.fp32_weights;
    return options;
}

}  // namespace dslaunch::job
