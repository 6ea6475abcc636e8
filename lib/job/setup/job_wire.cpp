#include "job/setup/job_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "storage/exported/module_class.h"

namespace dslaunch::job {

namespace {

// Returns "; it has A, B", naming the classes of modules with parameters.
std::string known_classes(const graph::Model& model) {
    std::set<std::string> classes;
    for (const graph::ModelParameter& parameter : model.parameters())
        classes.insert(parameter.module_classes.begin(), parameter.module_classes.end());
    if (classes.empty()) return "";
    const std::vector<std::string> names(classes.begin(), classes.end());
    return "; it has " + join(names, ", ");
}

// Returns true if each host keeps a copy of the gathered parameters, which its ranks share. RANKS
// is zero_hpz_partition_size; 0 means auto.
bool keeps_copy(int64_t ranks, const runtime::Topology& place) {
    const auto all_have = [&](int64_t number) {
        return std::ranges::all_of(place.node_sizes, [&](int size) { return size == number; });
    };
    if (ranks == 1) return false;
    if (ranks == 0) return place.node_count() > 1 && place.local_world_size() > 1;
    if (!all_have(ranks))
        fail(ExitCode::kConfig,
             "zero_optimization.zero_hpz_partition_size: {} is not possible: of the {} ranks that "
             "train the same parameters, {} are on this host. The ranks of each host share one "
             "copy, and all hosts need the same number of ranks: give the number of ranks of one "
             "host, or 1",
             ranks, place.world_size(), place.local_world_size());
    return true;
}

// Names of each WirePacking for messages, in the order of the enum.
constexpr std::array kPackingWords = {"exact", "in 8 bits", "in 4 bits", "in bf16", "in fp16"};

// Returns a text that names the modules whose gradients are rounded; empty if the gradients of all
// modules are rounded.
std::string exact_text(const JobSetup& setup) {
    if (!setup.config().zero.wire.gradient_modules) return "";
    int64_t rounded = 0, trained = 0;
    for (const plan::ParameterInfo& parameter : setup.info.parameters) {
        if (!parameter.trainable) continue;
        trained += parameter.numel;
        if (!parameter.exact_gradient) rounded += parameter.numel;
    }
    return fmt::format(" of {} ({} of {} elements)",
                       join(*setup.config().zero.wire.gradient_modules, ", "), rounded, trained);
}

}  // namespace

void mark_exact_gradients(const config::WireConfig& config, const graph::Model& model,
                          plan::ModelInfo& info) {
    if (!config.gradient_modules) return;
    const auto is_rounded = [&](const std::string& of_module) {
        return std::ranges::any_of(*config.gradient_modules, [&](const std::string& name) {
            return storage::names_class(name, of_module);
        });
    };
    bool any = false;
    for (size_t p = 0; p < info.parameters.size(); ++p) {
        const bool rounded = std::ranges::any_of(model.parameters()[p].module_classes, is_rounded);
        info.parameters[p].exact_gradient = !rounded;
        any = any || rounded;
    }
    if (config.modules_given && !any)
        fail(ExitCode::kConfig,
             "torch_autocast.lower_precision_safe_modules: no module of the model is a {}: give "
             "class names as Python imports them, such as torch.nn.Linear{}",
             join(*config.gradient_modules, " or a "), known_classes(model));
}

plan::HostWire wire_of(const config::RunConfig& config, const runtime::Topology& place,
                       bool on_gpu) {
    plan::HostWire wire;
    if (on_gpu) return wire;
    const config::WireConfig& said = config.zero.wire;
    for (const WireKey& choice : kWireKeys)
        if (said.*choice.said == config::WireChoice::kOn) wire.*choice.wire = choice.packing;
    if (said.gradient_dtype != DType::kF32) {
        wire.gradients =
            said.gradient_dtype == DType::kF16 ? WirePacking::kF16 : WirePacking::kBf16;
        wire.predivide = said.predivide_factor > 0 ? said.predivide_factor
                                                   : static_cast<double>(place.world_size());
    }
    wire.error_feedback = said.error_feedback;
    wire.host_copy = keeps_copy(said.host_copy_ranks, place);
    return wire;
}

std::string wire_text(const JobSetup& setup) {
    const plan::StepPlanOptions& options = setup.plan_options;
    std::vector<std::string> clauses;
    const auto packed = [&](const std::string& what, WirePacking packing, bool travels) {
        if (packing == WirePacking::kNone) return;
        clauses.push_back(fmt::format("{} {}", what,
                                      travels
                                          ? kPackingWords[static_cast<size_t>(packing)]
                                          : "exact, because hosts do not send them to each other"));
    };
    const bool over_hosts = options.shards_over_hosts();
    packed("parameters", options.wire.parameters, over_hosts && options.gathers());
    packed("frozen parameters", options.wire.frozen, over_hosts && options.gathers());
    packed("gradients" + exact_text(setup), options.wire.gradients,
           options.reduce_packing() != WirePacking::kNone);
    if (options.keeps_errors())
        clauses.emplace_back(
            "the rounding errors of gradients are kept and added to the next gradients");
    if (options.keeps_gathered()) {
        Bytes kept;
        for (const int64_t numel : setup.plan.gather_buffer_numel)
            kept += Bytes{numel * options.parameter_bytes};
        clauses.push_back(fmt::format(
            "each host keeps the parameters that it gathers in a step, {}", to_text(kept)));
    } else if (options.wire.host_copy) {
        clauses.emplace_back("nothing is gathered from other hosts, so no host keeps a copy");
    }
    for (const WireKey& choice : kWireKeys)
        if (setup.config().zero.wire.*choice.said == config::WireChoice::kAuto && over_hosts &&
            options.wire.*choice.wire == WirePacking::kNone)
            clauses.push_back(
                fmt::format("{} auto: a run chooses after it has measured the link", choice.key));
    return clauses.empty() ? std::string() : "between hosts: " + join(clauses, "; ");
}

}  // namespace dslaunch::job
